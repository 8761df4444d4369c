#!/usr/bin/env python3
"""Judges what the witnesses of shared work wrote down (work_member.c), files MEMBER.WHATEVER in a directory: that no task was
at two members at any instant, that tokens rise, for how long nobody had it, and how many moves there were, against the least.

usage: work_check.py DIR --tasks 1000|a,b --bound-ms MS [--from US] [--to US] [--members LOG --revision N]
--bound-ms: for how long nobody may have a task. --from, --to: the time that counts for it, and for moves; microseconds of
CLOCK_BOOTTIME. --members: `etcdctl watch -w json` of the members' keys, each line with its time in microseconds before it, for
the number of moves that their joins and deaths after --revision make necessary; --slack: how many percent more there may be.
"""
import argparse, base64, collections, json, os, struct

M = (1 << 64) - 1
RECORD = struct.Struct("40sqqq")


def mix(h):
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & M
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 & M
    return h ^ h >> 33


def name_hash(name):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 & M
    return mix(h)


def minus_log2(n):
    whole = n.bit_length() - 1
    x, fraction = (n << (63 - whole) & M) >> 32, 0
    for _ in range(28):
        x = x * x >> 31
        fraction <<= 1
        if x >> 32:
            fraction |= 1
            x >>= 1
    return max((64 << 28) - (whole << 28 | fraction), 1)


CACHE = {}


def score(task, member):
    """As lib/member/rendezvous.c, written once more."""
    if (task, member) not in CACHE:
        CACHE[task, member] = minus_log2(mix(mix(name_hash(task) ^ name_hash(member)) + name_hash(member) & M) | 1)
    return CACHE[task, member]


def owner(task, members):
    best = None
    for m in sorted(members):
        if best is None or score(task, m) * members[best] < score(task, best) * members[m]:
            best = m
    return best


SETTLE = 1000000


class Least:
    """What the members' changes, in their order, make necessary: the tasks of who goes move at once; for those who join, when
    nobody has for a second, the tasks that are theirs by the hash. Beside it what any rule would move that keeps the shares in
    proportion: all that who goes had, and the share of who comes."""

    def __init__(self, tasks):
        self.tasks, self.members, self.has = tasks, {}, {}
        self.moves, self.by_share, self.changes = 0, 0.0, 0
        self.settles, self.counts = None, False

    def move(self, tasks):
        for t in tasks:
            best = owner(t, self.members)
            self.moves += self.counts and self.has.get(t) not in (None, best)
            self.has[t] = best

    def settle(self, at):
        if self.settles is not None and at >= self.settles:
            self.settles = None
            self.move(self.tasks)

    def change(self, at, name, weight):
        self.settle(at)
        if (weight == 0) == (name not in self.members):
            return
        self.changes += self.counts
        if weight > 0:
            self.members[name] = weight
            self.by_share += self.counts * len(self.tasks) * weight / sum(self.members.values())
            self.settles = at + SETTLE
            if len(self.members) == 1:
                self.move(self.tasks)
            return
        mine = [t for t in self.tasks if self.has.get(t) == name]
        self.by_share += self.counts * len(mine)
        del self.members[name]
        if self.members:
            self.move(mine)


def least(log, tasks, revision):
    l, at = Least(tasks), 0
    for line in log:
        at, _, text = line.partition(" ")
        if not text.startswith("{"):
            continue
        at = int(at)
        for e in json.loads(text).get("Events") or []:
            if not l.counts and int(e["kv"]["mod_revision"]) > revision:
                l.settle(at + SETTLE)
                l.counts = True
            name = base64.b64decode(e["kv"]["key"]).decode().rsplit("/", 1)[1]
            value = base64.b64decode(e["kv"].get("value", ""))
            l.change(at, name, json.loads(value)["weight"] if e.get("type", 0) != 1 and e.get("type") != "DELETE" else 0)
    l.settle(at + SETTLE)
    return l


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--tasks", required=True)
    p.add_argument("--bound-ms", type=int, required=True)
    p.add_argument("--from", dest="begin", type=int, default=0)
    p.add_argument("--to", dest="end", type=int)
    p.add_argument("--members")
    p.add_argument("--revision", type=int, default=0)
    p.add_argument("--slack", type=float, default=10)
    a = p.parse_args()
    tasks = [str(i + 1) for i in range(int(a.tasks))] if a.tasks.isdigit() else a.tasks.split(",")
    had = collections.defaultdict(list)
    for f in os.listdir(a.dir):
        data = open(os.path.join(a.dir, f), "rb").read()
        for i in range(0, len(data) - RECORD.size + 1, RECORD.size):
            task, token, begin, last = RECORD.unpack_from(data, i)
            if begin == 0:
                break
            had[task.rstrip(b"\0").decode()].append((begin, last, token, f.split(".")[0]))
    bad, gaps, moves, runs = [], [], 0, 0
    for t in tasks:
        runs += len(had[t])
        if not had[t]:
            bad.append(f"task {t}: nobody ever had it")
            continue
        had[t].sort()
        for one, two in zip(had[t], had[t][1:]):
            if two[0] <= one[1]:
                bad.append(f"task {t}: {two[3]} began at {two[0]} by token {two[2]}, and {one[3]} went on until {one[1]} by {one[2]}")
            if two[2] < one[2] or (two[2] == one[2] and two[3] != one[3]):
                bad.append(f"task {t}: {two[3]} had token {two[2]} after {one[3]} had {one[2]}")
            if two[0] >= a.begin and (a.end is None or two[0] <= a.end):
                moves += one[3] != two[3]
                gaps.append((two[0] - one[1], f"task {t} between {one[3]} and {two[3]} at {two[0]}"))
        if a.end is not None and had[t][-1][1] < a.end:
            gaps.append((a.end - had[t][-1][1], f"task {t} after {had[t][-1][3]}, at the end"))
    gaps.sort()
    late = [g for g in gaps if g[0] > a.bound_ms * 1000]
    for g in late[-5:]:
        bad.append(f"nobody had {g[1]} for {g[0] / 1000:.0f} ms")
    for b in bad[:20]:
        print("bad:", b)
    at = lambda q: gaps[min(int(q * len(gaps)), len(gaps) - 1)][0] / 1000 if gaps else 0
    print(f"{runs} runs of {len(tasks)} tasks, {moves} moves; nobody had one for {at(0.5):.0f} ms in the middle, {at(0.99):.0f} ms for"
          f" 1 of 100, {at(1):.0f} ms at most; {len(late)} of {len(gaps)} were longer than {a.bound_ms} ms")
    if a.members:
        l = least(open(a.members), tasks, a.revision)
        print(f"{l.changes} changes of members make {l.moves} moves necessary ({l.by_share:.0f} if all shares were equal): {moves} are"
              f" {100 * moves / max(l.moves, 1) - 100:+.1f} %")
        if moves > l.moves * (1 + a.slack / 100):
            bad.append("more moves than that")
            print("bad: more moves than that")
    raise SystemExit(bool(bad))


main()
