"""tenurectl top: the members, the core and what happens, on a terminal and as tables."""
import os
import re
import signal

import pytest
from harness.etcd import Etcd
from harness.http1 import Http
from harness.places import BIN
from harness.program import run
from harness.screen import Screen
from harness.users import guard
from harness.waiting import ProgramError, eventually

NO_BUS = "--bus=unix:path=/nonexistent"
LEFT = r"\d+(\.\d)?s"
HELD = rf" +held +{LEFT} "


@pytest.fixture
def hosts(agents):
    """Three, db1 to db3, each in a zone of its own."""
    hosts = [agents(name, Tags=f"zone=z-{name}") for name in ("db1", "db2", "db3")]
    eventually(lambda: len(hosts[0].nodes()) == 3)
    return hosts


@pytest.fixture
def top(hosts, tmp_path):
    """Starts it on a terminal of the first host."""
    def start(*options, **more):
        bus = hosts[0].bus.address
        return Screen(tmp_path / "top.log", BIN / "tenurectl", f"--bus={bus}", "top", *options,
                        **more)

    return start


@pytest.fixture
def page(top):
    """It is on its terminal, and has drawn."""
    page = top(ASAN_OPTIONS="handle_segv=0")
    page.shows(f"^db1{HELD}")
    return page


# ---- as tables ----

def test_a_pipe_gets_one_table_without_escapes(hosts, engine):
    table = hosts[0].ctl("top")

    assert "\x1b" not in table
    heading, = re.findall("^NODE .*", table, re.M)
    assert heading.split() == "NODE STATE LEFT TTL AGE ADDRESS ZONE SERVICES NOTES".split()
    assert len(re.findall(f"^db[123]{HELD}", table, re.M)) == 3
    assert re.search(rf"^db2 +held +{LEFT} +30s +\d+s +\S+ +z-db2 +- +zone=z-db2$", table, re.M)


def test_tables_are_sorted_filtered_and_repeated_as_asked(hosts):
    table = hosts[0].ctl("top", "--once", "--no-legend", "--sort=-node", "--filter=db !db2")
    assert [line.split()[0] for line in table.splitlines()] == ["db3", "db1"]
    assert hosts[0].ctl("top", "--iterations=3", "--interval=100ms").count("NODE ") == 3


@pytest.mark.parametrize("option, sentence", [
    ("--sort=color", "--sort must be node, state, "),
    ("--interval=1ms", "--interval must be a time from 100ms to 1h"),
    ("--endpoints=http://127.0.0.1:1", "no lease core answers"),
])
def test_what_cannot_be_shown_is_refused(agent, option, sentence):
    said, status = agent.refusal("top", option)
    assert said.startswith(sentence) and status == 1


def test_it_needs_no_agent(hosts, engine):
    cluster = hosts[0].settings["Cluster"]
    table = run(BIN / "tenurectl", NO_BUS, f"--endpoints={engine.endpoints}",
                f"--cluster={cluster}", "top")

    assert len(re.findall(rf"^db[123]{HELD}|^No agent on this host$", table, re.M)) == 4
    empty = run(BIN / "tenurectl", NO_BUS, f"--endpoints={engine.endpoints}",
                "--cluster=nobody", "top")
    assert "nobody: no host has joined\n0 node(s); 0 service(s); revision " in empty


def test_who_may_read_sees_all_and_others_get_the_reason(new_cluster):
    core = new_cluster(1)
    core.put("/tenure/default/nodes/db1", "{}")

    assert re.search("^db1 ", guard(core).ctl(NO_BUS, "top"), re.M)

    with pytest.raises(ProgramError) as refused:
        core.ctl(NO_BUS, "top", "--once")
    assert (refused.value.status, refused.value.out.count("db1")) == (1, 0)
    assert re.search("no lease core answers: .*(user|permission|denied|authentic|log)",
                     refused.value.err)


# ---- on a terminal ----

def test_the_page_has_members_replicas_and_this_host(page, engine):
    page.shows(f"^db1{HELD}", f"^db2{HELD}", f"^db3{HELD}",
               r"^This host: db1, held, \d+\.\ds to its own deadline",
               r"^\w+ +leader +\d+ +\d+ .* \d+\.\d+\.\d+")
    assert page.alternate and not page.has_cursor
    if isinstance(engine, Etcd):
        page.shows("; an etcd: whole seconds")
        assert "CLIENTS" not in page.text()  # it does not tell
    else:
        page.shows(r"^Core: 3 of 3 replica\(s\) answer, \w leads; cluster version \d\.\d$")


def test_the_time_that_is_left_runs(page):
    first = page.shows(f"^db1{HELD}")[0]
    eventually(lambda: page.shows(f"^db1{HELD}")[0] != first)


def test_keys_filter_sort_and_explain(page):
    page.shows("^db1 .*\ndb2 .*\ndb3 ")

    page.press("/db2\r")
    page.shows(r"\[filter: db2: 1 of 3\]", f"^db2{HELD}")
    assert not re.search("^db[13] ", page.text(), re.M)
    page.press("\x1b")  # Esc ends it
    page.shows("^db1 ", "^db3 ")
    page.press("r")
    page.shows("^db3 .*\ndb2 .*\ndb1 ")
    page.press("r<")
    page.shows("SERVICES\u25bc")
    page.press("n")
    page.shows("NODE\u25bc", "^db1 .*\ndb2 .*\ndb3 ")
    page.press("?")
    page.shows(r"^q, \^C +quit$")
    page.press("x")
    page.shows("^db1 ")


def test_who_has_a_lock_is_whose_key_is_the_oldest_however_many_wait(agent, core):
    agent.background("lock", "top-line", "--", "sleep", "3600")
    eventually(lambda: core.range("top-line/"))
    lease = core.grant(60)
    for n in range(40):  # their keys come first in the order of keys, and there are more than 32
        core.put(f"top-line/0{n:02}", "", lease=lease)

    table = agent.ctl("top", "--once")

    assert re.search(r"^top-line +h1 +\d+ +40: ", table, re.M), table


def test_the_page_shows_what_happens_to_services_locks_and_hosts(page, hosts, agents):
    hosts[0].background("register", "web", "Port=80")
    page.shows("^db1 .* web")
    page.wrote("service web on db1 is available")
    holder = hosts[0].background("lock", "top-job", "--", "sleep", "3600")
    page.shows("^top-job +db1 ")
    hosts[1].background("lock", "top-job", "--", "true")
    page.shows(r"^top-job +db1 +\d+ +1: db2")
    holder.kill()

    db4 = agents("db4", TTL="2s")
    page.wrote("db4 joined")
    db4.kill()
    page.shows("^db4 +lost .* expired")
    page.wrote("db4 left: expired")


def test_who_opens_it_later_sees_what_was_lost_and_when(hosts, agents, engine, top):
    if isinstance(engine, Etcd):
        pytest.skip("an etcd does not say when its revisions were")
    db4, db5 = (agents(name, TTL="2s") for name in ("db4", "db5"))
    eventually(lambda: len(hosts[0].nodes()) == 5)
    for agent in db4, db5:
        agent.kill()
    eventually(lambda: len(hosts[0].nodes()) == 3)
    table = hosts[0].ctl("top", "--once")
    assert re.search(r": 2 of 5 hosts lost at \d\d:\d\d:\d\d$", table, re.M)

    page = top()
    page.shows(r": 2 of 5 hosts lost at \d\d:\d\d:\d\d$", "^db4 +lost .* expired", "^db5 +lost .* expired",
               r"^\d\d:\d\d:\d\d db4 joined$", "^[0-9:]{8} db[45] left: expired$")
    page.press("jjj\r")
    page.shows("^db4 *$", "^State +lost$", "^Why +expired$", r"^Event +[0-9:]{8} db4 left: expired$")
    page.press("q")
    assert page.status() == 0

    http = Http(engine.endpoints.split(",")[0])
    now = http.post("/v3/kv/range", key=b"a")["header"]["revision"]
    http.post("/v3/kv/compaction", revision=now)
    assert "all 3 hosts hold their places\n" in hosts[0].ctl("top", "--once")


def test_the_page_shows_what_happens_to_the_core(cluster, page):
    page.shows(r"^Core: 3 of 3 replica\(s\) answer")
    name, replica = next((name, replica) for name, replica in cluster.replicas.items()
                         if replica is not cluster.leader())

    replica.kill()
    page.shows(rf"^{name} +no answer .*\w")
    page.wrote(f"replica {name} does not answer: ")
    replica.start()
    page.shows(rf"^{name} +(voter|leader|learner) ")
    page.wrote(f"replica {name} answers again")

    for replica in cluster.replicas.values():
        replica.kill()
    page.shows(r"^\d\d:\d\d:\d\d  \S+: no majority: 0 of 3 replica\(s\) answer; "
               r"not followed since \d\d:\d\d:\d\d", r"^db2 +held +. .* as of \d\d:\d\d:\d\d; zone")
    for replica in cluster.replicas.values():
        replica.start()
    page.wrote("is followed again")
    page.shows("all 3 hosts hold their places$", "^This host: db1", f"^db2{HELD}")


def test_whatever_the_size_it_draws_and_nothing_beyond(page):
    for width, height in (40, 14), (1, 1), (2, 1), (1, 40), (500, 1), (500, 120), (1000, 3):
        page.resize(width, height)

        def fits():
            page.text()
            rows = re.findall(rb"\x1b\[(\d+);1H", page.raw.rpartition(b"\x1b[2J")[2])
            return rows and max(map(int, rows)) <= height

        page.raw = b""
        eventually(fits)
    for n in range(400):
        page.resize(1 + n * 7 % 200, 1 + n * 3 % 60)
    page.resize(100, 50)
    page.shows(f"^db1{HELD}", f"^db3{HELD}", "^NODE.*ADDRESS")


@pytest.mark.parametrize("quit", ["q", "\x03"], ids=["q", "^C"])
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again_until_it_ends(page, quit):
    page.send(signal.SIGTSTP)
    assert os.WIFSTOPPED(page.status()) and page.is_restored()

    page.forget()
    page.send(signal.SIGCONT)
    page.shows(f"^db1{HELD}")
    assert page.alternate and not page.has_cursor
    page.press(quit)
    assert page.status() == 0 and page.is_restored()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU", "SIGUSR1", "SIGSEGV"])
def test_whatever_signal_ends_it_the_terminal_is_as_it_was(page, name):
    page.send(signal.Signals[name])
    assert os.WTERMSIG(page.status()) == signal.Signals[name] and page.is_restored()


def test_a_terminal_without_utf_8_and_colors_gets_none(top):
    page = top(LC_ALL="C", NO_COLOR="1")
    page.shows("^db1 ", "^NODEv")
    assert all(byte < 128 for byte in page.raw)
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", page.raw)


def test_a_dumb_terminal_gets_tables(top):
    page = top("--iterations=2", "--interval=200ms", TERM="dumb")
    assert page.status() == 0
    assert b"\x1b" not in page.raw and page.raw.count(b"NODE ") == 2
