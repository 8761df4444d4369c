"""Debian's patroni with its driver etcd3 on the core, as conf/examples/patroni has it: whatever
happens to three databases, nothing that was acknowledged is lost."""
import json
import re
import shutil

import pytest
from harness.databases import VERSION, Databases
from harness.places import TOP
from harness.program import run
from harness.waiting import eventually, eventually_is

EXAMPLES = TOP / "conf/examples/patroni"
# What differs from host to host (NAME, ADDRESS), and times that make a test short.
CHANGES = [
    ("db1", "NAME"), (r"192\.0\.2\.11:5432", "ADDRESS:5434"), (r"192\.0\.2\.11", "ADDRESS"),
    (r"192\.0\.2\.", "10.77.0."), ("ttl: 30", "ttl: 8"), ("loop_wait: 10", "loop_wait: 1"),
    ("retry_timeout: 10", "retry_timeout: 3"), ("/postgresql/15/", f"/postgresql/{VERSION}/"),
    ("scram-sha-256|peer", "trust"),
    ("use_slots: true", "use_slots: true\n"
                        "      parameters: {shared_buffers: 16MB, wal_keep_size: 256MB}"),
]

pytestmark = [pytest.mark.night("it holds places of 2 s, and takes long"), pytest.mark.timeout(900),
              pytest.mark.skipif(not shutil.which("patroni"), reason="patroni is not installed "
                                 "(as root: apt install patroni)")]


class Patroni(Databases):
    port = 5434

    def _make(self):
        for host in [self.rig.h1, *self.hosts]:
            text = (EXAMPLES / "patroni.yml").read_text()
            for pattern, by in CHANGES:
                text = re.sub(pattern, by, text)
            (host.root / "etc/patroni/config.yml").write_text(
                text.replace("NAME", host.name).replace("ADDRESS", host.address))
            host.on("chmod", "644", "/etc/patroni/config.yml")
            run("install", "-D", "-m", "644", EXAMPLES / "tenure.conf",
                host.root / "etc/systemd/system/patroni.service.d/tenure.conf")
        for host in self.hosts:
            host.systemctl("daemon-reload")
            host.systemctl("enable", "-q", "--now", "--no-block", "patroni")
            eventually(self.primary)  # which the first makes, and the others copy

    def ctl(self, *words):
        return self.rig.h1.on("timeout", "20", "runuser", "-u", "postgres", "--", "patronictl",
                              "-c", "/etc/patroni/config.yml", *words)

    def _one(self, *roles):
        names = [member["Member"] for member in json.loads(self.ctl("list", "-f", "json"))
                 if member["Role"] in roles and member["State"] in ("running", "streaming")]
        return self.rig.hosts[names[0]] if len(names) == 1 else None

    def primary(self):
        return self._one("Leader", "Master")

    def synchronous(self):
        """PostgreSQL knows who that is before Patroni has noted it, who then may take over."""
        return self._one("Sync Standby")

    def all_follow(self):
        leader = self.primary()
        return leader and self.synchronous() and self.sql(
            leader, "SELECT count(*) FILTER (WHERE state = 'streaming'), count(*) FILTER "
            "(WHERE sync_state = 'sync') FROM pg_stat_replication") == "2|1"


@pytest.fixture
def patroni(brief_hosts):
    return Patroni.written(brief_hosts)


def test_a_switchover_goes_where_it_is_asked_to(patroni):
    to = patroni.synchronous()

    patroni.ctl("switchover", "main", "--master", patroni.primary().name, "--candidate", to.name,
                "--force")

    eventually_is(to, patroni.primary)
    patroni.is_well()


@pytest.mark.parametrize("breaks, mends", [
    (lambda old: old.power_off(), lambda old: old.boot()),
    (lambda old: old.cut("silent"), lambda old: old.rig.heal()),
    (lambda old: old.freeze(), lambda old: old.thaw()),
], ids=["without power", "cut off", "frozen"])
def test_another_host_leads_and_the_former_leader_follows_it(patroni, breaks, mends):
    old = patroni.primary()

    breaks(old)
    patroni.another_leads(old)
    patroni.goes_on()
    assert len(patroni.primaries()) == 1

    mends(old)
    patroni.is_well()


@pytest.fixture
def core_unit(engine_of_hosts):
    return "tenure-core" if engine_of_hosts == "core" else "real-etcd"


def kill_and_start(unit, *hosts):
    for host in hosts:
        host.signal(unit, "KILL")
    for host in hosts:
        host.systemctl("start", "--no-block", unit)


def test_the_leader_stays_when_the_leader_of_the_core_is_killed(patroni, core_unit):
    rig, leader = patroni.rig, patroni.primary()
    kill_and_start(core_unit, next(host for host in (rig.h1, rig.h2, rig.h3) if host.leads()))

    patroni.goes_on()
    assert patroni.primary() is leader
    patroni.is_well()


def test_writes_continue_after_all_replicas_of_the_core_were_killed(patroni, core_unit):
    kill_and_start(core_unit, patroni.rig.h1, patroni.rig.h2, patroni.rig.h3)

    patroni.is_well()
