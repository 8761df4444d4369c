# Tenure. `make help` tells what there is to make.
#
# Everything is built out of tree: build/<mode>/. Modes: release (the default), asan (address and undefined-behaviour sanitizers),
# tsan (threads), fast (optimized as a whole, with probes and without what makes a service safer: for worlds). Another compiler: make CC=clang MODE=clang.

MODE ?= release
O := build/$(MODE)
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr
DESTDIR ?=
# On Debian 12 packages have their units in /lib/systemd/system.
UNITDIR ?= $(PREFIX)/lib/systemd/system
DOCDIR ?= $(PREFIX)/share/doc
PYTHONDIR ?= $(PREFIX)/lib/python3/dist-packages
# The one place that says it. (In a package's build, debhelper wants it in debian/.)
CHANGELOG := $(firstword $(wildcard conf/debian/changelog debian/changelog))
VERSION := $(shell sed -n '1s/^tenure (\(.*\)-[0-9]*) .*/\1/p' $(CHANGELOG))
ifeq ($(VERSION),)
$(error the first line of conf/debian/changelog names no version)
endif

WARN := -Wno-unknown-warning-option -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wundef -Wno-format-truncation -Wno-restrict $(WERROR)
# CI says -Werror: another compiler has other warnings, and a user is not to be kept from building.
WERROR ?=
# libev's watchers are cast to their base; its macros are written for -fno-strict-aliasing.
CFLAGS_ALL = -std=gnu11 -D_GNU_SOURCE -DTENURE_VERSION='"$(VERSION)"' -g -fno-strict-aliasing -fno-omit-frame-pointer \
	-fstack-protector-strong -Ilib -I$(O)/gen
LDLIBS := -Wl,--as-needed -lraft -lnghttp2 -lhttp_parser -lprotobuf-c -lssl -lcrypto -lev -linih -lyaml -ljson-c -lbsd -lmd -lcrypt -lresolv -lmnl -lsystemd -lpthread

ifeq ($(MODE),asan)
# A sanitizer names lines, and is built in a fifth less time without variables.
CFLAGS_ALL += -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(MODE),fuzz)
# clang counts NULL + 0 as an overflow; an empty buffer has no memory.
CFLAGS_ALL += -O2 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=pointer-overflow -fno-sanitize-coverage=trace-cmp -fno-sanitize-recover=all
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(MODE),cov)
# The counters are a file that a program maps (%c in LLVM_PROFILE_FILE), so that they stay when it is killed.
CFLAGS_ALL += -O1 -fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation
LDFLAGS += -fprofile-instr-generate
else ifeq ($(MODE),tsan)
CFLAGS_ALL += -O1 -fsanitize=thread
LDFLAGS += -fsanitize=thread
else ifeq ($(MODE),fast)
CFLAGS_ALL += -O2 -flto=auto -fno-stack-protector -fomit-frame-pointer -DTENURE_PROBES
LDFLAGS += -O2 -flto=auto
AR := gcc-ar
else
CFLAGS_ALL += -O2 -D_FORTIFY_SOURCE=2
endif
# The library and the programs are made of the same objects.
CFLAGS_ALL += $(CPPFLAGS) $(CFLAGS) -fPIC -fno-semantic-interposition

LIB_SRC := $(wildcard lib/*/*.c)
GEN_SRC := $(O)/gen/wire/rpc.pb-c.c
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o) $(GEN_SRC:.c=.o)
PROGRAMS := tenure-core tenured tenurectl
BIN := $(PROGRAMS:%=$(O)/bin/%)
SO := $(O)/so/libtenure.so.0
LIBDIR ?= $(PREFIX)/lib

.DEFAULT_GOAL := all

.PHONY: all help version deps deps-run deps-test run test check bench install deb dist clean format
.DELETE_ON_ERROR:
.SECONDARY:

# What is missing is named, and installed by `make deps` alone; `make run` and `make test` install it, and say so before.
.PHONY: deps-there
deps-there:
	@[ -e build/.deps-build ] || .ci/deps build -n

all: deps-there
	@$(MAKE) --no-print-directory MODE=$(MODE) CC=$(CC) programs

.PHONY: programs
programs: $(BIN) $(SO) $(O)/so/libtenure.pc

help:
	@echo "make            build the programs into $(O)/bin"
	@echo "make deps       install what the build needs (root), or name it"
	@echo "make run        start 3 core replicas and 5 agents here, show them live until Ctrl-C; ONESHOT=1: show once, check, end"
	@echo "make check      fast tests and linters"
	@echo "make test       what a change needs: unit, simulation, integration and sanitizer tests"
	@echo "make nightly    the other tests, for HOURS=n, from where it stopped the last time"
	@echo "make integration  the tests of real processes in tests/integration, ARGS='-k lease -n 4'; MODE=asan: with sanitizers"
	@echo "make bench      figures, side by side with etcd"
	@echo "make pictures   of tenurectl top and the page in four states of a core, into build/pictures"
	@echo "make install    into DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)"
	@echo "make deb        Debian packages, into build/deb"
	@echo "make dist       the release's tarball, build/tenure-$(VERSION).tar.gz, of what is committed"
	@echo "make abi        record the ABI of libtenure, at a release"
	@echo "make sim        run the simulated world of SEED=n again; make worlds: fresh ones for SECONDS=n"
	@echo "make soak       fresh worlds, storm, starve, each for SECONDS=n; hosts with sanitizers (root)"
	@echo "make storm      three real replicas under faults, for SECONDS=n (root)"
	@echo "make fence      real systemd hosts under faults, for RUNS=n: what must run once never runs twice (root)"
	@echo "make pause      a virtual machine that is paused RUNS=n times, and slewed: how long it believes that it holds a lost place"
	@echo "make starve     real systemd hosts at TTL 1 s, starved of processors, memory, disks, for SECONDS=n each (root)"
	@echo "make work       ten members share 1000 tasks on real hosts under faults, for SECONDS=n (root)"
	@echo "make recipes    a singleton, a virtual address and a PostgreSQL primary, as they are shipped (root)"
	@echo "make packages   the Debian packages in trees of Debian 12 and 13, SUITES=name alone (root; makes the trees)"
	@echo "make idle       the cost of membership for a host, beside serf, corosync and ZooKeeper (root; installs them)"
	@echo "make fuzz       search for inputs that break parsers and the state, each fuzzer for SECONDS=n, or FUZZER=name alone"
	@echo "make coverage   what the fuzzers' corpora, the unit tests and 100 simulated worlds reach, and what they do not reach"
	@echo "make coverage-system   which branches the tests of whole programs reach, LEVEL=test or nightly"
	@echo "make format     lay out the C as CI wants it"
	@echo "make clean      remove build/"

# A stamp, so that an unchanged build asks no package manager.
build/.deps-%: .ci/deps
	@mkdir -p build
	@.ci/deps $*
	@touch $@

deps: build/.deps-build

# Both files are made at once, and make has to know that the header is new, too.
$(O)/gen/wire/rpc.pb-c.c $(O)/gen/wire/rpc.pb-c.h &: lib/wire/rpc.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=lib/wire --c_out=$(@D) $<

$(O)/gen/%.o: $(O)/gen/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -I$(O)/gen -w -c -o $@ $<

# Whatever includes the generated header waits for it; another Makefile may have other flags.
$(O)/%.o: %.c Makefile | $(O)/gen/wire/rpc.pb-c.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(WARN) -MMD -MP -c -o $@ $<

# What says the version is compiled again when that changes.
SAY_VERSION := $(shell grep -l TENURE_VERSION lib/*/*.c agent/*/*.c)
$(SAY_VERSION:%.c=$(O)/%.o) $(O)/so/libtenure.pc: $(CHANGELOG)

# The page for browsers is a part of the program.
$(O)/lib/etcd/status_page.o: $(wildcard conf/page/*.html conf/page/*.css conf/page/*.js conf/page/*.svg)

$(O)/libtenure-all.a: $(LIB_OBJ)
	@rm -f $@
	@$(AR) qcs $@ $^

# A library writes nothing to its program's stderr.
$(O)/silent/log.o: lib/base/log.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -DLOG_LEVEL_FIRST=-1 $(WARN) -MMD -MP -c -o $@ $<

# The library: lib/tenure, and what that needs of the folders below it; it shows what its header has.
$(SO): $(patsubst %.c,$(O)/%.o,$(wildcard lib/tenure/*.c)) $(O)/silent/log.o $(O)/libtenure-all.a lib/tenure/libtenure.sym
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -Wl,-soname,libtenure.so.0 -Wl,--version-script=lib/tenure/libtenure.sym $(if $(filter asan tsan fuzz,$(MODE)),,-Wl,-z,defs) -o $@ $(filter-out %.sym,$^) $(LDLIBS)
	@ln -sf libtenure.so.0 $(O)/so/libtenure.so

$(O)/so/libtenure.pc: lib/tenure/libtenure.pc.in
	@mkdir -p $(@D)
	@sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' $< > $@

define program
$(O)/bin/$(1): $$(patsubst %.c,$(O)/%.o,$$(wildcard $(2)/*.c)) $(O)/libtenure-all.a
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p),agent/$(p))))

# Shipped settings: every default, commented out, as the programs themselves print them.
$(O)/conf/%.conf: $(O)/bin/%
	@mkdir -p $(@D)
	@{ echo "# Settings of $*; see $*.conf(5). What is commented out is the default."; echo; \
	   env -i $< -t $(if $(filter tenured,$*),--config /dev/null --node-name unset --node-id 00000000000000000000000000000000) | \
	   grep -vE '^(DataDir|NodeName|NodeId|InitialCluster|AdvertiseClientURLs)=' | sed 's/^\([^[]\)/#\1/'; } > $@

# Their manual pages, too, from the tables that read them.
$(O)/man/%.conf.5: $(O)/bin/%
	@mkdir -p $(@D)
	@$< --help=conf > $@

# A page gets the version when it is installed, and is found by each of the functions that it is about. To groff 1.22 every page in
# mdoc(7) is from a "BSD System Manager's Manual", unless that string has another name.
MAN := $(wildcard agent/*/*.[1-8] lib/tenure/*.3) $(O)/man/tenured.conf.5 $(O)/man/tenure-core.conf.5

# What is on the bus, for whoever generates code from it: the program tells what it serves.
INTROSPECTION := $(patsubst %,$(O)/introspection/org.tenure.Membership1.%.xml,Manager Node Service)
$(INTROSPECTION): $(O)/introspection/%.xml: $(O)/bin/tenured
	@mkdir -p $(@D)
	@$< --introspect=$* > $@

install: deps-there
	@$(MAKE) --no-print-directory MODE=$(MODE) CC=$(CC) programs $(INTROSPECTION) $(O)/conf/tenured.conf $(O)/conf/tenure-core.conf $(MAN)
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/bin" $(O)/bin/tenurectl $(O)/bin/tenured $(O)/bin/tenure-core
	install -D -m 644 $(SO) "$(DESTDIR)$(LIBDIR)/libtenure.so.0"
	ln -sf libtenure.so.0 "$(DESTDIR)$(LIBDIR)/libtenure.so"
	install -D -m 644 -t "$(DESTDIR)$(LIBDIR)/pkgconfig" $(O)/so/libtenure.pc
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/include" lib/tenure/tenure.h
	install -d "$(DESTDIR)$(UNITDIR)"
	for u in tenured tenure-guard tenure-reboot tenure-core tenured-metrics tenured-metrics-file; do \
		sed 's|@bindir@|$(PREFIX)/bin|' units/$$u.service > "$(DESTDIR)$(UNITDIR)/$$u.service" && \
		chmod 644 "$(DESTDIR)$(UNITDIR)/$$u.service" || exit 1; done
	install -D -m 644 -t "$(DESTDIR)$(UNITDIR)" units/tenure-held.target units/tenure-held.slice units/tenured-metrics.socket units/tenured-metrics-file.timer
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/lib/systemd/system-generators" units/tenure-generator
	install -D -m 644 units/tenure-core.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/tenure-core.conf"
	install -D -m 644 units/tenured.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/tenured.conf"
	install -D -m 644 units/tenure.tmpfiles "$(DESTDIR)$(PREFIX)/lib/tmpfiles.d/tenure.conf"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" conf/completion/tenurectl conf/completion/tenured
	ln -sf tenured "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/tenure-core"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)" conf/completion/_tenurectl
	install -D -m 644 conf/tenure.catalog "$(DESTDIR)$(PREFIX)/lib/systemd/catalog/tenure.catalog"
	install -D -m 644 conf/org.tenure.Membership1.conf "$(DESTDIR)$(PREFIX)/share/dbus-1/system.d/org.tenure.Membership1.conf"
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/dbus-1/interfaces" $(INTROSPECTION)
	install -D -m 644 conf/org.tenure.Membership1.policy "$(DESTDIR)$(PREFIX)/share/polkit-1/actions/org.tenure.Membership1.policy"
	install -D -m 644 conf/org.tenure.Membership1.service "$(DESTDIR)$(PREFIX)/share/dbus-1/system-services/org.tenure.Membership1.service"
	for p in $(MAN); do \
		file=$${p##*/}; section=$${p##*.}; d="$(DESTDIR)$(PREFIX)/share/man/man$$section"; \
		install -d "$$d" && sed -e 's/^\.Os Tenure$$/.Os "Tenure $(VERSION)"/' -e '/^\.Dd /a.ds doc-volume-operating-system Tenure' $$p > "$$d/$$file" && chmod 644 "$$d/$$file" || exit 1; \
		for name in $$(sed -n 's/^\.Nm \(tenure_[a-z_]*\).*/\1/p' $$p); do \
			[ $$name.$$section = $$file ] || ln -sf $$file "$$d/$$name.$$section" || exit 1; done; done
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/libtenure-dev/examples" conf/examples/libtenure/*.c
	install -D -m 644 -t "$(DESTDIR)$(PYTHONDIR)" lib/tenure/python/tenure.py
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/python3-tenure" lib/tenure/python/README.md
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/tenured/examples" conf/examples/*.service
	install -m 755 conf/examples/vip "$(DESTDIR)$(DOCDIR)/tenured/examples"
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/tenured/examples/postgresql" conf/examples/postgresql/*
	chmod 755 "$(DESTDIR)$(DOCDIR)/tenured/examples/postgresql/tenure-postgresql"
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/tenured/examples/patroni" conf/examples/patroni/*
	install -D -m 644 -t "$(DESTDIR)$(DOCDIR)/tenured/examples/tokens" conf/examples/tokens/*
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/tenure-core" conf/prometheus/tenure.rules.yml conf/grafana/tenure-core.json
	install -d "$(DESTDIR)/etc/tenure" "$(DESTDIR)/etc/tenure/services.d"
	for f in tenured tenure-core; do [ -e "$(DESTDIR)/etc/tenure/$$f.conf" ] || install -m 644 $(O)/conf/$$f.conf "$(DESTDIR)/etc/tenure/$$f.conf"; done

# What libtenure's programs may rely on, as of now: for a release.
.PHONY: abi
abi: build/.deps-test
	@$(MAKE) --no-print-directory -s MODE=$(MODE) CC=$(CC) $(SO)
	@.ci/abi $(SO) write

deb: build/.deps-deb
	@.ci/deb

# The same bytes whoever makes it, and wherever.
dist: TAR := build/tenure-$(VERSION).tar
dist:
	@mkdir -p build
	@git diff --quiet HEAD || echo "dist: what is not committed is not in it" >&2
	@git -c tar.umask=0022 archive --prefix=tenure-$(VERSION)/ -o $(TAR) HEAD
	@gzip -nf9 $(TAR)
	@echo $(TAR).gz

version:
	@echo $(VERSION)

-include tests/tests.mk
-include $(shell find build/$(MODE) -name '*.d' 2>/dev/null)

clean:
	rm -rf build
