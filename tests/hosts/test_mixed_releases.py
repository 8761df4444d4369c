"""An agent and a guard of two releases on one host. Packages restart the guard first, so either may
be the newer one, by an upgrade or by a downgrade; and the guard reads the files of the agent."""
import shutil

import pytest
from harness import ledger
from harness.earlier import RELEASES, Release
from harness.places import BIN
from harness.waiting import eventually
from test_losses import check_told_after_the_stop, kill_the_agent_for_good

pytestmark = pytest.mark.night("builds the programs of each release, and holds places of 2 s")


@pytest.fixture(params=RELEASES)
def release(request):
    return Release(request.param)


@pytest.fixture
def install(release):
    """install(h4, "tenured", release): it runs the program of that release, or the present one
    without; in the end the present one again."""
    touched = {}

    def put(host, unit, of=None):
        touched[host, unit] = None
        program = (of.programs() if of else BIN) / "tenured"
        shutil.copy(program, host.root / "usr/bin/new")
        host.on("mv", "/usr/bin/new", "/usr/bin/tenured")
        host.systemctl("restart", unit)
        eventually(host.holds)

    yield put
    if not ledger.failed():  # otherwise the hosts end
        for host, unit in [*touched]:
            put(host, unit)


@pytest.fixture(params=["earlier agent", "earlier guard"])
def mix(request, install, release):
    def both(host):
        earlier = request.param == "earlier guard"
        install(host, "tenure-guard", release if earlier else None)
        install(host, "tenured", None if earlier else release)
        eventually(host.is_back)

    return both


def test_an_upgrade_and_a_downgrade_of_either_costs_no_place(hosts, install, release):
    h1, h4 = hosts.h1, hosts.h4
    lease, bound, watch = h4.lease, h4.show("only-one", "MainPID"), h1.watch()

    for of in release, None, release, None:
        for unit in "tenure-guard", "tenured":
            install(h4, unit, of)
            h4.renews(1)
            assert (h4.lease, h4.show("only-one", "MainPID")) == (lease, bound)

    assert set(h4.told_so_far(watch)) == {"NodeChanged"}  # its AgentVersion


@pytest.mark.parametrize("happens, says", [
    (lambda h4: h4.cut(), "tenured"), (kill_the_agent_for_good, "tenure-guard"),
], ids=["cable pulled", "agent does not come back"])
def test_what_is_bound_has_stopped_before_the_loss_is_announced(
        brief_hosts, machine, mix, happens, says):
    mix(brief_hosts.h4)

    with machine.watched():
        check_told_after_the_stop(brief_hosts, happens, says)
    brief_hosts.tidy()
