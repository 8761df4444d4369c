/* The content of a data directory. Files are built of valid parts with their checksums, some of
 * which are wrong in one respect, so that the search gets beyond the checksums. Then a store
 * that opened them is used, and opened again: what it was given is there. */
#include <raft.h>
#include <stdio.h>

#include "../whole.h"
#include "base/crc32c.h"
#include "base/le.h"
#include "base/log.h"
#include "core/core.h"
#include "disk.h"
#include "fuzz.h"
#include "invariants.h"
#include "store/internal.h"

#define SEGMENT 8192
#define META_SLOT 4096
#define LEDGER_MAX 512

enum op {
        OP_META,
        OP_RECORD,
        OP_SEGMENT,
        OP_ZEROES,
        OP_SNAPSHOT,
        OP_DAMAGE,
        OP_LENGTH,
        OP_TEAR,
        OP_NAME,
        OP_OPEN,
        OP_APPEND,
        OP_FLUSH,
        OP_JOB,
        OP_VOTE,
        OP_SAVE,
        OP_TRIM,
        OP_REOPEN,
        OP_FAIL,
        OP_REPLICA,
        OP_LAST_ = OP_REPLICA,
        OP_RAISE,  /* while files are made: the next ones are of format 2 */
        OP_DESCEND /* the directory is one of a forced core */
};
/* From these bytes on; older inputs hardly have such steps. */
#define RAISES 240
#define DESCENDS 250

/* What was appended, to be found again. */
struct ledger {
        struct {
                uint64_t term;
                uint32_t len, crc;
        } e[LEDGER_MAX];
        uint64_t first, last; /* their indexes; last < first: none */
};

struct dir {
        struct disk *disk;
        struct store *store;
        /* While files are made. */
        uint64_t seq, index, term, version;
        uint32_t batch;
        char segment[32];
        bool raised, sealed; /* the format is 2; so is that of the segment */
        /* Afterwards. */
        struct ledger ledger;
        uint64_t snapshot, snapshots_done, persisted;
        bool failed, fails, saving;
        uint64_t vote_term, vote;
};

static struct dir *D;

/* ---- files ---- */

static struct buf *file(const char *name)
{
        return fuzz_disk_file(D->disk, name);
}

static void add_zeroes(struct buf *b, size_t n)
{
        for (; n > 0; n--)
                buf_add_u8(b, 0);
}

static void add_meta(struct view *step)
{
        uint8_t how = take_u8(step), p[48] = {0};
        struct buf *b = file("meta");
        size_t at;

        le64_put(p + 4, ++D->version + (how & 8 ? (uint64_t) take_number(step) : 0));
        le32_put(p + 12, how & 2 ? take_u8(step) : D->raised ? 2 : 1);
        le64_put(p + 16, how & 4 ? (uint64_t) take_number(step) : 7);
        le64_put(p + 24, how & 4 ? (uint64_t) take_number(step) : 1);
        le64_put(p + 32, D->term = max_of(D->term, (uint64_t) take_u8(step)));
        le64_put(p + 40, take_u8(step) & 3);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        if (how & 1)
                p[how >> 5] ^= 1;
        at = (how >> 4 & 1 ? D->version + 1 : D->version) % 2 * META_SLOT;
        if (buf_len(b) < 2 * META_SLOT && !(how & 0x80))
                add_zeroes(b, 2 * META_SLOT - buf_len(b));
        if (buf_len(b) < at + sizeof(p))
                add_zeroes(b, at + sizeof(p) - buf_len(b));
        memcpy(buf_head(b) + at, p, sizeof(p));
}

/* The clusters of `meta` are mostly 7. */
static void add_descent(struct view *step)
{
        uint8_t how = take_u8(step), p[DESCENT_SIZE] = {0};
        struct buf *b = file("meta");

        le64_put(p + 8, take_u8(step));
        le64_put(p + 16, how & 2 ? take_u8(step) : 7);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4) ^ (how & 1));
        for (size_t at = DESCENT_AT; at < (how & 4 ? META_SLOT : 2 * META_SLOT);
             at += META_SLOT) {
                if (buf_len(b) < at + sizeof(p))
                        add_zeroes(b, at + sizeof(p) - buf_len(b));
                memcpy(buf_head(b) + at, p, sizeof(p));
        }
}

/* What --force-new-cluster does, whole or in part. */
static void descend(uint8_t how)
{
        HOLDS(store_descend(D->store, 8) == 0 || D->fails);
        if (how & 1)
                HOLDS(store_descended(D->store) == 0 || D->fails);
}

static void begin_segment(struct view *step)
{
        uint8_t by = take_u8(step);

        D->seq += by < 200 ? 1 : by - 199;
        snprintf(D->segment, sizeof(D->segment), "log-%016llx", (unsigned long long) D->seq);
        (void) file(D->segment);
        D->sealed = D->raised;
}

/* The data of an entry: of members, of commands, or any. */
static void add_data(struct buf *b, uint8_t type, struct view *step)
{
        struct raft_configuration c;
        struct raft_buffer out;

        if (type == RAFT_CHANGE && step->len == 0) {
                raft_configuration_init(&c);
                if (raft_configuration_add(&c, 1, "http://1:1", RAFT_VOTER) != 0 ||
                    raft_configuration_encode(&c, &out) != 0)
                        abort();
                buf_add(b, out.base, out.len);
                raft_free(out.base);
                raft_configuration_close(&c);
                return;
        }
        if (type == RAFT_COMMAND && step->len > 0)
                buf_add_u64(b, (uint64_t) take_u8(step) * NSEC_PER_MSEC);
        buf_add(b, step->p, step->len);
}

/* Adds the entries of the step as one write of format 2. */
static void add_sealed(struct buf *b, uint8_t how, const struct store_entry *e)
{
        cleanup_(buf_fini) struct buf w = {0};

        sealed_add(&w, e);
        sealed_end(&w, D->seq, buf_len(b));
        if (how & 128)
                buf_head(&w)[(how >> 4 & 3) * buf_len(&w) / 4] ^= 1;
        buf_add(b, buf_head(&w), buf_len(&w));
}

static void add_record(struct view *step)
{
        uint8_t how = take_u8(step), h[32] = {0};
        cleanup_(buf_fini) struct buf data = {0};
        struct buf *b;

        if (!*D->segment)
                begin_segment(&(struct view){NULL, 0});
        b = file(D->segment);
        h[28] = how & 3 ? how & 3 : RAFT_COMMAND;
        h[29] = (how & 4) == 0;
        D->batch += h[29];
        if (how & 8) {
                D->index = (uint64_t) take_number(step);
                h[28] = take_u8(step) & 7;
        } else {
                D->index++;
        }
        D->term += how >> 4 & 1;
        le64_put(h + 8, D->index);
        le64_put(h + 16, how & 32 ? (uint64_t) take_number(step) : D->term);
        le32_put(h + 24, how & 64 ? (uint32_t) take_number(step) : D->batch);
        add_data(&data, h[28], step);
        if (D->sealed)
                return add_sealed(b, how,
                                  &(struct store_entry){.index = D->index,
                                                        .term = le64_get(h + 16),
                                                        .type = h[28],
                                                        .data = {data.data, buf_len(&data)}});
        le32_put(h + 4, (uint32_t) buf_len(&data));
        le32_put(h, crc32c(crc32c(0, h + 4, sizeof(h) - 4), data.data, buf_len(&data)));
        if (how & 128)
                h[how >> 4 & 3] ^= 1;
        buf_add(b, h, sizeof(h));
        if (buf_len(&data) > 0)
                buf_add(b, data.data, buf_len(&data));
        add_zeroes(b, (8 - buf_len(&data) % 8) % 8);
}

static void add_snapshot(struct view *step)
{
        uint8_t how = take_u8(step), h[48] = {0};
        cleanup_(buf_fini) struct buf conf = {0}, state = {0};
        uint64_t index = take_u8(step);
        char name[32];
        struct buf *b;

        add_data(&conf, RAFT_CHANGE, &(struct view){NULL, 0});
        if (how & 1) {
                struct view own;

                (void) !view_take(step, min_of((size_t) take_u8(step), step->len), &own);
                buf_clear(&conf);
                buf_add(&conf, own.p, own.len);
        }
        if (how & 2) {
                buf_add(&state, step->p, step->len);
        } else {
                struct state s;

                state_init(&s);
                state_begin(&s, index, (struct lease_time){0});
                state_save(&s, &state);
                state_fini(&s);
        }
        le32_put(h + 4, how & 4 ? take_u8(step) : 1);
        le64_put(h + 8, how & 8 ? (uint64_t) take_number(step) : index);
        le64_put(h + 16, D->term);
        le64_put(h + 24, min_of(index, (uint64_t) take_u8(step)));
        le64_put(h + 32, buf_len(&conf) + (how & 16 ? (uint64_t) take_number(step) : 0));
        le64_put(h + 40, buf_len(&state) - (how & 16 ? (uint64_t) take_number(step) : 0));
        snprintf(name, sizeof(name), "snapshot-%016llx", (unsigned long long) index);
        b = file(name);
        buf_clear(b);
        buf_add(b, h, sizeof(h));
        buf_add(b, conf.data, buf_len(&conf));
        buf_add(b, state.data, buf_len(&state));
        le32_put(buf_head(b),
                 crc32c(0, buf_head(b) + 4, buf_len(b) - 4) ^ (how >> 7 ? 1u : 0u));
}

static void add_named(struct view *step)
{
        static const char *const names[] = {"log-",
                                            "log-zzzzzzzzzzzzzzzz",
                                            "log-0000000000000001.tmp",
                                            "snapshot-",
                                            "snapshot-000000000000000g",
                                            "log-ffffffffffffffff",
                                            "snapshot-ffffffffffffffff",
                                            "log-00000000000000000000001"};
        struct buf *b = file(names[take_u8(step) % ARRAY_SIZE(names)]);

        buf_add(b, step->p, step->len);
}

static struct buf *some_file(uint8_t which)
{
        return which & 1 || !*D->segment ? file("meta") : file(D->segment);
}

/* ---- a store in use ---- */

static void on_persisted(void *u, uint64_t index)
{
        (void) u;
        D->persisted = index;
}

static void on_snapshot(void *u, uint64_t index)
{
        (void) u;
        D->snapshots_done = index;
        D->saving = false;
}

static void on_snapshot_failed(void *u, uint64_t index, int r)
{
        (void) u;
        (void) index;
        HOLDS(D->fails && r < 0);
        D->saving = false;
}

static void on_failed(void *u, const char *name, int r)
{
        (void) u;
        HOLDS(D->fails && r < 0 && *name);
        D->failed = true;
}

static const struct store_ops ops = {.persisted = on_persisted,
                                     .snapshot_done = on_snapshot,
                                     .snapshot_failed = on_snapshot_failed,
                                     .failed = on_failed};

static uint32_t entry_crc(const struct store_entry *e)
{
        return crc32c(e->type, e->data.p, e->data.len);
}

/* What a store says that it found. */
static void read_recovered(void)
{
        const struct store_recovered *rec = store_recovered(D->store);
        struct ledger *l = &D->ledger;

        *l = (struct ledger){.first = rec->snapshot.index + 1, .last = rec->snapshot.index};
        for (size_t i = 0; i < rec->n_entries; i++) {
                const struct store_entry *e = &rec->entries[i];

                HOLDS(i == 0 || e->index == e[-1].index + 1);
                (void) entry_crc(e);
        }
        if (rec->n_entries > 0) {
                HOLDS(rec->entries[0].index <= rec->snapshot.index + 1);
                l->first = rec->entries[0].index;
                l->last = rec->entries[rec->n_entries - 1].index;
        }
        for (size_t i = 0; i < min_of(rec->n_entries, (size_t) LEDGER_MAX); i++) {
                l->e[i].term = rec->entries[i].term;
                l->e[i].len = (uint32_t) rec->entries[i].data.len;
                l->e[i].crc = entry_crc(&rec->entries[i]);
        }
        D->snapshot = rec->snapshot.index;
        D->vote_term = rec->term;
        D->vote = rec->vote;
        (void) crc32c(0, rec->snapshot.conf.p, rec->snapshot.conf.len);
        (void) crc32c(0, rec->snapshot.data.p, rec->snapshot.data.len);
}

static bool open_store(void)
{
        struct store_identity id;
        struct store_error err;
        int r;

        r = store_peek(D->disk, &id, &err);
        HOLDS(r != -EBADMSG || *err.text);
        r = store_open(&D->store, D->disk, &(struct store_config){.directory = 9}, &ops, NULL,
                       &err);
        HOLDS(r == 0 || *err.text);
        if (r < 0)
                return false;
        /* The disk shows no more zeroes than these, and a shorter segment would be refused. */
        store_set_segment_size(D->store, SEGMENT);
        D->failed = D->saving = false;
        read_recovered();
        if (store_recovered(D->store)->fresh) {
                struct store_entry first = {.index = 1, .term = 1, .type = RAFT_CHANGE};

                /* The snapshot of a restore that was cut short goes first, as a restore has it.
                 */
                if (store_recovered(D->store)->half_restored && store_begin_again(D->store) < 0)
                        return false;
                store_recovered_free(D->store);
                if (store_init(D->store,
                               (struct store_identity){.cluster_id = 7, .member_id = 1}, 1,
                               &first) < 0)
                        return false;
                D->ledger = (struct ledger){.first = 1, .last = 1};
                D->ledger.e[0].term = 1;
                D->ledger.e[0].crc = entry_crc(&first);
                D->vote_term = 1;
                D->vote = 0;
                D->snapshot = 0;
        } else {
                store_recovered_free(D->store);
        }
        store_flush(D->store);
        return true;
}

static void finish_jobs(void)
{
        while (fuzz_disk_step(D->disk))
                ;
}

static void append(struct view step)
{
        uint8_t how = take_u8(&step), back = take_u8(&step);
        struct ledger *l = &D->ledger;
        uint64_t at = l->last + 1, kept;
        struct store_entry e[8];
        size_t n = 1 + (how & 7);

        kept = max_of(D->snapshot, l->first - 1);
        if (how & 8 && back < l->last)
                at -= min_of((uint64_t) back, l->last - kept);
        if (at - l->first + n > LEDGER_MAX)
                return;
        for (size_t i = 0; i < n; i++) {
                e[i] = (struct store_entry){.index = at + i,
                                            .term = 1 + (how >> 4),
                                            .type = (uint8_t) (1 + i % 3),
                                            .data = {step.p, step.len / (i + 1)}};
                l->e[at + i - l->first].term = e[i].term;
                l->e[at + i - l->first].len = (uint32_t) e[i].data.len;
                l->e[at + i - l->first].crc = entry_crc(&e[i]);
        }
        l->last = at + n - 1;
        HOLDS(store_append(D->store, e, n) == 0);
}

static void save(struct view step)
{
        uint8_t how = take_u8(&step);
        bool reset = how & 1;
        struct ledger *l = &D->ledger;
        uint64_t index = reset ? l->last + 1 + (how >> 4)
                               : max_of(D->snapshot + 1, l->first) + (how >> 4);
        struct store_snapshot s = {
                .index = index, .term = 1, .conf = {step.p, step.len / 2}, .data = step};

        if (D->saving || (!reset && index > l->last))
                return;
        if (!reset && index - l->first >= LEDGER_MAX)
                return;
        if (!reset)
                s.term = l->e[index - l->first].term;
        D->saving = true;
        HOLDS(store_save_snapshot(D->store, &s, reset) == 0);
        if (reset) {
                *l = (struct ledger){.first = index + 1, .last = index};
                store_flush(D->store);
                finish_jobs();
        }
        D->snapshot = index;
}

/* Nothing is on its way: all that was given must be there. */
static bool reopen(void)
{
        struct ledger had = D->ledger;
        uint64_t term = D->vote_term, vote = D->vote, snapshot = D->snapshot, from;
        const struct ledger *l = &D->ledger;

        store_flush(D->store);
        finish_jobs();
        if (D->failed || D->fails)
                return false;
        HOLDS(!D->saving);
        D->store = store_free(D->store);
        HOLDS(open_store());
        HOLDS(l->last == had.last && D->vote_term == term && D->vote == vote);
        HOLDS(D->snapshot == snapshot);
        from = max_of(had.first, l->first);
        from = max_of(from, snapshot + 1);
        for (uint64_t i = from;
             i <= had.last && i - had.first < LEDGER_MAX && i - l->first < LEDGER_MAX; i++)
                HOLDS(had.e[i - had.first].term == l->e[i - l->first].term &&
                      had.e[i - had.first].len == l->e[i - l->first].len &&
                      had.e[i - had.first].crc == l->e[i - l->first].crc);
        return true;
}

/* ---- a replica of it ---- */

static void ignore_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) peer;
        (void) frame;
}

static void ignore_fatal(void *u, const char *why)
{
        (void) why;
        *(bool *) u = true;
}

static void run_replica(void)
{
        static const struct core_owner owner = {
                .send = ignore_send, .fatal = ignore_fatal, .expired = check_expired};
        static const struct replica_peer self = {.id = 1, .address = "http://1:1"};
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct replica *r = NULL;
        struct store_error err;
        struct core *c;
        bool dead = false;

        if (core_new(&c,
                     &(struct core_config){.cluster_id = 7,
                                           .member_id = 1,
                                           .min_ttl = NSEC_PER_SEC,
                                           .timeout = NSEC_PER_SEC,
                                           .watch_progress = NSEC_PER_SEC,
                                           .seed = 3},
                     now) < 0)
                abort();
        core_set_owner(c, &owner, &dead);
        if (replica_new(&r,
                        &(struct replica_config){.id = 1,
                                                 .cluster_id = 7,
                                                 .peers = &self,
                                                 .n_peers = 1,
                                                 .election = 500 * NSEC_PER_MSEC,
                                                 .heartbeat = 50 * NSEC_PER_MSEC,
                                                 .seed = 5,
                                                 .segment_size = SEGMENT},
                        D->disk, &core_replica_ops, c, now, &err) < 0) {
                core_free(c);
                return;
        }
        core_attach(c, r);
        if (replica_start(r) == 0)
                for (unsigned i = 0; i < 30 && !dead; i++) {
                        now = boot_add(now, 40 * NSEC_PER_MSEC);
                        replica_run(r, now);
                        core_run(c, now);
                        core_flush(c, now);
                        replica_flush(r, now);
                        while (!dead && fuzz_disk_step(D->disk))
                                ;
                }
        core_free(c);
        replica_free(r);
}

/* ---- ---- */

static void build(enum op op, struct view step)
{
        uint8_t which;
        struct buf *b;
        size_t at;

        switch (op) {
        case OP_META:
                return add_meta(&step);
        case OP_RECORD:
                return add_record(&step);
        case OP_SEGMENT:
                return begin_segment(&step);
        case OP_SNAPSHOT:
                return add_snapshot(&step);
        case OP_NAME:
                return add_named(&step);
        case OP_RAISE:
                D->raised = true;
                return;
        case OP_DESCEND:
                return add_descent(&step);
        default:
                break;
        }
        which = take_u8(&step);
        b = some_file(which);
        at = take_u16(&step);
        switch (op) {
        case OP_ZEROES:
                add_zeroes(b, at % 2048);
                break;
        case OP_LENGTH:
                b->end = b->off + min_of(buf_len(b), at);
                break;
        case OP_DAMAGE:
                if (at < buf_len(b))
                        buf_head(b)[at] ^= (uint8_t) (1 + take_u8(&step));
                break;
        case OP_TEAR: /* a sector was never written */
                at = (which & 2 ? buf_len(b) - min_of(buf_len(b), (size_t) 1) : at) / 512 * 512;
                if (at < buf_len(b))
                        memset(buf_head(b) + at, 0, min_of(buf_len(b) - at, (size_t) 512));
                break;
        default:
                break;
        }
}

static bool use(enum op op, struct view step)
{
        switch (op) {
        case OP_APPEND:
                append(step);
                break;
        case OP_FLUSH:
                store_flush(D->store);
                (void) store_size(D->store);
                break;
        case OP_JOB:
                (void) fuzz_disk_step(D->disk);
                break;
        case OP_VOTE:
                D->vote_term = take_u8(&step);
                D->vote = take_u8(&step);
                HOLDS(store_vote(D->store, D->vote_term, D->vote) == 0 || D->fails);
                break;
        case OP_SAVE:
                save(step);
                break;
        case OP_TRIM:
                store_flush(D->store);
                finish_jobs();
                store_trim(D->store, min_of((uint64_t) take_u8(&step), D->snapshots_done));
                break;
        case OP_REOPEN:
                return reopen();
        case OP_RAISE:
                HOLDS(store_raise_format(D->store, STORE_FORMAT) == 0 || D->fails);
                break;
        case OP_DESCEND:
                descend(take_u8(&step));
                break;
        case OP_FAIL:
                D->fails = true;
                fuzz_disk_fail(D->disk, take_u8(&step) & 1 ? -ENOSPC : -EIO);
                break;
        default:
                break;
        }
        return true;
}

static void run(struct view in)
{
        struct dir d = {.term = 1};
        struct view step;
        bool go_on = true;

        log_set_level(0);
        D = &d;
        d.disk = fuzz_disk_new();
        while (go_on && step_next(&in, &step)) {
                uint8_t what = take_u8(&step);
                enum op op = what >= DESCENDS ? OP_DESCEND
                             : what >= RAISES ? OP_RAISE
                                              : (enum op)(what % (OP_LAST_ + 1));

                if (!d.store && (op < OP_OPEN || op > OP_LAST_)) {
                        build(op, step);
                } else if (!d.store && op == OP_REPLICA) {
                        run_replica();
                        go_on = false;
                } else {
                        go_on = d.store || open_store();
                        if (go_on)
                                go_on = use(op, step);
                }
        }
        if (d.store && go_on)
                (void) reopen();
        /* As when the program ends: jobs go first. */
        while (fuzz_disk_step(d.disk))
                ;
        store_free(d.store);
        disk_free(d.disk);
}

const struct fuzzer fuzz_files = {.name = "files", .run = run, .steps = true};
