"""The page in a headless Chromium: what it shows as things happen, by mouse and by keyboard, wide and narrow, light and dark.

Replica x1, which serves it, is started (and killed) here, and so is one agent; other members are records as agents write
them, put by the JSON gateway.
"""
import argparse
import base64
import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402

ap = argparse.ArgumentParser()
for name in ("dir", "url", "others", "axe", "shots", "agent"):
    ap.add_argument("--" + name)
ap.add_argument("core", nargs="+")
args = ap.parse_args()
QUIET = bool(os.environ.get("QUIET"))  # nothing else runs here: how long something took is judged, too


def ok(what, good, why=""):
    print(("ok " if good else "not ok ") + what + ("" if good or not why else f": {str(why)[:600]}".replace("\n", " ")), flush=True)


def is_(what, got, wanted):
    ok(what, got == wanted, f"got {got!r}, wanted {wanted!r}")


# ---- the cluster ----

b64 = lambda s: base64.b64encode(s if isinstance(s, bytes) else s.encode()).decode()  # noqa: E731
token = ""


def post(path, body, base=None):
    r = urllib.request.Request((base or args.others.split(",")[0]) + "/v3/" + path, json.dumps(body).encode(), {"Authorization": token} if token else {})
    return json.load(urllib.request.urlopen(r, timeout=20))


def until(fn, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if fn():
                return True
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.05)
    return False


processes = []


def start(name, argv, **env):
    with open(os.path.join(args.dir, name + ".log"), "a") as log:
        p = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **env})
    processes.append(p)
    return p


def serves():
    return until(lambda: post("kv/range", {"key": b64("a")}, args.url))


def kill(p):
    p.send_signal(signal.SIGKILL)
    p.wait()


def lease(ttl=600):
    return post("lease/grant", {"TTL": str(ttl)})["ID"]


def record(name, **more):
    r = {"name": name, "id": "%032x" % abs(hash(name)), "incarnation": "1", "boot_id": "b", "since": "2024-01-01T00:00:00Z", "version": "0.1.0",
         "ttl_ms": 600000, "addresses": ["192.0.2.7"], "tags": {"zone": "z1"}}
    return {**r, **more}


def node(name, id_, cluster="default", **more):
    post("kv/put", {"key": b64(f"/tenure/{cluster}/nodes/{name}"), "value": b64(json.dumps(record(name, **more))), "lease": id_})


def service(name, of, id_, port=80):
    post("kv/put", {"key": b64(f"/tenure/default/services/{name}/{of}"), "value": b64(json.dumps({"service": name, "node": of, "port": port, "state": "active"})), "lease": id_})


# ---- the page ----

ROW = "[...document.querySelectorAll('#list .row:not([hidden])')]"


def names(br):
    """In the order in which they are seen."""
    return br.eval(f"{ROW}.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top).map((r) => r.querySelector('.c-node').textContent)")


def cell(name, what):
    return f"({ROW}.find((r) => r.querySelector('.c-node').textContent === {json.dumps(name)})?.querySelector('.c-{what}')?.textContent ?? null)"


def event(pattern):
    return f"[...document.querySelectorAll('#event-list li')].some((e) => /{pattern}/.test(e.textContent))"


def focused(br):
    return br.eval("((e) => e.id || e.dataset.for || (e.getAttribute('role') === 'row' ? 'row ' + e.querySelector('.c-node').textContent : e.parentElement.dataset.sort ? 'sort ' + e.parentElement.dataset.sort : e.tagName + ' ' + e.textContent))(document.activeElement)")


def errors(br, outages=False):
    """What the browser complained of; questions that a dead replica does not answer are no errors of the page."""
    return [e for e in br.log if not (outages and e.startswith("network:"))] + [f"CSP: {v}" for v in br.eval("violations")]


def axe(br, what):
    if not args.axe:
        return
    with open(args.axe) as f:
        br.eval(f.read() + ";0")
    found = br.eval("axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(' ; ')))")
    is_(f"axe finds nothing: {what}", found, [])


# Of each text that is seen: how far its colour is from what is behind it, as WCAG counts.
CONTRAST = """(() => {
  const rgb = (c) => c.match(/[\\d.]+/g).map(Number), lum = (c) => { const f = c.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
  const bad = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; (t = walk.nextNode());) {
    const e = t.parentElement;
    if (!t.textContent.trim() || !e.checkVisibility() || e.closest('.hide, script, noscript, option')) continue;
    const a = lum(rgb(getComputedStyle(e).color)), b = lum(behind(e)), k = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (k < 4.5) bad.push(t.textContent.slice(0, 30) + ' ' + k.toFixed(2));
  }
  return bad;
})()"""
# What can be pressed or filled in has a name; roles are where they belong.
NAMES = """[...document.querySelectorAll('button, input, select, a[href]')].filter((e) => e.checkVisibility() && !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label') || e.title)).map((e) => e.outerHTML.slice(0, 80))"""


def looks(br, what):
    is_(f"contrast, {what}", br.eval(CONTRAST), [])
    is_(f"everything has a name, {what}", br.eval(NAMES), [])
    axe(br, what)


def shows(br):
    """What is there, and what happens."""
    agent = start("agent", [args.agent, "--endpoints", args.others, "--node-name", "db1", "--node-id", "%032x" % 1, "--ttl", "2s", "--tags", "zone=z1"],
                  RUNTIME_DIRECTORY=os.path.join(args.dir, "run"), DBUS_SYSTEM_BUS_ADDRESS="unix:path=/nonexistent")
    for i in range(2, 21):
        id_ = ids[f"db{i}"] = lease()
        node(f"db{i}", id_, degraded="the loop was 1.2 s late" if i == 4 else "", tags={"zone": f"z{i % 3}"})
        service("web" if i % 2 else "postgresql", f"db{i}", id_)
    for holder in ("db7", "db8", "db9"):
        post("kv/put", {"key": b64("nightly/backup/%x" % int(ids[holder])), "lease": ids[holder]})
    br.size(1440, 900)
    br.scheme("light")
    br.open(args.url + "/")
    ok("the page is live", br.until("document.querySelector('#live.on')?.textContent === 'Live'"), errors(br))
    ok("an agent's record is a member", br.until(cell("db1", "state") + " === 'held'"), names(br))
    is_("db2 before db10, all of them", names(br), [f"db{i}" for i in range(1, 21)])
    ok("the time that its lease has left, of a TTL", br.until(f"/^[01]\\.\\d s \\/ 2 s$/.test({cell('db1', 'left')})"), br.eval(cell("db1", "left")))
    bar = "document.querySelector('#list .row .track i').style.transform"
    one = br.eval(bar)
    ok("it runs", br.until(f"{bar} !== {json.dumps(one)}"))
    is_("degraded, with a word, and why", [br.eval(cell("db4", "state")), br.eval(cell("db4", "note"))], ["degraded", "degraded: the loop was 1.2 s late"])
    is_("address, zone, services", [br.eval(cell("db2", c)) for c in ("address", "zone", "services")], ["192.0.2.7", "z2", "postgresql"])
    ok("replicas, one leads, this one is marked", br.until("document.querySelectorAll('#replica-list h3').length === 3 && /leader/.test(document.querySelector('#replica-list').textContent) && /this one/.test(document.querySelector('#replica-list').textContent) && /lag \\d+ entr/.test(document.querySelector('#replica-list').textContent) && /lease time \\d+ s/.test(document.querySelector('#replica-list').textContent)"), br.eval("document.querySelector('#replicas').innerText"))
    ok("a lock, who has it, and who waits", br.until("/nightly\\/backup/.test(document.querySelector('#lock-list').textContent) && /held by db7/.test(document.querySelector('#lock-list').textContent) && /waiting 2: db8, db9/.test(document.querySelector('#lock-list').textContent)"), br.eval("document.querySelector('#locks').innerText"))
    ok("services, and on how many", br.until("/^postgresql10db2:80, db4:80, /.test(document.querySelector('#service-list').textContent)"), br.eval("document.querySelector('#services').innerText"))
    return agent


def happens(br, agent):
    kill(agent)
    ok("jeopardy before the end, or lost", br.until(f"['jeopardy', 'lost'].includes({cell('db1', 'state')})", 10), br.eval(cell("db1", "state")))
    ok("a death is an event with its reason", br.until(event("db1 left: expired"), 10))
    is_("and the member is lost", [br.eval(cell("db1", "state")), br.eval(cell("db1", "note"))], ["lost", "expired"])
    ok("counted", br.until("/1lost/.test(document.querySelector('#counts').textContent)"), br.eval("document.querySelector('#counts').textContent"))
    node("db2", ids["db2"], leaving="shutdown")
    ok("one that is leaving", br.until(cell("db2", "state") + " === 'leaving'"))
    post("lease/revoke", {"ID": ids["db2"]})
    ok("has left, and why", br.until(event("db2 left: shutdown") + f" && {cell('db2', 'state')} === 'left'"))
    ids["db21"] = lease()
    node("db21", ids["db21"])
    ok("one that joins", br.until(event("db21 joined") + f" && {cell('db21', 'state')} === 'held'"))
    node("db21", ids["db21"], degraded="memory is short")
    ok("is degraded", br.until(event("db21 is degraded: memory is short")))
    node("db21", ids["db21"], incarnation="2", boot_id="c")
    ok("and booted again", br.until(event("db21 left: rebooted")))
    service("api", "db21", ids["db21"])
    ok("a service comes", br.until(event("service api on db21 is there")))
    post("kv/deleterange", {"key": b64("/tenure/default/services/api/db21")})
    ok("and goes", br.until(event("service api on db21 is gone")))
    post("kv/deleterange", {"key": b64("nightly/backup/%x" % int(ids["db7"]))})
    ok("the lock has its next holder", br.until(event("lock nightly.backup: db8 has it, db7 had it")))
    is_("nothing to complain of so far", errors(br), [])


def keyboard(br):
    br.open(args.url + "/")
    br.until("document.querySelector('#live.on') && document.querySelectorAll('#list .row').length > 10 && document.querySelectorAll('#replica-list a').length === 2")
    order = []
    for _ in range(14):
        br.key("Tab")
        order.append(focused(br))
    is_("by Tab: one after the other", order[:13], ["A Skip to the members", "cluster", "BUTTON degraded", "search", "sort node", "sort state", "sort left", "sort age", "sort address", "sort zone", "sort services", "sort notes", "row db3"])
    for _ in range(30):
        if focused(br).startswith("row"):
            break
        br.key("Tab")
    first = focused(br)
    br.key("ArrowDown")
    br.until(f"document.activeElement.querySelector('.c-node')?.textContent !== {json.dumps(first[4:])}")
    ok("arrows go from row to row", focused(br).startswith("row db") and focused(br) != first, focused(br))
    br.key("End")
    ok("End: the last one", br.until("document.activeElement.querySelector?.('.c-node')?.textContent === 'db21'"), focused(br))
    box = br.eval("(({top, bottom}) => [top, innerHeight - bottom])(document.activeElement.getBoundingClientRect())")
    ok("it is in sight", min(box) >= 0, box)
    br.key("Enter")
    ok("Enter: all of it", br.until("document.querySelector('#detail').open && /Lease/.test(document.querySelector('#detail').textContent) && document.querySelector('#detail-name').textContent === 'db21'"))
    axe(br, "all of a member")
    br.key("Escape")
    ok("Escape: back to the row", br.until("!document.querySelector('#detail').open && document.activeElement.getAttribute('role') === 'row'"), focused(br))
    br.key("/")
    is_("/: search", focused(br), "search")
    br.type("z1 postgres !db10")
    br.until(f"{ROW}.length < 6")
    found = names(br)
    ok("words that are all to be there, or not", found and "db10" not in found and set(found) <= {f"db{i}" for i in range(2, 21, 2)}, found)
    ok("it says how many", br.until(f"document.querySelector('#searched').textContent.startsWith('{len(found)} of ')"), br.eval("document.querySelector('#searched').textContent"))
    br.key("Escape")
    ok("Escape: all of them", br.until(f"{ROW}.length > 10 && document.querySelector('#search').value === ''"))
    br.type("no such thing")
    ok("nothing found is said", br.until("!document.querySelector('#empty').hidden && /No member has all/.test(document.querySelector('#empty').textContent)"))
    br.key("Escape")
    br.eval("document.querySelector('[data-sort=services] button').click(); document.querySelector('[data-sort=node] button').click(); document.querySelector('[data-sort=node] button').click()")
    ok("sorted the other way round", br.until("document.querySelector('[data-sort=node]').getAttribute('aria-sort') === 'descending'") and br.until(f"{ROW}.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0].querySelector('.c-node').textContent === 'db21'"), names(br))
    br.eval("document.querySelector('[data-sort=node] button').click()")


def sizes(br):
    for scheme in ("light", "dark"):
        br.scheme(scheme)
        br.size(1440, 900)
        br.until("innerWidth === 1440")
        looks(br, f"{scheme}, wide")
        br.size(360, 740, True)
        br.until("innerWidth === 360")
        for view in ("members", "replicas", "locks", "services", "events"):
            br.eval(f"document.querySelector('[data-for={view}]').click()")
            shown = br.eval("[...document.querySelectorAll('section')].filter((e) => e.checkVisibility()).map((e) => e.id)")
            ok(f"360 pixels, {scheme}: {view} fit", shown == [view] and br.eval("document.documentElement.scrollWidth") <= 360, [shown, br.eval("document.documentElement.scrollWidth")])
            looks(br, f"{scheme}, narrow, {view}")
        br.eval("document.querySelector('[data-for=members]').click()")
        back = br.eval("getComputedStyle(document.documentElement).backgroundColor")
        ok(f"{scheme} is {scheme}", (int(back[4:].split(",")[0]) > 128) == (scheme == "light"), back)
    br.size(1440, 900)
    br.scheme("light")


def hostile(br):
    evil = "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>"
    ids["evil"] = lease()
    node(evil, ids["evil"], degraded=evil, addresses=[evil], tags={"zone": evil, evil: evil, "__proto__": evil}, leaving=evil)
    node("__proto__", ids["evil"], tags=7, addresses={"a": 1}, ttl_ms="x", degraded=["a"])
    post("kv/put", {"key": b64("/tenure/default/nodes/broken"), "value": b64(b"\xff\xfe{not json"), "lease": ids["evil"]})
    service(evil.replace("/", "|"), "db5", ids["evil"])
    post("kv/put", {"key": b64(evil + "/%x" % int(ids["evil"])), "lease": ids["evil"]})
    ok("names that are markup are text", br.until(f"{ROW}.some((r) => r.querySelector('.c-node').textContent.startsWith('<img src=x')) && /<img src=x/.test(document.querySelector('#lock-list').textContent)"), names(br))
    br.eval(f"{ROW}.find((r) => r.textContent.includes('<img src=x')).click()")
    ok("all of such a one, too", br.until("document.querySelector('#detail').open && /<script>/.test(document.querySelector('#detail').textContent)"))
    br.key("Escape")
    turned = "\u202eevil\u2066\U0001f600" + "x" * 300
    node(turned, ids["evil"])
    ok("names that turn text around do not", br.until(f"[...document.querySelectorAll('#event-list li')].some((e) => e.textContent.includes('\\ufffdevil\\ufffd\U0001f600xxx')) && {ROW}.some((r) => r.textContent.includes('\\ufffdevil'))"), names(br))
    is_("and a long one widens nothing", br.eval("document.documentElement.scrollWidth <= innerWidth"), True)
    ok("broken records do not stop it", br.until(cell("broken", "state") + " !== null && " + cell("__proto__", "state") + " !== null"))
    is_("nothing of it ran", br.eval("[window.pwned ?? null, document.querySelectorAll('#list img, #list script, #aside img, #aside script, dialog img').length, ({}).zone ?? null]"), [None, 0, None])
    is_("no word of it in the console, nor of the policy", errors(br), [])
    ok("it talks to its own replica alone", all(u.startswith(args.url + "/") for u in br.downloads if u != "about:blank"), [u for u in br.downloads if not u.startswith(args.url)])
    ok("the policy holds where somebody tries", br.eval("""(() => { const s = document.createElement('script'); try { s.textContent = 'window.inlined = 1'; document.body.append(s); } catch { return true; } return window.inlined === undefined; })()"""))
    br.until("violations.length > 0")  # that one, which was tried here
    br.eval("violations.length = 0")
    post("lease/revoke", {"ID": ids["evil"]})
    br.log.clear()


def outage(br, core):
    br.until(event("left"))
    kill(core)
    ok("a replica that is gone: it says so", br.until("document.querySelector('#live').textContent === 'Not connected' && /does not answer|Not followed/.test(document.querySelector('#trouble').textContent) && !document.querySelector('#trouble').hidden"), br.eval("document.querySelector('#trouble').textContent"))
    ids["db22"] = lease()
    node("db22", ids["db22"])
    node("db3", ids["db3"], leaving="reboot")
    post("lease/revoke", {"ID": ids["db3"]})
    core = start("x1", args.core)
    serves()
    ok("and goes on from where it was", br.until(event("db22 joined") + " && " + event("db3 left: reboot") + " && document.querySelector('#live.on')"), br.eval("document.querySelector('#events').innerText"))
    is_("without a gap or a repetition", br.eval("[...document.querySelectorAll('#event-list li')].filter((e) => /db22 joined|db3 left/.test(e.textContent)).length"), 2)
    # What it has missed is compacted meanwhile: all is read anew.
    kill(core)
    br.until("document.querySelector('#live').textContent === 'Not connected'")
    ids["db23"] = lease()
    node("db23", ids["db23"])
    post("lease/revoke", {"ID": ids["db22"]})
    at = post("kv/range", {"key": b64("a")})["header"]["revision"]
    post("kv/compaction", {"revision": at, "physical": True})
    core = start("x1", args.core)
    serves()
    ok("after a compaction anew", br.until(event("db23 joined") + " && " + event("db22 left: expired") + " && document.querySelector('#live.on')"), br.eval("document.querySelector('#events').innerText"))
    ok("no exception", not [e for e in errors(br, True)], errors(br, True))
    br.log.clear()
    return core


def clock(br):
    """A browser whose clock is an hour ahead, or behind, and one that is to move little."""
    ids["young"] = lease()
    node("young", ids["young"], since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    for off in (3600, -3600):
        one = br.call("Page.addScriptToEvaluateOnNewDocument", source=f"Date.now = ((now) => () => now() + {off * 1000})(Date.now)")["identifier"]
        br.open(args.url + "/")
        br.until("document.querySelector('#live.on')")
        ok(f"a clock that is off by {off} s: ages are right", br.until(f"/^[0-9]+ s$/.test({cell('young', 'age')}) && Math.abs(Date.now() - {int(time.time() * 1000)}) > 3000000"), br.eval(cell("young", "age")))
        ok("and so is what leases have left", br.until(f"/ min/.test({cell('young', 'left')})"), br.eval(cell("young", "left")))
        br.call("Page.removeScriptToEvaluateOnNewDocument", identifier=one)
    post("lease/revoke", {"ID": ids["young"]})
    br.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    br.open(args.url + "/")
    br.until(f"document.querySelector('#live.on') && {ROW}.length > 10")
    is_("who wants little motion gets none", br.eval("[...document.querySelectorAll('*')].filter((e) => ['animationDuration', 'transitionDuration'].some((p) => getComputedStyle(e)[p].split(', ').some((d) => d !== '0s'))).length"), 0)
    br.scheme("light")
    is_("no word of it in the console", errors(br), [])


def many(br, n=10000):
    """10,000 members: how long frames are while some die, others come, somebody scrolls and searches."""
    base = args.others.split(",")[0]

    def grant(numbers):
        c = http.client.HTTPConnection(base.split("//")[1], timeout=20)
        for k in numbers:
            c.request("POST", "/v3/lease/grant", json.dumps({"TTL": "3600"}))
            more[k] = json.load(c.getresponse())["ID"]

    more = [None] * n
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(grant, [range(k, n, 32) for k in range(32)]))
    for i in range(0, n, 100):
        post("kv/txn", {"success": [{"requestPut": {"key": b64(f"/tenure/large/nodes/node{k}"), "value": b64(json.dumps(record(f"node{k}", tags={"zone": f"z{k % 7}"}))), "lease": more[k]}} for k in range(i, i + 100)]})
    begin = time.monotonic()
    br.open(args.url + "/?cluster=large")
    ok(f"{n} members are there", br.until(f"document.querySelector('#searched').textContent === '{n:,} members'", 40), br.eval("document.querySelector('#searched').textContent"))
    print(f"    {n} members shown {time.monotonic() - begin:.1f} s after the page was asked for", flush=True)
    rows = br.eval("document.querySelectorAll('#list .row').length")
    ok("only rows that can be seen exist", 10 < rows < 80, rows)
    br.eval("""window.frames_ = []; window.last_ = 0; (function f(t) { if (last_) frames_.push(t - last_); last_ = t; requestAnimationFrame(f); })(performance.now());
               window.long_ = []; new PerformanceObserver((l) => l.getEntries().forEach((e) => long_.push(Math.round(e.duration)))).observe({entryTypes: ['longtask']}); 0""")
    # 1000 die at once, and 1000 come, and one scrolls through all of them meanwhile.
    br.eval("window.at_ = 0; window.scroller_ = setInterval(() => { window.scrollTo(0, (at_ += 3777) % document.documentElement.scrollHeight); }, 16); 0")
    for i in range(0, 1000, 100):
        post("kv/txn", {"success": [{"requestDeleteRange": {"key": b64(f"/tenure/large/nodes/node{k}")}} for k in range(i, i + 100)]})
    for i in range(0, 1000, 100):
        post("kv/txn", {"success": [{"requestPut": {"key": b64(f"/tenure/large/nodes/new{k}"), "value": b64(json.dumps(record(f"new{k}"))), "lease": more[k]}} for k in range(i, i + 100)]})
    ok("1000 deaths and 1000 joins are told", br.until(f"document.querySelector('#counts').textContent.startsWith('{n:,}members1,000lost')", 30), br.eval("document.querySelector('#counts').textContent"))
    br.until("frames_.length > 240", 20)
    frames, long_ = br.eval("clearInterval(scroller_), frames_"), sorted(br.eval("long_"))
    br.eval("window.scrollTo(0, 200000)")
    ok("the rows are those of where one is", br.until(f"((r) => r.length > 10 && r.every((e) => e.querySelector('.c-node').textContent) && r.some((e) => {{ const b = e.getBoundingClientRect(); return b.top < 100 && b.bottom > 0; }}) && r.some((e) => e.getBoundingClientRect().bottom > 800))({ROW})"))
    br.eval("document.querySelector('#search').focus()")
    br.type("node77")
    ok("search in them", br.until(f"document.querySelector('#searched').textContent.startsWith('111 of ')", 10), br.eval("document.querySelector('#searched').textContent"))
    frames.sort()
    print(f"    {len(frames)} frames: median {frames[len(frames) // 2]:.1f} ms, 99 % below {frames[len(frames) * 99 // 100]:.1f} ms, longest {frames[-1]:.1f} ms; "
          f"tasks beyond 50 ms: {len(long_)}, the longest {long_[-1] if long_ else 0} ms", flush=True)
    # By itself a frame takes 17 ms.
    if QUIET:
        ok("without stutter: the middle frame below 34 ms", frames[len(frames) // 2] < 34, frames[len(frames) // 2])
        ok("and no task of half a second", not long_ or long_[-1] < 500, long_)
    is_("nothing to complain of", errors(br), [])


def leader(br):
    """Who leads knows how far the others are."""
    urls = [args.url, *args.others.split(",")]
    at = [u for u in urls if (s := post("maintenance/status", {}, u))["leader"] == s["header"]["member_id"]][0]
    br.open(at + "/")
    ok("on the leader's page: the lag of all", br.until("document.querySelectorAll('#replica-list li').length === 3 && [...document.querySelectorAll('#replica-list li')].every((e) => /lag \\d+ entr/.test(e.textContent)) && /leader, this one/.test(document.querySelector('#replica-list').textContent)"), br.eval("document.querySelector('#replicas').innerText"))
    is_("links to the others", br.eval("[...document.querySelectorAll('#replica-list a')].map((a) => a.href)"), [u + "/" for u in urls if u != at])


def users(br, core):
    global token
    kill(core)
    core = start("x1", [*args.core, "--auth-token-ttl", "15s"])
    serves()
    for path, body in (("auth/user/add", {"name": "root", "password": "secret"}), ("auth/user/grant", {"user": "root", "role": "root"}), ("auth/user/add", {"name": "ann", "password": "ann"}),
                       ("auth/role/add", {"name": "one"}), ("auth/role/grant", {"name": "one", "perm": {"permType": "READ", "key": b64("/tenure/default/"), "range_end": b64("/tenure/default0")}}),
                       ("auth/user/add", {"name": "bob", "password": "bob"}), ("auth/user/grant", {"user": "ann", "role": "one"}), ("auth/enable", {})):
        post(path, body)
    try:
        br.open(args.url + "/?cluster=default")
        ok("with users: a login", br.until("!document.querySelector('#login').hidden && document.activeElement.id === 'user'"), errors(br))
        looks(br, "the login")

        def login(name, password):
            br.eval("document.querySelector('#user').value = ''; document.querySelector('#user').focus()")
            br.type(name)
            br.key("Tab")
            br.type(password)
            br.key("Enter")

        login("ann", "wrong")
        ok("a wrong password is refused, and said", br.until("/authentication failed/.test(document.querySelector('#why').textContent)"), br.eval("document.querySelector('#why').textContent"))
        is_("nothing is shown before", names(br), [])
        login("ann", "ann")
        ok("who may read sees it", br.until("document.querySelector('#live.on') && document.querySelector('#login').hidden") and br.until(cell("db5", "state") + " === 'held'"), br.eval("document.body.innerText")[:300])
        ok("and what leases have left", br.until(f"/ s \\/ |min/.test({cell('db5', 'left')})"), br.eval(cell("db5", "left")))
        is_("the login is nowhere but in memory", br.eval("[localStorage.length, sessionStorage.length, document.cookie, location.href.includes('ann')]"), [0, 0, "", False])
        admin = post("auth/authenticate", {"name": "root", "password": "secret"})["token"]
        token = admin
        post("auth/user/changepw", {"name": "ann", "password": "ann2"})
        ok("a login that was ended while the page is open: it asks for another", br.until("!document.querySelector('#login').hidden && /invalid auth token/.test(document.querySelector('#why').textContent)"), br.eval("document.body.innerText")[:300])
        ok("and shows nothing any more", br.until(f"{ROW}.length === 0"), names(br))
        login("ann", "ann2")
        ok("with which it goes on", br.until("document.querySelector('#live.on') && document.querySelector('#login').hidden") and br.until(cell("db5", "state") + " === 'held'"), br.eval("document.body.innerText")[:300])
        ok("and when its time is over, too", br.until("!document.querySelector('#login').hidden && /invalid auth token/.test(document.querySelector('#why').textContent)", 40), br.eval("document.body.innerText")[:300])
        ok("without what it has shown", br.until(f"{ROW}.length === 0"), names(br))
        login("ann", "ann2")
        br.until("document.querySelector('#live.on')")
        br.eval("document.querySelector('#logout').click()")
        ok("signed out", br.until(f"!document.querySelector('#login').hidden && {ROW}.length === 0"), names(br))
        login("bob", "bob")
        ok("who may not is told so", br.until("/permission denied: you may not read .tenure.default/.test(document.querySelector('#trouble').textContent)"), br.eval("document.querySelector('#trouble').textContent"))
        is_("and sees nothing", names(br), [])
        for path, body in (("auth/user/add", {"name": "carl", "password": "carl"}), ("auth/role/add", {"name": "part"}), ("auth/user/grant", {"user": "carl", "role": "part"}),
                           ("auth/role/grant", {"name": "part", "perm": {"permType": "READ", "key": b64("/tenure/default/nodes/db1"), "range_end": b64("/tenure/default/nodes/db2")}})):
            post(path, body)
        br.open(args.url + "/?cluster=default")
        br.until("!document.querySelector('#login').hidden && document.activeElement.id === 'user'")
        login("carl", "carl")
        ok("nor who may read a part of it", br.until("/permission denied: you may not read .tenure.default/.test(document.querySelector('#trouble').textContent)"), br.eval("document.querySelector('#trouble').textContent"))
        is_("that one sees nothing, either", names(br), [])
        is_("no exception, no violation", [e for e in errors(br) if not e.startswith("network:")], [])
    finally:
        token = post("auth/authenticate", {"name": "root", "password": "secret"})["token"]
        post("auth/disable", {})
        token = ""
    br.open("about:blank")  # until then the page asks again, and is refused
    br.log.clear()
    return core


def shoot(br):
    """The screenshots of the documentation."""
    if not args.shots:
        return
    zones, end = ("fra", "ams", "waw"), threading.Event()
    fleet = [f"{kind}-{z}-{k}" for kind in ("db", "web") for z in zones for k in (1, 2, 3)]
    for k, name in enumerate(fleet):
        ids[name] = lease(10)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 86400 * 3 - 7919 * k))
        more = {"ttl_ms": 10000, "since": since, "addresses": [f"192.0.2.{k + 10}"]}
        node(name, ids[name], "production", tags={"zone": name.split("-")[1]}, **more)
        post("kv/put", {"key": b64(f"/tenure/production/services/{'postgresql' if name[0] == 'd' else 'web'}/{name}"), "lease": ids[name],
                        "value": b64(json.dumps({"port": 5432 if name[0] == "d" else 443}))})
    for name in ("db-fra-1", "db-ams-1", "db-waw-2"):
        post("kv/put", {"key": b64("postgresql/leader/%x" % int(ids[name])), "lease": ids[name]})

    def renew():
        k = 0
        while not end.wait(0.25):
            k += 1
            if fleet[k % len(fleet)] != "web-ams-2":
                post("lease/keepalive", {"ID": ids[fleet[k % len(fleet)]]})

    for name in ("db8", "db9"):
        post("lease/revoke", {"ID": ids[name]})
    br.size(1280, 900)
    br.scheme("light")
    br.open(args.url + "/?cluster=production")
    br.until("document.querySelector('#live.on')")
    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        node("web-waw-3", ids["web-waw-3"], "production", degraded="memory: 31% stalled", ttl_ms=10000, addresses=["192.0.2.27"], tags={"zone": "waw"})
        node("web-fra-3", ids["web-fra-3"], "production", leaving="reboot", ttl_ms=10000, tags={"zone": "fra"})
        post("lease/revoke", {"ID": ids["web-fra-3"]})
        br.until("/held by/.test(document.querySelector('#lock-list').textContent)")
        br.until(cell("web-ams-2", "state") + " === 'jeopardy'", 20)
        n = [br.screenshot(os.path.join(args.shots, "desktop.png"))]
        br.until(event("web-ams-2 left"))
        br.size(360, 740, True)
        br.scheme("dark")
        br.until("innerWidth === 360")
        br.eval("document.querySelector('[data-sort=state] button').click()")
        br.until(f"{ROW}.some((r) => / s$/.test(r.querySelector('.c-left').firstChild.firstChild.textContent))")
        time.sleep(0.5)
        n.append(br.screenshot(os.path.join(args.shots, "phone.png")))
    finally:
        end.set()
        renewing.join()
    print(f"    screenshots of {n} bytes", flush=True)


ids = {}
os.makedirs(os.path.join(args.dir, "run"), exist_ok=True)
br = None
try:
    x1 = start("x1", args.core)
    ok("replica x1 serves", serves())
    br = browser.Browser(os.path.join(args.dir, "profile"))
    agent_ = shows(br)
    happens(br, agent_)
    keyboard(br)
    sizes(br)
    hostile(br)
    x1 = outage(br, x1)
    clock(br)
    leader(br)
    x1 = users(br, x1)
    shoot(br)
    many(br)
    print("end", flush=True)
finally:
    if br:
        br.end()
    for p in processes:
        if p.poll() is None:
            kill(p)
