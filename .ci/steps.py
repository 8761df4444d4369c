"""What there is to run: each step, what it is called, and which level has it.

The order is that in which steps begin, so what takes long comes first. What is in `nightly` says
why it is not in `test`:

ETCD       the same on a real etcd; `test` has the comparison of the API
SANITIZED  the same with sanitizers; `test` has most unit tests, worlds, one core, one agent
TIMED      it judges how long something took, or holds leases of a second or two on the machine's
           own clock, and others on a busy machine can make it red
LONG       it takes long for what it adds
"""
from runner import ALONE, Step

LEVELS = ("check", "test", "nightly")
ETCD = "the same on a real etcd"
SANITIZED = "the same with sanitizers"
TIMED = "it judges time, which others on the machine can take away"
LONG = "it takes long for what it adds"

STEPS = []
FLEET = "build/{tree}/tests/fleet/fleet --bin build/{tree}/bin --dir {dir} "


def step(name, command, level="test", why="", **more):
    assert (level == "nightly") == bool(why), f"{name}: a step of the night says why"
    assert name not in {s.name for s in STEPS}, f"two steps are called {name}"
    STEPS.append(Step(name, command, level, why, **more))


# What asks for nothing but a processor gets what those leave that wait more than they work.
BEHIND = "nice -n 19 "


def build(tree, what, level="test", why="", compiler="gcc"):
    behind = "" if tree == "release" else BEHIND
    step(f"build: {tree}", f"{behind}make -s -j2 MODE={tree} CC={compiler} {what}", level, why,
         tree=None, weight=2)


def programs(tree):
    names = ("bin/tenure-core", "bin/tenured", "bin/tenurectl", "so/libtenure.so.0")
    return " ".join(f"build/{tree}/{name}" for name in names)


def nightly(name, command, why, **more):
    step(name, command, "nightly", why, **more)


# ---- what needs no program, and the builds

build("release", "programs tests-release build/release/so/libtenure.so.0", "check")
step("layers", ".ci/layers", "check", tree=None)
step("what is applied is bounded", ".ci/budgets", "check", tree=None)
step("bytes are those that were written down", ".ci/bytes", "check", tree=None)
step("the walks of CONTRIBUTING.md", ".ci/walk", "check", tree=None)
step("how others failed: each row has a test", ".ci/lessons", "check", tree=None)
step("format", ".ci/format", "check", tree=None)
step("scripts can be read", ".ci/parses", "check", tree=None)
step("prose", ".ci/prose", "check", tree=None)
step("manual pages", ".ci/manuals", "check", tree=None)
step("commits say what they do", ".ci/commits", "check", tree=None)
step("each message of the journal is explained", ".ci/explained", "check", tree=None)

build("asan", programs("asan") + " tests-asan")

# ---- what waits more than it works: the rest gets the processor that it leaves

step("integration", "tests/run -n 8 integration", weight=2, limit=2700)
step("hosts: real systemd", "tests/run hosts", limit=2700)
step("fleet: what agents tell, and when",
     FLEET + "--ttl-ms 5000 cases --rounds 4")

# ---- what is in this process, and worlds

step("libtenure's ABI is what was released", ".ci/abi build/{tree}/so/libtenure.so.0", "check")
step("an unchanged build does nothing", ".ci/unchanged", "check")
step("unit tests", "build/{tree}/tests/unit/unit --seed {seed}", "check")
step("fuzzers' corpus", "build/{tree}/tests/fuzz/replay tests/fuzz/corpus", "check")
step("simulation: 600 fixed seeds, every coincidence",
     BEHIND + "build/{tree}/tests/sim/sim --from 1 --seeds 600 --all", "check", weight=2)
step("simulation: each of 80 seeds does the same twice",
     BEHIND + "build/{tree}/tests/sim/sim --from 1 --seeds 80 --twice", "check", weight=2)
step("simulation: 6 long worlds",
     BEHIND + "build/{tree}/tests/sim/sim --aim nights --from 1 --seeds 6", weight=2)

# ---- the sanitizers' share

step("core and settings, sanitizers", "tests/run integration/test_bad_input.py "
     "integration/test_core.py integration/test_damage.py integration/test_settings.py "
     "integration/test_tls.py", tree="asan")
step("agent: a core that lies, sanitizers", "tests/run -n 4 --seed {seed} --draws 8 "
     "integration/test_a_core_that_lies_to_an_agent.py", tree="asan")
step("unit tests, sanitizers", BEHIND + "build/asan/tests/unit/unit --no-bulk --seed {seed} "
     "--jobs 2", tree="asan")
step("fuzzers' corpus, sanitizers", BEHIND + "build/asan/tests/fuzz/replay tests/fuzz/corpus",
     tree="asan")
step("simulation, sanitizers: 40 fixed seeds",
     BEHIND + "build/asan/tests/sim/sim --from 1 --seeds 40", tree="asan")

# ---- the night

HOSTILE = "tests/run -n 0 soak/test_hostile.py --seconds 1 "
nightly("fleet: TTL 4 s, 5 replicas", FLEET + "--cores 5 --ttl-ms 4000 cases --rounds 1", TIMED)
nightly("core: a disk that fails at each call", "tests/run --night integration/test_bad_disk.py",
        LONG, limit=3600)
nightly("core: thousands of clients at once", "tests/run -n 0 soak/test_many.py --seconds 1", TIMED,
        weight=ALONE)
nightly("hostile clients beside honest ones", HOSTILE + "-k 'not tls'", TIMED, weight=ALONE)
nightly("hostile clients, TLS", HOSTILE + "-k tls", TIMED, weight=ALONE)
nightly("how others failed: writers, large states",
        "tests/run -m night integration/test_lessons.py", TIMED)
nightly("Patroni on tenure-core", "tests/run -n 0 --night hosts/test_patroni.py", TIMED)
nightly("the last metre: what is in the way of a stop on real hosts",
        "tests/run -n 1 --night hosts/test_last_metre.py", TIMED)
nightly("recipes: a singleton, an address, a PostgreSQL primary",
        "tests/run -n 0 --night hosts/test_recipes.py", TIMED)
FENCING = "tests/run -n 1 hosts/test_fencing.py --night --seed {seed} --draws "
nightly("fencing: 8 random faults on a real host", FENCING + "8", TIMED)
nightly("work: 300 commands that are killed before their deadline",
        "tests/run -m night integration/test_keepers.py", TIMED)
nightly("a virtual machine that is paused, and slewed",
        "tests/run -n 0 --seed {seed} --seconds 15 soak/test_paused_machine.py", TIMED,
        weight=ALONE)
nightly("replicas of an earlier release beside present ones",
        "tests/run -m night --seed {seed} integration/test_earlier_releases.py", LONG)
nightly("agents and tools of an earlier release beside present ones",
        "tests/run -m night integration/test_mixed_releases.py", LONG)
nightly("an agent and a guard of two releases",
        "tests/run -n 1 -m night hosts/test_mixed_releases.py", TIMED)
nightly("Debian packages: equal builds, lintian, upgrade, purge",
        "tests/run -n 0 packages/test_packages.py packages/test_upgrades.py", LONG, limit=3600)
nightly("the same verdict anywhere", ".ci/anywhere", LONG)
for suite in "bookworm", "trixie":
    nightly(f"the CI file's lines on a new Debian {suite}: build, main job",
            f"tests/run -n 0 packages/test_workflow.py --suite {suite} --steps Build,", LONG)

nightly("hosts, on a real etcd", "tests/run hosts --engine etcd", ETCD)
for part in range(4):
    nightly(f"calls beside an etcd: 25,000 of 100,000, part {part + 1}",
            f"tests/run -n 4 --seed {{seed}}{part}00 --draws 13 integration/test_beside_etcd.py "
            "-k random", LONG)

build("tsan", programs("tsan"), "nightly", LONG)
build("fast", "build/fast/tests/sim/sim", "nightly", LONG)
build("cov", programs("cov") + " tests-cov", "as needed", compiler="clang")
# For its warnings, which do not depend on what it optimizes.
step("build with clang", "CFLAGS=-O0 CPPFLAGS=-U_FORTIFY_SOURCE make -s -j2 MODE=clang CC=clang "
     "programs tests-clang", "nightly", LONG, tree=None, weight=2)

nightly("3000 fresh worlds reach every probe",
        BEHIND + "build/{tree}/tests/sim/sim --from {seed}000 --seeds 3000 --reached", LONG,
        tree="fast", weight=2, limit=3600)
nightly("60 long worlds reach what takes long",
        BEHIND + "build/{tree}/tests/sim/sim --aim nights --from {seed}000 --seeds 60 --reached",
        LONG, tree="fast", weight=2, limit=3600)
nightly("users, roles, logins, thread sanitizer", "tests/run integration/test_authentication.py",
        SANITIZED, tree="tsan")
nightly("unit tests, sanitizers, the bulk ones, too",
        BEHIND + "build/asan/tests/unit/unit --seed {seed}", SANITIZED, tree="asan")
nightly("integration, sanitizers", "tests/run integration", SANITIZED, tree="asan", limit=3600)
nightly("fleet, sanitizers", FLEET + "--ttl-ms 16000 cases --rounds 1", SANITIZED, tree="asan")
nightly("hostile clients, sanitizers", HOSTILE + "-k 'not tls and not follower'", SANITIZED,
        tree="asan", weight=ALONE)

# ---- for as long as there is time: what draws other faults each time

SIM = "build/{tree}/tests/sim/sim --from {seed}000 --seconds {seconds}"
STORM = "tests/run -n 0 --seed {seed} --seconds {seconds} soak/test_storm.py"
LIES = "tests/run -n 4 --seed {seed} --draws 60 -k random "
for what, command, more in (
        ("fresh worlds", SIM, {"weight": 2, "tree": "fast"}),
        ("faults: real processes, networks, disks", STORM, {}),
        ("fencing: random faults on a real host", FENCING + "40", {}),
        ("fresh worlds, every coincidence", SIM + " --all", {"weight": 2, "tree": "fast"}),
        ("fresh long worlds", SIM + " --aim nights", {"weight": 2, "tree": "fast"}),
        ("fresh worlds, each twice", SIM + " --twice", {"weight": 2, "tree": "fast"}),
        ("fresh inputs, fuzzers", "make --no-print-directory fuzz SECONDS=30 NEW={dir}",
         {"weight": 2}),
        ("unit tests, fresh seeds", "build/{tree}/tests/unit/unit --seed {seed}", {}),
        ("fresh calls beside an etcd", "tests/run --seed {seed} integration/test_beside_etcd.py "
         "integration/test_users_beside_etcd.py -k random", {}),
        ("fresh watches", "tests/run --seed {seed} "
         "integration/test_watches_in_number.py -k each", {}),
        ("starved hosts", "tests/run -n 0 --seed {seed} --seconds 120 soak/test_starved_hosts.py",
         {"weight": ALONE}),
        ("fresh lies to an agent", LIES + "integration/test_a_core_that_lies_to_an_agent.py",
         {"tree": "asan"}),
        ("fresh lies to libtenure", LIES + "integration/test_a_core_that_lies_to_libtenure.py",
         {"tree": "asan"}),
        ("faults, sanitizers", STORM, {"tree": "asan"}),
        ("shared work on real hosts",
         "tests/run -n 0 --seed {seed} --seconds {seconds} soak/test_shared_work.py", {})):
    nightly(what, command, "it goes on for as long as there is time", fill=True, limit=3600, **more)
