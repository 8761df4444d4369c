"""Members of a group divide its tasks, with libtenure and with `tenurectl work`: each task is at
one of them, and at another one soon after that has gone. That no task is ever at two, whatever
fails, is what tests/sim/sharers.c proves in simulated worlds."""
import json
import math
import os
import re
import signal
import uuid

import pytest

from harness.duty import children
from harness.places import BIN, ENVIRONMENT
from harness.program import Daemon, run
from harness.users import guard
from harness.waiting import ProgramError, eventually, eventually_is

NAMES = "alpha,beta,gamma,delta,epsilon,zeta,eta,theta"
N = 40  # tasks of a group of libtenure's

# Each process of a command has a file of its task locked, and so one that begins sees whether
# anything of another one still runs.
COMMAND = r"""
exec 9>>"$1/$TENURE_TASK"
flock -n 9 || { echo beside another; exit 1; }
[ "$2" != deaf ] || trap "" TERM
echo "$TENURE_TASK $TENURE_TOKEN"
exec sleep 36000
"""

MEMBER = """
import os, signal, sys, tenure
cluster, name, ttl, weight, tasks = sys.argv[1:6]
login = {"user": sys.argv[6], "password": sys.argv[6]} if sys.argv[6:] else {}
with tenure.Tie(cluster=cluster, hold=int(ttl), name=name, **login) as tie:
    work = tie.work("g", int(tasks), weight=int(weight))
    signal.signal(signal.SIGTERM, lambda *_: work.leave())
    while event := tie.wait():
        print(event.type.name, event.task or event.reason, event.revision, flush=True)
        if event.type == tenure.Type.TASK_END:
            work.ended(event.task)
        if event.type == tenure.Type.WORK_LEFT and event.error == 0:
            break
    tie.leave()
"""

MASK = (1 << 64) - 1


def _mixed(h):
    for factor in 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53:
        h = ((h ^ h >> 33) * factor) & MASK
    return h ^ h >> 33


def _hash(name):
    h = 0xcbf29ce484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001b3) & MASK
    return _mixed(h)


def division(tasks, weights):
    """{task: member}, by rendezvous hashing, as lib/member/rendezvous.h has it. @weights: of the
    members, by their names."""
    def cost(task, member):
        of_task, of_member = _hash(task), _hash(member)
        fraction = _mixed((_mixed(of_task ^ of_member) + of_member) & MASK)
        return (64 - math.log2(fraction | 1)) / weights[member]

    return {task: min(weights, key=lambda member: cost(task, member)) for task in tasks}


class Group:
    """The group g of a cluster that no other test uses."""

    def __init__(self, folder, core, program):
        self.core, self.folder, self.program = core, folder, program
        self.cluster = "t" + uuid.uuid4().hex
        self.path = f"/tenure/{self.cluster}/work/g/"
        self.files = folder / "tasks"
        self.files.mkdir()
        self.begun = []
        self.weights = {}

    def tasks(self):
        """{task: its key}, of those that somebody has."""
        return {kv.key.rsplit("/", 1)[1]: kv for kv in self.core.range(self.path + "tasks/")}

    def owners(self):
        return {task: kv.value for task, kv in self.tasks().items()}

    def members(self):
        return {kv.key.rsplit("/", 1)[1] for kv in self.core.range(self.path + "members/")}

    def divided_by(self, *names, n=N):
        """{task: member}, once these members have divided all tasks; not while some still go from
        one to another."""
        divided = division([str(task + 1) for task in range(n)],
                           {name: self.weights.get(name, 100) for name in names})
        eventually_is(divided, self.owners)
        return divided

    def _until_killed(self, member):
        member.ends_by = signal.SIGKILL  # asked to end, it would wait for a core that has gone
        self.begun.append(member)
        return member

    def join(self, name, ttl=60, weight=100, user=()):
        """A member with libtenure, which divides N tasks with the others."""
        self.weights[name] = weight
        return self._until_killed(self.program.python(
            MEMBER, self.cluster, name, ttl, weight, N, *user,
            TENURE_ENDPOINTS=self.core.endpoints))

    # ---- with tenurectl ----

    def ctl(self, *words):
        return [BIN / "tenurectl", f"--endpoints={self.core.endpoints}",
                f"--cluster={self.cluster}", "work", "g", *words]

    def begin(self, *options, command=(), how="", stderr=None, name="a", tasks=NAMES, ttl="60s"):
        """A tenurectl work; its member is called g:NAME. @how: "deaf" commands are killed."""
        command = command or ["sh", "-c", COMMAND, "work", self.files, how]
        to = ["sh", "-c", 'exec "$@" 2>"$0"', stderr] if stderr else []
        log = self.folder / f"{name}{len(self.begun)}.log"
        return self._until_killed(Daemon(
            log, *to, *self.ctl(f"--tasks={tasks}", f"--name={name}", f"--ttl={ttl}", *options,
                                "--", *command), out=log.with_suffix(".out")).start())

    def running(self):
        """The tasks of which a command runs."""
        locked = {line.split()[5].rsplit(":", 1)[1] for line in open("/proc/locks")
                  if "FLOCK" in line and "->" not in line}
        return {file.name for file in self.files.iterdir() if str(file.stat().st_ino) in locked}

    def runs(self, *names):
        """Returns once these members, and no others, have the tasks, and all tasks run; and no
        command has begun beside another one of its task."""
        eventually(lambda: {f"g:{name}" for name in names} == set(self.owners().values())
                   and self.running() == set(NAMES.split(",")) == set(self.owners()))
        assert not any("beside another" in member.lines() for member in self.begun)


@pytest.fixture
def group(tmp_path, core, program):
    return Group(tmp_path, core, program)


# ---- libtenure ----

def test_the_tasks_of_a_member_that_dies_go_to_the_others_and_no_other_task_moves(engine, group):
    group.join("m1")
    group.divided_by("m1")
    group.join("m2")
    dies = group.join("m3", ttl=3)
    before = group.divided_by("m1", "m2", "m3")

    dies.kill()

    after = group.divided_by("m1", "m2")
    assert {t: m for t, m in after.items() if before[t] != "m3"} == {
        t: m for t, m in before.items() if m != "m3"}
    group.join("m3")
    eventually_is(before, group.owners)  # it has its tasks again, and all is as it was


def test_a_member_that_was_frozen_beyond_its_time_has_lost_its_tasks_and_gets_them_again(
        engine, group):
    group.join("m1")
    sleeps = group.join("m2", ttl=8)  # for a machine that takes a few seconds away
    before = group.divided_by("m1", "m2")
    tokens = {task: kv.create_revision for task, kv in group.tasks().items()}

    sleeps.freeze()
    group.divided_by("m1")
    sleeps.thaw()

    eventually_is(before, group.owners)
    eventually(lambda: any(line.startswith("LOST") for line in sleeps.lines()))
    assert all(kv.create_revision > tokens.get(task, 0) for task, kv in group.tasks().items()
               if before[task] == "m2")


def test_a_member_that_leaves_gives_its_tasks_away_before_it_ends(engine, group):
    group.join("m1")
    leaves = group.join("m2", ttl=600)  # whose end nobody waits for
    group.divided_by("m1", "m2")

    assert leaves.stop() == 0

    assert group.members() == {"m1"}
    group.divided_by("m1")


def test_a_member_of_three_times_the_weight_has_about_three_times_as_many(shared_cluster, group):
    group.join("m1")
    group.join("m2", weight=300)
    owners = group.divided_by("m1", "m2")
    assert list(owners.values()).count("m2") in range(25, 36)  # by a hash: always the same


def test_keys_that_an_operator_deletes_are_made_again(engine, group):
    group.join("m1")
    group.join("m2")
    before = group.divided_by("m1", "m2")
    token = group.tasks()["1"].create_revision

    engine.delete(group.path + "tasks/1")
    eventually(lambda: "1" in (tasks := group.tasks()) and tasks["1"].create_revision > token)
    engine.delete(group.path + "members/m1")

    eventually(lambda: group.members() == {"m1", "m2"} and group.owners() == before)


def test_a_member_that_may_not_see_the_group_has_no_share(cluster, group):
    here = f"/tenure/{group.cluster}/"
    group.core = guard(cluster, all=["--prefix /tenure/"], few=[
        f"--prefix {here}sessions/", f"--prefix {here}work/g/members/"])
    group.join("m1", user=["all"])
    group.divided_by("m1")

    refused = group.join("m2", user=["few"])

    eventually(lambda: re.search("WORK_LEFT .*permission denied", refused.text()))
    group.join("m3", user=["all"])  # which gets its share later
    group.divided_by("m1", "m3")
    assert refused.is_running


def test_the_example_divides_shards(engine, group, program):
    group.path = "/tenure/default/work/shards/"
    shards = program.compile("conf/examples/libtenure/shards.c")
    first = program.start(shards, "a", TENURE_ENDPOINTS=engine.endpoints)
    group.divided_by("a", n=12)
    second = program.start(shards, "b", TENURE_ENDPOINTS=engine.endpoints)
    group.divided_by("a", "b", n=12)
    eventually(lambda: re.search(r"^shard \d+, token \d+$", second.text(), re.M))
    assert re.search(r"^end \d+: it goes to the member b$", first.text(), re.M)

    assert first.stop() == 0

    group.divided_by("b", n=12)
    assert second.stop() == 0


# ---- tenurectl work ----

def test_members_run_the_command_for_their_tasks_and_anybody_can_list_them(engine, group):
    group.begin(name="a")
    group.runs("a")
    group.begin(name="b")
    group.runs("a", "b")

    heading, *_, last = run(*group.ctl()).splitlines()
    listed = json.loads(run(*group.ctl("--json=short")))

    assert heading.split() == ["TASK", "MEMBER", "TOKEN"]
    assert last == "8 task(s), 0 of them unassigned."
    assert [each["task"] for each in listed] == sorted(NAMES.split(","))
    assert {each["task"]: each["member"] for each in listed} == group.owners()


def test_the_commands_of_a_tenurectl_that_is_stopped_or_killed_run_elsewhere(engine, group):
    first = group.begin(name="a", ttl="3s")
    group.begin(name="b")
    group.runs("a", "b")

    first.freeze()
    group.runs("b")
    first.thaw()
    group.runs("a", "b")  # it joins again
    assert "the lease is lost; asking for another one" in first.log_text()

    first.kill()
    group.runs("b")


def test_when_a_keeper_is_killed_all_commands_of_its_member_begin_again(shared_cluster, group):
    member = group.begin()
    group.runs("a")

    os.kill(children(member.pid)[0], signal.SIGKILL)

    eventually(lambda: len(member.lines()) == 16)
    group.runs("a")
    assert "a process that supervised a command was killed" in member.log_text()


def test_a_command_that_ends_is_run_again(shared_cluster, group):
    member = group.begin()
    group.runs("a")
    os.kill(children(children(member.pid)[0])[0], signal.SIGKILL)
    eventually(lambda: len(member.lines()) == 9)
    assert member.said("the command for task [a-z]+ ended by SIGKILL; it is run again in 0.1 s")


@pytest.mark.parametrize("how", ["", "deaf"])
def test_a_member_that_is_ordered_to_leave_ends_its_commands_and_leaves_nothing(
        shared_cluster, group, how):
    leaves = group.begin("--grace=500ms", ttl="600s", how=how)
    group.begin(name="b")
    group.runs("a", "b")

    assert leaves.stop() == 0

    group.runs("b")
    assert group.members() == {"g:b"}
    assert shared_cluster.get(f"/tenure/{group.cluster}/sessions/g:a") is None


def test_each_task_goes_to_a_member_that_lists_it(engine, group, tmp_path):
    (tmp_path / "list").write_text("# tasks\none\n\ntwo\n")
    group.begin(name="a", tasks=f"@{tmp_path}/list")
    group.begin(name="b", tasks="two,three")

    eventually(lambda: set(group.owners()) == {"one", "two", "three"})

    assert (group.owners()["one"], group.owners()["three"]) == ("g:a", "g:b")
    third = group.begin(name="b", tasks="two")
    eventually(lambda: third.said("the session 'g:b' is held by another program"))


def test_a_command_finds_its_group_task_and_token_and_nothing_of_our_bus(shared_cluster, group):
    member = group.begin("--bus=unix:path=/none", tasks="1", command=[
        "sh", "-c", 'echo "$TENURE_GROUP $TENURE_TASK $TENURE_TOKEN $DBUS_SYSTEM_BUS_ADDRESS"; '
        "exec sleep 36000"])

    eventually(member.lines)
    assert member.lines() == [f"g 1 {group.tasks()['1'].create_revision} "
                              + ENVIRONMENT["DBUS_SYSTEM_BUS_ADDRESS"]]


def test_tasks_stay_while_nobody_reads_the_messages_about_them(shared_cluster, group, tmp_path):
    os.mkfifo(tmp_path / "unread")
    reader = os.open(tmp_path / "unread", os.O_RDONLY | os.O_NONBLOCK)
    member = group.begin(tasks="1,2", stderr=tmp_path / "unread", command=[
        "sh", "-c", '[ "$TENURE_TASK" = 1 ] || exec head -c 1000000 /dev/zero >&2; '
        "echo again; exit 1"])
    eventually(lambda: "again" in member.lines())
    token = group.tasks()["1"].create_revision

    eventually(lambda: member.lines().count("again") >= 4)

    assert group.tasks()["1"].create_revision == token
    assert member.stop() == 0
    os.close(reader)


@pytest.mark.parametrize("command, status, why", [
    ("/nowhere", 127, "No such file or directory"), ("/", 126, "Permission denied")])
def test_a_member_whose_command_cannot_be_executed_leaves_the_tasks_to_others(group, command,
                                                                              status, why):
    member = group.begin(command=[command])

    assert member.wait() == status

    assert member.log_text() == f"tenurectl: cannot run {command}: {why}; leaving the group.\n"
    group.begin(name="b")
    group.runs("b")


def test_a_command_that_ends_with_127_by_itself_is_run_again(group):
    member = group.begin(tasks="1", command=["sh", "-c", "echo again; exit 127"])

    eventually(lambda: member.lines().count("again") >= 2)

    assert member.said("the command for task 1 ended with status 127; it is run again")


def test_a_program_that_is_being_written_is_tried_again(group, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(open("/bin/echo", "rb").read())
    program.chmod(0o755)
    with program.open("ab"):
        member = group.begin(tasks="1", command=[program, "ran"])
        eventually(lambda: member.said("for task 1: Text file busy; trying again in 0.1 s"))

    eventually(lambda: "ran" in member.lines())


NAME_RULE = "has 1 to 255 letters, digits and . _ - :, without a leading dot; "


@pytest.mark.parametrize("words, said", [
    (["g", "--", "true"], "work needs --tasks=TASKS GROUP -- COMMAND"),
    (["g", "--tasks=a,b,a", "--", "true"], "the task 'a' is named twice"),
    (["g", "--tasks=a/b", "--", "true"], f"a task's name {NAME_RULE}'a/b' is not one"),
    (["g", "--tasks=10001", "--", "true"], "--tasks must be a number from 1 to 10000"),
    (["g", "--tasks=1", "--weight=0", "--", "true"],
     "--weight must be a whole number from 1 to 10000, not '0'"),
    (["a", "--tasks=1", "--name=b:c", "--", "true"],
     "a member's name, --name, has no colon; 'b:c' has"),
    (["x" * 5000, "--endpoints=http://127.0.0.1:1", "--cluster=c"],
     f"a group's name {NAME_RULE}'xxx"),
    (["g", "--tasks=@/nowhere", "--", "true"], "cannot read tasks from /nowhere: No such file")])
def test_what_is_no_group_or_no_list_of_tasks_is_refused(words, said):
    with pytest.raises(ProgramError) as refusal:
        run(BIN / "tenurectl", "work", *words)

    assert refusal.value.status == 125 and said in refusal.value.err
