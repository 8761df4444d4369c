#!/usr/bin/env bash
# The Python module: its structures beside the header's, and what its page shows, on a core of one replica or an etcd.
# usage: BIN=build/release/bin DIR=build/libtenure-python-test [ENGINE=etcd] tests/system/libtenure_python.sh
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
TOP=$(cd "$(dirname "$0")/../.." && pwd)
SO=$(cd "$BIN/../so" && pwd)
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
export LD_LIBRARY_PATH=$SO PYTHONPATH=$TOP/lib/tenure/python PYTHONDONTWRITEBYTECODE=1
# A library with a sanitizer needs its runtime first.
case $BIN in *asan*) LD_PRELOAD=$(gcc -print-file-name=libasan.so) && export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0 ;; esac

# ---- one member out of place would be read as another ----
/usr/bin/python3 - "$DIR/layout.c" >"$DIR/python.layout" <<'P' || not_ok "the module loads"
import ctypes, sys, tenure
structs = {"tenure_node": tenure._Node, "tenure_service": tenure._Service, "tenure_kv": tenure._Kv, "tenure_event": tenure._Event,
           "tenure_range": tenure._Range, "tenure_watch_options": tenure._WatchOptions,
           "tenure_switched": tenure._Switched, "tenure_work_options": tenure._WorkOptions}
c = open(sys.argv[1], "w")
print("#include <stdio.h>\n#include <tenure.h>\nint main(void) {", file=c)
for name, s in structs.items():
    for f, _ in s._fields_:
        print(name, f, getattr(s, f).offset, getattr(s, f).size)
        print(f'printf("{name} {f} %zu %zu\\n", offsetof(struct {name}, {f}), sizeof(((struct {name} *) 0)->{f}));', file=c)
    print(name, ctypes.sizeof(s))
    print(f'printf("{name} %zu\\n", sizeof(struct {name}));', file=c)
for t in tenure.Type:
    print(t.name, t.value)
    print(f'printf("{t.name} %d\\n", TENURE_{t.name});', file=c)
print("return 0; }", file=c)
P
gcc -I"$TOP/lib/tenure" -o "$DIR/layout" "$DIR/layout.c" && LD_PRELOAD= "$DIR/layout" >"$DIR/c.layout"
if [ -s "$DIR/c.layout" ] && cmp -s "$DIR/c.layout" "$DIR/python.layout"; then ok "its structures and numbers are the header's"; else not_ok "its structures and numbers are the header's" "$(diff "$DIR/c.layout" "$DIR/python.layout" | head -n 3)"; fi

core core "$a" "$ap"; CORE=$PID
serves "$a"
agent h1; H1=$PID; until_ok 10 held h1
export TENURE_ENDPOINTS=http://127.0.0.1:$a ENGINE
cat >"$DIR/test.py" <<'P'
import concurrent.futures, copy, errno, gc, os, pickle, selectors, signal, subprocess, sys, threading, time, tenure

def case(what, good, got=None):
    print(("ok " if good else "not ok ") + what + ("" if good or got is None else f": {got!r}"), flush=True)

with tenure.Tie(follow=tenure.NODES | tenure.SERVICES) as tie:
    tie.synced()
    nodes = tie.nodes()
    case("who is there", list(nodes) == ["h1"], nodes)
    case("a node has what its host says of itself", nodes["h1"].ttl_ms == 2000 and nodes["h1"].lease and nodes["h1"].addresses, nodes)
    case("nothing is held where nothing was asked for", not tie.may_act and tie.lease == 0)

    revision = tie.put("k/a", "1")
    watch = tie.watch("k/", prefix=True, revision=revision, before=True)
    tie.put("k/b", b"\0\xff")
    tie.put("k/a", "2")
    case("a prefix is deleted", tie.delete("k/", prefix=True) == 2)
    got = []
    while len(got) < 5:
        e = tie.wait(5)
        if e is None:
            break
        if e.watch is watch:
            got.append((e.type.name, e.kv.key, e.kv.value, e.before and e.before.value))
    want = [("PUT", b"k/a", b"1", None), ("PUT", b"k/b", b"\0\xff", None), ("PUT", b"k/a", b"2", b"1"),
            ("DELETE", b"k/a", b"", b"2"), ("DELETE", b"k/b", b"", b"\0\xff")]
    case("a watch has each change once and in order", got == want, got)
    watch.close()
    case("a key that is not there is None", tie.get("k/a") is None)
    tie.put("k/c", "x")
    kv = tie.get("k/c")
    case("a key has its value and revisions", kv.value == b"x" and kv.mod_revision == kv.create_revision and kv.version == 1, kv)
    try:
        tie.get("k/c", revision=10**15)
        case("a revision of the future is refused", False)
    except tenure.Error as e:
        case("a revision of the future is refused, in a sentence", "future" in str(e), e)
    try:
        tie.put_held("k/d", "x")
        case("a guarded write needs a session", False)
    except tenure.Error as e:
        case("a guarded write needs a session", e.errno != errno.ETIMEDOUT, e)

with tenure.Tie(hold=10, name="one") as one, tenure.Tie(hold=10, follow=tenure.SERVICES) as two:
    one.held(); two.held()
    case("a lease of one's own is held, and has a deadline", one.lease and 0 < one.deadline - time.clock_gettime(time.CLOCK_BOOTTIME) < 10.1)
    one.put_held("g", "1")
    with one.lock("nightly", timeout=10) as lock:
        case("a lock is held, with a token", lock.held and lock.token > 0)
        try:
            two.lock("nightly", timeout=0.5)
            case("nobody else has it meanwhile", False)
        except tenure.Error as e:
            case("nobody else has it meanwhile", e.errno == errno.ETIMEDOUT, e)
        first = lock.token
    # Nothing is asked of the one meanwhile: what it gives back has gone out.
    with two.lock("nightly", timeout=10) as lock:
        case("then the next one has it, with a larger token", lock.token > first and one.may_act, (first, lock.token, one.may_act))
        # It hands the lock over on request.
        waits = one.lock_begin("nightly")
        while not [k for k in one.range("nightly/", prefix=True) if k.lease == one.lease]:
            one.wait(0.05)
        with tenure.Tie() as other, concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(other.switchover, "nightly", "one", within=10)
            until = time.monotonic() + 10
            while lock.held and time.monotonic() < until:
                e = two.wait(0.05)
                if e and e.type == tenure.Type.ASKED:
                    case("a holder that is asked has a deadline", e.reason == "one" and
                         0 < lock.deadline - time.clock_gettime(time.CLOCK_BOOTTIME) < 10.1, (e, lock.deadline))
                    lock.hand_over()
            while not waits.held and time.monotonic() < until:
                one.wait(0.05)
            case("the one that was named has it, before the lease of who had it is over", waits.held and two.may_act and asked.result(10).to == "one", asked)
            waits.release()
    # What an etcd has not begun when its connection ends is never done; that takes some luck, so often.
    for i in range(20):
        with tenure.Tie(hold=60) as short:
            short.held()
            with short.lock(f"short/{i}", timeout=10):
                pass
    left = one.range("short/", prefix=True)
    case("a tie that is closed at once has given its lock back", not left, left)
    for i in range(20):
        with tenure.Tie(hold=60, name=f"left{i}") as short:
            short.held().leave()
    left = [k for k in one.range("/tenure/", prefix=True) if b"left" in k.key]
    case("and the lease that it left", not left, left)
    subprocess.run([sys.executable, "-c", """import tenure
for i in range(20):
    tie = tenure.Tie(hold=60).held()
    with tie.lock(f"short/{i}", timeout=10):
        pass"""], check=True)
    left = one.range("short/", prefix=True)
    case("so has one that is never closed", not left, left)
    one.register("api", port=8080, tags={"zone": "a"})
    two.synced()
    until = time.monotonic() + 10
    while not two.services("api") and time.monotonic() < until:
        one.wait(0.05); two.wait(0.05)
    s = two.services("api")
    case("a service is registered", len(s) == 1 and s[0].port == 8080 and s[0].tags == {"zone": "a"}, s)
    one.leave()
    until = time.monotonic() + 10
    while (one.may_act or two.services("api")) and time.monotonic() < until:
        one.wait(0.05); two.wait(0.05)
    case("what was given back is given back, with its service", not one.may_act and not two.services("api"))
    try:
        one.put_held("g", "late")
        case("a guarded write after that is refused", False)
    except tenure.Error as e:
        case("a guarded write after that is refused", two.get("g").value == b"1", e)

with tenure.Tie(hold=3, name="alice") as one, tenure.Tie(hold=3, name="bob") as two:
    has, left = {one: {}, two: {}}, set()
    works = {one: one.work("g", ["red", "green", "blue", "white", "black"], settle=0.1)}

    def turn(done):
        until = time.monotonic() + 10
        while not done() and time.monotonic() < until:
            for tie, mine in has.items():
                e = tie.wait(0.02)
                if e and e.type == tenure.Type.TASK_BEGIN:
                    mine[e.task] = e.revision
                elif e and e.type == tenure.Type.TASK_END:
                    del mine[e.task]
                    e.work.ended(e.task)
                elif e and e.type == tenure.Type.WORK_LEFT:
                    left.add(e.work)

    turn(lambda: len(has[one]) == 5)
    case("one member has all tasks", len(has[one]) == 5 and all(works[one].held(t) and works[one].token(t) == n for t, n in has[one].items()), has)
    try:
        works[one].ended("red")
        case("what was not told to end has not ended", False)
    except tenure.Error as e:
        case("what was not told to end has not ended", e.errno == errno.EINVAL, e)
    first = dict(has[one])
    works[two] = two.work("g", ["red", "green", "blue", "white", "black"], weight=300, settle=0.1)
    turn(lambda: has[two] and len(has[one]) + len(has[two]) == 5)
    case("two divide them, with larger tokens", has[two] and len(has[one]) + len(has[two]) == 5 and all(n > first[t] for t, n in has[two].items()), has)
    works[two].leave()
    turn(lambda: works[two] in left and len(has[one]) == 5)
    case("one leaves, and the other has all", works[two] in left and len(has[one]) == 5 and not has[two], has)

with tenure.Tie() as tie:
    plain = tie.lease_grant(60)
    tie.put("l/a", "1", lease=plain.id)
    found = tie.lease_look(plain, keys=True)
    case("a lease by its id", plain.ttl == 60 and found.id == plain.id and found.keys == [b"l/a"] and found.name == "" and tie.lease_renew(plain).ttl == 60, found)
    tie.lease_revoke(plain)
    case("and its end", tie.get("l/a") is None)
    def result(function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except tenure.Error as e:
            return e.errno
    jobs = result(tie.lease_grant, 60, name="jobs")
    if os.environ.get("ENGINE") == "etcd":
        case("an etcd has no names", [jobs, result(tie.put, "l/b", "1", lease="jobs"), result(tie.lease_look, "jobs"), tie.get("l/b")] == [errno.EOPNOTSUPP] * 3 + [None])
    else:
        tie.put("l/b", "1", lease="jobs")
        case("a used name", result(tie.lease_grant, 60, name="jobs") == errno.EEXIST)
        case("a lease by its name", tie.lease_look("jobs", keys=True).keys == [b"l/b"] and tie.lease_renew("jobs").id == jobs.id and jobs.name == "jobs")
        tie.lease_revoke("jobs")
        case("a name that nobody has", [result(tie.put, "l/b", "1", lease="jobs"), result(tie.lease_look, "jobs"), result(tie.lease_revoke, "jobs")] == [errno.ENOENT] * 3 and tie.get("l/b") is None)

with tenure.Tie(follow=tenure.NODES) as tie:
    s = selectors.DefaultSelector()
    s.register(tie, selectors.EVENT_READ)
    seen, until = [], time.monotonic() + 10
    while tenure.Type.SYNCED not in seen and time.monotonic() < until:
        s.select(1)
        tie.dispatch()
        while (e := tie.pop()):
            seen.append(e.type)
    case("it fits into a selector", seen == [tenure.Type.NODE_JOINED, tenure.Type.SYNCED], seen)

# ---- what is wrong is said: the interpreter does not end of it ----
def wrong(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except Exception as e:
        return type(e).__name__

tie = tenure.Tie(hold=3).held()
tie.put("k/bytes", bytearray(b"a\0b")), tie.put("k/bytes2", memoryview(b"ab"))
case("what has bytes is a value", [tie.get("k/bytes").value, tie.get("k/bytes2").value] == [b"a\0b", b"ab"])
case("a number is none", wrong(tie.put, "k/n", 42) == "TypeError" and tie.get("k/n") is None, tie.get("k/n"))
case("a name with a zero byte is none", [wrong(tie.lock_begin, "a\0b"), wrong(tie.lease_grant, 9, name="a\0b")] == ["ValueError"] * 2)
wide = [wrong(tie.put, "k/n", b"", lease=1 << 70), wrong(tie.lease_renew, 1 << 64), wrong(tie.lease_grant, -1), wrong(tie.get, "k/bytes", revision=1 << 63),
        wrong(tie.register, "s", port=70000), wrong(tie.work, "g", 4, weight=-1)]
case("nor is a number what C has no room for", wide == ["ValueError"] * 6, wide)
early = tie.lock_begin("early")
early.release()
again = tie.lock_begin("again")
event = tie.wait(10)
case("what is said of a lock is not of the next one", event.type == tenure.Type.LOCKED or event.lock is not again, event)
case("a lock that was given back is not handed over", wrong(early.hand_over) == "Error")
lock, work = tie.lock("closing", timeout=10), tie.work("closing", 2)
tie.close()
got = [wrong(tie.put, "a", "b"), wrong(tie.wait, 0), wrong(tie.fileno), wrong(work.ended, "1"), wrong(lock.hand_over)]
case("a tie that is closed", got == ["Closed"] * 3 + ["Error"] * 2, got)
case("has nothing", not tie.may_act and tie.lease == 0 and tie.deadline == 0 and not lock.held and lock.token == 0 and
     lock.deadline == 0 and not work.held("1") and work.token("1") == 0)
lock.release(), tie.close()

# ---- Ctrl-C ----
def interrupt(*_):
    raise KeyboardInterrupt

def interrupted(function, *arguments, **options):
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    begun = time.monotonic()
    try:
        function(*arguments, **options)
    except KeyboardInterrupt:
        return time.monotonic() - begun < 3
    return False

with tenure.Tie("http://127.0.0.1:1") as tie:
    case("a call is interrupted", interrupted(tie.put, "k/i", "x"))
    begun = time.monotonic()
    try:
        tie.get("k/i", timeout=-1)
    except tenure.Error as e:
        case("a time that has passed is not forever", e.errno == errno.ETIMEDOUT and time.monotonic() - begun < 3, (e, time.monotonic() - begun))
with tenure.Tie(hold=3) as one, tenure.Tie(hold=3) as two:
    one.held(), two.held()
    lock = one.lock("interrupted", timeout=10)
    case("a wait for a lock is interrupted", interrupted(two.lock, "interrupted"))
    lock.release()
    until = time.monotonic() + 10
    while one.range("interrupted/", prefix=True) and time.monotonic() < until:
        one.wait(0.05), two.wait(0.05)
    case("and the lock is not waited for any more", not one.range("interrupted/", prefix=True))

# ---- several ties, each in its thread, have nothing to do with each other ----
mixed = []
def in_thread(number):
    try:
        with tenure.Tie() as tie:
            for i in range(200):
                value = f"{number} {i} " * 50
                tie.put(f"thread/{number}", value)
                if (kv := tie.get(f"thread/{number}")).value != value.encode():
                    mixed.append((number, i, kv))
    except Exception as e:
        mixed.append((number, e))
threads = [threading.Thread(target=in_thread, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
case("ties in threads do not hear each other's answers", not mixed, mixed[:1])

# ---- one tie in several threads is of little use, and does no harm; nor does a copy, for there is none ----
with tenure.Tie() as tie:
    heard, wrong, until = [], [], time.monotonic() + 20
    watch = tie.watch("shared/", prefix=True, revision=tie.put("before", "") + 1)  # an etcd may create it after the first puts
    def hears():
        while len(heard) < 400 and time.monotonic() < until:
            if e := tie.wait(0.05):
                heard.append(e.kv.key)
    def puts(number):
        try:
            for i in range(100):
                tie.put(f"shared/{number}/{i}", b"x" * 1000)
        except Exception as e:
            wrong.append(e)
    threads = [threading.Thread(target=hears)] + [threading.Thread(target=puts, args=(n,)) for n in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    case("a tie that threads share does what they ask, and tells each event once", not wrong and len(set(heard)) == 400 == len(heard), (wrong[:1], len(heard)))
    tie.delete("shared/", prefix=True)
    for what in tie, watch:
        for copies in copy.copy, copy.deepcopy, pickle.dumps:
            try:
                copies(what)
                case(f"{copies.__name__} of a {type(what).__name__}", False)
            except TypeError:
                pass
    case("after all that it works", tie.put("k", "v") > 0)
with tenure.Tie() as tie:
    threading.Timer(0.2, tie.close).start()
    begun = time.monotonic()
    try:
        tie.wait(10)
        case("closed by another thread, a wait ends", False)
    except tenure.Closed:
        case("closed by another thread, a wait ends", time.monotonic() - begun < 5)

# ---- who is forgotten is closed; a child has no part in it ----
gc.collect()
n = len(os.listdir("/proc/self/fd"))
for _ in range(5): tenure.Tie()
gc.collect()
case("a tie that nobody has is closed", len(os.listdir("/proc/self/fd")) == n, (n, os.listdir("/proc/self/fd")))
with tenure.Tie(hold=3) as tie:
    tie.held()
    said, says = os.pipe()
    if os.fork() == 0:
        try:
            tie.put("k/child", "x")
        except tenure.Error as e:
            os.write(says, str(e).encode())
        tie.close()
        os._exit(0)
    os.wait()
    got = os.read(said, 1000)
    case("a child hears that it has no part in it", b"is a child of the one that made the tie" in got, got)
    tie.wait(4)
    case("and ends, which its parent does not notice", tie.may_act and tie.put_held("k/parent", "x") > 0)

try:
    tenure.Tie("nonsense")
    case("what is no endpoint is refused", False)
except tenure.Error as e:
    case("what is no endpoint is refused, by name", e.errno == errno.EINVAL and "nonsense" in str(e), e)
P
timeout 120 /usr/bin/python3 "$DIR/test.py" >"$DIR/test.log" 2>&1 || echo "not ok the test ends by itself: $(tail -n 1 "$DIR/test.log")" >>"$DIR/test.log"
while read -r line; do
	case $line in "not ok "*) not_ok "${line#not ok }" ;; "ok "*) ok "${line#ok }" ;; esac
done <"$DIR/test.log"
kill "$H1" "$CORE"
finish
