# The tests' part of the build, and the targets that run things.

TESTS := $(O)/tests/unit/unit $(O)/tests/sim/sim $(O)/tests/fleet/fleet $(O)/tests/fuzz/replay $(O)/tests/soak/slow_sync.so $(O)/tests/soak/guest

comma := ,
# tests/unit/nomem.c stands between our code and what gives memory, compares.c between it and memcmp(),
# changes_test.c between what asks for a change of members and the replica.
UNIT_WRAPS := $(addprefix -Wl$(comma)--wrap=,malloc calloc realloc reallocarray strdup strndup memcmp replica_change_members)

# What is pure in a program is tested as the library is.
UNIT_AGENT := $(patsubst %,$(O)/agent/tenurectl/%.o,offspring top_head top_history top_line top_model top_pages top_verdict top_view terminal) $(patsubst %,$(O)/agent/tenure-core/%.o,expiries links) $(patsubst %,$(O)/agent/tenured/%.o,guard runtime)
$(O)/tests/unit/unit: $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/*.c)) $(UNIT_AGENT) $(O)/tests/sim/disk.o $(O)/tests/sim/worker.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) $(UNIT_WRAPS) -o $@ $^ $(LDLIBS)

# Each function that libtenure exports, as LIBTENURE_SYMBOLS(X) does X(function) with.
$(O)/gen/tenure_symbols.h: lib/tenure/libtenure.sym
	@mkdir -p $(@D)
	{ echo '#define LIBTENURE_SYMBOLS(X) \'; sed -n 's/^\t\(tenure_[a-z_]*\);$$/\tX(\1) \\/p' $<; echo; } >$@
$(O)/tests/unit/snapshot_test.o: tests/unit/snapshot.golden
$(O)/tests/unit/tenure_nomem_test.o: $(O)/gen/tenure_symbols.h

# Its malloc() and its like can fail (tests/sim/memory.c); a sanitizer has its own, so there only our calls of them are taken over.
# libraft's do not fail, but what we call of them do. tests/sim/linked.c sees what links say to the replica. Hashing passwords is slow, and its salt random (tests/sim/users.c).
SIM_WRAPS := raft_malloc raft_calloc replica_input getrandom crypt_rn crypt_gensalt_rn $(if $(filter asan tsan,$(MODE)),malloc calloc realloc reallocarray strdup strndup)
# The agent's fence and its guard; tests/sim/ground.c has what they call. And the links of tenure-core, on tests/sim/sockets.c.
SIM_AGENT := $(patsubst %,$(O)/agent/tenured/%.o,fence guard) $(O)/agent/tenure-core/links.o
# A link-time optimizer binds calls before the linker can wrap them (replica_input).
$(O)/agent/tenure-core/links.o: CFLAGS_ALL += -fno-lto
# The state machine once more, with structs of other sizes; all of its names but those of tests/sim/wider.h stay its own. objcopy
# cannot rename for a link-time optimizer, and what it covers is not what a replica covers.
WIDER := $(patsubst %.c,$(O)/wider/%.o,$(wildcard lib/state/*.c) tests/sim/wider.c)
WIDER_CFLAGS = $(filter-out -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation,$(CFLAGS_ALL)) \
	-fno-lto -UTENURE_PROBES -DTENURE_WIDER
$(O)/wider/%.o: %.c Makefile tests/tests.mk | $(O)/gen/wire/rpc.pb-c.h
	@mkdir -p $(@D)
	$(CC) $(WIDER_CFLAGS) $(WARN) -MMD -MP -c -o $@ $<

$(O)/wider/wider.o: $(WIDER)
	$(CC) -r -nostdlib -o $@ $^
	objcopy --wildcard --keep-global-symbol='wider_*' $@

$(O)/tests/sim/sim: $(patsubst %.c,$(O)/%.o,$(filter-out tests/sim/wider.c,$(wildcard tests/sim/*.c))) $(O)/wider/wider.o $(SIM_AGENT) $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) $(SIM_WRAPS:%=-Wl,--wrap=%) -o $@ $^ $(LDLIBS)

$(O)/tests/sim/reached.o: tests/sim/unreached

$(O)/tests/fleet/fleet: $(patsubst %.c,$(O)/%.o,$(wildcard tests/fleet/*.c))
	$(CC) $(LDFLAGS) -o $@ $^ -lsystemd

# All fuzzers in one program; what the library has of the same names, theirs stand for (tests/fuzz/edge.c).
FUZZ_AGENT := $(patsubst %,$(O)/agent/tenure-core/%.o,etcd options) $(O)/agent/tenured/entry_file.o $(patsubst %,$(O)/agent/tenurectl/%.o,metrics_request offspring)
FUZZ_OBJ := $(patsubst %.c,$(O)/%.o,$(filter-out %/agent_settings.c %/fuzz.c %/replay.c,$(wildcard tests/fuzz/*.c)) tests/sim/worker.c) \
	$(FUZZ_AGENT) $(patsubst %,$(O)/tests/fuzz/agents_%.o,agent_settings options)

# The settings of tenured and tenure-core have the same names; a sanitizer makes others of them.
AGENTS_NAMES := $(foreach s,options_table n_options options_read options_resolve arguments_parse,$(s) __odr_asan.$(s) __odr_asan_gen_$(s))
$(O)/tests/fuzz/agents_%.o: $(O)/tests/fuzz/agent_settings.o $(O)/agent/tenured/options.o
	objcopy $(foreach s,$(AGENTS_NAMES),--redefine-sym $(s)=$(s)_of_agent) $(filter %/$*.o,$^) $@

$(O)/tests/fuzz/replay: $(O)/tests/fuzz/replay.o $(FUZZ_OBJ) $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/fuzz/fuzz: $(O)/tests/fuzz/fuzz.o $(FUZZ_OBJ) $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

$(O)/tests/soak/guest: $(O)/tests/soak/guest.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/soak/%.so: tests/soak/%.c
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -O1 $(WARN) -o $@ $< -ldl

# Searches for inputs that break what reads them, each fuzzer for SECONDS=n, or FUZZER=name alone; what is found new goes into the
# corpus, or into NEW=dir.
FUZZERS := http rpc-server rpc-client wire state snapshot service peers message files netlink place records settings conf args json-read json-write
FUZZER ?= $(FUZZERS)
FUZZ_LEN ?= 16384
NEW ?= tests/fuzz/corpus
fuzz: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=fuzz CC=clang build/fuzz/tests/fuzz/fuzz
	@for f in $(FUZZER); do mkdir -p $(NEW)/$$f tests/fuzz/corpus/$$f; \
		FUZZER=$$f ASAN_OPTIONS=malloc_context_size=5:quarantine_size_mb=16 build/fuzz/tests/fuzz/fuzz -max_total_time=$(SECONDS) -max_len=$(FUZZ_LEN) -dict=tests/fuzz/words -timeout=20 -entropic=0 -print_final_stats=1 $(NEW)/$$f tests/fuzz/corpus/$$f || exit 1; done

# What the corpora, the unit tests and 100 simulated worlds reach; WITH= for the corpora alone.
WITH ?= build/cov/tests/unit/unit build/cov/tests/sim/sim
coverage: build/.deps-coverage
	@$(MAKE) --no-print-directory -s -j2 MODE=cov CC=clang build/cov/tests/fuzz/replay $(WITH)
	@tests/fuzz/coverage.sh build/cov/tests/fuzz/replay tests/fuzz/corpus "$(CURDIR)/build/coverage" $(WITH)

# Which branches the tests of whole programs reach, of LEVEL=test or nightly.
LEVEL ?= test
coverage-system: build/.deps-coverage build/.deps-test
	@.ci/coverage-system build/coverage-$(LEVEL) $(LEVEL)

.PHONY: coverage-system tests-$(MODE) integration nightly soak sim worlds fuzz coverage storm fence pause starve work recipes packages idle turns pictures
tests-$(MODE): $(TESTS)

run: build/.deps-run
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/fleet/fleet
	@$(O)/tests/fleet/fleet --bin $(O)/bin --dir "$(CURDIR)/build/run" show $(if $(filter 1,$(ONESHOT)),--oneshot)

check: build/.deps-test
	@.ci/test check

test: build/.deps-test
	@.ci/test test

# What is too long for that, or says little on a machine that others use, too: for HOURS=n, from where it stopped the last time.
HOURS ?= 2
nightly: build/.deps-test
	@.ci/test nightly --hours $(HOURS)

# What the tests of tests/integration need is built; ARGS goes to pytest: ARGS='-k lease', ARGS=integration/test_agent.py.
integration: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@BIN=$(O)/bin tests/run $(ARGS)

# make sim SEED=n runs one world again; make worlds SECONDS=n goes on with fresh ones.
SEED ?= 1
SECONDS ?= 600
# What random faults begin with: SEED=n, and otherwise others each time.
DRAWN = $(or $(filter-out 1,$(SEED)),$$(date +%s))
sim: build/.deps-build
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) $(O)/tests/sim/sim
	@$(O)/tests/sim/sim --seed $(SEED)

# Another build, for more worlds a second: a seed is the same world in each.
worlds: MODE := $(MODE:release=fast)
worlds: build/.deps-build
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) build/$(MODE)/tests/sim/sim
	@build/$(MODE)/tests/sim/sim --from $$(date +%s)000 --seconds $(SECONDS) $(if $(filter fast,$(MODE)),--reached)

# What takes long, one after the other, each for SECONDS=n: fresh worlds, processes under faults, starved hosts.
soak:
	@$(MAKE) --no-print-directory worlds
	@$(MAKE) --no-print-directory storm
	@$(MAKE) --no-print-directory starve
	@$(MAKE) --no-print-directory -s -j2 MODE=asan programs
	@BIN=build/asan/bin tests/run hosts

# Real processes under faults, for SECONDS=n; SEED=n draws the same faults again.
storm: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/soak/slow_sync.so
	@BIN=$(O)/bin tests/run -n 0 soak/test_storm.py --seconds $(SECONDS) --seed $(DRAWN)

# Real hosts, TTL 1 s, starved of processors, memory and disks for SECONDS=n each.
starve: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/soak/slow_sync.so
	@BIN=$(O)/bin tests/run -n 0 soak/test_starved_hosts.py --seconds $(SECONDS)

# Ten members that share a thousand tasks on real hosts under faults, for SECONDS=n; SEED=n draws the same again.
work: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(SO)
	@BIN=$(O)/bin tests/run -n 0 soak/test_shared_work.py --seconds $(SECONDS) --seed $(DRAWN)

# The recipes of tenured(8), as they are shipped, on real hosts.
recipes: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@BIN=$(O)/bin tests/run -n 0 --night hosts/test_recipes.py

# How tenurectl top and the page look while all is well, hosts are lost, there is no majority, the own replica is gone.
pictures: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@BIN=$(O)/bin tests/run -n 0 pictures

# The Debian packages, built and tested in trees of Debian's suites, which come from the mirror that this machine uses; and there,
# too, what .github/workflows/ci.yml runs, line by line.
SUITES ?= bookworm trixie
packages: build/.deps-packages
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@for s in $(SUITES); do BIN=$(O)/bin tests/run -n 0 packages --suite $$s || exit 1; done

# Random faults on a real systemd host, RUNS=n times: what must run once never runs twice. SEED=n draws the same again; TTL=1s.
RUNS ?= 300
fence: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@BIN=$(O)/bin tests/run -n 1 hosts/test_fencing.py --night --draws $(RUNS) --seed $(DRAWN) $(TTL:%=--ttl %)

# An emulated machine that is paused, for SECONDS=n with and without a sign of it; SEED=n draws the same again.
pause: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/soak/guest
	@BIN=$(O)/bin tests/run -n 0 soak/test_paused_machine.py --seconds $(SECONDS) --seed $(DRAWN)

$(O)/tests/bench/act: $(O)/tests/bench/act.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/bench/caches: $(O)/tests/bench/caches.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/bench/load: $(O)/tests/bench/load.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/bench/leases: $(O)/tests/bench/leases.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/bench/floor: $(O)/tests/bench/floor.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# The longest turn of the loop that each thing costs, at a million keys and leases.
$(O)/tests/bench/turns: $(O)/tests/bench/turns.o $(O)/tests/unit/rig.o $(O)/tests/unit/one.o $(O)/tests/sim/disk.o $(O)/tests/sim/worker.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

turns: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) $(O)/tests/bench/turns
	@$(O)/tests/bench/turns

# What a host pays for being a member, beside serf, corosync and ZooKeeper.
idle: build/.deps-idle
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@BIN=$(O)/bin DIR="$(CURDIR)/build/idle" tests/bench/idle.sh

bench: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/bench/load $(O)/tests/bench/leases $(O)/tests/bench/floor $(O)/tests/bench/caches
	@tests/bench/bench.sh $(O)/bin "$(CURDIR)/build/bench" $(O)/tests/bench/load $(O)/tests/bench/leases $(O)/tests/bench/floor $(O)/tests/bench/caches

format:
	clang-format-14 -i $$(git ls-files '*.c' '*.h')
