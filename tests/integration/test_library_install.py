"""libtenure as programs find it once it is installed."""
import os
import re

import pytest
from harness.etcd import Etcd
from harness.library import sanitizers
from harness.places import BIN, SO, TOP
from harness.program import run
from harness.waiting import eventually, eventually_is

INCLUDED = "#include <tenure.h>\nint main(void) { return tenure_version() == 0; }\n"
LANGUAGES = {"C99": ["gcc", "-std=c99"], "GNU C11": ["gcc", "-std=gnu11"],
             "C++11": ["g++", "-x", "c++", "-std=c++11"]}


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """What pkg-config says of it, by option."""
    root = tmp_path_factory.mktemp("installed")
    # What is built: other tests use it meanwhile, so nothing must be compiled.
    run("make", "-s", f"MODE={BIN.parent.name}", "CC=false", f"DESTDIR={root}", "PREFIX=/usr",
        "install", cwd=TOP)
    return lambda *options: run(
        "pkg-config", *options, "libtenure", PKG_CONFIG_SYSROOT_DIR=str(root),
        PKG_CONFIG_PATH=str(root / "usr/lib/pkgconfig")).split()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_header_is_found_with_pkg_config_and_included(language, installed, tmp_path):
    source = tmp_path / "program"
    source.write_text(INCLUDED)

    run(*LANGUAGES[language], *(["-x", "c"] if "++" not in language else []), "-pedantic", "-Wall",
        "-Wextra", "-Werror", *sanitizers()[0], "-o", tmp_path / "a.out", source, "-x", "none",
        *installed("--cflags", "--libs"))

    run(tmp_path / "a.out", LD_LIBRARY_PATH=str(SO))
    assert installed("--modversion")[0] == run(BIN / "tenured", "--version").split()[1]


def test_each_function_is_listed_exported_declared_and_in_a_manual_page():
    folder = TOP / "lib/tenure"
    symbols = [line.split() for line in
               run("nm", "-D", "--defined-only", SO / "libtenure.so.0").splitlines()]
    header = (folder / "tenure.h").read_text()
    pages = "".join(page.read_text() for page in folder.glob("*.3"))

    listed = set(re.findall(r"^\t(tenure_\w+);$", (folder / "libtenure.sym").read_text(), re.M))

    assert {name.split("@")[0] for _, kind, name in symbols if kind != "A"} == listed
    assert set(re.findall(r"\b(tenure_[a-z_]+)\(", header)) == listed
    assert listed - set(re.findall(r"\btenure_\w+", pages)) == set()


# A program whose output is a file keeps it back; stdbuf(1) would be in the sanitizers' way.
BY_LINES = """
__attribute__((constructor)) static void by_lines(void) { setvbuf(stdout, NULL, _IOLBF, 0); }
"""


def examples_of_the_page():
    text = (TOP / "lib/tenure/libtenure.3").read_text().replace(r"\en", r"\n").replace(r"\&", "")
    return [found + BY_LINES for found in
            re.findall(r"^#include <stdio.h>.*?^}$", text, re.M | re.S)]


def test_programs_that_join_as_the_manual_page_shows_see_each_other(engine, program):
    joins = program.compile(examples_of_the_page()[1])

    def joined(name):
        return program.start(joins, name, name=name,
                             TENURE_ENDPOINTS=engine.endpoints)

    one = joined("web1")
    eventually(lambda: "at work" in one.lines())
    two = joined("web2")
    eventually(lambda: "web2 joined" in one.lines() and "web1 joined" in two.lines())
    two.kill()

    eventually(lambda: "web2 left: stopped" in one.lines())


@pytest.fixture(params=["tenure-core", "etcd"])
def core(request):
    if request.param == "etcd":
        return request.getfixturevalue("etcd")
    return request.getfixturevalue("new_cluster")(1)


def test_a_program_hears_what_has_happened_while_its_core_was_away(core, agents, program):
    agents("h1", Cluster="default")
    follows = program.compile(examples_of_the_page()[0])
    follower = program.start(follows, name="members",
                             TENURE_ENDPOINTS=core.endpoints)
    eventually(follower.lines)
    agents("h2", Cluster="default", TTL="2s").kill()
    eventually(lambda: "left h2: expired" in follower.lines())

    endpoints, server = core.endpoints, core if isinstance(core, Etcd) else core.leader()
    server.stop()
    agents("h3", Cluster="default", Endpoints=endpoints, held=False)
    server.start()

    eventually_is(["joined h1", "joined h2", "left h2: expired", "joined h3"], follower.lines)
    assert len(os.listdir(f"/proc/{follower.pid}/task")) == 1  # the library starts no thread
