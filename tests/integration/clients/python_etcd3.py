"""What python3-etcd3 does, unchanged, on tenure-core. usage: python_etcd3.py PORT"""
import queue
import sys

import etcd3

client = etcd3.client(port=int(sys.argv[1]), timeout=60)

client.put("py/a", "1")
assert client.get("py/a")[0] == b"1"
assert client.get("py/none") == (None, None)
assert [value for value, _ in client.get_prefix("py/", sort_order="descend")] == [b"1"]
assert client.replace("py/a", "1", "2") and not client.replace("py/a", "1", "3")
assert client.put_if_not_exists("py/b", "x") and not client.put_if_not_exists("py/b", "y")
of = client.transactions
done, answers = client.transaction(
    compare=[of.value("py/a") == "2", of.version("py/none") == 0],
    success=[of.put("py/c", "z"), of.get("py/a")], failure=[of.delete("py/a")])
assert done and answers[1][0][0] == b"2"

lease = client.lease(600)
client.put("py/leased", "l", lease)
assert (lease.keys, lease.granted_ttl) == ([b"py/leased"], 600)
assert list(lease.refresh())[0].TTL == 600
events, cancel = client.watch_prefix("py/", start_revision=1)
assert [next(events).key for _ in range(2)] == [b"py/a", b"py/a"]
cancel()
told = queue.Queue()
client.add_watch_callback("py/leased", told.put)
lease.revoke()
assert isinstance(told.get(timeout=60).events[0], etcd3.events.DeleteEvent)

with client.lock("py-lock", ttl=600) as lock:
    assert lock.is_acquired()
# Its acquire() of a lock that is taken fails in itself, with Debian's tenacity.
again = client.lock("py-lock", ttl=600)
assert again.acquire(timeout=60) and again.release()

assert client.status().leader is not None and len(list(client.members)) == 1
assert client.hash() is not None and list(client.list_alarms()) == []
assert client.delete("py/a") and not client.delete("py/a")
assert client.delete_prefix("py/").deleted >= 2
client.compact(5)
client.defragment()
