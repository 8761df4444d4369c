"""The recipes of tenured(8), as they are shipped: a singleton, an address, a PostgreSQL primary."""
import contextlib
import os
import signal

import pytest
from harness.databases import VERSION, Databases
from harness.places import TOP
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is

EXAMPLES = TOP / "conf/examples"
CLUSTER = f"{VERSION}-tenure"
CONFIGURATION = f"etc/postgresql/{VERSION}/tenure"
DATA = f"/var/lib/postgresql/{VERSION}/tenure"
SETTINGS = """
listen_addresses = '*'
primary_conninfo = '%s application_name=%s'
shared_buffers = 16MB
wal_retrieve_retry_interval = 200ms
wal_receiver_timeout = 5s
wal_keep_size = 256MB
synchronous_standby_names = '2 (*)'
"""
ACCESS = """local all all trust
host all all 10.77.0.0/24 trust
host replication all 10.77.0.0/24 trust
"""
DEFAULTS = """SOURCE="%s"
ETCDCTL_ENDPOINTS=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379
"""

pytestmark = [pytest.mark.night("it holds places of 2 s, and takes long"), pytest.mark.timeout(900)]


def where(hosts, is_there):
    """The host for which that is so; None if there are none, or two."""
    found = [host for host in hosts if is_there(host)]
    return found[0] if len(found) == 1 else None


def others(hosts, host):
    return [other for other in hosts if other is not host]


def enable(host, unit):
    host.systemctl("daemon-reload")
    host.systemctl("enable", "-q", "--now", "--no-block", unit)


# ---- a singleton ----

def schedules(host):
    with contextlib.suppress(ProgramError):
        return host.on("pgrep", "-xf", "sleep infinity")


def test_a_singleton_runs_on_one_host_and_on_another_one_once_it_is_stopped_there(brief_hosts):
    hosts = brief_hosts.hosts.values()
    for host in hosts:
        run("install", EXAMPLES / "scheduler.service", host.root / "etc/systemd/system")
        host.on("sh", "-c", "printf '#!/bin/sh\nexec sleep infinity\n' >/usr/bin/scheduler && "
                            "chmod 755 /usr/bin/scheduler")
        enable(host, "scheduler")
    old = eventually(lambda: where(hosts, schedules))

    old.systemctl("stop", "scheduler")
    eventually(lambda: where(others(hosts, old), schedules))

    for host in hosts:
        host.systemctl("disable", "-q", "--now", "scheduler")
        assert host.show("scheduler", "ActiveState") == "inactive"


# ---- an address ----

def has_address(host):
    return " 10.77.0.200/" in host.on("ip", "-o", "address", "show")


def answers(host):
    """What h1 sends to the address goes to that host: its port refuses, and h1 knows its MAC."""
    h1 = host.rig.h1
    with contextlib.suppress(ProgramError):
        h1.on("timeout", "1", "bash", "-c", ": >/dev/tcp/10.77.0.200/9")
    return f"02:77:00:00:00:0{host.number} " in h1.on("ip", "neigh", "show", "10.77.0.200")


@pytest.fixture
def vips(brief_hosts):
    """The hosts, one of which has the address."""
    hosts = [brief_hosts.h2, brief_hosts.h3, brief_hosts.h4]
    for host in hosts:
        run("install", "-D", EXAMPLES / "vip", host.root / "usr/local/sbin/vip")
        for unit in "vip.service", "vip-address.service":
            (host.root / "etc/systemd/system" / unit).write_text(
                (EXAMPLES / unit).read_text().replace("192.0.2.10/24", "10.77.0.200/24"))
        enable(host, "vip")
    yield hosts
    for host in hosts:
        host.systemctl("disable", "-q", "--now", "vip")


def test_an_address_leaves_a_host_that_is_cut_off_and_answers_at_another_one(brief_hosts, vips):
    old = eventually(lambda: where(vips, has_address))
    eventually(lambda: answers(old))

    old.cut("silent")
    new = eventually(lambda: where(others(vips, old), has_address))
    assert not has_address(old)
    eventually(lambda: answers(new))

    brief_hosts.heal()
    eventually(old.is_back)
    eventually(lambda: where(vips, has_address))


def test_an_address_leaves_a_host_whose_systemd_stood_still_once_that_continues(brief_hosts, vips):
    """Nobody but systemd can take it away; what holds it has been killed by the kernel."""
    old = eventually(lambda: where(vips, has_address))
    os.kill(old.init, signal.SIGSTOP)
    old.cut("silent")
    eventually(lambda: where(others(vips, old), has_address))

    os.kill(old.init, signal.SIGCONT)
    eventually(lambda: not has_address(old))

    brief_hosts.heal()
    eventually(old.is_back)


def test_an_address_moves_when_what_holds_it_is_killed_and_goes_with_its_unit(vips):
    old = eventually(lambda: where(vips, has_address))

    old.signal("vip", "KILL")
    eventually(lambda: where(others(vips, old), has_address))
    assert where(vips, has_address)

    for host in vips:
        host.systemctl("stop", "vip")
    assert not any(map(has_address, vips))


# ---- a PostgreSQL primary ----

class Recipe(Databases):
    port, unit, cluster = 5433, f"tenure-postgresql@{CLUSTER}", f"postgresql@{CLUSTER}"

    def _make(self):
        for host in self.hosts:
            host.on("pg_createcluster", "-p", self.port, "--start-conf", "manual", VERSION,
                    "tenure", "--", "--data-checksums")
            with open(host.root / CONFIGURATION / "postgresql.conf", "a") as settings:
                settings.write(SETTINGS % (self.source, host.name))
            (host.root / CONFIGURATION / "pg_hba.conf").write_text(ACCESS)
        first, *rest = self.hosts
        self._lead(first)
        eventually(self.primary)
        for host in rest:
            host.on("sh", "-c", f"rm -rf {DATA} && runuser -u postgres -- "
                                f"pg_basebackup -D {DATA} -d '{self.source}' -c fast")
            self._lead(host)

    def _lead(self, host):
        files, units = EXAMPLES / "postgresql", host.root / "etc/systemd/system"
        run("install", "-D", files / "tenure-postgresql",
            host.root / "usr/local/sbin/tenure-postgresql")
        run("install", "-D", "-m", "644", files / "postgresql@.conf",
            units / f"{self.cluster}.service.d/tenure.conf")
        run("install", "-m", "644", *files.glob("*.service"), units)
        (host.root / "etc/default/tenure-postgresql").write_text(DEFAULTS % self.source)
        enable(host, self.unit)

    def primary(self):
        """As others find it."""
        names = [service.node for service in self.rig.h1.services() if service.name == "postgresql"]
        return self.rig.hosts[names[0]] if len(names) == 1 else None

    def all_follow(self):
        """Two standbys have all data, and wait for the lock."""
        primary = self.primary()
        return primary and self.all_are_in_line() and self.sql(
            primary, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND "
            "flush_lsn = pg_current_wal_flush_lsn()") == "2"

    def line(self):
        """The primary, and who comes next."""
        keys = sorted(self.rig.range(f"postgresql-{CLUSTER}/"), key=lambda key: key.create_revision)
        leases = {host.lease: host for host in self.hosts}
        return [leases[key.lease] for key in keys]

    def all_are_in_line(self):
        return len(self.rig.range(f"postgresql-{CLUSTER}/")) == 3

    def timeline(self):
        return int(self.rig.get("/postgresql/tenure/timeline").value)

    def said(self, host, text):
        """How often."""
        return host.journal(self.cluster).count(text)


@pytest.fixture
def databases(brief_hosts):
    return Recipe.written(brief_hosts)


def test_a_switchover_goes_to_the_host_that_is_named_and_none_is_rewound(databases):
    old, _, named = databases.line()
    rewound = [databases.said(host, "pg_rewind: rewinding from") for host in databases.hosts]
    timeline = databases.timeline()

    databases.rig.h1.ctl("switchover", f"postgresql-{CLUSTER}", named.name)

    eventually_is(named, databases.primary)
    assert databases.primaries() == [named]
    databases.is_well()
    assert [databases.said(host, "pg_rewind: rewinding from") for host in databases.hosts] == \
        rewound
    assert databases.timeline() > timeline


@pytest.mark.parametrize("breaks, mends", [
    (lambda old: old.cut("silent"), lambda old: old.rig.heal()),
    (lambda old: old.power_off(), lambda old: old.boot()),
    (lambda old: old.systemctl("restart", "--no-block", Recipe.unit), lambda old: None),
], ids=["cut off", "without power", "lock given back"])
def test_another_host_leads_and_the_former_primary_follows_it(databases, breaks, mends):
    old = databases.primary()

    breaks(old)
    databases.another_leads(old)
    assert len(databases.primaries()) == 1

    mends(old)
    databases.is_well()


@pytest.mark.parametrize("also_down", [False, True], ids=["that goes on", "that dies, too"])
def test_a_standby_that_is_ahead_of_the_next_primary_is_wound_back(databases, also_down):
    """Which of the two leads is not for sure: one that is ahead may lead itself."""
    old = databases.primary()
    ahead = databases.rig.h3 if old.name == "h4" else databases.rig.h4  # the core keeps a majority
    behind, = set(databases.hosts) - {old, ahead}
    ahead.systemctl("restart", databases.unit)  # so that it is last in line
    eventually(databases.all_are_in_line)
    databases.sql(behind, "ALTER SYSTEM SET primary_conninfo = ''")
    databases.sql(behind, "SELECT pg_reload_conf()")

    def is_ahead():
        lsn = databases.sql(ahead, "SELECT pg_last_wal_receive_lsn()")
        return databases.sql(behind, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver) AND "
                             f"'{lsn}' > greatest(pg_last_wal_receive_lsn(), "
                             "pg_last_wal_replay_lsn())") == "t"

    eventually(is_ahead)
    wound_back = databases.said(ahead, "winding back")

    down = [old, ahead] if also_down else [old]
    for host in down:
        host.power_off()
    databases.sql(behind, "ALTER SYSTEM RESET primary_conninfo")
    databases.sql(behind, "SELECT pg_reload_conf()")

    def is_settled():
        return databases.primary() is ahead or databases.said(ahead, "winding back") > wound_back

    databases.another_leads(old)
    if not also_down:
        eventually(is_settled)
    for host in reversed(down):
        host.boot()
    eventually(is_settled)
    databases.is_well()


def test_a_former_primary_that_returns_while_there_is_none_tries_until_there_is_one(databases):
    old = databases.primary()
    standbys = others(databases.hosts, old)
    old.power_off()
    databases.another_leads(old)
    for host in standbys:
        host.systemctl("stop", databases.unit)

    old.boot()
    old.said("pg_rewind: error", databases.cluster)
    for host in standbys:
        host.systemctl("start", "--no-block", databases.unit)

    databases.is_well()
