"""The gateway of three replicas whose leader is moved, frozen and killed, and of one that is removed, under calls by JSON.

usage: gateway_faults.py --bin DIR --dir DIR --pb DIR --ports P1,...   (eight)
"""
import base64
import http.client
import itertools
import json
import os
import signal
import threading
import time

import cluster
from cluster import PORTS, Replica, finish, leader, report, until_they_answer, wait_for

STATUS = {3: 400, 5: 404, 8: 429, 9: 412, 14: 503}  # of the codes that may come
CLIENT, PEER = PORTS[:4], PORTS[4:]
NAMES = cluster.members(PEER[:3])


def b64(s):
    return base64.b64encode(s.encode()).decode()


class Asked:
    """A connection by HTTP/1.1, kept; status None: it broke."""

    def __init__(self, port):
        self.port, self.c = port, None

    def ask(self, path, body, timeout=20):
        self.c = self.c or http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            self.c.request("POST", path, json.dumps(body))
            r = self.c.getresponse()
            return r.status, r.read()
        except (OSError, http.client.HTTPException):
            self.c.close()
            self.c = None
            return None, b""


def call(port, path, body=None):
    status, said = Asked(port).ask(path, body or {})
    if status != 200:
        raise SystemExit(f"{path} at {port}: {status} {said}")
    return json.loads(said)


def well_formed(path, status, said):
    """None, or what is wrong with an answer."""
    try:
        lines = [json.loads(x) for x in said.splitlines()] if path.endswith(("keepalive", "snapshot")) else [json.loads(said)]
    except ValueError:
        return f"{path}: {status} {said[:200]}"
    for m in lines:
        if status == 200 and "error" not in m:
            continue
        # of a stream that has begun, or of any other answer
        e = m.get("error")
        ok = e.get("http_code") == STATUS.get(e.get("grpc_code")) if isinstance(e, dict) else (
            m.get("message") == e and STATUS.get(m.get("code")) == status and e.startswith("etcdserver: "))
        if not ok:
            return f"{path}: {status} {said[:200]}"
    return None


class Caller(threading.Thread):
    """Calls one kind after the other at one replica, for as long as it goes on."""

    def __init__(self, i, lease):
        super().__init__(daemon=True)
        self.i, self.lease, self.go_on = i, lease, True
        self.put, self.wrong, self.refused, self.broken, self.slowest = [], [], {}, 0, 0
        self.start()

    def calls(self):
        for n in itertools.count():
            key = f"k/{self.i}/{n}"
            yield key, "/v3/kv/put", {"key": b64(key), "value": b64("v")}
            yield key + "t", "/v3/kv/txn", {"success": [{"request_put": {"key": b64(key + "t")}}, {"request_range": {"key": b64(key)}}]}
            yield None, "/v3/kv/range", {"key": b64(key)}
            yield None, "/v3/lease/keepalive", {"ID": self.lease}
            yield None, "/v3/lease/grant", {"TTL": "1"}
            yield None, "/v3/lock/lock", {"name": b64(f"l{self.i}"), "lease": self.lease}
            yield None, "/v3/election/campaign", {"name": b64(f"e{self.i}"), "lease": self.lease, "value": b64("x")}
            yield None, "/v3/election/leader", {"name": b64(f"e{self.i}")}
            yield None, "/v3/cluster/member/list", {}
            yield None, "/v3/maintenance/status", {}
            if n % 50 == 0:
                yield None, "/v3/maintenance/snapshot", {}

    def run(self):
        at = Asked(CLIENT[self.i])
        for key, path, body in self.calls():
            began = time.monotonic()
            status, said = at.ask(path, body)
            self.slowest = max(self.slowest, time.monotonic() - began)
            if not self.go_on:
                return
            if status is None:
                self.broken += 1
                time.sleep(.02)
            elif why := well_formed(path, status, said):
                self.wrong.append(why)
            elif status != 200:
                what = f"{status} {json.loads(said).get('message')}"
                self.refused[what] = self.refused.get(what, 0) + 1
            elif key:
                self.put.append(key)


class Watch(threading.Thread):
    """All keys that are put, in the order of their revisions; and how the stream ended."""

    def __init__(self, port, prefix="k/", headers=None):
        super().__init__(daemon=True)
        self.c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.c.request("POST", "/v3/watch", json.dumps({"create_request": {"key": b64(prefix), "range_end": b64(prefix[:-1] + "0")}}), headers or {})
        self.r = self.c.getresponse()
        self.keys, self.revisions, self.error, self.end = set(), [], None, None
        self.created = json.loads(self.r.readline())
        self.start()

    def run(self):
        try:
            while line := self.r.readline():
                m = json.loads(line)
                self.error = m.get("error", self.error)
                for e in m.get("result", {}).get("events", []):
                    self.keys.add(base64.b64decode(e["kv"]["key"]).decode())
                    self.revisions.append(int(e["kv"]["mod_revision"]))
            self.end = "whole"
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.end = type(e).__name__


replicas = [Replica(i, CLIENT[i], PEER[i], NAMES) for i in range(3)]
until_they_answer(replicas)
lease = call(CLIENT[0], "/v3/lease/grant", {"TTL": "600"})["ID"]


def fault(what, do, undo=lambda r: None, broken=False):
    led = leader(replicas)
    others = [r for r in replicas if r is not led]
    watches = [Watch(CLIENT[r.i]) for r in others]
    callers = [Caller(r.i, lease) for r in replicas]
    wait_for(lambda: all(len(c.put) > 5 for c in callers), 20, "calls")
    do(led, others)
    began = time.monotonic()
    counts = {r.i: len(callers[r.i].put) for r in others}
    wait_for(lambda: all(len(callers[r.i].put) > counts[r.i] + 20 for r in others), 20, "calls that go on")
    took = time.monotonic() - began
    undo(led)
    count = len(callers[led.i].put)
    wait_for(lambda: len(callers[led.i].put) > count + 5, 20, "calls at who led")
    for c in callers:
        c.go_on = False
    for c in callers:
        c.join()
    wrong = [w for c in callers for w in c.wrong]
    report(not wrong, f"{what}: every answer is one", str(wrong[:3]))
    refused = {}
    for c in callers:
        for k, n in c.refused.items():
            refused[k] = refused.get(k, 0) + n
    cut = {r.i: callers[r.i].broken for r in others}
    report(not any(cut.values()) and (broken or not callers[led.i].broken), f"{what}: no connection breaks but those of who dies",
           f"{cut}, {callers[led.i].broken} of who led")
    kept = {base64.b64decode(kv["key"]).decode() for kv in call(CLIENT[others[0].i], "/v3/kv/range", {"key": b64("k/"), "range_end": b64("k0"), "keys_only": True})["kvs"]}
    put = {k for c in callers for k in c.put}
    report(put <= kept, f"{what}: nothing acknowledged is lost", str(sorted(put - kept)[:5]))
    for r, w in zip(others, watches):
        wait_for(lambda: put <= w.keys or w.end, 10, f"events at n{r.i}")
        report(put <= w.keys and w.revisions == sorted(w.revisions) and w.end is None, f"{what}: a watch at n{r.i} goes on, without a gap",
               f"{len(put - w.keys)} of {len(put)} are missing, {w.end} {w.error}")
    print(f"    {what}: {len(put)} puts, on others again after {took:.2f} s, slowest {max(callers[r.i].slowest for r in others):.2f} s; refused: {refused}", flush=True)


def moves(led, others):
    to = others[0].status().header.member_id
    status, said = Asked(CLIENT[led.i]).ask("/v3/maintenance/transfer-leadership", {"targetID": str(to)})
    report(status == 200, "leadership is moved by JSON", f"{status} {said}")


fault("moved", moves)
fault("frozen", lambda led, _: led.process.send_signal(signal.SIGSTOP), lambda led: led.process.send_signal(signal.SIGCONT))
fault("killed", lambda led, _: led.kill(), lambda led: led.start(), True)
fault("stopped", lambda led, _: (led.process.terminate(), led.process.wait()), lambda led: led.start(), True)

# ---- without a leader ----
until_they_answer(replicas)
led = leader(replicas)
alone = next(r for r in replicas if r is not led)
asks, silent = Watch(CLIENT[alone.i], headers={"Grpc-Metadata-hasleader": "true"}), Watch(CLIENT[alone.i])
for r in replicas:
    if r is not alone:
        r.process.send_signal(signal.SIGSTOP)
wait_for(lambda: asks.end, 20, "the end of a watch that asked for a leader")
report(asks.end == "whole" and asks.error == {"grpc_code": 14, "http_code": 503, "message": "etcdserver: no leader", "http_status": "Service Unavailable"},
       "a watch that requires a leader is told", f"{asks.end} {asks.error}")
asked = [("/v3/kv/put", {"key": b64("x")}), ("/v3/kv/range", {"key": b64("x")}), ("/v3/lease/keepalive", {"ID": lease}), ("/v3/kv/txn", {}),
         ("/v3/lease/grant", {"TTL": 5}), ("/v3/lock/lock", {"name": b64("x")}), ("/v3/election/leader", {"name": b64("x")})]
said = {}


def ask_alone(path, body):
    said[path] = Asked(CLIENT[alone.i]).ask(path, body)


threads = [threading.Thread(target=ask_alone, args=a) for a in asked]
for t in threads:
    t.start()
for t in threads:
    t.join()
wrong = {p: a for p, a in said.items() if a[0] != 503 or well_formed(p, *a)}
report(not wrong, "without a leader every call is told", str(wrong))
status, said = Asked(CLIENT[alone.i]).ask("/v3/kv/range", {"key": b64("x"), "serializable": True})
report(status == 200, "a serializable range is served", f"{status} {said}")
report(silent.end is None, "a watch that does not ask for a leader goes on", str(silent.end))
for r in replicas:
    if r is not alone:
        r.process.send_signal(signal.SIGCONT)
until_they_answer(replicas)

# ---- one that is removed, and one that stops: what comes of a watch in chunks ----
led = leader(replicas)
goes, stays = [r for r in replicas if r is not led]
watch, lock = Watch(CLIENT[goes.i]), Asked(CLIENT[goes.i])
held = call(CLIENT[led.i], "/v3/lock/lock", {"name": b64("held"), "lease": lease})
waits = threading.Thread(target=lambda: waited.append(lock.ask("/v3/lock/lock", {"name": b64("held")}, 40)), daemon=True)
waited = []
waits.start()
own = goes.status().header.member_id
began = time.monotonic()
wait_for(lambda: Asked(CLIENT[led.i]).ask("/v3/cluster/member/remove", {"ID": str(own)})[0] == 200, 20, "the removal")
wait_for(lambda: watch.end, 30, "the end of a watch at who is removed")
waits.join(30)
STOPPED = "etcdserver: server stopped"
report(watch.error == {"grpc_code": 14, "http_code": 503, "message": STOPPED, "http_status": "Service Unavailable"},
       "a watch at one that is removed is told", f"{watch.end} {watch.error} after {time.monotonic() - began:.1f} s")
report(waited and waited[0][0] == 503 and json.loads(waited[0][1]) == {"error": STOPPED, "message": STOPPED, "code": 14},
       "so is who waits for a lock there", str(waited))
wait_for(lambda: goes.process.poll() is not None, 10, "the end of its process")
for r in replicas:
    if r.process.poll() is None:
        r.process.send_signal(signal.SIGCONT)
        r.process.terminate()
        r.process.wait()
finish()
