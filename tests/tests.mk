# The tests' part of the build, and the targets that run things.

TESTS := $(O)/tests/unit/unit $(O)/tests/sim/sim $(O)/tests/fleet/fleet

$(O)/tests/unit/unit: $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/*.c)) $(O)/tests/sim/disk.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/sim/sim: $(patsubst %.c,$(O)/%.o,$(wildcard tests/sim/*.c)) $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/fleet/fleet: $(patsubst %.c,$(O)/%.o,$(wildcard tests/fleet/*.c))
	$(CC) $(LDFLAGS) -o $@ $^ -lsystemd

.PHONY: tests-$(MODE) soak sim
tests-$(MODE): $(TESTS)

run: build/.deps-run
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs $(O)/tests/fleet/fleet
	@$(O)/tests/fleet/fleet --bin $(O)/bin --dir $(abspath build)/run show $(if $(filter 1,$(ONESHOT)),--oneshot)

check: build/.deps-test
	@.ci/test check

test: build/.deps-test
	@.ci/test all

# make sim SEED=n runs one world again; make soak SECONDS=n goes on with fresh ones.
SEED ?= 1
SECONDS ?= 600
sim: build/.deps-build
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) $(O)/tests/sim/sim
	@$(O)/tests/sim/sim --seed $(SEED)

soak: build/.deps-build
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) $(O)/tests/sim/sim
	@$(O)/tests/sim/sim --from $$(date +%s)000 --seconds $(SECONDS)

bench: build/.deps-test
	@$(MAKE) --no-print-directory -s -j2 MODE=$(MODE) CC=$(CC) programs
	@tests/bench/bench.sh $(O)/bin $(abspath build)/bench

format:
	clang-format-14 -i $$(git ls-files '*.c' '*.h')
