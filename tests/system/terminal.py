#!/usr/bin/env python3
"""tenurectl lock as a job of an interactive shell on a terminal of its own: who reads, who stops, who goes on.

usage: terminal.py "TENURECTL OPTIONS" DIR; prints a line "ok ..." or "not ok ..." for each.
"""
import os, pty, re, select, signal, sys, time

lock, scratch = sys.argv[1] + " lock tty -- ", sys.argv[2]
pid, fd = pty.fork()
if pid == 0:
    for n in signal.SIGINT, signal.SIGQUIT:  # a shell that began us with & ignores them
        signal.signal(n, signal.SIG_DFL)
    os.environ.update(PS1="ready> ", HISTFILE="/dev/null", TERM="dumb")
    os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
seen = ""


def expect(pattern, seconds=10):
    """Until the pattern has come since the last one; what came before it goes."""
    global seen
    end = time.monotonic() + seconds
    while True:
        m = re.search(pattern, seen)
        if m:
            seen = seen[m.end():]
            return m
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        try:
            seen += os.read(fd, 4096).decode(errors="replace")
        except OSError:
            return None


def say(text):
    os.write(fd, text.encode())


def case(what, good):
    print(("ok " if good else "not ok ") + what, "" if good else f"(the terminal says {seen[-200:]!r})", flush=True)
    if not good:
        say("\x03\n")
        expect("ready> ", 2)


expect("ready> ")
reads = "sh -c 'read x; echo got-$x; exit 9'"
say(lock + reads + "\n")
expect(r"exit 9'\r?\n", 10)
say("word\n")
case("in the foreground it reads the terminal", expect(r"got-word") is not None)
expect("ready> ")
say("echo status-$?\n")
case("and its status comes through", expect(r"status-9\b") is not None)
expect("ready> ")

# What has the key's signal to itself: dash, forking, forgets one that comes just then, and goes on.
say(lock + "cat\n")
expect(r"cat\r?\n")
say("here\n")
expect(r"here\r?\nhere")
say("\x03")
case("^C ends it, and the shell has the terminal again", expect("ready> ") is not None)
say("echo status-$?\n")
case("by SIGINT", expect(r"status-130\b") is not None)
expect("ready> ")

os.mkfifo(scratch + "/nothing")
say(lock + f"bash -c 'trap \"echo going-on\" CONT; echo be\"\"gun; while :; do read -t 0.1 <>{scratch}/nothing; done'\n")
expect("begun")
say("\x1a")
case("^Z stops it", expect(r"Stopped") is not None and expect("ready> ") is not None)
say("ps -eo pgid=,stat= | awk -v g=$(jobs -p) '$1 == g {print substr($2, 1, 1)}' | sort -u | tr -d '\\n'; echo =states\n")
case("all of it that the terminal has", expect(r"\nT+=states") is not None)
expect("ready> ")
say("fg\n")
case("fg, and it goes on", expect(r"\ngoing-on") is not None)
say("\x03")
case("^C ends it", expect("ready> ") is not None)
say("jobs; echo none-left\n")
case("no job is left", (expect(r"\n(.*)none-left") or [0, "x"])[1] == "")
expect("ready> ")

say(lock + reads + " &\n")
case("in the background it stops when it reads", expect(r"\[1\]", 5) is not None)
expect("ready> ", 5)
stopped = None
for _ in range(100):
    say("jobs\n")
    stopped = expect(r"Stopped.*\r?\n", 0.2)
    if stopped:
        break
case("and the shell knows", stopped is not None)
expect("ready> ", 5)
say("fg\n")
expect(r"fg\r?\n")
expect(r"exit 9'\r?\n", 3)
say("late\n")
case("fg hands the terminal over", expect("got-late") is not None)
expect("ready> ")

# A shell within takes the terminal for itself; killed, it cannot hand it back.
say(lock + "bash --norc --noprofile --noediting -i\n")
expect("ready> ")
say("stty -echo -icanon; kill -9 $$\n")
case("a shell that was killed leaves the terminal to the one before it", expect("ready> ", 10) is not None)
say("stty sane; cat\n")
expect(r"cat\r?\n")
say("through\n\x04")
case("which reads from it", expect("through") is not None)
expect("ready> ")
say("exit\n")
os.kill(pid, signal.SIGHUP)
