/*
 * What the fuzzers share: a table of them, and the shape of their inputs.
 *
 * A fuzzer reads its input and nothing else: no clock, no randomness, no file. Most inputs are
 * a row of steps, each with its length in front, so that a mutation takes, moves, or changes
 * one step and leaves the others what they were (mutate.c). What must hold is checked by
 * abort().
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/conf.h"
#include "wire/pb.h"

struct fuzzer {
        const char *name; /* of its folder in corpus/, too */
        void (*run)(struct view in);
        bool steps; /* a row of steps; else mere bytes */
        /* The type of the protobuf message in a step (or, without steps, in the input), and
         * where it begins; NULL where there is none. May be NULL. */
        const ProtobufCMessageDescriptor *(*message)(struct view step, size_t *ret_at);
};

extern const struct fuzzer fuzz_rpc_server, fuzz_rpc_client, fuzz_wire, fuzz_state,
        fuzz_snapshot, fuzz_service, fuzz_peers, fuzz_files, fuzz_netlink, fuzz_place,
        fuzz_records, fuzz_settings, fuzz_conf, fuzz_message, fuzz_http, fuzz_json_read,
        fuzz_json_write, fuzz_args, fuzz_core_settings, fuzz_agent_settings, fuzz_entry,
        fuzz_request, fuzz_stat;

/* NULL: there is none of that name. */
const struct fuzzer *fuzzer_find(const char *name);

/* The next step; false at the end. A length that lies means all that is left. */
static inline bool step_next(struct view *in, struct view *ret)
{
        if (in->len == 0)
                return false;
        if (view_bytes(in, ret) < 0) {
                *ret = (struct view){in->p + 1, in->len - 1};
                in->len = 0;
        }
        return true;
}

/* The next byte, or zero at the end: a step may be short. */
static inline uint8_t take_u8(struct view *v)
{
        uint8_t b = 0;

        return view_u8(v, &b) < 0 ? 0 : b;
}

static inline uint16_t take_u16(struct view *v)
{
        uint8_t low = take_u8(v);

        return (uint16_t) (low | take_u8(v) << 8);
}

/* A number: small ones and those at the edges of their types are what breaks things. */
int64_t take_number(struct view *v);

/* A file with this text, until the next one is asked for; it is in memory. */
const char *as_file(struct view text);

/* Checks that what conf_print() writes of @a, with the @n settings of @table, is read as the
 * same by @read, into @b. A file for whose lines inih has no room is left out: then *@b stays
 * as it is. */
void check_reads_back(const struct conf_option *table, size_t n, const void *a, void *b,
                      int (*read)(void *b, const char *path));

/* What must hold, also where NDEBUG would take asserts away. */
#define HOLDS(what)              \
        do {                     \
                if (!(what))     \
                        abort(); \
        } while (0)

/* mutate.c; a mutator of mere bytes is handed in, so that only the fuzzer needs libFuzzer. */
typedef size_t (*mutate_fn)(uint8_t *p, size_t n, size_t max);
size_t mutate(const struct fuzzer *f, uint8_t *p, size_t n, size_t max, unsigned seed,
              mutate_fn bytes);
size_t mutate_cross(const struct fuzzer *f, struct view a, struct view b, uint8_t *out,
                    size_t max, unsigned seed);
