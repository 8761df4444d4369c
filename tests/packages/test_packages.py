"""The Debian packages, as they are built, installed, upgraded, removed and purged."""
import contextlib
import re

import pytest
from harness.debian import HOUR, Entered, finish, within
from harness.namespaces import namespaces
from harness.packaged import PACKAGES
from harness.ports import listens
from harness.program import run
from harness.waiting import ProgramError, eventually, eventually_is

SERVICES = "tenured", "tenure-core"
INSTALLED = {"/usr/bin/tenured", "/usr/bin/tenure-core"}  # not one that dpkg has replaced
ALIAS = "etc/systemd/system/dbus-org.tenure.Membership1.service"


# ---- builds ----

def test_all_packages_are_built(builds):
    names = [name.split("_")[0] for name in builds.names(builds.first) if "-dbgsym_" not in name]
    assert names == PACKAGES


def unequal(builds):
    """The packages that the two builds made differently."""
    names = builds.names(builds.first)
    assert builds.names(builds.second) == names
    return [name for name in names if
            (builds.first / name).read_bytes() != (builds.second / name).read_bytes()]


def test_packages_of_two_users_are_equal_to_the_byte(builds):
    assert unequal(builds) == []


def test_packages_of_the_releases_tarball_are_those_of_the_tree(builds):
    if not builds.of_tarball:
        pytest.skip("this is no clone of the repository, or something is not committed")
    assert unequal(builds) == []


def test_a_build_leaves_the_sources_as_they_are(builds):
    assert builds.sources_after == builds.sources_before


def test_lintian_has_no_complaint(builds):
    assert builds.complaints() == ""


def test_every_file_has_the_name_in_its_path(builds):
    """Or traces.sh would not find it below /usr."""
    for package in builds.packages(1):
        files = run("sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -t', builds.folder / package)
        assert [name for name in files.splitlines() if name[-1] != "/" and "tenure" not in name] \
            == [], package


def test_tooz_passes_its_own_tests_on_a_packaged_core(builds, debian, tmp_path):
    """OpenStack's tooz, by the core's HTTP gateway."""
    if debian.suite in ("", "bookworm"):
        # Debian 12's passes an argument that Debian 12's python3-etcd3gw does not have.
        pytest.skip("needs the tooz of Debian 13, or a later one: --suite trixie")
    finish(tmp_path / "install.log", *within(
        debian.builds, tmp_path, "apt-get", "-q", "-y", "--no-install-recommends", "install",
        "python3-tooz", "python3-testtools", "python3-testscenarios", "python3-fixtures",
        "python3-ddt"))
    with namespaces("net"):
        run("ip", "link", "set", "lo", "up")
        Entered(tmp_path / "core.log", *within(debian.builds, builds.folder, builds.core,
                                               "--data-dir", "/srv/tooz")).start()
        eventually(lambda: listens(2379))
        tooz = Entered(tmp_path / "tooz.log", *within(
            debian.builds, tmp_path, "env", "TOOZ_TEST_URL=etcd3+http://127.0.0.1:2379?"
            "api_version=v3", "python3", "-m", "testtools.run", "tooz.tests.test_coordination"))
        tooz.start().wait(HOUR)

    assert tooz.said(r"(?m)^Ran [5-9]\d tests")
    # This one calls a property of tooz's own as a function, and fails on an etcd, too.
    assert [name for name in re.findall("^(?:ERROR|FAIL): (.*)", tooz.text(), re.M)
            if not name.endswith("TestAPI.test_lock_context_manager_acquire_argument")] == []


# ---- installation ----

def test_an_installation_starts_nothing_and_has_no_fault(installed):
    h2 = installed.h2
    assert h2.states(*SERVICES) == dict.fromkeys(SERVICES, "disabled inactive")
    assert h2.processes_of_ours() == []
    assert h2.failed_units() == []
    assert h2.on("dpkg", "-V", *PACKAGES) == ""


def test_a_call_on_the_bus_does_not_start_an_agent_that_nobody_has_enabled(installed):
    assert installed.h2.refusal("nodes")[1] == 1
    assert installed.h2.states("tenured") == {"tenured": "disabled inactive"}


def test_a_core_with_the_settings_it_came_with_serves_its_host(joined):
    assert "is healthy" in joined.h2.on("sh", "-c", "ETCDCTL_API=3 etcdctl --endpoints "
                                        "http://127.0.0.1:2379 endpoint health 2>&1")
    assert joined.h2.on("stat", "-c", "%U", "/var/lib/tenure-core") == "tenure-core\n"


# ---- upgrades ----

@contextlib.contextmanager
def unnoticed(pair):
    """Whatever happens to h2 meanwhile: it keeps its place, bound units run on, h1 is told
    nothing."""
    h1, h2 = pair.h1, pair.h2
    before, renewal, watch = (h2.lease, h2.show("bound", "MainPID")), h2.last_renewal(), h1.watch()
    yield
    eventually(h2.holds)
    eventually(lambda: h2.last_renewal() > renewal)
    assert (h2.lease, h2.show("bound", "MainPID")) == before
    assert h2.told_so_far(watch) == []


def test_nobody_notices_an_upgrade_and_the_way_back(joined):
    h2 = joined.h2
    old = h2.pids()

    with unnoticed(joined):
        h2.install(2)
    assert h2.versions() == {joined.builds.versions[1]}
    assert h2.programs() == INSTALLED
    assert set(h2.pids()).isdisjoint(old)

    with unnoticed(joined):
        h2.install(1)
    assert h2.versions() == {joined.builds.versions[0]}


def test_nobody_notices_an_upgrade_of_the_only_core_and_the_agent_beside_it(joined):
    h1, h2 = joined.h1, joined.h2
    leases, watches = (h1.lease, h2.lease), (h1.watch(), h2.watch())

    h1.install(2)

    eventually(h1.holds)
    assert (h1.lease, h2.lease) == leases
    # An agent that restarts tells the programs of its own host of all nodes again.
    for host in h1, h2:
        assert host.told_so_far(watches[1]) == []
        assert not [told for told in host.told_so_far(watches[0]) if told.startswith("NodeLeft")]
    assert h1.programs() == INSTALLED


def test_an_upgrade_that_refuses_the_settings_leaves_the_old_agent_running(joined):
    h2, settings = joined.h2, joined.h2.root / "etc/tenure/tenured.conf"
    pid = h2.show("tenured", "MainPID")
    settings.write_text(joined.settings + "Nonsense=1\n")

    with unnoticed(joined):
        said = h2.install(2)

    assert h2.show("tenured", "MainPID") == pid
    assert re.search("tenured.conf.*Nonsense", said)
    restart = re.search("correct them, then: (systemctl restart .*tenured)$", said, re.M)[1]
    settings.write_text(joined.settings)
    with unnoticed(joined):
        h2.on(*restart.split())
    assert h2.programs() == INSTALLED


@pytest.mark.parametrize("how, state", [
    (["stop"], "enabled inactive"),
    (["disable --now"], "disabled inactive"),
    (["disable --now", "mask"], "masked inactive"),
], ids=["stopped", "disabled", "masked"])
def test_services_that_are_off_stay_off_over_an_upgrade(joined, how, state):
    h2 = joined.h2
    for words in how:
        h2.systemctl("-q", *words.split(), *SERVICES)

    h2.install(2)

    assert h2.states(*SERVICES) == dict.fromkeys(SERVICES, state)
    assert (h2.root / ALIAS).is_symlink() == (how == ["stop"])
    h2.systemctl("-q", "unmask", *SERVICES)
    h2.join()
    eventually(h2.is_joined)


# ---- removal ----

def test_a_removal_gives_the_place_back_while_others_keep_calling(joined):
    h1, h2 = joined.h1, joined.h2
    watch = h1.watch()
    calls = h2.start("sh", "-c", "while :; do busctl call "
                     "org.tenure.Membership1 /org/tenure/Membership1 "
                     "org.tenure.Membership1.Manager ListNodes; done")

    h2.remove()

    eventually_is(["NodeLeft left"], lambda: watch.told_of("h2")[-1:])
    with pytest.raises(ProgramError):
        h2.call("ListNodes")
    assert h2.processes_of_ours() == []
    assert h2.show("bound", "ActiveState") == "inactive"
    assert (h2.root / "etc/tenure/tenured.conf").read_text() == joined.settings
    assert h2.on("ls", "-d", "/var/lib/tenured/boots", "/var/lib/tenure-core")
    assert h2.failed_units() == []
    calls.kill()


def test_a_purge_after_a_removal_leaves_nothing(joined):
    joined.h2.remove()
    joined.h2.purge()
    assert joined.h2.nothing_is_left()


def test_a_purge_of_what_runs_leaves_nothing(joined):
    joined.h2.purge()
    joined.h1.purge()
    assert joined.h1.nothing_is_left() and joined.h2.nothing_is_left()


def test_a_purge_of_what_was_started_by_hand_leaves_nothing(installed):
    installed.h2.systemctl("start", "tenured")
    installed.h2.purge()
    assert installed.h2.nothing_is_left()
