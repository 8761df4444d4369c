#!/usr/bin/env python3
"""tenurectl top on a terminal of its own.

usage: top.py TENURECTL BUS URLS HOOK ENGINE; HOOK is a command of the test around: `HOOK WHAT...` has something happen to the
fleet. Prints a line "ok ..." or "not ok ..." for each.
"""
import os, re, signal, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from page import Page

ctl, bus, urls, hook, engine = sys.argv[1:]
etcd = engine == "etcd"


def case(what, good, page=None):
    print(("ok " if good else "not ok ") + what + ("" if good or not page else ": the page is\n" + page.text()), flush=True)


def happen(*words):
    if subprocess.run([hook, *words]).returncode != 0:
        print("not ok the test itself: " + " ".join(words), flush=True)


def top(*options, **page):
    return Page([ctl, "--bus=" + bus, "top", *options], **page)


LEFT = r"\d+s" if etcd else r"\d+\.\ds"
HELD = rf" +held +{LEFT} "

p = top()
case("members are there, with the time that they have left", p.shows(rf"^db1{HELD}") and p.shows(rf"^db2{HELD}") and p.shows(rf"^db3{HELD}"), p)
case("it has the terminal: another screen, no cursor", p.alternate and p.hidden)
case("and this host is there, with its own deadline", p.shows(r"^This host: db1, held, \d+\.\ds to its own deadline"), p)
case("replicas have role, term, lag and version", p.shows(r"^x\d +leader +\d+ +\d+ .* \d+\.\d+\.\d+"), p)
if etcd:
    case("what an etcd does not tell is said", p.shows(r"; an etcd: whole seconds"), p)
    case("and is left out", "CLIENTS" not in p.text(), p)
else:
    case("three of them", p.shows(r"^Core: 3 of 3 replica\(s\) answer, x\d leads$"), p)
first = p.shows(rf"^db1{HELD}")
now = first and first[0]
seen = set()
end = time.monotonic() + 8
while len(seen) < (2 if etcd else 3) and time.monotonic() < end:
    p.pump(0.1)
    m = re.search(rf"^db1{HELD}", p.text(), re.M)
    if m:
        seen.add(m[0])
case("time runs", len(seen) >= (2 if etcd else 3), p)

# ---- what is written ----
quiet = len(p.raw)
p.type("/db2\r")
case("a filter leaves what it is for", p.shows_not(r"^db[13] ") and p.shows(rf"^db2{HELD}"), p)
case("and is named", p.shows(r"\[filter: db2: 1 of 3\]"), p)
p.type("\x1b")
case("Esc ends it", p.shows(r"^db1 ") and p.shows(r"^db3 "), p)
p.type("r")
case("the other way round", p.shows(r"^db3 .*\ndb2 .*\ndb1 "), p)
p.type("r")
p.type("<")
case("sorted by another column", p.shows("SERVICES\u25bc"), p)
p.type("n")
case("and by name again", p.shows("NODE\u25bc") and p.shows(r"^db1 .*\ndb2 .*\ndb3 "), p)
p.type("?")
case("help", p.shows(r"^q, \^C +quit$"), p)
p.type("x")
case("and back", p.shows(r"^db1 "), p)
p.size(40, 14)
case("narrow: it fits", p.shows(rf"^db3 +held +{LEFT}") and max(map(len, p.text().split("\n"))) <= 40, p)
p.size(100, 50)
case("wide again: more of it", p.shows(r"^NODE.*ADDRESS"), p)
# Whole lines are written where something has changed, and only these.
while True:  # until what the last size has brought is written
    p.raw = b""
    p.pump(0.3)
    if not p.raw:
        break
end = time.monotonic() + 1.5
rows = set()
while time.monotonic() < end or (not rows and time.monotonic() < end + 20):
    p.pump(0.1)
    rows = {int(n) for n in re.findall(rb"\x1b\[(\d+);1H", p.raw)}
case("what has not changed is not written", 0 < len(rows) <= 12 and b"NODE" not in p.raw and b"EVENTS" not in p.raw, p)

# ---- what happens ----
happen("register")
case("a service that comes is at its node", p.shows(r"^db1 .* web") and p.wrote("service web on db1 is there"), p)
happen("lock", "db1", "1")
case("a lock has its holder", p.shows(r"^job +db1 "), p)
happen("lock", "db2", "2")
case("and who waits for it", p.shows(r"^job +db1 +\d+ +1: db2"), p)
happen("kill", "db3")
case("a node that dies is lost", p.shows(r"^db3 +lost .* expired", 15), p)
case("and said to have left, and why", p.wrote("db3 left: expired"), p)
happen("agent", "db3")
case("it comes back", p.shows(rf"^db3{HELD}") and p.wrote("db3 joined"), p)
if not etcd:
    happen("stop", "1")
    case("a replica that ends does not answer", p.shows(r"^x1 +no answer .*\w") and p.wrote("replica x1 does not answer: "), p)
    happen("replica", "1")
    case("and answers again", p.shows(r"^x1 +(voter|leader|learner) ", 15) and p.wrote("replica x1 answers again"), p)
happen("core-down")
case("without a core it says so", p.shows(r"^Not followed since \d\d:\d\d:\d\d: .*; trying on$", 15), p)
happen("core-up")
case("and goes on when it is back", p.shows(r"^This host: db1") and p.shows(rf"^db2{HELD}", 15) and p.wrote("is followed again"), p)

# ---- odd sizes ----
def last_frame():
    return p.raw.rpartition(b"\x1b[2J")[2]


for width, height in (1, 1), (2, 1), (1, 40), (500, 1), (500, 120), (1000, 3):
    p.raw = b""
    p.size(width, height)
    end = time.monotonic() + 5
    while not (rows := {int(n) for n in re.findall(rb"\x1b\[(\d+);1H", last_frame())}) or max(rows) > height:
        p.pump(0.1)
        if time.monotonic() > end:
            break
    case(f"{width} x {height}: it draws, and nothing beyond", rows and max(rows) <= height and max(map(len, p.text().split("\n"))) <= width, p)
for i in range(400):
    p.size(1 + i * 7 % 200, 1 + i * 3 % 60)
    p.pump(0)
p.size(100, 50)
case("after a storm of sizes it is whole", p.shows(rf"^db1{HELD}") and p.shows(rf"^db3{HELD}"), p)

# ---- how it ends ----
os.kill(p.pid, signal.SIGTSTP)
status = p.wait()
case("^Z stops it, and gives the terminal back", status is not None and os.WIFSTOPPED(status) and p.is_restored(), p)
p.forget()
os.kill(p.pid, signal.SIGCONT)
case("fg, and it has it again", p.shows(rf"^db1{HELD}") and p.alternate and p.hidden and not p.is_restored(), p)
p.type("q")
status = p.wait()
case("q ends it well", status == 0, p)
case("and the terminal is as it was", p.is_restored())
if status is None:
    p.kill()
for what, number, wanted in [("SIGTERM", signal.SIGTERM, signal.SIGTERM), ("SIGHUP", signal.SIGHUP, signal.SIGHUP), ("SIGQUIT", signal.SIGQUIT, signal.SIGQUIT),
                             ("the end of its processor time", signal.SIGXCPU, signal.SIGXCPU), ("SIGUSR1", signal.SIGUSR1, signal.SIGUSR1), ("a crash", signal.SIGSEGV, signal.SIGSEGV), ("^C", None, 0)]:
    p = top()
    p.shows(rf"^db1{HELD}")
    if number is None:
        p.type("\x03")
    else:
        os.kill(p.pid, number)
    status = p.wait()
    case(f"{what} ends it, and the terminal is as it was", status == wanted and p.is_restored(), p)
    if status is None:
        p.kill()

# ---- other terminals ----
p = top(env={"LC_ALL": "C", "NO_COLOR": "1"})
case("without UTF-8 there is none", p.shows(r"^db1 ") and p.shows(r"^NODEv") and all(b < 128 for b in p.raw), p)
case("without colors there are none", not re.search(rb"\x1b\[[0-9;]*3[0-7]m", p.raw), p)
p.type("q")
p.wait()
p = top("--iterations=2", "--interval=200ms", env={"TERM": "dumb"})
status = p.wait()
case("a dumb terminal gets tables", status == 0 and b"\x1b" not in p.raw and p.raw.count(b"NODE ") == 2, p)
