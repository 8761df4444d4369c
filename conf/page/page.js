/*
 * The page: asks the JSON gateway of the replica that served it, and shows what comes.
 *
 * What the cluster is (nodes, services, sessions) is read once, at one revision, and then
 * watched from the next one on, as agents do it; what a lease has left, replicas and locks are
 * asked for while the page is visible. Everything that comes from keys and values goes into the
 * page as text, never as HTML. However many members there are, only the rows that can be seen
 * exist, and all changes of a frame are drawn at once.
 */
"use strict";

const GONE_FOR = 60e3, LOST_FOR = 3600e3; // so long who has left, or was lost, stays in the table
const HISTORY = 3600e3;      // so far back the page begins
const AT_ONCE = 10e3;        // losses that are not further apart are one
const FRESH = 3e3;           // what the core said longer ago says nothing of renewals
const SILENT = 5e3;          // a question that is not answered by then was not heard
const ALL_UP_TO = 1000;      // of so many members the list of leases says enough
const LEASES_PER_SECOND = 2000;
const PAGE = 2000;           // keys in one answer
const ABOVE = 6;             // rows that exist beside those that can be seen
const EVENTS = 500, EVENTS_SHOWN = 100, LOCKS = 64, ODD_AT_ONCE = 50, SERVICES_SHOWN = 200;
const STATES = ["lost", "jeopardy", "left", "leaving", "held"]; // by severity

const $ = (id) => document.getElementById(id);
const now = () => performance.now();

/* ---- elements ---- */

/* Characters that turn the text behind them around would have "left" read as something else. */
const plain = (text) => String(text).replace(/[\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

function make(tag, className, text) {
	const e = document.createElement(tag);
	if (className)
		e.className = className;
	if (text !== undefined)
		e.textContent = plain(text);
	return e;
}

function setText(e, text) {
	if (e.lastText !== text)
		e.textContent = plain(e.lastText = text);
}

function setClass(e, name) {
	if (e.className !== name)
		e.className = name;
}

/* ---- texts ---- */

function duration(ms, tenths) {
	const s = Math.max(0, ms) / 1000;
	if (s < 100)
		return tenths ? (Math.floor(s * 10) / 10).toFixed(1) + " s" : Math.floor(s) + " s";
	if (s < 6000)
		return Math.floor(s / 60) + " min";
	if (s < 36000)
		return Math.floor(s / 3600) + "h " + String(Math.floor(s / 60) % 60).padStart(2, "0") + "m";
	if (s < 360000)
		return Math.floor(s / 3600) + " h";
	return Math.floor(s / 86400) + " d";
}

function bytesText(n) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let i = 0;
	for (; n >= 999.5 && i + 1 < units.length; i++)
		n /= 1024;
	return (i > 0 && n < 9.95 ? n.toFixed(1) : Math.round(n)) + " " + units[i];
}

const numberText = (n) => Math.round(n).toLocaleString("en");
const clockText = (date) => date.toTimeString().slice(0, 8);
const plural = (n, one) => `${numberText(n)} ${one}${n === 1 ? "" : "s"}`;
const hex = (id) => BigInt.asUintN(64, BigInt(id)).toString(16);

/* node2 comes before node10; a comparison of strings is much faster than a collator. */
const naturalKey = (text) => text.toLowerCase().replace(/\d+/g, (d) => d.padStart(12, "0"));

/* ---- bytes ---- */

const utf8 = new TextDecoder(), toUtf8 = new TextEncoder();

function fromBase64(text) {
	const s = atob(text || "");
	for (let i = 0; i < s.length; i++)
		if (s.charCodeAt(i) > 127)
			return utf8.decode(Uint8Array.from(s, (c) => c.charCodeAt(0)));
	return s;
}

const toBase64 = (text) => btoa(String.fromCharCode(...toUtf8.encode(text)));
/* The end of the range of a prefix that ends in a slash. */
const behind = (prefix) => toBase64(prefix.slice(0, -1) + "0");

/* ---- calls ---- */

class Refused extends Error {
	constructor(code, text) {
		super(text);
		this.code = code; // gRPC's
	}
}
const NEEDS_LOGIN = (e) => e instanceof Refused && (e.code === 16 || (e.code === 3 && /user name is empty/.test(e.message)));
const IS_DENIED = (e) => e instanceof Refused && e.code === 7;
const CLOCKS_AGREE = 2e3; // the header Date has whole seconds
const UNHEARD = "the replica does not answer";

let token = ""; // in memory only
let ahead = 0; // of the replica's clock, in ms; ages are counted by that

async function post(path, body, signal) {
	const headers = {"Content-Type": "application/json"};
	if (token)
		headers.Authorization = token;
	const r = await fetch("/v3/" + path, {method: "POST", headers, body: typeof body === "string" ? body : JSON.stringify(body), signal, cache: "no-store", credentials: "omit"});
	const off = Date.now() - Date.parse(r.headers.get("Date"));
	ahead = Math.abs(off) > CLOCKS_AGREE ? off : 0;
	return r;
}

async function ask(path, body, patience = SILENT) {
	const end = new AbortController(), timer = setTimeout(() => end.abort(), patience);
	try {
		const r = await post(path, body || {}, end.signal), text = await r.text();
		let m;
		try {
			m = JSON.parse(text);
		} catch {
			m = {code: r.status === 404 ? 12 : 2, message: text.trim() || r.statusText};
		}
		if (!r.ok)
			throw new Refused(m.code, m.message || m.error || r.statusText);
		return m;
	} catch (e) {
		throw e instanceof Refused ? e : new Error(UNHEARD);
	} finally {
		clearTimeout(timer);
	}
}

/* ---- what is known ---- */

const nodes = new Map();    // by name
const services = new Map(); // by key, below services/
const sessions = new Map(); // by lease: the names of programs that are no members
const keysOf = new Map();   // by lease: how many keys below our prefix hang on it
const leaseOf = new Map();  // by key, the same
const replicas = new Map(); // by member id, in hex
const locks = new Map();    // by name
const events = [];
let nEvents = 0;
let cluster = "", clusters = [], clusterId = "", revision = 0, ever = false;
let leasesAt = 0, leasesEach = 1000;
let sortBy = "node", reverse = false, filter = [];
let ranked = [], shown = []; // all, in their order; and those of them that the search lets pass
const totals = {there: 0, degraded: 0, states: {}};
let own = {}, metrics = {}, selfId = "", leaderId = "";
const denied = {replicas: "", locks: ""};
let eventsFrom = "";

/* What is learned of later stands where it belongs. */
function happened(weight, text, at = new Date()) {
	let i = events.length;
	while (i > 0 && events[i - 1].at > at)
		i--;
	if (i < events.length)
		eventsDrawn = -1;
	events.splice(i, 0, {at, weight, text});
	if (events.length > EVENTS)
		events.shift();
	nEvents++;
	dirty.events = true;
}

/* ---- what is to be drawn ---- */

const dirty = {order: true, rows: true, events: true, replicas: true, locks: true, services: true, counts: true};
let arrangedAt = -Infinity, frame = 0;

function wake() {
	if (!frame && !document.hidden)
		frame = requestAnimationFrame(draw);
}

function touch(...what) {
	for (const w of what)
		dirty[w] = true;
	wake();
}

/* ---- members ---- */

const str = (v) => typeof v === "string" ? v : "";
const list = (v) => Array.isArray(v) ? v.filter((x) => typeof x === "string") : [];

/* As agents read them (member/json.h, member/tags.h). */
const RECORD_MAX = 65536, TAGS_COUNT_MAX = 128;

function tagsOf(v) {
	if (!v || typeof v !== "object" || Array.isArray(v))
		return {};
	return Object.fromEntries(Object.entries(v).slice(0, TAGS_COUNT_MAX).filter(([, x]) => typeof x === "string"));
}

function parse(text) {
	try {
		const v = JSON.parse(text);
		return v && typeof v === "object" ? v : {};
	} catch {
		return {};
	}
}

/* @value is base64, of which four letters are three bytes. A record that is larger counts as empty. */
const recordOf = (value) => value && value.length <= Math.ceil(RECORD_MAX / 3) * 4 ? parse(fromBase64(value)) : {};

function stateOf(n, t) {
	if (!n.there)
		return n.reason === "expired" ? "lost" : "left";
	if (n.leaving)
		return "leaving";
	/* As the holder counts: nothing was renewed for 7/8 of the TTL. */
	if (n.asked && t - n.asked < Math.max(FRESH, 2 * leasesEach) && n.left < n.ttl / 8)
		return "jeopardy";
	return "held";
}

const noteOf = (n) => !n.there ? n.reason : n.leaving || (n.degraded ? "degraded: " + n.degraded : "");

function nodeOf(name, kv, was) {
	const r = recordOf(kv.value), tags = tagsOf(r.tags);
	const n = {
		name, key: naturalKey(name), record: r, lease: kv.lease || "0", created: kv.create_revision, modified: kv.mod_revision,
		incarnation: str(r.incarnation), boot: str(r.boot_id), id: str(r.id), address: list(r.addresses)[0] || "", addresses: list(r.addresses),
		zone: tags.zone || "", tags: Object.entries(tags).map(([k, v]) => k + "=" + v).join(" "),
		degraded: str(r.degraded), leaving: str(r.leaving), ttl: Number(r.ttl_ms) || 0, since: Date.parse(str(r.since)) || 0,
		services: was ? was.services : new Set(), there: true, reason: "", goneAt: 0, asked: 0, left: 0, hay: "", servicesText: "", rank: 0,
	};
	n.addressKey = naturalKey(n.address);
	return n;
}

function putNode(name, kv) {
	const was = nodes.get(name), n = nodeOf(name, kv, was);
	if (was && was.there && (was.incarnation !== n.incarnation || was.created !== n.created)) {
		happened("", `${name} left: ${was.leaving || (was.id === n.id && was.boot !== n.boot ? "rebooted" : "replaced")}`);
		happened("", `${name} joined`);
	} else if (was && was.there) {
		if (n.leaving && n.leaving !== was.leaving)
			happened("warn", `${name} is leaving: ${n.leaving}`);
		else if (n.degraded && n.degraded !== was.degraded)
			happened("warn", `${name} is degraded: ${n.degraded}`);
		else if (!n.degraded && was.degraded)
			happened("", `${name} is well again`);
		else if (n.tags !== was.tags)
			happened("", `${name} has other tags: ${n.tags}`);
		if (was.lease === n.lease) {
			n.asked = was.asked;
			n.left = was.left;
		}
	} else if (ever) {
		happened("", `${name} joined`);
	}
	nodes.set(name, n);
	sayServices(n);
}

function nodeGone(name) {
	const n = nodes.get(name);
	if (!n || !n.there)
		return;
	n.there = false;
	n.reason = n.leaving || "expired";
	n.goneAt = now();
	n.hay = "";
	happened(n.reason === "expired" ? "bad" : "", `${name} left: ${n.reason}`);
}

/* A change of before the page was opened: as of now the members are known. */
function pastEvent(name, e, at) {
	const was = e.prev_kv ? recordOf(e.prev_kv.value) : null, is = recordOf(e.kv.value);
	if (e.type === "DELETE") {
		const reason = str(was?.leaving) || "expired", n = nodes.get(name);
		happened(reason === "expired" ? "bad" : "", `${name} left: ${reason}`, at);
		if (!n?.there)
			nodes.set(name, Object.assign(nodeOf(name, e.prev_kv || e.kv), {there: false, reason, goneAt: now() - (Date.now() - at)}));
	} else if (!was || was.incarnation !== is.incarnation) {
		happened("", `${name} joined${was ? " anew" : ""}`, at);
	} else if (str(is.leaving) && is.leaving !== was.leaving) {
		happened("warn", `${name} is leaving: ${is.leaving}`, at);
	} else if (str(is.degraded) && is.degraded !== was.degraded) {
		happened("warn", `${name} is degraded: ${is.degraded}`, at);
	} else if (!str(is.degraded) && str(was.degraded)) {
		happened("", `${name} is well again`, at);
	}
}

function sayServices(n) {
	n.servicesText = [...n.services].sort().join(", ");
	n.hay = "";
}

/* "web/db1" or "web/db1/2", of services/. */
function serviceName(rest) {
	const [service, node, instance, more] = rest.split("/");
	return service && node && more === undefined ? {service, node, name: instance ? service + "/" + instance : service} : null;
}

function putService(rest, kv) {
	const s = serviceName(rest), n = s && nodes.get(s.node);
	if (!s)
		return;
	if (ever && !services.has(rest))
		happened("", `service ${s.name} on ${s.node} is available`);
	services.set(rest, {...s, record: recordOf(kv.value)});
	if (n) {
		n.services.add(s.name);
		sayServices(n);
	}
	dirty.services = true;
}

function serviceGone(rest) {
	const s = services.get(rest), n = s && nodes.get(s.node);
	if (!s)
		return;
	services.delete(rest);
	if (n && n.there)
		happened("", `service ${s.name} on ${s.node} is gone`);
	if (n) {
		n.services.delete(s.name);
		sayServices(n);
	}
	dirty.services = true;
}

function count(key, lease) {
	const was = leaseOf.get(key);
	if (was)
		keysOf.set(was, (keysOf.get(was) || 1) - 1);
	if (was && keysOf.get(was) <= 0)
		keysOf.delete(was);
	leaseOf.delete(key);
	if (lease && lease !== "0") {
		leaseOf.set(key, lease);
		keysOf.set(lease, (keysOf.get(lease) || 0) + 1);
	}
}

function feedPut(key, rest, kv) {
	count(key, kv.lease);
	if (rest.startsWith("nodes/"))
		putNode(rest.slice(6), kv);
	else if (rest.startsWith("services/"))
		putService(rest.slice(9), kv);
	else if (rest.startsWith("sessions/") && kv.lease)
		sessions.set(kv.lease, rest.slice(9));
}

function feedDelete(key, rest) {
	const lease = leaseOf.get(key);
	count(key, "");
	if (rest.startsWith("nodes/"))
		nodeGone(rest.slice(6));
	else if (rest.startsWith("services/"))
		serviceGone(rest.slice(9));
	else if (rest.startsWith("sessions/") && lease)
		sessions.delete(lease);
}

const prefix = () => `/tenure/${cluster}/`;

/* Of one revision nodes come first: what hung on the lease of one that left, left with it. */
function feedEvents(all) {
	const from = prefix(), rank = (k) => k.startsWith("nodes/") ? 0 : 1, seen = [];
	for (const e of all) {
		const key = fromBase64(e.kv.key);
		if (key.startsWith(from) && Number(e.kv.mod_revision) > revision)
			seen.push({key, rest: key.slice(from.length), put: e.type !== "DELETE", kv: e.kv, at: Number(e.kv.mod_revision)});
	}
	seen.sort((a, b) => a.at - b.at || rank(a.rest) - rank(b.rest));
	for (const e of seen)
		if (e.put)
			feedPut(e.key, e.rest, e.kv);
		else
			feedDelete(e.key, e.rest);
	if (seen.length > 0)
		revision = seen[seen.length - 1].at;
}

/* Everything, as of one revision; what is known and not there has gone meanwhile. */
function resync(kvs) {
	const from = prefix(), there = new Set();
	const all = kvs.map((kv) => ({key: fromBase64(kv.key), kv})).sort((a, b) => (a.key.startsWith(from + "nodes/") ? 0 : 1) - (b.key.startsWith(from + "nodes/") ? 0 : 1));
	for (const {key} of all)
		there.add(key);
	for (const key of [...leaseOf.keys()])
		if (!there.has(key))
			count(key, "");
	for (const n of nodes.values())
		if (n.there && !there.has(from + "nodes/" + n.name))
			nodeGone(n.name);
	for (const rest of [...services.keys()])
		if (!there.has(from + "services/" + rest))
			serviceGone(rest);
	sessions.clear();
	for (const {key, kv} of all)
		feedPut(key, key.slice(from.length), kv);
}

function forgetAll() {
	for (const m of [nodes, services, sessions, keysOf, leaseOf, locks])
		m.clear();
	revision = 0;
	ever = false;
	touch("order", "rows", "services", "locks", "counts");
}

/* ---- following ---- */

let following = null; // the watch's AbortController
let live = false, wasLive = false, lostAt = null, retries = 0, run = 0;

function setLive(on, why) {
	if (on && wasLive && !live)
		happened("", "the cluster is followed again");
	if (!on && live)
		happened("bad", "the cluster is not followed any more: " + why);
	wasLive = wasLive || on;
	if (!on && !lostAt)
		lostAt = new Date();
	live = on;
	if (on)
		lostAt = null;
	touch("counts", "rows");
	const e = $("live");
	setClass(e, "live " + (on ? "on" : ever || why ? "off" : ""));
	setText(e, on ? "Live" : ever || why ? "Not connected" : "Connecting");
	$("trouble").hidden = on || !why;
	if (on || !why)
		return;
	const p = make("p"), others = [...replicas.values()].filter((r) => r.id !== selfId && r.url);
	p.append(`${ever ? "Not followed since" : "No answer since"} ${clockText(lostAt)}: ${why}. Retrying.`);
	if (others.length > 0)
		p.append(" Pages of the other replicas:", ...others.flatMap((r) => [" ", linkTo(r.url, r.name)]));
	if (p.textContent !== $("trouble").textContent) // an alert is read out each time that it changes
		$("trouble").replaceChildren(...p.childNodes);
}

async function findClusters() {
	const found = [];
	for (let from = "/tenure/"; found.length < 100;) {
		const r = await ask("kv/range", {key: toBase64(from), range_end: behind("/tenure/"), limit: 1, keys_only: true});
		if (!r.kvs || r.kvs.length === 0)
			break;
		const name = fromBase64(r.kvs[0].key).split("/")[2] || "";
		if (name)
			found.push(name);
		from = `/tenure/${name}0`;
	}
	return found;
}

function showClusters() {
	const box = $("cluster");
	if (document.activeElement === box && [...box.options].map((o) => o.value).join("/") === clusters.join("/"))
		return;
	box.replaceChildren(...clusters.map((name) => {
		const o = make("option", "", name);
		o.value = name;
		o.selected = name === cluster;
		return o;
	}));
	document.title = cluster ? cluster + " – Tenure" : "Tenure";
}

async function chooseCluster() {
	const wanted = cluster || new URLSearchParams(location.search).get("cluster") || "";
	try {
		clusters = await findClusters();
	} catch (e) {
		if (!IS_DENIED(e))
			throw e;
		clusters = []; // not all of /tenure/ may be read; one cluster may be
	}
	cluster = wanted || clusters.find((c) => c === "default") || clusters[0] || "default";
	if (!clusters.includes(cluster))
		clusters.unshift(cluster);
	showClusters();
}

async function readAll(me) {
	const kvs = [], end = behind(prefix());
	let key = toBase64(prefix()), at = 0;
	for (;;) {
		const r = await ask("kv/range", {key, range_end: end, limit: PAGE, revision: at}, 15e3);
		if (me !== run)
			return;
		if (clusterId && clusterId !== r.header.cluster_id)
			forgetAll(); // another core answers there now
		clusterId = r.header.cluster_id;
		at = at || Number(r.header.revision);
		for (const kv of r.kvs || [])
			kvs.push(kv);
		if (!r.more)
			break;
		key = btoa(atob(r.kvs[r.kvs.length - 1].key) + "\0"); // byte by byte: it need not be UTF-8
	}
	resync(kvs);
	revision = at;
}

/* Whether a core has another history is known only once the replica has caught up, as it has when it answers a
 * linearizable read: one that has just started has applied nothing yet. */
async function checkHistory(me) {
	const r = await ask("kv/range", {key: toBase64(prefix()), range_end: behind(prefix()), count_only: true}, 15e3);
	if (me === run && (r.header.cluster_id !== clusterId || Number(r.header.revision) < revision))
		forgetAll();
}

/* One by one, until the stream ends. */
async function* messagesOf(response) {
	const reader = response.body.getReader(), decoder = new TextDecoder();
	for (let rest = "";;) {
		const {done, value} = await reader.read();
		if (done)
			return;
		const lines = (rest + decoder.decode(value, {stream: true})).split("\n");
		rest = lines.pop();
		for (const line of lines)
			if (line)
				yield JSON.parse(line);
	}
}

/* What happened to members in the last hour, up to the revision @upto: as far as the core has the history, and this
 * replica remembers when it was. The answer to the question for progress comes behind all of it. */
async function readHistory(me, upto) {
	const opened = Date.now(), all = (await ask("maintenance/status", {revision_times: true})).revision_times || [];
	const times = all.map((t) => ({revision: Number(t.revision || 0), ago: Number(t.ago_ms || 0)}));
	const first = times[Math.max(0, times.findLastIndex((t) => t.ago >= HISTORY))], key = prefix() + "nodes/";
	let from = first ? first.revision + 1 : Infinity, i = 0;
	if (first)
		eventsFrom = clockText(new Date(opened - Math.min(first.ago, HISTORY)));
	for (let tries = 0; from <= upto && tries < 3 && me === run; tries++) {
		const end = new AbortController(), timer = setTimeout(() => end.abort(), 10e3);
		const create = {key: toBase64(key), range_end: behind(key), start_revision: String(from), prev_kv: true};
		from = Infinity;
		try {
			const r = await post("watch", JSON.stringify({create_request: create}) + JSON.stringify({progress_request: {}}), end.signal);
			for await (const {result} of messagesOf(r)) {
				if (result?.canceled)
					from = Number(result.compact_revision || Infinity) + 1;
				if (me !== run || !result || result.canceled || (!result.created && !result.events))
					break;
				for (const e of result.events || []) {
					const at = Number(e.kv.mod_revision);
					while (i < times.length && times[i].revision < at)
						i++;
					if (at <= upto)
						pastEvent(fromBase64(e.kv.key).slice(key.length), e, new Date(opened - (times[i]?.ago || 0)));
				}
			}
		} finally {
			clearTimeout(timer);
			end.abort();
		}
	}
	touch("order", "rows", "events", "counts");
}

/* Returns when it ends; a history that has been compacted, or is another one, is read anew. */
async function watch(me) {
	const end = new AbortController();
	following = end;
	const timer = setTimeout(() => end.abort(), 10e3);
	const r = await post("watch", {create_request: {key: toBase64(prefix()), range_end: behind(prefix()), start_revision: String(revision + 1)}}, end.signal);
	if (!r.ok) {
		const m = parse(await r.text());
		throw new Refused(m.code, str(m.message) || str(m.error) || r.statusText);
	}
	for await (const m of messagesOf(r)) {
		if (me !== run)
			return end.abort();
		clearTimeout(timer);
		take(m);
	}
	throw new Error("the watch has ended");
}

function take(m) {
	const r = m.result, e = m.error;
	if (e)
		throw new Refused(e.grpc_code ?? e.code, e.message || "the watch was refused");
	if (r.canceled) {
		revision = 0;
		const why = r.cancel_reason || "";
		throw /permission denied/.test(why) ? new Refused(7, why) : /auth token|user name is empty/.test(why) ? new Refused(16, why)
			: new Error(Number(r.compact_revision) > 0 ? "the history has been compacted" : why || "the watch was canceled");
	}
	if (r.header && r.header.cluster_id !== clusterId) {
		forgetAll();
		throw new Error("the core has another history");
	}
	if (r.created) {
		if (!ever)
			readHistory(run, revision).catch(() => 0); // the page does without
		ever = true;
		retries = 0;
		setLive(true, "");
	}
	if (r.events && r.events.length > 0) {
		feedEvents(r.events);
		touch("order", "rows", "counts");
	}
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function follow() {
	for (const me = ++run; me === run;) {
		try {
			if (revision > 0)
				await checkHistory(me);
			if (me !== run)
				return;
			if (revision === 0) {
				await chooseCluster();
				if (me !== run)
					return;
				await readAll(me);
				if (me !== run)
					return;
				touch("order", "rows", "services", "counts");
			}
			await watch(me);
		} catch (e) {
			if (following)
				following.abort();
			following = null;
			if (me !== run)
				return;
			if (NEEDS_LOGIN(e))
				return needLogin(token ? e.message : "");
			if (IS_DENIED(e))
				revision = 0;
			setLive(false, IS_DENIED(e) ? `permission denied: you may not read ${prefix()}` : e instanceof Refused ? e.message : e instanceof TypeError || e.name === "AbortError" ? UNHEARD : e.message);
			await pause(Math.min(5000, 250 * 2 ** Math.min(retries++, 5)));
		}
	}
}

function begin() {
	if (following)
		following.abort();
	$("login").hidden = true;
	follow();
}

/* ---- logging in ---- */

function needLogin(why) {
	if (following)
		following.abort();
	token = "";
	run++;
	forgetAll();
	lostAt = null;
	live = wasLive = false;
	setClass($("live"), "live off");
	setText($("live"), "Signed out");
	$("trouble").hidden = true;
	$("logout").hidden = true;
	$("login").hidden = false;
	setText($("why"), why);
	$("user").focus();
}

$("login").addEventListener("submit", async (ev) => {
	ev.preventDefault();
	const name = $("user").value, password = $("password").value;
	$("password").value = "";
	try {
		token = (await ask("auth/authenticate", {name, password}, 15e3)).token || "";
		$("logout").hidden = false;
		setText($("why"), "");
		begin();
		$("search").focus();
	} catch (e) {
		setText($("why"), e.message);
		$("password").focus();
	}
});
$("logout").addEventListener("click", () => needLogin(""));

/* ---- what is asked for again and again ---- */

const busy = new Set();

/* One question of a kind at a time. */
async function once(kind, fn) {
	if (busy.has(kind))
		return;
	const me = run;
	busy.add(kind);
	try {
		await fn();
	} catch (e) {
		if (NEEDS_LOGIN(e) && token && me === run)
			needLogin(e.message);
		else if (kind === "status" && !(e instanceof Refused)) {
			own = {};
			if (live && following) // it goes on from where it was once that answers again
				following.abort();
		} else if (e instanceof Refused && kind in denied) {
			denied[kind] = e.message;
		}
		touch("replicas", "locks");
	} finally {
		busy.delete(kind);
	}
}

function leaseSaid(n, left, granted, at) {
	n.asked = at;
	n.left = left;
	if (granted > 0 && n.ttl === 0)
		n.ttl = granted;
}

async function askLeases() {
	const r = await ask("lease/leases", {}, 15e3), at = now(), of = new Map(), odd = [];
	for (const n of nodes.values())
		if (n.there)
			of.set(n.lease, n);
	for (const l of r.leases || []) {
		const n = of.get(l.ID);
		if (n && l.granted_ttl_ms)
			leaseSaid(n, Number(l.ttl_ms || 0), Number(l.granted_ttl_ms), at);
		if (Number(l.keys || 0) > (keysOf.get(l.ID) || 0))
			odd.push(l);
	}
	denied.locks = "";
	touch("rows", "counts");
	await askLocks(odd);
}

/* What can be seen, where there are too many to ask for all. */
async function askVisible() {
	const rows = pool.filter((r) => r.node && r.node.there).map((r) => r.node);
	const worker = async () => {
		for (let n; (n = rows.pop());) {
			const r = await ask("lease/timetolive", {ID: n.lease});
			if (r.granted_ttl_ms)
				leaseSaid(n, Number(r.ttl_ms || 0), Number(r.granted_ttl_ms), now());
		}
	};
	await Promise.all([worker(), worker()]);
	touch("rows");
}

function whoHas(lease) {
	for (const n of nodes.values())
		if (n.there && n.lease === lease)
			return n.name;
	return sessions.get(lease) || "lease " + hex(lease).padStart(16, "0");
}

let oddFrom = 0, looked = new Map(); // how many keys a lease had when it was asked for them

/* A key that ends with the number of its lease is a request for a lock, or an election. Leases
 * are asked for their keys where these are more than those that we know; of many, some at a time,
 * first those that have more or fewer than before. */
async function askLocks(odd) {
	const seen = new Set(locks.keys()), hasChanged = (l) => looked.get(l.ID) !== l.keys;
	const changed = odd.filter(hasChanged), same = odd.filter((l) => !hasChanged(l));
	const some = changed.slice(0, ODD_AT_ONCE), others = same.slice(oddFrom, oddFrom + ODD_AT_ONCE - some.length);
	oddFrom = oddFrom + others.length < same.length ? oddFrom + others.length : 0;
	looked = new Map(same.map((l) => [l.ID, l.keys]));
	for (const l of some.concat(others)) {
		const r = await ask("lease/timetolive", {ID: l.ID, keys: true}), end = "/" + hex(l.ID);
		looked.set(l.ID, l.keys);
		for (const k of r.keys || []) {
			const key = fromBase64(k);
			if (key.endsWith(end) && key.length > end.length && seen.size < LOCKS)
				seen.add(key.slice(0, -end.length));
		}
	}
	for (const name of seen)
		await askLock(name);
	touch("locks");
}

/* Who asked first has it. */
async function askLock(name) {
	const r = await ask("kv/range", {key: toBase64(name + "/"), range_end: behind(name + "/"), sort_target: "CREATE", sort_order: "ASCEND", keys_only: true, limit: 100});
	const line = (r.kvs || []).filter((kv) => kv.lease && kv.lease !== "0"), was = locks.get(name);
	if (line.length === 0) {
		locks.delete(name);
		if (was)
			happened("", `lock ${name} is free, ${was.holder} had it`);
		return;
	}
	const l = {name, holder: whoHas(line[0].lease), token: line[0].create_revision, waiting: line.slice(1).map((kv) => whoHas(kv.lease)), n: Number(r.count) - 1};
	if (was && was.token !== l.token)
		happened("", `lock ${name}: ${l.holder} has it, ${was.holder} had it`);
	locks.set(name, l);
}

async function askStatus() {
	const at = now(), r = await ask("maintenance/status", {});
	const term = r.raftTerm, leader = r.leader && r.leader !== "0" ? hex(r.leader) : "";
	own = {trip: now() - at, status: r};
	selfId = hex(r.header.member_id || "0");
	if (leader !== leaderId) {
		if (leaderId && leader)
			happened("warn", `replica ${replicaName(leader)} leads now (term ${term})`);
		else if (leaderId)
			happened("bad", "the core has no leader");
		leaderId = leader;
		touch("counts");
	}
	touch("replicas");
}

async function askMembers() {
	const r = await ask("cluster/member/list", {linearizable: false}), seen = new Set();
	for (const m of r.members || []) {
		const id = hex(m.ID || "0");
		seen.add(id);
		replicas.set(id, {id, name: m.name || id, url: (m.clientURLs || [])[0] || "", learner: !!m.isLearner, was: replicas.get(id)?.was});
	}
	for (const id of [...replicas.keys()])
		if (!seen.has(id))
			replicas.delete(id);
	denied.replicas = "";
	touch("replicas");
}

const replicaName = (id) => replicas.get(id)?.name || id;

/* What other replicas are, as this one knows: links of all, and how far they are if it leads. */
async function askMetrics() {
	const end = new AbortController(), timer = setTimeout(() => end.abort(), SILENT);
	try {
		const r = await fetch("/metrics", {signal: end.signal, cache: "no-store", credentials: "omit"});
		const text = r.ok ? await r.text() : "", m = {lag: {}, linked: {}};
		for (const line of text.split("\n")) {
			const p = /^(tenure_lease_time_seconds|tenure_lease_outage_seconds_total|tenure_member_lag_entries|etcd_network_active_peers|tenure_lease_next_deadline_seconds)(?:\{(.*)\})? ([-+.0-9einfEINF]+)/.exec(line);
			if (!p)
				continue;
			const to = /(?:To|Remote)="([0-9a-f]+)"/.exec(p[2] || "");
			if (p[1] === "tenure_member_lag_entries" && to)
				m.lag[to[1]] = Number(p[3]);
			else if (p[1] === "etcd_network_active_peers" && to)
				m.linked[to[1]] = Number(p[3]) > 0;
			else
				m[p[1]] = Number(p[3]);
		}
		for (const [id, up] of Object.entries(m.linked)) {
			if (metrics.linked && metrics.linked[id] === !up)
				happened(up ? "" : "warn", `replica ${replicaName(id)} ${up ? "answers again" : "does not answer"}`);
		}
		metrics = m;
		touch("replicas");
	} catch {
		metrics = {};
	} finally {
		clearTimeout(timer);
	}
}

function askAll() {
	const t = now();
	if (document.hidden)
		return;
	once("status", askStatus);
	if (tick % 2 === 0)
		once("metrics", askMetrics);
	if (tick % 5 === 0 || replicas.size === 0)
		once("replicas", askMembers);
	if (live) {
		leasesEach = Math.max(1000, nodes.size * 1000 / LEASES_PER_SECOND);
		if (t - leasesAt >= leasesEach - 100) {
			leasesAt = t;
			once("locks", askLeases);
		}
		if (nodes.size > ALL_UP_TO)
			once("visible", askVisible);
	}
	tick++;
}
let tick = 0;

/* ---- which members are shown, in which order ---- */

function passes(n, t) {
	if (filter.length === 0)
		return true;
	if (!n.hay)
		n.hay = [n.name, n.address, n.tags, noteOf(n), n.servicesText].join("\n").toLowerCase();
	const state = stateOf(n, t);
	for (const {word, not} of filter)
		if ((n.hay.includes(word) || state.startsWith(word)) === not)
			return false;
	return true;
}

const cmp = (a, b) => a < b ? -1 : a > b ? 1 : 0;
const ORDERS = {
	node: () => 0,
	state: (a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || !a.degraded - !b.degraded,
	left: (a, b) => (a.there && a.asked ? a.left : Infinity) - (b.there && b.asked ? b.left : Infinity) || 0,
	age: (a, b) => b.since - a.since,
	address: (a, b) => !a.address - !b.address || cmp(a.addressKey, b.addressKey),
	zone: (a, b) => cmp(a.zone, b.zone),
	services: (a, b) => b.services.size - a.services.size,
	notes: (a, b) => !noteOf(a) - !noteOf(b) || cmp(noteOf(a), noteOf(b)),
};

function arrange(t) {
	const order = ORDERS[sortBy], sign = reverse ? -1 : 1, all = [];
	totals.there = totals.degraded = 0;
	totals.states = {};
	/* In the order of the last time, and new ones behind them: to sort that again costs little. */
	for (const was of ranked) {
		const n = nodes.get(was.name);
		if (n && n.rank !== t) {
			n.rank = t;
			all.push(n);
		}
	}
	for (const n of nodes.values())
		if (n.rank !== t)
			all.push(n);
	shown = [];
	ranked = all.filter((n) => n.there || t - n.goneAt <= (n.reason === "expired" ? LOST_FOR : GONE_FOR) || !nodes.delete(n.name));
	for (const n of ranked) {
		n.state = stateOf(n, t);
		totals.there += n.there;
		totals.degraded += n.there && n.degraded !== "";
		totals.states[n.state] = (totals.states[n.state] || 0) + 1;
	}
	ranked.sort((a, b) => sign * (order(a, b) || cmp(a.key, b.key) || cmp(a.name, b.name)));
	shown = filter.length > 0 ? ranked.filter((n) => passes(n, t)) : ranked;
	if (activeName) {
		const i = shown.findIndex((n) => n.name === activeName);
		active = i >= 0 ? i : Math.min(active, Math.max(0, shown.length - 1));
	}
	arrangedAt = t;
}

/* ---- the table ---- */

const COLUMNS = [["node", "Node"], ["state", "State"], ["left", "Left / TTL", "number"], ["age", "Age", "number"], ["address", "Address"], ["zone", "Zone"], ["services", "Services"], ["notes", "Notes"]];
const listBox = $("list"), pool = [];
let rowHeight = 40, active = 0, activeName = "", rowsInList = -1;

for (const [i, [id, name, number]] of COLUMNS.entries()) {
	const h = make("div", `c-${id === "notes" ? "note" : id} ${number || ""}`), b = make("button", "", name);
	h.setAttribute("role", "columnheader");
	h.setAttribute("aria-colindex", i + 1);
	h.dataset.sort = id;
	b.type = "button";
	b.addEventListener("click", () => {
		reverse = sortBy === id && !reverse;
		sortBy = id;
		sayOrder();
		touch("order", "rows");
		arrangedAt = -Infinity;
	});
	h.append(b);
	$("columns").append(h);
}
$("table").setAttribute("aria-colcount", COLUMNS.length);
$("columns").setAttribute("aria-rowindex", 1);

function sayOrder() {
	for (const h of $("columns").children)
		if (h.dataset.sort === sortBy)
			h.setAttribute("aria-sort", reverse ? "descending" : "ascending");
		else
			h.removeAttribute("aria-sort");
}
sayOrder();

function makeRow() {
	const e = make("div", "row"), r = {e, index: -1, node: null};
	e.setAttribute("role", "row");
	e.tabIndex = -1;
	const cell = (name, i) => {
		const c = make("div", name);
		c.setAttribute("role", "gridcell");
		c.setAttribute("aria-colindex", i);
		e.append(c);
		return c;
	};
	r.name = cell("name-cell c-node", 1);
	r.state = make("span", "state");
	cell("c-state", 2).append(r.state);
	const left = cell("c-left left", 3), track = make("div", "track");
	r.left = make("span");
	r.ttl = make("span", "ttl");
	r.bar = make("i");
	track.append(r.bar);
	const texts = make("div", "texts");
	texts.append(r.left, r.ttl);
	left.append(texts, track);
	r.track = track;
	r.age = cell("c-age number", 4);
	r.address = cell("c-address", 5);
	r.zone = cell("c-zone", 6);
	r.services = cell("c-services", 7);
	r.note = cell("c-note", 8);
	e.addEventListener("click", () => {
		setActive(r.index, false);
		showDetail(r.node);
	});
	e.addEventListener("focus", () => setActive(r.index, false));
	listBox.append(e);
	return r;
}

function fillRow(r, i, n, t, wall) {
	const state = n.state = stateOf(n, t), note = noteOf(n);
	if (r.index !== i) {
		r.index = i;
		r.e.style.transform = `translateY(${i * rowHeight}px)`;
		r.e.setAttribute("aria-rowindex", i + 2);
	}
	r.node = n;
	r.e.tabIndex = i === active ? 0 : -1;
	setClass(r.e, "row " + (n.there ? state === "jeopardy" ? "jeopardy" : "" : "gone"));
	setText(r.name, n.name);
	const sick = state === "held" && n.degraded;
	setClass(r.state, "state s-" + (sick ? "degraded" : state));
	setText(r.state, sick ? "degraded" : state);
	fillLeft(r, n);
	setText(r.age, !n.there ? duration(t - n.goneAt) + " ago" : n.since ? duration(wall - n.since) : "");
	setText(r.address, n.address);
	setText(r.zone, n.zone);
	setText(r.services, n.there ? n.servicesText : "");
	setText(r.note, [live || !lostAt ? "" : "as of " + clockText(lostAt), note || n.tags].filter(Boolean).join("; "));
	setClass(r.note, "c-note " + (!note ? "w-dim" : state === "lost" || state === "jeopardy" ? "w-bad" : n.there ? "w-warn" : "w-dim"));
}

/* What the core said last: the lease may have been renewed since then. */
function fillLeft(r, n) {
	const known = live && n.there && n.asked > 0, left = known ? n.left : 0;
	setText(r.left, known ? duration(left, true) : "");
	setText(r.ttl, known ? ` / ${n.ttl >= 100000 ? duration(n.ttl) : n.ttl / 1000 + " s"}` : "");
	const part = known && n.ttl > 0 ? Math.min(1, left / n.ttl).toFixed(3) : "0";
	if (r.part !== part)
		r.bar.style.transform = `scaleX(${r.part = part})`;
	if (r.track.hidden !== !known)
		r.track.hidden = !known;
}

function drawRows(t) {
	const n = shown.length, wall = Date.now() - ahead;
	if (rowsInList !== n) {
		rowsInList = n;
		listBox.style.height = n * rowHeight + "px";
		$("table").setAttribute("aria-rowcount", n + 1);
	}
	const top = listBox.getBoundingClientRect().top, room = window.innerHeight;
	const first = Math.max(0, Math.floor(-top / rowHeight) - ABOVE), last = Math.min(n, Math.ceil((room - top) / rowHeight) + ABOVE);
	const count = listBox.offsetParent ? Math.max(0, last - first) : 0;
	while (pool.length < count)
		pool.push(makeRow());
	while (pool.length > count && pool.length > 0 && count === 0)
		pool.pop().e.remove();
	if (count > 0 && (active < first || active >= last)) { // where one looks, there Tab leads
		const held = listBox.contains(document.activeElement);
		active = Math.min(last - 1, Math.max(first, active));
		activeName = held ? shown[active].name : "";
	}
	const used = new Set();
	for (let i = first; i < first + count; i++) {
		const r = pool[i % pool.length];
		used.add(r);
		r.e.hidden = false;
		fillRow(r, i, shown[i], t, wall);
	}
	for (const r of pool)
		if (!used.has(r) && !r.e.hidden) {
			r.e.hidden = true;
			r.node = null;
			r.index = -1;
		}
	if (wantFocus >= 0) {
		const r = pool.find((x) => x.index === wantFocus && !x.e.hidden);
		wantFocus = -1;
		if (r)
			r.e.focus({preventScroll: true});
	}
	const s = filter.length > 0 ? `${numberText(n)} of ${plural(nodes.size, "member")}` : n > 0 ? plural(n, "member") : "";
	setText($("searched"), s);
	$("empty").hidden = n > 0 || !ever;
	if (n === 0 && ever)
		setText($("empty"), filter.length > 0 ? "No member has all of these words." : `No member has joined the cluster ${cluster} yet.`);
}

let wantFocus = -1;

function setActive(i, focus) {
	active = Math.max(0, Math.min(i, shown.length - 1));
	activeName = shown[active] ? shown[active].name : "";
	if (focus && shown.length > 0) {
		const box = listBox.getBoundingClientRect(), at = box.top + active * rowHeight;
		const above = $("columns").getBoundingClientRect().height + (getComputedStyle($("views")).display === "none" ? 0 : $("views").offsetHeight) + 4;
		if (at < above)
			window.scrollBy(0, at - above);
		else if (at + rowHeight > window.innerHeight)
			window.scrollBy(0, at + rowHeight - window.innerHeight + 4);
		wantFocus = active;
	}
	touch("rows");
}

listBox.addEventListener("keydown", (ev) => {
	const page = Math.max(1, Math.floor(window.innerHeight / rowHeight) - 3);
	const to = {ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: shown.length - 1}[ev.key];
	if (to !== undefined)
		setActive(to, true);
	else if ((ev.key === "Enter" || ev.key === " ") && shown[active])
		showDetail(shown[active]);
	else
		return;
	ev.preventDefault();
});
$("list").addEventListener("focus", () => setActive(active, true));

/* ---- all of one ---- */

let detailOf = "";

function showDetail(n) {
	if (!n)
		return;
	detailOf = n.name;
	fillDetail();
	if (!$("detail").open)
		$("detail").showModal();
}

function fillDetail() {
	const n = nodes.get(detailOf), box = $("detail-list");
	setText($("detail-name"), detailOf);
	if (!n) {
		if (box.dataset.of !== "")
			box.replaceChildren(make("dt", "", "State"), make("dd", "", "has gone"));
		box.dataset.of = "";
		return;
	}
	const t = now(), r = n.record, on = [...services.values()].filter((s) => s.node === n.name);
	const rows = [
		["State", stateOf(n, t) + (n.degraded && n.there ? ", degraded" : "")], ["Why", n.there ? n.leaving || n.degraded : n.reason],
		["Left", live && n.there && n.asked ? `${duration(n.left, true)} of ${n.ttl / 1000} s` : ""],
		["Lease", n.lease !== "0" ? hex(n.lease).padStart(16, "0") : ""], ["Since", str(r.since)], ["Addresses", n.addresses.join("\n")],
		["Tags", n.tags.replaceAll(" ", "\n")], ["Services", on.map((s) => s.name + (s.record.port ? " port " + Number(s.record.port) : "") + (str(s.record.state) ? ", " + s.record.state : "")).join("\n")],
		["Node id", n.id], ["Boot id", n.boot], ["Incarnation", n.incarnation], ["Agent", str(r.version)], ["System", str(r.os_release)],
		["Key", prefix() + "nodes/" + n.name], ["Revision", `${n.modified}, created at ${n.created}`],
	].filter(([, v]) => v);
	const of = n.name + rows.map(([k]) => k).join();
	if (box.dataset.of !== of) {
		box.replaceChildren(...rows.flatMap(([k]) => [make("dt", "", k), make("dd")]));
		box.dataset.of = of;
	}
	rows.forEach(([, v], i) => setText(box.children[2 * i + 1], v));
}

$("detail-close").addEventListener("click", () => $("detail").close());
$("detail").addEventListener("click", (ev) => ev.target === $("detail") && $("detail").close());
$("detail").addEventListener("close", () => {
	detailOf = "";
});

/* ---- the rest ---- */

/* undefined: this one, which has links to the others, has not said so. */
function answers(r) {
	return r.id === selfId ? !!own.status : metrics.linked ? metrics.linked[r.id] : undefined;
}

function silentReplicas() {
	const voters = [...replicas.values()].filter((r) => !r.learner);
	const n = voters.filter((r) => r.id !== selfId && answers(r) === false).length;
	return n > 0 ? `${n} of ${voters.length} replicas ${n === 1 ? "does" : "do"} not answer` : "";
}

/* What one has to know first. */
function verdict() {
	const gone = [...nodes.values()].filter((n) => !n.there && n.reason === "expired").map((n) => n.goneAt), n = totals.there, held = totals.states.held || 0, parts = [];
	if (own.status && !leaderId)
		parts.push("no majority: this replica knows no leader");
	if (!live && lostAt)
		parts.push("not followed since " + clockText(lostAt));
	if (gone.length > 0) {
		const first = Math.min(...gone), last = Math.max(...gone), once = last - first <= AT_ONCE;
		parts.push(`${numberText(gone.length)} of ${numberText(n + gone.length)} hosts lost${once ? "" : ", the last one"} at ${clockText(new Date(Date.now() - now() + (once ? first : last)))}`);
	}
	const silent = live && leaderId ? silentReplicas() : "";
	if (parts.length > 0)
		return ["bad", parts.concat(silent || []).join("; ")];
	if (n === 0)
		return [silent ? "warn" : "", "no host has joined" + (silent && "; " + silent)];
	const others = STATES.filter((s) => s !== "held" && s !== "lost" && s !== "left" && totals.states[s]).map((s) => `, ${numberText(totals.states[s])} ${s}`).join("");
	const sick = totals.degraded ? `, ${numberText(totals.degraded)} degraded` : "";
	return [others ? "bad" : sick || silent ? "warn" : "", (held < n ? `${numberText(held)} of ${numberText(n)} hosts hold their places` : n === 1 ? "the only host holds its place" : `all ${numberText(n)} hosts hold their places`) + others + sick + (silent && "; " + silent)];
}

function drawCounts() {
	const [weight, text] = ever ? verdict() : ["", ""];
	setClass($("verdict"), "verdict" + (weight ? " w-" + weight : ""));
	setText($("verdict"), text);
	const box = $("counts"), want = [[totals.there, totals.there === 1 ? "member" : "members", "", ""]];
	for (const s of STATES)
		if (s !== "held" && totals.states[s])
			want.push([totals.states[s], s, s, s === "lost" || s === "jeopardy" ? "w-bad" : s === "left" ? "w-dim" : "w-warn"]);
	if (totals.degraded)
		want.push([totals.degraded, "degraded", "degraded", "w-warn"]);
	want.push([services.size, services.size === 1 ? "service" : "services", "", ""]);
	want.push([revision, "revision", "", ""]);
	while (box.children.length > want.length)
		box.lastChild.remove();
	want.forEach(([n, word, search, color], i) => {
		let li = box.children[i];
		if (!li || li.dataset.of !== word + search) {
			const e = make("li"), what = search ? make("button", color, word) : make("span", "", word);
			e.dataset.of = word + search;
			e.append(...(word === "revision" ? [what, make("b")] : [make("b"), what])); // "30 members", but "revision 168"
			if (search) {
				what.type = "button";
				what.title = "Search for these";
				what.addEventListener("click", () => search_for(search));
			}
			if (li)
				li.replaceWith(e);
			else
				box.append(e);
			li = e;
		}
		setText(li.querySelector("b"), numberText(n));
	});
}

/* Only an address of the web is a link: a URL that somebody has put there could be a script. */
function linkTo(url, text) {
	if (!/^https?:\/\//i.test(url))
		return make("span", "", text);
	const a = make("a", "", text);
	a.href = url;
	a.rel = "noreferrer";
	return a;
}

function fact(name, value, wrap) {
	const s = make("span", wrap ? "wrap" : "");
	s.append(name + " ", make("b", "", value));
	return s;
}

function drawReplicas() {
	const cards = [], leads = selfId && selfId === leaderId, s = own.status;
	for (const r of [...replicas.values()].sort((a, b) => cmp(naturalKey(a.name), naturalKey(b.name)))) {
		const self = r.id === selfId, up = answers(r);
		const li = make("li"), head = make("div", "card-head"), h = make("h3"), facts = make("p", "facts");
		const role = up === false ? "no answer" : r.id === leaderId ? "leader" : r.learner ? "learner" : "voter";
		h.append(self ? r.name : linkTo(r.url, r.name));
		head.append(h, make("span", "state s-" + (up === false ? "lost" : up === undefined ? "left" : "held"), role + (self ? ", this one" : "")));
		if (self && s) {
			facts.append(fact("lag", plural(Math.max(0, Number(s.raftIndex || 0) - Number(s.raftAppliedIndex || 0)), "entry").replace("entrys", "entries")), fact("term", s.raftTerm || "0"), fact("applied", numberText(Number(s.raftAppliedIndex || 0))));
			if (metrics.tenure_lease_time_seconds !== undefined)
				facts.append(fact("lease time", numberText(metrics.tenure_lease_time_seconds) + " s"));
			if (metrics.tenure_lease_outage_seconds_total > 0)
				facts.append(fact("lease clock paused", metrics.tenure_lease_outage_seconds_total.toFixed(1) + " s"));
			facts.append(fact("data", bytesText(Number(s.dbSize || 0))), fact("clients", numberText(Number(s.clients || 0))), fact("longest turn", (Number(s.longest_turn_us || 0) / 1000).toFixed(1) + " ms"), fact("answers in", own.trip.toFixed(1) + " ms"), fact("version", s.tenure_version ? `${s.tenure_version} (etcd ${s.version})` : s.version || ""));
			if (s.cluster_version)
				facts.append(fact("cluster version", s.cluster_version));
			if (s.header && s.header.ancestor)
				facts.append(fact("forced to descend from", BigInt(s.header.ancestor).toString(16).padStart(16, "0")));
			for (const e of s.errors || [])
				facts.append(make("span", "wrap w-bad", e));
		} else if (up === false) {
			facts.append(make("span", "wrap w-bad", self ? UNHEARD : "no link to it"));
		} else if (leads && metrics.lag && metrics.lag[r.id] !== undefined) {
			facts.append(fact("lag", plural(metrics.lag[r.id], "entry").replace("entrys", "entries")));
		} else {
			facts.append(make("span", "wrap", r.id === leaderId ? "its page has the lag of all" : "lag: see the leader's page"));
		}
		li.append(head, facts);
		cards.push(li);
	}
	fillCards("replica-list", cards, denied.replicas, "No replica is known yet.");
}

function fillCards(id, cards, why, none) {
	const box = $(id), focused = box.contains(document.activeElement) ? [...box.querySelectorAll("a")].indexOf(document.activeElement) : -1;
	const p = box.parentElement.querySelector(".denied");
	if (p) {
		p.hidden = !why;
		setText(p, why);
	}
	box.replaceChildren(...cards.length > 0 || why ? cards : [make("li", "dim", none)]);
	if (focused >= 0)
		box.querySelectorAll("a")[focused]?.focus({preventScroll: true});
}

function drawLocks() {
	const cards = [...locks.values()].sort((a, b) => cmp(a.name, b.name)).map((l) => {
		const li = make("li"), facts = make("p", "facts");
		li.append(make("h3", "", l.name), facts);
		facts.append(fact("held by", l.holder, true), fact("token", l.token));
		if (l.n > 0)
			facts.append(fact("waiting", `${l.n}: ${l.waiting.slice(0, 8).join(", ")}${l.n > 8 ? ", …" : ""}`, true));
		return li;
	});
	fillCards("lock-list", cards, denied.locks, "Nobody holds a lock.");
}

function drawServices() {
	const by = new Map();
	for (const s of services.values())
		by.has(s.service) ? by.get(s.service).push(s) : by.set(s.service, [s]);
	const all = [...by].sort((a, b) => cmp(a[0], b[0]));
	const cards = all.slice(0, SERVICES_SHOWN).map(([name, on]) => {
		const li = make("li"), head = make("div", "card-head");
		const where = on.map((s) => s.node + (s.record.port ? ":" + Number(s.record.port) : "")).sort((a, b) => cmp(naturalKey(a), naturalKey(b))).slice(0, 12);
		head.append(make("h3", "", name), make("span", "dim", numberText(on.length)));
		li.append(head, make("p", "facts", where.join(", ") + (on.length > 12 ? `, and ${numberText(on.length - 12)} more` : "")));
		return li;
	});
	if (all.length > SERVICES_SHOWN)
		cards.push(make("li", "dim", `And ${numberText(all.length - SERVICES_SHOWN)} more.`));
	fillCards("service-list", cards, "", "No service is published.");
}

const started = new Date();
let eventsDrawn = 0, toldEvents = 0, toldAt = -Infinity;

function eventItem(e) {
	const li = make("li"), t = make("time", "", clockText(e.at));
	t.dateTime = e.at.toISOString();
	li.append(t, make("span", e.weight ? "w-" + e.weight : "", e.text));
	return li;
}

/* The newest first; of many at once only the last ones are made at all. */
function drawEvents() {
	const box = $("event-list");
	if (eventsDrawn < 0) {
		box.replaceChildren();
		eventsDrawn = nEvents - events.length;
	}
	const fresh = events.slice(-Math.min(nEvents - eventsDrawn, EVENTS_SHOWN));
	if (nEvents > eventsDrawn)
		box.prepend(...fresh.reverse().map(eventItem));
	while (box.children.length > EVENTS_SHOWN)
		box.lastChild.remove();
	eventsDrawn = nEvents;
	setText($("events-since"), nEvents === 0 ? `None since ${eventsFrom || clockText(started) + ", when this page was opened"}.` : "");
}

/* To who does not see it: not each of thousands. */
function tellNews(t) {
	if (nEvents === toldEvents || t - toldAt < 3000)
		return;
	setText($("news"), nEvents - toldEvents > 3 ? `${nEvents - toldEvents} events, the last one: ${events[events.length - 1].text}` : events.slice(toldEvents - nEvents).map((e) => e.text).join("; "));
	toldEvents = nEvents;
	toldAt = t;
}

/* ---- frames ---- */

const STEPS = {replicas: drawReplicas, locks: drawLocks, services: drawServices, events: drawEvents, counts: drawCounts};
let calmAt = 0;

function draw() {
	const t = now();
	frame = 0;
	/* Each few hundred milliseconds is as often as somebody can read a sorted table. */
	if (dirty.order && t - arrangedAt > (nodes.size > 1000 ? 400 : 50)) {
		dirty.order = false;
		arrange(t);
		dirty.rows = dirty.counts = true;
	}
	if (dirty.rows) {
		dirty.rows = false;
		drawRows(t);
	}
	for (const [what, step] of Object.entries(STEPS))
		if (dirty[what] && (what === "events" || nodes.size < 1000 || t - calmAt > 500)) {
			dirty[what] = false;
			step();
			if (nodes.size >= 1000 && what !== "events")
				calmAt = t;
		}
	if (detailOf)
		fillDetail();
	tellNews(t);
	if (Object.values(dirty).some(Boolean))
		setTimeout(wake, 50);
}

setInterval(() => {
	touch("order");
	askAll();
}, 1000);
window.addEventListener("scroll", () => touch("rows"), {passive: true});

function measure() {
	const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
	const height = Math.round(parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) * rem);
	if (height !== rowHeight) {
		rowHeight = height;
		rowsInList = -1;
		for (const r of pool)
			r.index = -1;
	}
	const aside = $("aside");
	if (getComputedStyle(aside).overflowY === "auto")
		aside.tabIndex = 0;
	else
		aside.removeAttribute("tabindex");
	touch("rows");
}
window.addEventListener("resize", measure);
document.addEventListener("visibilitychange", () => {
	wake();
	askAll();
});

/* ---- search and views ---- */

function setFilter(text) {
	filter = text.toLowerCase().split(/\s+/).filter((w) => w && w !== "!").map((w) => w[0] === "!" ? {word: w.slice(1), not: true} : {word: w, not: false});
	arrangedAt = -Infinity;
	touch("order", "rows");
}

function search_for(text) {
	$("search").value = text;
	setFilter(text);
	setView("members");
	$("search").focus();
}

function setView(name) {
	document.body.dataset.view = name;
	for (const b of $("views").children)
		if (b.dataset.for === name)
			b.setAttribute("aria-current", "true");
		else
			b.removeAttribute("aria-current");
	touch("rows");
}

$("search").addEventListener("input", () => setFilter($("search").value));
$("search").addEventListener("keydown", (ev) => {
	if (ev.key === "ArrowDown" && shown.length > 0) {
		ev.preventDefault();
		setActive(active, true);
	}
});
for (const b of $("views").children)
	b.addEventListener("click", () => setView(b.dataset.for));
document.addEventListener("keydown", (ev) => {
	const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "");
	if (ev.key === "/" && !typing && !ev.ctrlKey && !ev.metaKey && !ev.altKey && !$("detail").open) {
		ev.preventDefault();
		setView("members");
		wantFocus = -1;
		$("search").focus();
		$("search").select();
	} else if (ev.key === "Escape" && !$("detail").open && $("search").value) {
		search_for("");
	}
});
$("cluster").addEventListener("change", () => {
	cluster = $("cluster").value;
	forgetAll();
	document.title = cluster + " – Tenure";
	begin();
});

setView("members");
measure();
setLive(false, "");
lostAt = new Date();
askAll();
begin();
