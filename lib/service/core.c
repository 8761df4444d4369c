/* One thing: what waits for the log - writes, reads, renewals, expiry - and what happens when
 * an entry of it is applied. */
#include "service/core.h"

#include "base/conf.h"

#include "base/crc32c.h"
#include "base/log.h"
#include "lease/loader.h"
#include "lease/saver.h"
#include "service/upkeep.h"

#define RENEW_BATCH_MAX 4096 /* a batch of so many waits for nobody */
#define CROWD 64             /* so many who wait for nothing but answers go together... */
#define CROWD_PAUSE (5 * NSEC_PER_MSEC) /* ...unless none of them comes for so long */
#define WINDOW_MIN (2 * NSEC_PER_MSEC)
#define WINDOW_MAX (50 * NSEC_PER_MSEC)
/* Batches that need not wait for the window: so many at once, and one more each WINDOW_MAX. In
 * a crowd that is no more of them than the window makes. */
#define SOON_MAX 20
#define EXPIRE_MAX 8192 /* leases in one entry */
#define EXPIRE_AGAIN \
        (250 * NSEC_PER_MSEC) /* a proposal not applied by then is made again (A10) */
#define BUSY_GRACE_MAX (50 * NSEC_PER_MSEC)
#define UNHEALTHY_AGAIN \
        (10 * NSEC_PER_MSEC) /* how soon to look whether the commit path lives again */
#define TELL_STEPS 16        /* that a lease ended, in steps of state_apply_some(): some 5 us */
#define TICK_AFTER \
        (250 * NSEC_PER_MSEC) /* while there are leases, the log tells lease time so often */
#define TIMEOUTS_AGAIN (100 * NSEC_PER_MSEC)
#define PROPOSED_AT_ONCE ((size_t) 2000) /* of what is proposed again: some 3 ms... */
#define PROPOSED_BYTES 2048              /* ...where one is so large */
#define LOST_AT_ONCE ((size_t) 1000)     /* writes that are told so in one turn */
#define READS_MAX 100000                 /* that wait; past it: too many requests */
#define READS_AT_ONCE 1500 /* answered in one turn; costly answers take turns of their own */
#define TIMED_OUT_MAX 1000 /* in one turn */
#define GONE_STEPS 8192    /* of what is freed, in one turn: some 2 ms... */
#define GONE_PAUSE NSEC_PER_MSEC /* ...and again after that */
#define SCRATCH_KEEP ((size_t) 64 << 10)

RB_HEAD(core_writes, core_write);
RB_HEAD(core_reads, core_read);

/* Renewals that became one command. */
struct renew_batch {
        struct core_write write;
        struct core *core;
        STAILQ_HEAD(, core_renewal) items;
        size_t n_early;
};

/* A state beside ours: read in, or to be freed. */
struct aside {
        STAILQ_ENTRY(aside) next;
        struct state state;
};

struct core {
        struct core_config cfg;
        struct state state;
        struct state_saver saver;
        struct aside *loaded; /* NULL: none; by... */
        struct state_loader loader;
        STAILQ_HEAD(, aside) gone; /* these are freed, some of it at a time... */
        struct boot_time gone_at;  /* ...then */
        uint64_t installs;
        struct {
                bool on;        /* an entry is half applied... */
                size_t at;      /* ...up to this byte of its commands... */
                struct buf out; /* ...with so much of the answer to the next one */
                size_t told;    /* and of what expires in it, up to this byte */
                struct cmd_slots told_slots;
        } part;
        struct replica *replica; /* borrowed */
        const struct core_owner *owner;
        void *owner_data;
        struct rnd rnd;
        struct boot_time now;

        struct core_writes writes;
        size_t n_writes, write_bytes;
        uint64_t next_seq;
        struct buf command;      /* as it is proposed */
        uint64_t term_seen;      /* the highest term of an applied entry */
        bool repropose;          /* some writes were not proposed, or not in this term... */
        uint64_t repropose_from; /* ...this one, and later ones */
        struct {
                bool on;             /* nobody knows what became of writes that were out... */
                uint64_t from, upto; /* ...of these... */
                uint64_t term;       /* ...in this term or a later one */
        } skipped;

        struct core_reads reads;
        TAILQ_HEAD(core_confirmed, core_read) confirmed; /* of them; ascending by index */
        size_t n_reads;
        unsigned reads_left; /* to be answered in this turn */
        uint64_t next_read;
        uint64_t served; /* up to this entry they may be answered */
        bool caught_up;
        struct core_read first; /* our own: how far the others were when we came */
        bool reads_dropped;     /* the replica asks for some that nobody waits for */

        STAILQ_HEAD(, core_renewal) renewals; /* waiting for their batch */
        struct core_renewal *unstamped;       /* the first of them that has no time yet */
        size_t n_renewals, n_batches_out;
        size_t n_early;              /* of them: they come again as soon as they are answered */
        size_t n_crowd;              /* so many do, or so */
        struct boot_time renewed_at; /* when the last batch went out */
        struct boot_time renew_at;   /* when the next has to */
        bool renew_next;             /* ...or at once, when none is on its way */
        bool renew_late;             /* ...or whatever is: some are late in their term */
        struct boot_time window_end; /* ...or at the latest now */
        struct boot_time soon_full;  /* when SOON_MAX batches are allowed again */

        struct boot_time expire_not_before; /* while we may not act on deadlines */
        struct boot_time busy_since;        /* an entry is half applied; NEVER */
        struct upkeep upkeep;
        struct changes changes;
        struct boot_time tick_at;     /* when to look again what the log says of time */
        struct boot_time timeouts_at; /* when to look for timed-out requests again */

        struct core_write member;
        bool member_out;
        char *member_name, *member_urls;
};

static int write_cmp(const struct core_write *a, const struct core_write *b)
{
        return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static int read_cmp(const struct core_read *a, const struct core_read *b)
{
        return a->id < b->id ? -1 : a->id > b->id;
}

TREE_GENERATE(core_writes, core_write, by_seq, write_cmp)
TREE_GENERATE(core_reads, core_read, by_id, read_cmp)

int core_new(struct core **ret, const struct core_config *cfg, struct boot_time now)
{
        struct core *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->cfg = *cfg;
        c->now = now;
        state_init(&c->state);
        rnd_init(&c->rnd, cfg->seed);
        RB_INIT(&c->writes);
        RB_INIT(&c->reads);
        TAILQ_INIT(&c->confirmed);
        STAILQ_INIT(&c->renewals);
        STAILQ_INIT(&c->gone);
        c->busy_since = BOOT_TIME_NEVER;
        c->renew_at = c->window_end = BOOT_TIME_NEVER;
        /* Another life of this replica may have commands in the log still, and questions with
         * a leader that slept: numbers do not repeat. */
        c->next_seq = rnd_u64(&c->rnd) >> 1;
        c->next_read = rnd_u64(&c->rnd) >> 1;
        c->changes.requests = rnd_u64(&c->rnd) >> 1;
        *ret = c;
        return 0;
}

static void write_finish(struct core *c, struct core_write *w, struct status st,
                         struct view reply)
{
        RB_REMOVE(core_writes, &c->writes, w);
        c->n_writes--;
        c->write_bytes -= buf_len(&w->body);
        buf_fini(&w->body);
        w->done(w, st, reply);
}

static void read_remove(struct core *c, struct core_read *rd)
{
        RB_REMOVE(core_reads, &c->reads, rd);
        if (rd->index > 0)
                TAILQ_REMOVE(&c->confirmed, rd, by_index);
        c->n_reads--;
}

static void read_finish(struct core *c, struct core_read *rd, struct status st)
{
        read_remove(c, rd);
        c->caught_up = c->caught_up || st.code == RPC_OK;
        c->reads_dropped = c->reads_dropped || st.code != RPC_OK;
        rd->done(rd, st);
}

/* ---- states beside ours ---- */

/* Returns false when *@left did not last. */
static bool free_gone(struct core *c, size_t *left)
{
        struct aside *a;

        while ((a = STAILQ_FIRST(&c->gone))) {
                if (!state_free_some(&a->state, left))
                        return false;
                STAILQ_REMOVE_HEAD(&c->gone, next);
                free(a);
        }
        return true;
}

static void drop_loaded(struct core *c)
{
        if (!c->loaded)
                return;
        state_loader_fini(&c->loader);
        STAILQ_INSERT_TAIL(&c->gone, c->loaded, next);
        c->loaded = NULL;
}

struct core *core_free(struct core *c)
{
        size_t all = SIZE_MAX;
        struct core_renewal *rn;
        struct core_write *w;
        struct core_read *rd;

        if (!c)
                return NULL;
        changes_end(&c->changes);
        /* Who waited in vain for the one may want the other: a lock that is given up deletes
         * its key. */
        while (!RB_EMPTY(&c->writes) || !RB_EMPTY(&c->reads)) {
                if ((w = RB_MIN(core_writes, &c->writes)))
                        write_finish(c, w, status_stopped, (struct view){0});
                if ((rd = RB_MIN(core_reads, &c->reads)))
                        read_finish(c, rd, status_stopped);
        }
        while ((rn = STAILQ_FIRST(&c->renewals))) {
                STAILQ_REMOVE_HEAD(&c->renewals, next);
                rn->done(rn, status_stopped, 0);
        }
        state_saver_fini(&c->saver);
        drop_loaded(c);
        (void) free_gone(c, &all);
        state_fini(&c->state);
        buf_fini(&c->part.out);
        free(c->member_name);
        free(c->member_urls);
        buf_fini(&c->command);
        free(c);
        return NULL;
}

void core_set_owner(struct core *c, const struct core_owner *owner, void *userdata)
{
        c->owner = owner;
        c->owner_data = userdata;
}

void core_attach(struct core *c, struct replica *r)
{
        c->replica = c->changes.replica = r;
}

struct state *core_state(struct core *c)
{
        return &c->state;
}

const struct core_config *core_config(const struct core *c)
{
        return &c->cfg;
}

struct replica_status core_status(const struct core *c)
{
        return c->replica ? replica_status(c->replica) : (struct replica_status){0};
}

bool core_learns(const struct core *c)
{
        return c->replica && replica_learns(c->replica);
}

static uint64_t term_of(const struct core *c)
{
        return c->replica ? replica_term(c->replica) : 0;
}

uint64_t core_disk_bytes(const struct core *c)
{
        return c->replica ? replica_disk_bytes(c->replica) : 0;
}

void core_each_peer(const struct core *c,
                    void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                    void *arg)
{
        replica_each_peer(c->replica, fn, arg);
}

int64_t core_new_lease_id(struct core *c)
{
        int64_t id;

        do
                id = (int64_t) (rnd_u64(&c->rnd) >> 1);
        while (id <= 0 || leases_find(&c->state.leases, id));
        return id;
}

const bool *core_busy(const struct core *c)
{
        return &c->state.removal.on;
}

struct boot_time core_now(const struct core *c)
{
        return c->now;
}

struct lease_time core_lease_time(const struct core *c)
{
        return replica_lease_time(c->replica, c->now);
}

void core_header(const struct core *c, Pb__ResponseHeader *h)
{
        pb__response_header__init(h);
        h->cluster_id = c->cfg.cluster_id;
        h->member_id = c->cfg.member_id;
        h->raft_term = term_of(c);
        h->revision = c->state.revision;
}

/* ---- writes ---- */

static enum replica_priority priority_of(enum cmd_type type)
{
        switch (type) {
        case CMD_RENEW:
        case CMD_EXPIRE:
                return REPLICA_URGENT;
        default:
                return REPLICA_NORMAL;
        }
}

/* Returns 0, also when there is no leader: it waits for one then. */
static int propose(struct core *c, struct core_write *w)
{
        struct buf *b = &c->command;
        int r;

        w->term = 0;
        buf_reuse(b, SCRATCH_KEEP);
        cmd_append(b, w->type, c->cfg.member_id, w->seq, w->user,
                   upkeep_counts(w->type) && w->user ? c->cfg.quota : 0, buf_head(&w->body),
                   buf_len(&w->body));
        r = buf_error(b);
        if (r < 0)
                return r;
        r = replica_propose(c->replica, b->data, buf_len(b), priority_of(w->type));
        if (r == 0)
                w->term = term_of(c);
        else if (r == -ENOTCONN)
                c->repropose = true;
        return r == -ENOTCONN ? 0 : r;
}

/* Would this be refused when it is applied, because a disk is full? Until then it would take
 * room in the log, of which there may be no more than renewals and expiry need. Where it is the
 * quota that was exceeded, the log decides: it knows of an alarm that was disarmed just now. */
static bool is_refused(struct core *c, enum cmd_type type, struct view body)
{
        cleanup_(arena_fini) struct arena a = {0};
        Pb__TxnRequest *txn;

        if (!upkeep_disks_full(&c->state) && !replica_short_of_room(c->replica))
                return false;
        if (type == CMD_PUT || type == CMD_GRANT)
                return true;
        return type == CMD_TXN &&
               pb_unpack_in(&a, &pb__txn_request__descriptor, body, &txn) == 0 &&
               state_txn_puts(txn);
}

int core_write(struct core *c, struct core_write *w, enum cmd_type type,
               const struct cmd_user *user, const void *body, size_t n, nsec_t timeout)
{
        int r;

        if ((c->n_writes >= CORE_WRITES_MAX || c->write_bytes + n > CORE_WRITE_BYTES_MAX) &&
            priority_of(type) == REPLICA_NORMAL)
                return -ENOBUFS;
        if (is_refused(c, type, (struct view){body, n}))
                return -ENOSPC;
        w->seq = ++c->next_seq;
        w->type = type;
        w->user = user;
        w->body = (struct buf){0};
        w->deadline = boot_add(c->now,
                               timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
        buf_add(&w->body, body, n);
        r = buf_error(&w->body);
        if (r == 0)
                r = propose(c, w);
        if (r < 0) {
                buf_fini(&w->body);
                return r;
        }
        RB_INSERT(core_writes, &c->writes, w);
        c->n_writes++;
        c->write_bytes += buf_len(&w->body);
        return 0;
}

/* Of those that wait, the first from @seq on. */
static struct core_write *write_from(struct core *c, uint64_t seq)
{
        return RB_NFIND(core_writes, &c->writes, &(struct core_write){.seq = seq});
}

/* It may still come: it was proposed, and nothing of a later term was applied. */
static bool is_out(const struct core_write *w, uint64_t term_seen)
{
        return w->term != 0 && w->term >= term_seen;
}

/* It begins with the first, wherever it had come to. */
static void repropose_all(struct core *c)
{
        c->repropose = true;
        c->repropose_from = 0;
}

/* What was proposed in a term that is over and did not come by, or never was proposed, goes to
 * the leader of today; there may be 100,000, so some in each turn. */
static void repropose(struct core *c)
{
        size_t left = PROPOSED_AT_ONCE;
        struct core_write *w;
        uint64_t seq;

        if (!c->repropose || core_status(c).leader_id == 0)
                return;
        c->repropose = false;
        for (w = write_from(c, c->repropose_from); w && left > 0; w = write_from(c, seq + 1)) {
                seq = w->seq;
                left--;
                if (is_out(w, c->term_seen))
                        continue;
                left -= min_of(left, buf_len(&w->body) / PROPOSED_BYTES);
                if (w->deadline.ns == BOOT_TIME_NEVER.ns) /* nobody waits for it */
                        write_finish(c, w, status_timeout, (struct view){0});
                else if (propose(c, w) < 0)
                        write_finish(c, w, status_too_many, (struct view){0});
        }
        c->repropose = c->repropose || w;
        c->repropose_from = w ? w->seq : 0;
}

/* Of what we had proposed we know nothing. Renewals may be repeated, others may not. Until all
 * are looked at none is proposed again: it would be one that nobody knows of. */
static void tell_lost(struct core *c)
{
        size_t left = LOST_AT_ONCE;
        struct core_write *w;
        uint64_t seq;

        for (w = write_from(c, c->skipped.from); w && w->seq <= c->skipped.upto && left > 0;
             w = write_from(c, seq + 1)) {
                seq = w->seq;
                left--;
                if (!is_out(w, c->skipped.term))
                        continue;
                if (w->type == CMD_RENEW)
                        w->term = 0;
                else
                        write_finish(c, w, status_lost, (struct view){0});
        }
        c->skipped.on = w && w->seq <= c->skipped.upto;
        c->skipped.from = w ? w->seq : 0;
        if (!c->skipped.on)
                repropose_all(c);
}

static void term_begins(struct core *c, uint64_t term)
{
        if (term <= c->term_seen)
                return;
        /* An entry of this term is applied: nothing of an older one can come any more. */
        c->term_seen = term;
        repropose_all(c);
}

/* ---- reads ---- */

void core_read(struct core *c, struct core_read *rd, nsec_t timeout)
{
        if (c->n_reads >= READS_MAX)
                return rd->done(rd, status_too_many);
        c->n_reads++;
        rd->id = ++c->next_read;
        rd->index = 0;
        rd->deadline = boot_add(c->now,
                                timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
        RB_INSERT(core_reads, &c->reads, rd);
        replica_read(c->replica, rd->id);
}

bool core_caught_up(const struct core *c)
{
        return c->caught_up;
}

void core_read_cancel(struct core *c, struct core_read *rd)
{
        read_remove(c, rd);
        c->reads_dropped = true;
}

static bool is_wanted(uint64_t id, void *arg)
{
        struct core *c = arg;

        return RB_FIND(core_reads, &c->reads, &(struct core_read){.id = id}) != NULL;
}

/* As many as a turn allows: one round may confirm 100,000. */
static void serve_some(struct core *c)
{
        struct core_read *rd;

        while ((rd = TAILQ_FIRST(&c->confirmed)) && rd->index <= c->served && !c->part.on &&
               c->reads_left > 0) {
                c->reads_left--;
                read_finish(c, rd, status_ok);
        }
}

static void serve_reads(struct core *c, uint64_t applied)
{
        c->served = applied;
        serve_some(c);
}

static void on_read_at(void *u, uint64_t id, uint64_t index)
{
        struct core *c = u;
        struct core_read key = {.id = id}, *rd = RB_FIND(core_reads, &c->reads, &key), *before;

        if (!rd || rd->index > 0)
                return; /* it timed out, or was taken back; or was told before */
        rd->index = max_of(index, (uint64_t) 1);
        before = TAILQ_LAST(&c->confirmed, core_confirmed);
        while (before && before->index > rd->index)
                before = TAILQ_PREV(before, core_confirmed, by_index);
        if (before)
                TAILQ_INSERT_AFTER(&c->confirmed, before, rd, by_index);
        else
                TAILQ_INSERT_HEAD(&c->confirmed, rd, by_index);
        if (!c->part.on)
                serve_reads(c, replica_applied(c->replica));
}

/* ---- renewals ---- */

/* The lease of a renewal, by its slot: a look-up by id costs more than all else (10,000 of
 * them). */
static struct lease *renewed_lease(const struct core *c, const struct core_renewal *rn)
{
        struct lease *l = leases_at(&c->state.leases, rn->slot);

        return l && l->id == rn->lease ? l : leases_find(&c->state.leases, rn->lease);
}

/* Most of a crowd that waited for nothing but the answer is still to come back: the first of
 * them gain nothing by a batch of their own, behind which all others wait. */
static bool crowd_is_away(const struct core *c)
{
        return c->n_crowd >= CROWD && c->n_early < c->n_crowd - c->n_crowd / 8;
}

/* When those that wait become a batch: late ones at once, others with the window, and those
 * that wait for nothing but the disk as soon as no batch is on its way. */
static void plan_batch(struct core *c)
{
        c->renew_at = c->window_end;
        if (c->renew_late || c->n_renewals >= RENEW_BATCH_MAX)
                c->renew_at = c->now;
        else if (c->renew_next && c->n_batches_out == 0)
                c->renew_at = boot_min(
                        c->renew_at, crowd_is_away(c) ? boot_add(c->now, CROWD_PAUSE) : c->now);
}

static void batch_done(struct core_write *w, struct status st, struct view reply)
{
        struct renew_batch *b = container_of(w, struct renew_batch, write);
        struct core *c = b->core;
        struct core_renewal *rn;

        (void) reply;
        c->n_batches_out--;
        while ((rn = STAILQ_FIRST(&b->items))) {
                /* What the log says now: a lease that is gone never answers a positive TTL
                 * (I7). */
                struct lease *l = renewed_lease(c, rn);

                STAILQ_REMOVE_HEAD(&b->items, next);
                rn->done(rn, st, l ? l->ttl_ms : 0);
        }
        c->n_crowd = max_of(b->n_early + c->n_early, c->n_crowd - c->n_crowd / 4);
        if (c->n_renewals > 0)
                plan_batch(c);
        free(b);
}

struct slot_age {
        uint32_t slot;
        unsigned age_ms;
};

/* By slot; of one slot the one that came last, first. */
static int slot_cmp(const void *a, const void *b)
{
        const struct slot_age *x = a, *y = b;

        if (x->slot != y->slot)
                return x->slot < y->slot ? -1 : 1;
        return x->age_ms < y->age_ms ? -1 : x->age_ms > y->age_ms;
}

/* The time as last brought may be from before a renewal came, and its term must not begin so
 * early: it gets the next one. */
static void pass_time(struct core *c, struct boot_time now)
{
        c->now = boot_max(c->now, now);
        for (; c->unstamped; c->unstamped = STAILQ_NEXT(c->unstamped, next))
                c->unstamped->came_at = c->now;
}

static void send_batch(struct core *c)
{
        cleanup_(freep) struct slot_age *slots = NULL;
        cleanup_(buf_fini) struct buf body = {0};
        struct renew_batch *b = NULL;
        struct core_renewal *rn;
        struct cmd_slots s;
        size_t n = 0;
        int r = -ENOMEM;

        pass_time(c, c->now); /* some came in this very turn, after a look for their lease */
        slots = calloc(c->n_renewals, sizeof(*slots));
        b = calloc(1, sizeof(*b));
        if (slots && b) {
                b->core = c;
                b->write.done = batch_done;
                b->n_early = c->n_early;
                STAILQ_INIT(&b->items);
                STAILQ_FOREACH (rn, &c->renewals, next) {
                        struct lease *l = renewed_lease(c, rn);
                        nsec_t age = boot_diff(c->now, rn->came_at) / NSEC_PER_MSEC;

                        if (l)
                                slots[n++] = (struct slot_age){
                                        l->slot, (unsigned) min_of(age, (nsec_t) CMD_AGE_MAX)};
                }
                qsort(slots, n, sizeof(*slots), slot_cmp);
                cmd_renew_begin(&body, &s, c->state.applied);
                for (size_t i = 0; i < n; i++)
                        if (i == 0 || slots[i].slot != slots[i - 1].slot)
                                cmd_renew_add(&body, &s, slots[i].slot, slots[i].age_ms);
                r = buf_error(&body);
        }
        if (r == 0)
                r = core_write(c, &b->write, CMD_RENEW, NULL, body.data, buf_len(&body), 0);
        c->n_renewals = c->n_early = 0;
        c->renewed_at = c->now;
        c->renew_at = c->window_end = BOOT_TIME_NEVER;
        c->renew_next = c->renew_late = false;
        /* Each counts, also one that has waited. */
        c->soon_full = boot_min(boot_add(boot_max(c->soon_full, c->now), WINDOW_MAX),
                                boot_add(c->now, SOON_MAX * WINDOW_MAX));
        if (r == 0) {
                c->n_batches_out++;
                STAILQ_CONCAT(&b->items, &c->renewals);
                return;
        }
        free(b);
        while ((rn = STAILQ_FIRST(&c->renewals))) {
                STAILQ_REMOVE_HEAD(&c->renewals, next);
                rn->done(rn, status_too_many, 0);
        }
}

/* Who renews a lease that was renewed a moment ago does not pace itself: it waits for the
 * answer, and for nothing else. */
static bool is_early(nsec_t left, nsec_t ttl)
{
        return left > ttl - ttl / 8;
}

static bool may_go_soon(const struct core *c)
{
        return boot_diff(c->soon_full, c->now) <= (SOON_MAX - 1) * WINDOW_MAX;
}

static void enqueue_renewal(struct core *c, struct core_renewal *rn, const struct lease *l)
{
        nsec_t ttl = l->ttl_ms * NSEC_PER_MSEC, window = ttl / 50;
        nsec_t left =
                lease_diff(deadlines_get(&c->state.deadlines, l->slot), core_lease_time(c));

        window = window < WINDOW_MIN ? WINDOW_MIN : window > WINDOW_MAX ? WINDOW_MAX : window;
        rn->slot = l->slot;
        STAILQ_INSERT_TAIL(&c->renewals, rn, next);
        if (!c->unstamped)
                c->unstamped = rn;
        c->n_renewals++;
        /* Late in its term it waits for nobody (I1). Early, and while few come at all, only for
         * the batch that is on its way: with the disk's own pace, as a write. In a crowd that
         * paces itself it waits for the window to end. */
        c->n_early += is_early(left, ttl);
        c->renew_next = c->renew_next || is_early(left, ttl) || may_go_soon(c);
        c->renew_late = c->renew_late || left < ttl / 4;
        c->window_end = boot_min(c->window_end, boot_add(c->renewed_at, window));
        plan_batch(c);
}

static void renewal_looked_up(struct core_read *rd, struct status st)
{
        struct core_renewal *rn = container_of(rd, struct core_renewal, read);
        struct lease *l;

        if (st.code != RPC_OK)
                return rn->done(rn, st, 0);
        l = leases_find(&rn->core->state.leases, rn->lease);
        if (!l)
                return rn->done(rn, status_ok, 0);
        enqueue_renewal(rn->core, rn, l);
}

void core_renew(struct core *c, struct core_renewal *rn)
{
        struct lease *l = renewed_lease(c, rn);

        rn->core = c;
        if (l)
                return enqueue_renewal(c, rn, l);
        /* Granted a moment ago through another replica, perhaps (A22): gone only if the
         * leader's log says so. */
        rn->read.done = renewal_looked_up;
        core_read(c, &rn->read, 0);
}

/* ---- expiry: the leader's ---- */

static int propose_own(struct core *c, enum cmd_type type, const struct buf *body)
{
        cleanup_(buf_fini) struct buf cmd = {0};

        cmd_append(&cmd, type, c->cfg.member_id, 0, NULL, 0, buf_head(body), buf_len(body));
        if (buf_error(body) < 0 || buf_error(&cmd) < 0)
                return -ENOMEM;
        return replica_propose(c->replica, cmd.data, buf_len(&cmd), REPLICA_URGENT);
}

/* While an entry is half applied nobody can renew, and those who had to wait for that have a
 * while to be heard. */
static bool was_busy(struct core *c)
{
        if (c->part.on) {
                c->busy_since = boot_min(c->busy_since, c->now);
                return true;
        }
        if (c->busy_since.ns != BOOT_TIME_NEVER.ns)
                c->expire_not_before =
                        boot_max(c->expire_not_before,
                                 boot_add(c->now, min_of(boot_diff(c->now, c->busy_since),
                                                         (nsec_t) BUSY_GRACE_MAX)));
        c->busy_since = BOOT_TIME_NEVER;
        return false;
}

static void expire(struct core *c)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct lease_time now = core_lease_time(c), due = deadlines_next(&c->state.deadlines);

        if (was_busy(c) || boot_before(c->now, c->expire_not_before) ||
            boot_before(c->now, replica_lease_when(c->replica, due, c->now)))
                return;
        /* While the commit path is not well, lease time stands still, and nothing is due. */
        if (!replica_healthy(c->replica, c->now) || lease_before(now, due)) {
                c->expire_not_before = boot_add(c->now, UNHEALTHY_AGAIN);
                return;
        }
        if (c->n_renewals > 0)
                send_batch(
                        c); /* what has reached us counts: it goes before, and wins at apply */
        if (state_expire(&c->state, now, lease_add(now, EXPIRE_AGAIN), EXPIRE_MAX, &body) > 0)
                /* Not waited for: what does not come through is due again. */
                (void) !propose_own(c, CMD_EXPIRE, &body);
}

/* All replicas may die at once: what the log says of lease time is what is left then. Where
 * nothing else is written, it is told all the same. And every term opens with an entry, so that
 * what the last one left undone is known to be (term_begins()). */
static void tell_time(struct core *c)
{
        const struct buf nothing = {0};
        struct replica_status st = core_status(c);
        bool opens = c->term_seen != st.term;

        if ((c->state.leases.n == 0 && !opens) || boot_before(c->now, c->tick_at) ||
            !st.leader || !replica_healthy(c->replica, c->now))
                return;
        c->tick_at = boot_add(c->now, TICK_AFTER);
        if (opens || lease_diff(core_lease_time(c), c->state.time) >= TICK_AFTER)
                (void) !propose_own(c, CMD_TICK, &nothing);
}

/* ---- members ---- */

static void member_done(struct core_write *w, struct status st, struct view reply)
{
        struct core *c = container_of(w, struct core, member);

        (void) st;
        (void) reply;
        c->member_out = false;
}

/* Says who we are, unless the log has it already. */
static void introduce(struct core *c)
{
        cleanup_(buf_fini) struct buf body = {0};
        Pb__Member m = PB__MEMBER__INIT;
        cleanup_(arena_fini) struct arena a = {0};

        if (!c->member_name || c->member_out || core_status(c).leader_id == 0)
                return;
        for (size_t i = 0; i < c->state.n_members; i++)
                if (c->state.members[i].id == c->cfg.member_id &&
                    strcmp(c->state.members[i].name, c->member_name) == 0 &&
                    strcmp(c->state.members[i].client_urls, c->member_urls) == 0)
                        return;
        m.id = c->cfg.member_id;
        m.name = c->member_name;
        if (list_split(c->member_urls, &a, &m.clienturls, &m.n_clienturls) < 0)
                return; /* no memory: it is tried again */
        pb_append(&body, &m.base);
        c->member.done = member_done;
        c->member_out = buf_error(&body) == 0 && core_write(c, &c->member, CMD_MEMBER, NULL,
                                                            body.data, buf_len(&body), 0) == 0;
}

int core_set_member(struct core *c, const char *name, const char *client_urls)
{
        c->member_name = strdup(name);
        c->member_urls = strdup(client_urls);
        return c->member_name && c->member_urls ? 0 : -ENOMEM;
}

/* ---- what the replica calls ---- */

/* A line in the log costs more than the end of a lease: so some at a time, while nothing of the
 * command is done yet. Returns false when there are more. */
static bool tell_expired(struct core *c, const struct cmd *cmd, uint64_t term, size_t *left)
{
        struct view body = cmd->body;
        uint64_t renewed;
        uint32_t slot;

        body.p += c->part.told;
        body.len -= c->part.told;
        while (*left > 0 && cmd_expire_next(&body, &c->part.told_slots, &slot, &renewed) == 0) {
                const struct lease *l = leases_at(&c->state.leases, slot);

                c->part.told = cmd->body.len - body.len;
                if (!l || l->renewed != renewed)
                        continue;
                c->owner->expired(c->owner_data, l->id, l->n_keys, term);
                *left -= min_of(*left, (size_t) TELL_STEPS);
        }
        return *left > 0;
}

/* Who asked may have given up since the last slice. Returns 1 when there is more to do. */
static int apply_command(struct core *c, const struct cmd *cmd, uint64_t term, size_t *left)
{
        struct core_write key = {.seq = cmd->seq}, *w = NULL;
        struct state_reply reply = {0};
        struct buf *out = &c->part.out;
        int r;

        if (cmd->origin == c->cfg.member_id && cmd->seq != 0)
                w = RB_FIND(core_writes, &c->writes, &key);
        if (w) {
                core_header(c, &reply.header);
                reply.out = out;
        }
        if (cmd->type == CMD_EXPIRE && c->owner && c->owner->expired && core_status(c).leader &&
            !c->state.removal.on && !tell_expired(c, cmd, term, left))
                return 1;
        c->part.told = 0;
        c->part.told_slots = (struct cmd_slots){0};
        r = state_apply_some(&c->state, cmd, &reply, left);
        if (r == 0)
                r = buf_error(out);
        if (r != 0)
                return r;
        if (w)
                write_finish(c, w, status_of(reply.outcome),
                             (struct view){out->data, buf_len(out)});
        buf_reuse(out, SCRATCH_KEEP);
        return 0;
}

static int on_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                    struct view commands, size_t *left)
{
        struct core *c = u;
        struct view rest = commands;
        struct cmd cmd;
        int r;

        c->now = boot_max(c->now, replica_now(c->replica));
        if (!c->part.on) {
                state_begin(&c->state, index, at);
                term_begins(c, term);
                c->part.at = 0;
        }
        rest.p = (const uint8_t *) rest.p + c->part.at;
        rest.len -= c->part.at;
        c->part.on = false;
        while ((r = cmd_next(&rest, &cmd)) == 0) {
                r = *left > 0 ? apply_command(c, &cmd, term, left) : 1;
                if (r < 0)
                        return r;
                if (r > 0) {
                        c->part.on = true;
                        return 1;
                }
                c->part.at = commands.len - rest.len;
        }
        if (r != -ENODATA)
                return r; /* an entry of another version of us: going on would tell another
                             story (I4) */
        serve_reads(c, index);
        return 0;
}

static void on_save(void *u)
{
        struct core *c = u;

        state_save_start(&c->saver, &c->state);
}

static int on_save_more(void *u, size_t bytes, struct buf *out)
{
        struct core *c = u;
        int r = state_save_more(&c->saver, bytes);

        if (r == 0) {
                *out = c->saver.out;
                c->saver.out = (struct buf){0};
        }
        if (r <= 0)
                state_saver_fini(&c->saver);
        return r;
}

static void on_drop(void *u)
{
        drop_loaded(u);
}

static int on_load(void *u, struct view snapshot)
{
        struct core *c = u;

        drop_loaded(c);
        c->loaded = calloc(1, sizeof(*c->loaded));
        if (!c->loaded)
                return -ENOMEM;
        state_load_start(&c->loader, &c->loaded->state, snapshot);
        return 0;
}

/* What is gone goes first: there are not three of them. */
static int on_load_more(void *u, size_t *left)
{
        struct core *c = u;
        int r = free_gone(c, left) ? state_load_some(&c->loader, left) : 1;

        if (r == 0)
                state_loader_fini(&c->loader);
        else if (r < 0)
                drop_loaded(c);
        return r;
}

static struct lease_time on_adopt(void *u)
{
        struct core *c = u;
        struct state old;

        state_let_go(&c->state);
        old = c->state;
        c->state = c->loaded->state;
        c->loaded->state = old;
        drop_loaded(c);
        c->part.on = false;
        c->part.told = 0;
        c->part.told_slots = (struct cmd_slots){0};
        buf_fini(&c->part.out);
        c->installs++;
        return c->state.time;
}

static void on_changed(void *u)
{
        struct core *c = u;

        if (core_status(c).leader_id != 0)
                repropose_all(c);
        if (c->owner && c->owner->changed)
                c->owner->changed(c->owner_data);
}

/* Entries were skipped by a snapshot, ours perhaps. */
static void on_skipped(void *u)
{
        struct core *c = u;

        /* Where some are still to be told of the last time, these and all since. */
        if (!c->skipped.on)
                c->skipped.term = c->term_seen;
        c->skipped.on = true;
        c->skipped.from = 0;
        c->skipped.upto = c->next_seq;
        serve_reads(c, c->state.applied);
}

static void on_changed_members(void *u, uint64_t request, int outcome)
{
        struct core *c = u;

        changes_answered(&c->changes, request, outcome);
}

static void on_configured(void *u)
{
        struct core *c = u;

        if (c->owner && c->owner->configured)
                c->owner->configured(c->owner_data);
}

static void on_removed(void *u)
{
        struct core *c = u;

        changes_removed(&c->changes, c->cfg.member_id);
        if (c->owner && c->owner->removed)
                c->owner->removed(c->owner_data);
}

static bool on_started(void *u, uint64_t id)
{
        const struct core *c = u;

        for (size_t i = 0; i < c->state.n_members; i++)
                if (c->state.members[i].id == id)
                        return *c->state.members[i].name != '\0';
        return false;
}

static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct core *c = u;

        c->owner->send(c->owner_data, peer, frame);
}

static size_t on_room(void *u, uint64_t peer)
{
        struct core *c = u;

        return c->owner->room ? c->owner->room(c->owner_data, peer) : SIZE_MAX;
}

static void on_fatal(void *u, const char *why)
{
        struct core *c = u;

        c->owner->fatal(c->owner_data, why);
}

const struct replica_ops core_replica_ops = {
        .send = on_send,
        .room = on_room,
        .apply = on_apply,
        .save = on_save,
        .save_more = on_save_more,
        .load = on_load,
        .load_more = on_load_more,
        .adopt = on_adopt,
        .drop = on_drop,
        .changed = on_changed,
        .read_at = on_read_at,
        .skipped = on_skipped,
        .changed_members = on_changed_members,
        .started = on_started,
        .configured = on_configured,
        .removed = on_removed,
        .fatal = on_fatal,
};

/* ---- what operators ask for ---- */

void core_change_members(struct core *c, struct core_change *ch, nsec_t timeout)
{
        changes_ask(&c->changes, ch, c->now,
                    timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
}

uint64_t core_new_member_id(struct core *c)
{
        return rnd_u64(&c->rnd) | 1;
}

struct status core_move_leader(struct core *c, uint64_t member)
{
        if (!core_status(c).leader)
                return status_not_leader;
        return replica_transfer(c->replica, member, c->now) == 0 ? status_ok
                                                                 : status_bad_transferee;
}

uint64_t core_installs(const struct core *c)
{
        return c->installs;
}

void core_take_snapshot(struct core *c)
{
        replica_want_snapshot(c->replica);
}

bool core_room(struct core *c, size_t bytes)
{
        return upkeep_room(&c->upkeep, &c->cfg, &c->state, bytes);
}

static bool is_no_member(uint64_t id, void *arg)
{
        return replica_removed(arg, id) != 0;
}

static void keep_up(struct core *c)
{
        cleanup_(buf_fini) struct buf alarm = {0}, disk = {0}, former = {0}, compact = {0};
        struct replica_status st = core_status(c);

        if (upkeep_quota(&c->upkeep, &c->cfg, &c->state, c->now, &alarm) && st.leader_id != 0)
                (void) !propose_own(c, CMD_ALARM, &alarm);
        if (st.leader_id != 0 &&
            upkeep_disk(&c->upkeep, &c->cfg, &c->state, st.short_of_room, c->now, &disk))
                (void) !propose_own(c, CMD_ALARM, &disk);
        if (st.leader && c->state.n_alarms > 0 &&
            upkeep_former(&c->upkeep, &c->state, is_no_member, c->replica, c->now, &former))
                (void) !propose_own(c, CMD_ALARM, &former);
        if (upkeep_compact(&c->upkeep, &c->cfg, &c->state, c->now, &compact) && st.leader)
                (void) !propose_own(c, CMD_COMPACT, &compact);
}

/* ---- time ---- */

static void time_out(struct core *c)
{
        struct core_write *w, *w_next;
        struct core_read *rd, *rd_next;
        size_t left = TIMED_OUT_MAX;

        if (boot_before(c->now, c->timeouts_at))
                return;
        /* Ordered by number, nearly by deadline; a short grpc-timeout is checked with the rest.
         */
        for (w = RB_MIN(core_writes, &c->writes); w && left > 0; w = w_next) {
                w_next = RB_NEXT(core_writes, &c->writes, w);
                if (boot_before(c->now, w->deadline))
                        continue;
                left--;
                if (w->overdue && is_out(w, c->term_seen)) {
                        w->deadline = BOOT_TIME_NEVER;
                        w->overdue(w);
                } else {
                        write_finish(c, w,
                                     core_status(c).leader_id ? status_timeout
                                                              : status_no_leader,
                                     (struct view){0});
                }
        }
        for (rd = RB_MIN(core_reads, &c->reads); rd && left > 0; rd = rd_next) {
                rd_next = RB_NEXT(core_reads, &c->reads, rd);
                if (boot_before(c->now, rd->deadline))
                        continue;
                left--;
                read_finish(c, rd,
                            core_status(c).leader_id ? status_timeout : status_no_leader);
        }
        if (left > 0)
                c->timeouts_at = boot_add(c->now, TIMEOUTS_AGAIN);
        /* While there is no leader nobody answers, and clients ask again. */
        if (c->reads_dropped && c->replica)
                replica_drop_reads(c->replica, is_wanted, c);
        c->reads_dropped = false;
}

static void on_first(struct core_read *rd, struct status st)
{
        (void) st;
        rd->done = NULL;
}

/* Whoever reads first brings us as far as the others were at our start. Where nobody does, we
 * would say nothing of our own when the others are lost, however long we had run beside them.
 */
static void catch_up(struct core *c)
{
        if (c->caught_up || c->first.done || core_status(c).leader_id == 0)
                return;
        c->first.done = on_first;
        core_read(c, &c->first, 0);
}

void core_run(struct core *c, struct boot_time now)
{
        pass_time(c, now);
        time_out(c);
        expire(c);
        tell_time(c);
        keep_up(c);
        changes_run(&c->changes, c->now);
        introduce(c);
        catch_up(c);
}

struct boot_time core_next(struct core *c)
{
        struct boot_time next = changes_next(&c->changes);
        const struct core_read *rd = TAILQ_FIRST(&c->confirmed);
        struct replica_status st = core_status(c);

        if (c->skipped.on || (c->repropose && c->repropose_from > 0 && st.leader_id != 0))
                next = boot_min(next, c->now);
        if (!STAILQ_EMPTY(&c->gone))
                next = boot_min(next, c->gone_at);
        if (!c->part.on) /* else the batch waits for the rest of an entry */
                next = boot_min(next, c->renew_at);
        if (!c->part.on && rd && rd->index <= c->served)
                next = boot_min(next, c->now);

        if (st.leader) {
                next = boot_min(next,
                                boot_max(c->expire_not_before,
                                         replica_lease_when(c->replica,
                                                            deadlines_next(&c->state.deadlines),
                                                            c->now)));
                if (c->state.leases.n > 0 || c->term_seen != st.term)
                        next = boot_min(next,
                                        boot_max(c->tick_at, boot_add(c->now, NSEC_PER_MSEC)));
        }
        if (c->cfg.compact_keep > 0 || c->cfg.compact_age > 0)
                next = boot_min(
                        next, boot_max(c->upkeep.compact_at, boot_add(c->now, NSEC_PER_MSEC)));
        if (st.leader_id != 0 && upkeep_disk_due(&c->cfg, &c->state, st.short_of_room))
                next = boot_min(next,
                                boot_max(c->upkeep.disk_at, boot_add(c->now, NSEC_PER_MSEC)));
        if (!RB_EMPTY(&c->writes) || !RB_EMPTY(&c->reads) || c->reads_dropped)
                next = boot_min(next,
                                boot_max(c->timeouts_at, boot_add(c->now, NSEC_PER_MSEC)));
        return next;
}

void core_flush(struct core *c, struct boot_time now)
{
        uint64_t applied = c->replica ? replica_applied(c->replica) : 0;
        size_t left = GONE_STEPS;

        pass_time(c, now);
        c->reads_left = READS_AT_ONCE;
        /* Not every entry is one of commands. */
        if (!c->part.on)
                serve_reads(c, max_of(applied, c->served));
        /* What is known of slots must be that of whole entries: one that is free in half an
         * entry may be another's when it is done. */
        if (c->n_renewals > 0 && !boot_before(c->now, c->renew_at) && !c->part.on)
                send_batch(c);
        if (c->skipped.on)
                tell_lost(c);
        if (!c->skipped.on)
                repropose(c);
        if (!STAILQ_EMPTY(&c->gone) && !boot_before(c->now, c->gone_at)) {
                c->gone_at = boot_add(c->now, GONE_PAUSE);
                (void) free_gone(c, &left);
        }
}
