"""The page at / of the core: as it is served, and as a headless Chromium shows it."""
import json
import re
import signal
import time
import uuid

import pytest
from harness import npm
from harness.browser import Browser
from harness.http1 import Http
from harness.places import TOP
from harness.waiting import eventually, eventually_is

FILES = {"/": ("index.html", "text/html"), "/page.css": ("page.css", "text/css"),
         "/page.js": ("page.js", "text/javascript"), "/page.svg": ("icon.svg", "image/svg+xml")}
SOURCE = TOP / "conf/page"


# ---- as it is served ----

@pytest.mark.parametrize("path", FILES)
def test_the_page_is_served_and_may_do_nothing_elsewhere(shared_cluster, path):
    name, kind = FILES[path]
    answer = Http(shared_cluster.running[0].client_url).get(path)
    assert answer.status == 200 and answer.type.startswith(kind)
    assert answer.body == (SOURCE / name).read_bytes()
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    for header, value in (("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
                          ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-cache")):
        assert answer.headers[header] == value


def test_the_page_is_small_and_names_no_other_host():
    source = "".join((SOURCE / name).read_text() for name, _ in FILES.values())
    assert len(source.encode()) < 100000
    assert not re.search(r"https?://[a-z0-9](?!ww.w3.org)|@import|url\(", source)


def test_the_page_is_only_read(shared_cluster):
    http = Http(shared_cluster.running[0].client_url)
    assert (http.ask("HEAD", "/").status, http.ask("HEAD", "/").body) == (200, b"")
    assert {http.ask(method, "/").status
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "POST")} == {405}
    assert http.get("/page").status == 404


def test_the_page_can_be_turned_off_and_is_not_on_the_port_for_probes(new_cluster, ports):
    probes = f"http://127.0.0.1:{ports.take()}"
    off = new_cluster(1, "--status-page=no", f"--listen-metrics-urls={probes}").running[0]
    for url in off.client_url, probes:
        assert Http(url).get("/readyz").status == 200
        assert {Http(url).get(path).status for path in FILES} == {404}


# ---- as a browser shows it ----

@pytest.fixture
def page(shared):
    """A tab. At the end of the test its console is empty, and nothing has tried to pass its
    policy."""
    page = shared("browser", Browser).page()
    page.size(1440, 900)
    page.media(prefers_color_scheme="light")
    yield page
    complaints = page.complaints()
    page.close()
    assert complaints == []


class Fleet:
    """Members as their records in the core have them, in a cluster of their own."""

    def __init__(self, core):
        self.name, self.leases = "p" + uuid.uuid4().hex[:8], {}
        self.http = Http(core.running[-1].client_url)
        self.address = f"/?cluster={self.name}"

    def key(self, *parts):
        return "/".join(["/tenure", self.name, *parts]).encode()

    def record(self, name, **more):
        return {"name": name, "id": "0" * 32, "incarnation": "1", "boot_id": "b",
                "since": "2024-01-01T00:00:00Z", "version": "0.1.0", "ttl_ms": 600000,
                "addresses": ["192.0.2.7"], "tags": {"zone": "z1"}, **more}

    def put(self, key, value, of):
        """On the lease of the member @of."""
        if of not in self.leases:
            self.leases[of] = self.http.post("/v3/lease/grant", TTL=600)["ID"]
        if not isinstance(value, bytes):
            value = json.dumps(value).encode()
        self.http.post("/v3/kv/put", key=key, value=value, lease=self.leases[of])

    def node(self, name, **more):
        self.put(self.key("nodes", name), self.record(name, **more), name)

    def service(self, name, node):
        self.put(self.key("services", name, node), {"port": 80, "state": "active"}, node)

    def lock(self, name, node):
        self.put(f"{name}/{int(self.leases[node]):x}".encode(), b"", node)

    def delete(self, key):
        self.http.post("/v3/kv/deleterange", key=key)

    def end(self, name):
        self.http.post("/v3/lease/revoke", ID=self.leases.pop(name))

    def disband(self):
        for lease in self.leases.values():  # some may have ended
            self.http.ask("POST", "/v3/lease/revoke", {"ID": lease})


@pytest.fixture
def fleet(shared_cluster):
    fleet = Fleet(shared_cluster)
    yield fleet
    fleet.disband()


@pytest.fixture
def twenty(fleet):
    for i in range(1, 21):
        fleet.node(f"db{i}", tags={"zone": f"z{i % 3}"},
                   degraded="the loop was 1.2 s late" if i == 4 else "")
        fleet.service("web" if i % 2 else "postgresql", f"db{i}")
    return fleet


@pytest.fixture
def live(page, twenty, shared_cluster):
    """The page that shows twenty members."""
    page.url = shared_cluster.running[0].client_url
    page.open(page.url + twenty.address)
    page.until("document.querySelector('#live.on')?.textContent === 'Live'")
    eventually_is([f"db{i}" for i in range(1, 21)], lambda: names(page))
    return page


ROWS = "[...document.querySelectorAll('#list .row:not([hidden])')]"


def names(page):
    """In the order in which they are seen."""
    return page.eval(f"""{ROWS}
        .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
        .map((row) => row.querySelector('.c-node').textContent)""")


def cell(page, name, column):
    return page.eval(f"""{ROWS}
        .find((row) => row.querySelector('.c-node').textContent === {json.dumps(name)})
        ?.querySelector('.c-{column}').textContent""")


def test_members_are_shown_with_what_they_have(live, twenty):
    def cells(name, *columns):
        return [cell(live, name, column) for column in columns]

    eventually(lambda: " min" in cell(live, "db1", "left"))
    assert cells("db4", "state", "note") == ["degraded", "degraded: the loop was 1.2 s late"]
    assert cells("db2", "state", "address", "zone", "services") == [
        "held", "192.0.2.7", "z2", "postgresql"]
    live.shows("#service-list", "^postgresql10db2:80, db4:80, ")
    for holder in "db7", "db8", "db9":
        twenty.lock(f"{twenty.name}/backup", holder)
    live.shows("#lock-list", f"{twenty.name}/backup", "held by db7", "waiting 2: db8, db9")


def test_an_agent_is_a_member(page, core, agents):
    agent = agents("h1")
    page.open(core.running[0].client_url + f"/?cluster={agent.settings['Cluster']}")
    eventually_is("held", lambda: cell(page, "h1", "state"))


@pytest.mark.parametrize("leads", [True, False])
def test_replicas_are_shown_with_their_lag(page, shared_cluster, leads):
    leader = shared_cluster.leader()
    shown, *_ = [each for each in shared_cluster.running if (each is leader) == leads]
    page.open(shown.client_url)
    page.until("document.querySelectorAll('#replica-list li').length === 3")
    page.shows("#replica-list", r"lag \d+ entr", r"lease time \d+ s",
               "leader, this one" if leads else "this one", "leader",
               r"(lag \d+ entr.*){3}" if leads else "")  # who leads knows how far all are
    links = page.eval("[...document.querySelectorAll('#replica-list a')].map((a) => a.href)")
    assert set(links) == {each.client_url + "/" for each in shared_cluster.running
                          if each is not shown}


def test_what_happens_is_an_event(live, twenty):
    for holder in "db7", "db8":
        twenty.lock(f"{twenty.name}/backup", holder)
    live.shows("#lock-list", "held by db7", "waiting 1: db8")
    backup = f"{twenty.name}/backup/{int(twenty.leases['db7']):x}".encode()
    for event, what, *given in (
            ("db1 left: expired", twenty.end, "db1"),
            ("db21 joined", twenty.node, "db21"),
            ("service api on db21 is available", twenty.service, "api", "db21"),
            ("service api on db21 is gone", twenty.delete, twenty.key("services", "api", "db21")),
            ("lock .*/backup: db8 has it, db7 had it", twenty.delete, backup)):
        what(*given)
        live.shows("#event-list", event)
    twenty.node("db21", degraded="memory is short")
    live.shows("#event-list", "db21 is degraded: memory is short")
    twenty.node("db21", incarnation="2", boot_id="c")
    live.shows("#event-list", "db21 left: rebooted")
    twenty.node("db2", leaving="shutdown")
    eventually_is("leaving", lambda: cell(live, "db2", "state"))
    twenty.end("db2")
    live.shows("#event-list", "db2 left: shutdown")
    live.shows("#counts", "1lost")
    eventually_is(["lost", "expired", "left"], lambda: [
        cell(live, *at) for at in (("db1", "state"), ("db1", "note"), ("db2", "state"))])


def test_a_member_that_should_have_renewed_long_ago_is_in_jeopardy(live, twenty):
    twenty.node("late", ttl_ms=6000000)
    eventually_is("jeopardy", lambda: cell(live, "late", "state"))


def test_who_opens_the_page_later_sees_what_was_lost_and_when(page, twenty, shared_cluster):
    for name in "db1", "db2":
        twenty.end(name)
    twenty.node("db3", leaving="shutdown")
    twenty.end("db3")
    url = shared_cluster.running[0].client_url
    page.open(url + twenty.address)
    page.shows("#verdict", r"^2 of 19 hosts lost at \d\d:\d\d:\d\d$")
    page.shows("#event-list", "db3 left: shutdown", "db2 left: expired", "db1 left: expired",
               "db4 joined")
    eventually_is(["lost", "expired"], lambda: [cell(page, "db1", "state"),
                                                cell(page, "db1", "note")])
    twenty.node("db1")
    page.shows("#verdict", "^1 of 19 hosts lost at ")


def test_left_is_what_the_core_reported(live):
    """Not that minus the time since then, in which the lease may have been renewed."""
    live.eval("""((said) => {
        leaseSaid = () => {};  // what has been asked before changes nothing any more
        said(nodes.get('db1'), 1100, 2000, now());
    })(leaseSaid); touch('rows')""")
    eventually(lambda: cell(live, "db1", "left").startswith("1.1 s"))
    eventually(lambda: live.eval("now() - nodes.get('db1').asked > 500"))
    live.eval("new Promise((done) => { touch('rows'); requestAnimationFrame(done); })")
    assert cell(live, "db1", "left").startswith("1.1 s")


# ---- by keyboard ----

def focused(page):
    return page.eval("""((e) => e.id || e.dataset.for
        || (e.getAttribute('role') === 'row' && e.querySelector('.c-node').textContent)
        || e.parentElement.dataset.sort || e.textContent)(document.activeElement)""")


def test_all_is_reached_by_tab_in_its_order(live):
    order = []
    while len(order) < 30 and order[-1:] != ["db1"]:
        live.press("Tab")
        order.append(focused(live))
    assert order[:2] == ["Skip to the members", "cluster"]
    assert order[-10:] == ["search", "node", "state", "left", "age", "address", "zone", "services",
                           "notes", "db1"]


def test_rows_are_walked_and_opened_by_keys(live):
    live.eval(f"{ROWS}[0].focus()")
    live.press("ArrowDown")
    eventually_is("db2", lambda: focused(live))
    live.press("End")
    eventually_is("db20", lambda: focused(live))
    top, bottom = live.eval("""((box) => [box.top, innerHeight - box.bottom])(
        document.activeElement.getBoundingClientRect())""")
    assert min(top, bottom) >= 0
    live.press("Enter")
    live.until("document.querySelector('#detail').open")
    live.shows("#detail", "db20", "Lease")
    live.press("Escape")
    live.until("!document.querySelector('#detail').open")
    assert focused(live) == "db20"


def test_a_search_is_for_words_that_are_all_there_or_not(live):
    live.press("/")
    assert focused(live) == "search"
    live.type("z1 postgres !db10")
    eventually_is(["db4", "db16"], lambda: names(live))
    live.shows("#searched", "^2 of ")
    live.press("Escape")
    eventually_is(20, lambda: len(names(live)))
    live.type("no such thing")
    live.shows("#empty", "No member has all")
    assert not live.eval("document.querySelector('#empty').hidden")


def test_rows_are_sorted_by_a_column(live):
    live.click("[data-sort=services] button")
    live.click("[data-sort=node] button")
    live.click("[data-sort=node] button")
    live.until("""document.querySelector('[data-sort=node]').getAttribute('aria-sort')
        === 'descending'""")
    eventually_is([f"db{i}" for i in range(20, 0, -1)], lambda: names(live))


# ---- for everybody's eyes ----

# Of each text that is seen: how far its colour is from what is behind it, as WCAG counts.
CONTRAST = """(() => {
  const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {
    const c = e ? rgb(getComputedStyle(e).backgroundColor) : [255, 255, 255];
    return c.length < 4 || c[3] === 1 ? c : behind(e.parentElement);
  };
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; (t = walk.nextNode());) {
    const e = t.parentElement;
    if (!t.textContent.trim() || !e.checkVisibility()
        || e.closest('.hide, script, noscript, option')) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(t.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return bad;
})()"""
# What can be pressed or filled in, and has no name.
NAMELESS = """[...document.querySelectorAll('button, input, select, a[href]')].filter((e) =>
    e.checkVisibility() && !(e.textContent.trim() || e.labels?.length
    || e.getAttribute('aria-label') || e.title)).map((e) => e.outerHTML.slice(0, 80))"""


def assert_legible(page):
    assert page.eval(CONTRAST) == []
    assert page.eval(NAMELESS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_fits_and_is_legible(live, scheme):
    live.media(prefers_color_scheme=scheme)
    back = live.eval("getComputedStyle(document.documentElement).backgroundColor")
    assert (int(back[4:].split(",")[0]) > 128) == (scheme == "light")
    assert_legible(live)
    live.size(360, 740)
    for view in "members", "replicas", "locks", "services", "events":
        live.click(f"[data-for={view}]")
        assert live.eval("""[...document.querySelectorAll('section')]
            .filter((e) => e.checkVisibility()).map((e) => e.id)""") == [view]
        assert live.eval("document.documentElement.scrollWidth") <= 360
        assert_legible(live)


def test_axe_finds_nothing(live, tmp_path):
    live.eval((npm.install(tmp_path, "axe-core@4.14.1") / "axe-core/axe.min.js").read_text() + ";0")
    live.eval(f"{ROWS}[0].click()")
    live.until("document.querySelector('#detail').open")
    for _ in "all of a member", "all members":
        assert live.eval("""axe.run().then((found) => found.violations.map((one) =>
            one.id + ': ' + one.nodes.map((node) => node.html.slice(0, 120))))""") == []
        live.press("Escape")


def test_who_wants_little_motion_gets_none(live):
    live.media(prefers_reduced_motion="reduce")
    assert live.eval("""[...document.querySelectorAll('*')].filter((e) =>
        ['animationDuration', 'transitionDuration'].some((name) =>
            getComputedStyle(e)[name].split(', ').some((time) => time !== '0s'))).length""") == 0


@pytest.mark.parametrize("off", [3600, -3600])
def test_a_clock_that_is_wrong_changes_no_age(page, fleet, shared_cluster, off):
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    fleet.node("young", since=since)
    page.before_each_page(f"Date.now = ((now) => () => now() + {off * 1000})(Date.now)")
    page.open(shared_cluster.running[0].client_url + fleet.address)
    eventually(lambda: re.fullmatch(r"\d+ s|[1-9] min", cell(page, "young", "age") or ""))
    eventually(lambda: " min" in cell(page, "young", "left"))


def test_locks_are_looked_for_first_where_leases_have_changed(live, twenty):
    """Those of programs that are no members: among the keys of leases, of some leases a turn."""
    for i in range(60):
        twenty.put(f"{twenty.name}/other/{i}".encode(), b"", f"other{i}")
    live.eval("""{ const asked = [], really = ask;
        window.asked = asked;
        ask = (path, body, patience) => {
            if (body?.keys || path === 'lease/leases')
                asked.push(body.keys ? body.ID : 'turn');
            return really(path, body, patience); } }""")
    others = json.dumps([twenty.leases[f"other{i}"] for i in range(60)])
    live.until(f"{others}.every((id) => asked.includes(id))")
    for i in range(1, 4):
        lease = twenty.leases[f"db{i}"]
        twenty.lock(f"{twenty.name}/backup{i}", f"db{i}")
        live.until(f"asked.includes('{lease}')")
        assert live.eval(f"asked[asked.indexOf('{lease}') - 1]") == "turn"
    live.shows("#lock-list", *(f"{twenty.name}/backup{i}" for i in range(1, 4)))


# ---- what others may have written ----

EVIL = "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>"


def test_markup_in_records_is_text(live, twenty):
    twenty.node(EVIL, degraded=EVIL, addresses=[EVIL], leaving=EVIL,
                tags={"zone": EVIL, EVIL: EVIL, "__proto__": EVIL})
    twenty.service(EVIL.replace("/", "|"), "db5")
    twenty.lock(twenty.name + EVIL, EVIL)
    live.shows("#lock-list", "<img src=x")
    live.shows("#service-list", "<img src=x")
    eventually(lambda: EVIL in names(live))
    live.eval(f"{ROWS}.find((row) => row.textContent.includes('<img src=x')).click()")
    live.shows("#detail", "<script>")
    assert live.eval("""[window.pwned ?? null, ({}).zone ?? null, document.querySelectorAll(
        '#list img, #list script, #aside img, #aside script, dialog img').length]""") == [
            None, None, 0]
    assert {url for url in live.downloads if not url.startswith(live.url)} <= {"about:blank"}


def test_records_that_are_none_stop_nothing(live, twenty):
    twenty.node("__proto__", tags=7, addresses={"a": 1}, ttl_ms="x", degraded=["a"])
    twenty.put(twenty.key("nodes", "broken"), b"\xff\xfe{not json", "broken")
    twenty.node("\u202eevil\u2066" + "x" * 300)  # which would turn text around
    eventually(lambda: {"__proto__", "broken"} <= set(names(live)))
    live.shows("#event-list", "\ufffdevil\ufffdxxx")
    assert live.eval("document.documentElement.scrollWidth <= innerWidth")


def test_the_policy_holds_where_somebody_tries(live):
    live.expected = "security: This document requires 'TrustedScript' assignment."
    live.eval("""(() => { const s = document.createElement('script');
        try { s.textContent = 'window.inlined = 1'; document.body.append(s); } catch {} })()""")
    live.until("violations.length > 0")
    assert live.eval("window.inlined ?? null") is None
    live.eval("violations.length = 0")


# ---- what the core does ----

def test_a_page_continues_when_its_replica_is_back(page, cluster):
    fleet, own = Fleet(cluster), cluster.running[0]
    for name in "db1", "db2":
        fleet.node(name)
    page.open(own.client_url + fleet.address)
    eventually_is(["db1", "db2"], lambda: names(page))
    page.until("document.querySelector('#live.on')")  # what comes from now on is an event
    page.expected = "network:"
    others = [replica.client_url for replica in cluster.running if replica is not own]
    own.kill()
    page.shows("#trouble", "does not answer|Not followed", "Pages of the other replicas: . .$")
    assert sorted(page.eval("[...document.querySelectorAll('#trouble a')].map((a) => a.href)")) == \
        sorted(f"{url}/" for url in others)
    page.shows("#live", "^Not connected$")
    page.shows("#verdict", r"^not followed since \d\d:\d\d:\d\d$")
    eventually(lambda: cell(page, "db2", "note").startswith("as of "))
    fleet.node("db1", leaving="reboot")
    fleet.end("db1")
    fleet.node("db3")
    own.start()
    page.shows("#event-list", "db3 joined", "db1 left: reboot")
    page.until("document.querySelector('#live.on')")
    assert len(re.findall("db3 joined|db1 left", page.text("#event-list"))) == 2

    own.kill()  # and what it misses now is compacted meanwhile: all is read anew
    page.shows("#live", "^Not connected$")
    fleet.node("db4")
    fleet.end("db2")
    fleet.http.post("/v3/kv/compaction", physical=True, revision=fleet.http.post(
        "/v3/kv/range", key=b"a")["header"]["revision"])
    own.start()
    page.shows("#event-list", "db4 joined", "db2 left: expired")


def test_the_verdict_counts_replicas_that_do_not_answer(page, cluster):
    fleet, (own, other, _) = Fleet(cluster), cluster.running
    fleet.node("db1")
    page.open(own.client_url + fleet.address)
    page.shows("#verdict", "^the only host holds its place$")
    other.kill()
    page.shows("#verdict", "^the only host holds its place; 1 of 3 replicas does not answer$")
    other.start()
    page.shows("#verdict", "^the only host holds its place$")


def test_a_replica_that_has_not_caught_up_is_no_other_core(page, cluster):
    fleet, (own, *others) = Fleet(cluster), cluster.running
    fleet.node("db1")
    page.open(own.client_url + fleet.address)
    eventually_is(["db1"], lambda: names(page))
    page.until("document.querySelector('#live.on')")
    page.expected = "network:"
    own.kill()
    page.shows("#live", "^Not connected$")
    fleet.node("db2")
    for other in others:  # so own does not learn what of its log is committed
        other.signal(signal.SIGSTOP)
    own.start()
    page.shows("#trouble", "no leader")
    for other in others:
        other.signal(signal.SIGCONT)
    page.shows("#event-list", "db2 joined")
    eventually_is(["db1", "db2"], lambda: names(page))  # sorted less often than events are shown


def test_keys_that_are_not_utf8_are_passed_once(page, fleet, shared_cluster):
    """At the end of an answer (PAGE in page.js), after which the next one goes on."""
    fleet.node("db1")
    for i in range(0, 2100, 100):
        fleet.http.post("/v3/kv/txn", success=[
            {"request_put": {"key": fleet.key("work", "x") + b"/\xff%05d" % (i + k),
                             "lease": fleet.leases["db1"]}} for k in range(100)])
    page.open(shared_cluster.running[0].client_url + fleet.address)
    page.until("document.querySelector('#live.on')?.textContent === 'Live'")
    eventually_is(["db1"], lambda: names(page))


def test_of_many_members_only_those_in_sight_have_rows(page, fleet, shared_cluster):
    def transaction(operations):
        for i in range(0, len(operations), 100):
            fleet.http.post("/v3/kv/txn", success=operations[i:i + 100])

    def put(name):
        return {"request_put": {"key": fleet.key("nodes", name), "lease": lease,
                                "value": json.dumps(fleet.record(name)).encode()}}

    lease = fleet.http.post("/v3/lease/grant", TTL=600)["ID"]
    transaction([put(f"node{i}") for i in range(3000)])
    page.open(shared_cluster.running[0].client_url + fleet.address)
    page.shows("#searched", "^3,000 members$")
    assert 10 < page.eval("document.querySelectorAll('#list .row').length") < 80
    transaction([{"request_delete_range": {"key": fleet.key("nodes", f"node{i}")}}
                 for i in range(300)] + [put(f"new{i}") for i in range(300)])
    page.shows("#counts", "^3,000members300lost")
    page.eval("window.scrollTo(0, 60000)")
    page.until(f"""((rows) => rows.length > 10
        && rows.every((row) => row.querySelector('.c-node').textContent)
        && rows.some((row) => row.getBoundingClientRect().top < 100)
        && rows.some((row) => row.getBoundingClientRect().bottom > 800))({ROWS})""")
    page.eval("document.querySelector('#search').focus()")
    page.type("node77")
    page.shows("#searched", "^11 of ")


# ---- users ----

@pytest.fixture
def root(new_cluster):
    """ann may read the members, bob nothing, carl some of the members."""
    core = new_cluster(1)
    fleet = core.fleet = Fleet(core)
    for name in "db1", "db5":
        fleet.node(name)
    members = f"/tenure/{fleet.name}/"
    core.with_users(ann=("read", members), bob=(), carl=("read", members + "nodes/db1"))
    return core.as_user("root", "root")


@pytest.fixture
def login(page, root):
    def log_in(name, password=None):
        page.until("!document.querySelector('#login').hidden")
        page.eval("document.querySelector('#user').value = '';"
                  "document.querySelector('#user').focus()")
        page.type(name)
        page.press("Tab")
        page.type(password or name)
        page.press("Enter")

    page.open(root.running[0].client_url + root.fleet.address)
    page.until("document.activeElement.id === 'user'")
    page.expected = "network:"  # it is refused, and asks again
    return log_in


def test_who_logs_in_sees_what_the_user_may_read_as_long_as_the_login_lasts(login, page, root):
    assert_legible(page)
    login("ann", "wrong")
    page.shows("#why", "authentication failed")
    assert names(page) == []
    login("ann")
    eventually_is(["db1", "db5"], lambda: names(page))
    eventually(lambda: " min" in cell(page, "db5", "left"))
    assert page.eval("""[localStorage.length, sessionStorage.length, document.cookie,
        location.href.includes('ann')]""") == [0, 0, "", False]

    root.etcdctl("user", "passwd", "ann", "--interactive=false", stdin="new\n")
    page.shows("#why", "invalid auth token")
    eventually_is([], lambda: names(page))
    login("ann", "new")
    eventually_is(["db1", "db5"], lambda: names(page))
    page.click("#logout")
    eventually_is([], lambda: names(page))
    assert not page.eval("document.querySelector('#login').hidden")


@pytest.mark.parametrize("name", ["bob", "carl"])
def test_a_user_who_may_not_read_all_members_gets_an_error_and_sees_none(login, page, name):
    login(name)
    page.shows("#trouble", "permission denied: you may not read /tenure/p")
    assert names(page) == []
