"""The agent follows units of its host, and the units that ship are as they should be."""
import re

import pytest
from harness.waiting import eventually, eventually_is

ADDED, STOPPED = "ServiceAdded", "ServiceRemoved stopped"
ENTRY = "/etc/tenure/services.d/web.service-entry"


@pytest.fixture
def web(hosts):
    """web.service, for which h4 has an entry; ended once the test is over."""
    hosts.h4.systemctl("start", "web")
    eventually(hosts.h1.services)
    yield hosts.h4
    hosts.h4.systemctl("unmask", "--runtime", "web")
    hosts.h4.systemctl("start", "web")  # so that it has not failed
    hosts.h4.systemctl("stop", "web")
    eventually(lambda: not hosts.h1.services())


def mask(h4):
    h4.systemctl("mask", "--runtime", "--now", "web")


def take_its_entry_away(h4):
    h4.on("mv", ENTRY, "/tmp")
    h4.systemctl("reload", "tenured")
    eventually(lambda: not h4.services())
    h4.on("mv", "/tmp/web.service-entry", ENTRY)
    h4.systemctl("reload", "tenured")


def stop_while_no_agent_is_there(h4):
    h4.signal("tenured", "KILL")
    h4.systemctl("stop", "web")


@pytest.mark.parametrize("happens, told", [
    (lambda h4: h4.systemctl("stop", "web"), [STOPPED]),
    (lambda h4: h4.systemctl("restart", "web"), [STOPPED, ADDED]),
    (lambda h4: h4.signal("web", "KILL"), [STOPPED]),
    (mask, [STOPPED]),
    (take_its_entry_away, [STOPPED, ADDED]),
    (stop_while_no_agent_is_there, [STOPPED]),
    (lambda h4: h4.systemctl("daemon-reload"), []),
    (lambda h4: h4.systemctl("daemon-reexec"), []),
    (lambda h4: h4.systemctl("reload", "web"), []),
    (lambda h4: h4.systemctl("restart", "tenured"), []),
    (lambda h4: h4.signal("tenured", "KILL"), []),
], ids=["stop", "restart", "kill", "mask", "entry", "stop without an agent", "daemon-reload",
        "daemon-reexec", "reload", "agent restarted", "agent killed"])
def test_others_learn_what_becomes_of_a_unit_and_no_more(hosts, web, happens, told):
    watch = hosts.h1.watch()

    happens(web)

    eventually_is(told, lambda: watch.told_of("h4")[:len(told)])
    eventually(web.holds)
    assert [event for event in web.told_so_far(watch) if event != "ServiceChanged"] == told


def test_a_service_of_a_unit_is_listed_with_what_its_entry_says(hosts, web):
    assert re.search(r"^web +h4 +- +\S+:80 +running .* web.service ",
                     hosts.h2.ctl("services", "web", "--no-legend"), re.M)


def test_changes_of_a_hosts_addresses_are_reported(hosts, only_core):
    h1, h4 = hosts.h1, hosts.h4
    assert h1.nodes()["h4"].addresses == [h4.address]

    h4.configure("reload", Addresses="core 10.99.0.0/16")
    h4.on("ip", "address", "add", "10.99.1.1/32", "dev", "eth0")
    eventually_is([h4.address, "10.99.1.1"], lambda: h1.nodes()["h4"].addresses)

    h4.on("ip", "address", "del", "10.99.1.1/32", "dev", "eth0")
    eventually_is([h4.address], lambda: h1.nodes()["h4"].addresses)


def test_the_agent_is_scheduled_before_others_and_says_what_it_does(hosts):
    h4 = hosts.h4
    pid = h4.show("tenured", "MainPID")

    assert h4.on("ps", "-o", "cls=", "-p", pid).strip() == "RR"
    assert [h4.show(unit, "OOMScoreAdjust") for unit in ("tenured", "tenure-guard")] == \
        ["-900", "-900"]
    assert hosts.h1.show("tenure-core", "OOMScoreAdjust") == "-500"
    assert re.search("Holding lease [0-9a-f]{16} as h4 in cluster default of 4 nodes",
                     h4.show("tenured", "StatusText"))


def unlocked(host, pid):
    """How many kilobytes of a process's code may have to be read from a disk when they are run."""
    sizes = [dict(re.findall(r"^(Size|Rss): +(\d+) kB$", text, re.M)) for text in
             re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", host.on("cat", f"/proc/{pid}/smaps"), flags=re.M)
             if " r-xp " in text and "/" in text]
    assert sizes
    return sum(int(size["Size"]) - int(size["Rss"]) for size in sizes)


@pytest.mark.parametrize("unit", ["tenure-guard", "tenure-reboot"])
def test_what_acts_while_the_disk_hangs_reads_nothing_from_it(hosts, part, unit):
    h4 = hosts.h4
    # This machine may not let systemd raise the limit (LimitMEMLOCK=).
    part(unit, "CapabilityBoundingSet=CAP_IPC_LOCK CAP_SYS_BOOT")
    h4.systemctl("restart", unit)
    pid = h4.show(unit, "MainPID")

    assert re.search(r"^VmLck:\s+[1-9]", h4.on("cat", f"/proc/{pid}/status"), re.M)
    assert unlocked(h4, pid) == 0


def test_a_reboot_helper_that_hangs_is_started_again(hosts):
    h4 = hosts.h4
    before = h4.show("tenure-reboot", "MainPID")

    h4.signal("tenure-reboot", "STOP")

    eventually(lambda: h4.is_active("tenure-reboot")
               and h4.show("tenure-reboot", "MainPID") != before)


WAITS_FOR_THE_NETWORK = """[Unit]
Before=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sleep infinity
SuccessExitStatus=SIGTERM
"""


def test_a_network_that_is_not_online_delays_no_agent(hosts):
    """ReadyAfter= says for how long a boot waits."""
    h4 = hosts.h4
    h4.systemctl("stop", "tenured", "network-online.target")
    h4.on("sh", "-c", "cat >/run/systemd/system/waits.service", stdin=WAITS_FOR_THE_NETWORK)
    h4.on("sh", "-c", "cd /run/systemd/system && mkdir -p network-online.target.wants && "
          "ln -s ../waits.service network-online.target.wants/")
    h4.systemctl("daemon-reload")
    h4.systemctl("start", "--no-block", "network-online.target")  # for whoever wants it

    h4.systemctl("start", "--no-block", "tenured")

    eventually(h4.is_back)
    assert h4.show("network-online.target", "ActiveState") == "inactive"
    h4.systemctl("stop", "waits", "network-online.target")
    h4.on("sh", "-c", "cd /run/systemd/system && rm -r waits.service network-online.target.wants")
    h4.systemctl("daemon-reload")


def test_units_run_without_real_time_priority_where_it_is_refused(hosts):
    """As in a container with a user namespace of its own."""
    h4, units = hosts.h4, ["tenured", "tenure-guard", "tenure-reboot"]

    def policies():
        return {h4.on("ps", "-o", "cls=", "-p", h4.show(unit, "MainPID")).strip()
                for unit in units if h4.is_active(unit)}

    h4.on("cp", "/usr/bin/chrt", "/run/")
    h4.on("cp", "/bin/false", "/usr/bin/chrt")
    h4.systemctl("daemon-reload")
    h4.systemctl("restart", *units)
    assert policies() == {"TS"}

    h4.on("cp", "/run/chrt", "/usr/bin/")
    h4.systemctl("daemon-reload")
    h4.systemctl("restart", *units)
    assert policies() == {"RR"}
    eventually(h4.is_back)


def test_systemd_finds_no_fault_with_the_units(hosts, only_core):
    h1 = hosts.h1
    units = "/usr/lib/systemd/system/tenure*.service /usr/lib/systemd/system/tenure*.target"
    assert h1.on("sh", "-c", f"systemd-analyze verify --man=no {units} 2>&1") == ""


@pytest.mark.parametrize("unit, most", [("tenured", 18), ("tenure-core", 15),
                                        ("tenure-guard", 20), ("tenured-metrics", 18)])
def test_units_have_few_privileges(hosts, only_core, unit, most):
    hosts.h1.on("systemd-analyze", "security", "--no-pager", f"--threshold={most}", unit)


def test_no_dump_holds_secrets_and_no_helper_takes_the_memory_of_others(hosts, only_core):
    h1 = hosts.h1
    for unit in "tenured", "tenure-guard", "tenure-core":
        assert h1.show(unit, "LimitCORE") == "0"
    for unit in "tenured", "tenure-guard", "tenure-reboot":
        status = h1.on("cat", f"/proc/{h1.show(unit, 'MainPID')}/status")
        taken = int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.M)[1]) << 10
        assert taken < int(h1.show(unit, "MemoryMax")) / 4
