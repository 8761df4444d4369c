#!/usr/bin/python3
"""python3-etcd3 as Debian has it, unchanged, does its work on tenure-core. usage: client_python.py PORT"""
import sys
import threading

import etcd3

c = etcd3.client(port=int(sys.argv[1]), timeout=5)


def check(ok, what):
    if not ok:
        print(f"not as it should be: {what}")
        sys.exit(1)


c.put("py/a", "1")
check(c.get("py/a")[0] == b"1", "get")
check(c.get("py/none") == (None, None), "get of nothing")
check([v for v, _ in c.get_prefix("py/", sort_order="descend")] == [b"1"], "prefix")
check(c.replace("py/a", "1", "2") and not c.replace("py/a", "1", "3"), "replace")
check(c.put_if_not_exists("py/b", "x") and not c.put_if_not_exists("py/b", "y"), "put_if_not_exists")
ok, answers = c.transaction(compare=[c.transactions.value("py/a") == "2", c.transactions.version("py/none") == 0],
                            success=[c.transactions.put("py/c", "z"), c.transactions.get("py/a")],
                            failure=[c.transactions.delete("py/a")])
check(ok and answers[1][0][0] == b"2", "transaction")
lease = c.lease(30)
c.put("py/leased", "l", lease)
check(lease.remaining_ttl > 20 and lease.keys == [b"py/leased"] and lease.granted_ttl == 30, "lease")
check(list(lease.refresh())[0].TTL == 30, "refresh")
events, cancel = c.watch_prefix("py/", start_revision=1)
seen = [next(events) for _ in range(4)]
check([e.key for e in seen][:2] == [b"py/a", b"py/a"], "watch from the past")
got, done = [], threading.Event()


def on_event(answer):
    got.extend(answer.events)
    done.set()


c.add_watch_callback("py/leased", on_event)
lease.revoke()
check(done.wait(5) and isinstance(got[0], etcd3.events.DeleteEvent), "watch of a revoked lease's key")
cancel()
with c.lock("py-lock", ttl=10) as lock:
    check(lock.is_acquired(), "lock")
# (Its acquire() of a lock that is taken fails in itself, with Debian's tenacity.)
again = c.lock("py-lock", ttl=10)
check(again.acquire(timeout=5) and again.release(), "lock, released")
check(c.status().leader is not None and len(list(c.members)) >= 1, "status and members")
check(c.hash() is not None and list(c.list_alarms()) == [], "hash and alarms")
check(c.delete("py/a") and not c.delete("py/a"), "delete")
check(c.delete_prefix("py/").deleted >= 2, "delete_prefix")
c.compact(5)
c.defragment()
print("done")
