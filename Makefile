# Tenure. `make help` tells what there is to make.
#
# Everything is built out of tree: build/<mode>/. Modes: release (the default), asan (address and undefined-behaviour sanitizers),
# tsan (threads). Another compiler: make CC=clang MODE=clang.

MODE ?= release
O := build/$(MODE)
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr
DESTDIR ?=
VERSION := 0.1.0

WARN := -Wno-unknown-warning-option -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wundef -Wno-format-truncation -Wno-restrict -Werror
# libev's watchers are cast to their base; its macros are written for -fno-strict-aliasing.
CFLAGS_ALL = -std=gnu11 -D_GNU_SOURCE -DTENURE_VERSION='"$(VERSION)"' -g -fno-strict-aliasing -fno-omit-frame-pointer \
	-fstack-protector-strong -Ilib -isystem $(O)/gen $(CFLAGS)
LDLIBS := -Wl,--as-needed -lraft -lnghttp2 -lprotobuf-c -lssl -lcrypto -lev -linih -ljson-c -lbsd -lsystemd -lpthread

ifeq ($(MODE),asan)
CFLAGS_ALL += -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(MODE),tsan)
CFLAGS_ALL += -O1 -fsanitize=thread
LDFLAGS += -fsanitize=thread
else
CFLAGS_ALL += -O2 -D_FORTIFY_SOURCE=2
endif

LIB_SRC := $(wildcard lib/*/*.c)
GEN_SRC := $(O)/gen/wire/rpc.pb-c.c
LIB_OBJ := $(LIB_SRC:%.c=$(O)/%.o) $(GEN_SRC:.c=.o)
PROGRAMS := tenure-core tenured tenurectl
BIN := $(PROGRAMS:%=$(O)/bin/%)

.PHONY: all help deps deps-run deps-test run test check bench install clean format
.DELETE_ON_ERROR:
.SECONDARY:

all: build/.deps-build
	@$(MAKE) --no-print-directory MODE=$(MODE) CC=$(CC) programs

.PHONY: programs
programs: $(BIN)

help:
	@echo "make            build the programs into $(O)/bin"
	@echo "make deps       install what the build needs (root), or name it"
	@echo "make run        start 3 core replicas and 5 agents here, show them live until Ctrl-C; ONESHOT=1: show once, check, end"
	@echo "make check      fast tests and linters"
	@echo "make test       everything: unit, sanitizer, simulation and integration tests"
	@echo "make bench      figures, side by side with etcd"
	@echo "make install    into DESTDIR=$(DESTDIR) PREFIX=$(PREFIX)"
	@echo "make sim        one simulated world again, SEED=n; make soak: fresh worlds for SECONDS=n"
	@echo "make format     lay out the C as CI wants it"
	@echo "make clean      remove build/"

# A stamp, so that an unchanged build asks no package manager.
build/.deps-%: .ci/deps
	@mkdir -p build
	@.ci/deps $*
	@touch $@

deps: build/.deps-build

$(O)/gen/wire/rpc.pb-c.c: lib/wire/rpc.proto
	@mkdir -p $(@D)
	protoc-c --proto_path=lib/wire --c_out=$(@D) $<

# Whatever includes the generated header waits for it.
$(O)/gen/wire/rpc.pb-c.h: $(O)/gen/wire/rpc.pb-c.c

$(O)/gen/%.o: $(O)/gen/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) -I$(O)/gen -w -c -o $@ $<

$(O)/%.o: %.c | $(O)/gen/wire/rpc.pb-c.h
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(WARN) -MMD -MP -c -o $@ $<

$(O)/libtenure-all.a: $(LIB_OBJ)
	@rm -f $@
	@$(AR) qcs $@ $^

define program
$(O)/bin/$(1): $$(patsubst %.c,$(O)/%.o,$$(wildcard $(2)/*.c)) $(O)/libtenure-all.a
	@mkdir -p $$(@D)
	$$(CC) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p),agent/$(p))))

-include tests/tests.mk
-include $(shell find build/$(MODE) -name '*.d' 2>/dev/null)

clean:
	rm -rf build
