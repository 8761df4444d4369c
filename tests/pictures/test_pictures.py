"""What an operator sees: `tenurectl top` and the core's page, for who changes them to look at.

`make pictures` writes them to build/pictures. conf/page has two of them, well.desktop.png and
two_of_five_lost.phone.png, for the README."""
import base64

import pytest
from harness.browser import Browser
from harness.places import BIN, TOP
from harness.screen import Screen
from harness.waiting import eventually

OUT = TOP / "build/pictures"
TERMINALS = (80, 24), (120, 40)
WINDOWS = {"desktop": (1280, 800), "phone": (390, 844)}
HOSTS = {"db1": ("rack-a", "postgresql"), "db2": ("rack-b", "postgresql"),
         "db3": ("rack-c", "postgresql"), "web1": ("rack-a", "web"), "web2": ("rack-b", "web")}
PORTS = {"postgresql": 5432, "web": 443}


@pytest.fixture
def hosts(cluster, agents):
    hosts = []
    for name, (zone, service) in HOSTS.items():
        hosts.append(agents(name, Cluster="shop", TTL="3s", LogLevel="info", Tags=f"zone={zone}"))
        (hosts[-1].folder / f"services.d/{service}.service-entry").write_text(
            f"[Service]\nName={service}\nPort={PORTS[service]}\n")
        hosts[-1].reload()
    eventually(lambda: len(hosts[0].services()) == len(HOSTS))
    return hosts


# What happens to the core and the hosts, where the first host is looked at by its own replica;
# and what is seen of that on a terminal, and on the page.

def well(hosts, own, others):
    return "all 5 hosts hold their places$", "^all 5 hosts hold their places$"


def two_of_five_lost(hosts, own, others):
    for host in hosts[1], hosts[3]:
        host.kill()
    return "2 of 5 hosts lost at", "^2 of 5 hosts lost at"


def no_majority(hosts, own, others):
    for replica in others:
        replica.kill()
    return "no majority", "^no majority"


def own_replica_gone(hosts, own, others):
    own.kill()
    return "; 1 of 3 replicas does not answer$", "^not followed since"


@pytest.mark.parametrize("state", [well, two_of_five_lost, no_majority, own_replica_gone],
                         ids=lambda state: state.__name__)
def test_pictures(state, cluster, hosts, shared, tmp_path):
    OUT.mkdir(parents=True, exist_ok=True)
    used = hosts[0].status().core_endpoint
    own, = (replica for replica in cluster.running if replica.client_url == used)
    screens = [Screen(tmp_path / f"top{width}.log", BIN / "tenurectl",
                      f"--bus={hosts[0].bus.address}", "top", width=width, height=height)
               for width, height in TERMINALS]
    pages = {name: shared("browser", Browser).page() for name in WINDOWS}
    for name, page in pages.items():
        page.media(prefers_color_scheme="light")
        page.open(f"{used}/?cluster=shop")
        page.until("document.querySelector('#live.on')?.textContent === 'Live'")
        page.size(*WINDOWS[name])
    for screen in screens:
        screen.shows("^web2 +held")

    on_screen, on_page = state(hosts, own, [r for r in cluster.running if r is not own])

    try:
        for screen in screens:
            screen.shows(on_screen)
        for page in pages.values():
            page.shows("#verdict", on_page)
    finally:
        for screen, (width, height) in zip(screens, TERMINALS):
            (OUT / f"{state.__name__}.{width}x{height}.txt").write_text(screen.text() + "\n")
        for name, page in pages.items():
            picture = page.call("Page.captureScreenshot", format="png")["data"]
            (OUT / f"{state.__name__}.{name}.png").write_bytes(base64.b64decode(picture))
            page.close()
