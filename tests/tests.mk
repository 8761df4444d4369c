# The tests' part of the build.

$(O)/tests/fleet/fleet: $(patsubst %.c,$(O)/%.o,$(wildcard tests/fleet/*.c))
	$(CC) $(LDFLAGS) -o $@ $^ -lsystemd

run: build/.deps-run
	@$(MAKE) --no-print-directory MODE=$(MODE) CC=$(CC) programs $(O)/tests/fleet/fleet
	@$(O)/tests/fleet/fleet --bin $(O)/bin --dir $(abspath build)/run show $(if $(filter 1,$(ONESHOT)),--oneshot)

$(O)/tests/sim/sim: $(patsubst %.c,$(O)/%.o,$(wildcard tests/sim/*.c)) $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(O)/tests/unit/unit: $(patsubst %.c,$(O)/%.o,$(wildcard tests/unit/*.c)) $(O)/tests/sim/disk.o $(O)/libtenure-all.a
	$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
