/* When renewals are proposed: a single replica, whose disk takes a millisecond for each write.
 * */
#include <stdlib.h>

#include "core/internal.h"
#include "one.h"
#include "test.h"
#include "wire/pb.h"

#define MS NSEC_PER_MSEC
#define DISK_TIME MS
#define STEP (100 * NSEC_PER_USEC)

static struct {
        struct disk *disk;
        struct core *core;
        struct replica *replica;
        struct boot_time now, written_at;
        unsigned answered, failed;
        nsec_t slowest;
        nsec_t latest; /* how long after a request, and TTL, its lease ends */
} one;

#define NOT_AHEAD UINT_MAX

struct holder_of {
        struct core_renewal renewal;
        struct core_write grant;
        struct boot_time asked, next;
        struct boot_time sent; /* the last request */
        bool out, eager;       /* eager: asks again when it is answered */
        nsec_t every;          /* or, if it is eager, so long after that */
};

static nsec_t disk_time = DISK_TIME;

static void turn(void)
{
        one.now = boot_add(one.now, STEP);
        if (!sim_disk_busy(one.disk)) {
                one.written_at = boot_add(one.now, disk_time);
        } else if (!boot_before(one.now, one.written_at)) {
                sim_disk_finish(one.disk);
                one.written_at = boot_add(one.now, disk_time);
        }
        replica_run(one.replica, one.now);
        core_run(one.core, one.now);
        core_flush(one.core, one.now);
        replica_flush(one.replica, one.now);
}

static void on_granted(struct core_write *w, struct status st, struct view reply)
{
        (void) w;
        (void) reply;
        one.failed += st.code != RPC_OK;
}

/* The term begins no earlier than the request (I3), and little later (I2). */
static void check_term(const struct holder_of *h, int64_t ttl_ms)
{
        struct lease *l = leases_find(&core_state(one.core)->leases, h->renewal.lease);
        nsec_t left, waited = boot_diff(one.now, h->sent);

        if (!l)
                return;
        left = lease_time_diff(deadlines_get(&core_state(one.core)->deadlines, l->slot),
                               replica_lease_time(one.replica, one.now));
        CHECK(left >= ttl_ms * MS - waited);
        CHECK(left <= ttl_ms * MS + 50 * MS);
        one.latest = max_of(one.latest, left + waited - ttl_ms * MS);
}

static void on_renewed(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        struct holder_of *h = container_of(rn, struct holder_of, renewal);

        one.failed += st.code != RPC_OK || ttl_ms == 0;
        one.answered++;
        if (st.code == RPC_OK)
                check_term(h, ttl_ms);
        one.slowest = max_of(one.slowest, boot_diff(one.now, h->asked));
        h->out = false;
        h->next = boot_add(h->eager ? one.now : h->next, h->every);
}

static void propose(struct core_write *w, enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        w->done = on_granted;
        CHECK_EQ(core_write(one.core, w, type, NULL, buf_head(&b), buf_len(&b), 0), 0);
}

static void renew(struct holder_of *h)
{
        h->out = true;
        h->asked = h->sent = one.now;
        core_renew(one.core, &h->renewal);
}

static void grant(struct holder_of *h, int64_t id, int64_t ttl_ms)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = ttl_ms;
        h->renewal.done = on_renewed;
        h->renewal.lease = id;
        propose(&h->grant, CMD_GRANT, &q.base);
}

static void start(unsigned part)
{
        one_new(&one.core, &one.replica, one.disk, 1,
                &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .ahead_divisor = part},
                one.now);
}

static void start_anew(unsigned part)
{
        memset(&one, 0, sizeof(one));
        one.now.ns = 1000 * NSEC_PER_SEC;
        one.disk = sim_disk_new();
        start(part);
}

static void turns(unsigned n)
{
        while (n-- > 0)
                turn();
}

static void begin_with(struct holder_of *h, size_t n, int64_t ttl_ms, unsigned part)
{
        start_anew(part);
        while (!core_status(one.core).ready)
                turn();
        for (size_t i = 0; i < n; i++)
                grant(&h[i], (int64_t) i + 1, ttl_ms);
        turns(100);
        CHECK_EQ(core_state(one.core)->leases.n, n);
}

static void begin(struct holder_of *h, size_t n, int64_t ttl_ms)
{
        begin_with(h, n, ttl_ms, 0);
}

/* Returns how many entries that was. */
static uint64_t run(struct holder_of *h, size_t n, nsec_t time)
{
        uint64_t last = core_status(one.core).last;

        for (struct boot_time end = boot_add(one.now, time); boot_before(one.now, end);) {
                for (size_t i = 0; i < n; i++)
                        if (!h[i].out && !boot_before(one.now, h[i].next))
                                renew(&h[i]);
                turn();
        }
        return core_status(one.core).last - last;
}

static void stop(void)
{
        CHECK_EQ(one.failed, 0);
        while (sim_disk_busy(one.disk)) /* what that applies is the core's */
                sim_disk_finish(one.disk);
        core_free(one.core);
        replica_free(one.replica);
}

static void end(void)
{
        stop();
        disk_free(one.disk);
}

/* Nobody reads here, and a serializable read or a snapshot may be needed when the others are
 * lost. */
TEST(who_is_only_written_to_catches_up_all_the_same)
{
        static struct holder_of h[1];

        memset(h, 0, sizeof(h));
        begin(h, 1, 10000);
        CHECK(core_caught_up(one.core));
        end();
}

/* Like etcd's own benchmark: each client renews again as soon as it is answered. */
TEST(who_renews_early_waits_for_the_disk_only)
{
        static struct holder_of h[100];

        for (size_t n = 1; n <= ARRAY_SIZE(h); n *= 10) {
                memset(h, 0, sizeof(h));
                begin_with(h, n, 100000, NOT_AHEAD);
                for (size_t i = 0; i < n; i++)
                        h[i].eager = true;
                (void) run(h, n, 200 * MS);
                CHECK(one.answered > 40 * n); /* 4 or 5 each in the window's pace */
                CHECK(one.slowest < 4 * DISK_TIME);
                end();
        }
}

/* A crowd that renews early returns bit by bit: it shares entries, and waits no longer than its
 * return takes; the last clients, when the others are gone, do not wait. */
TEST(a_crowd_that_renews_early_shares_entries)
{
        static struct holder_of h[400];
        uint64_t entries;

        memset(h, 0, sizeof(h));
        begin_with(h, ARRAY_SIZE(h), 100000, NOT_AHEAD);
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                h[i].eager = true;
                h[i].every = (nsec_t) rnd(0, 30) * STEP;
        }
        entries = run(h, ARRAY_SIZE(h), 500 * MS);
        CHECK(one.answered > 60 * ARRAY_SIZE(h));
        CHECK(entries * ARRAY_SIZE(h) < 2 * one.answered);
        CHECK(one.slowest < 8 * MS);
        (void) run(h, 1, 200 * MS);
        one.answered = 0;
        one.slowest = 0;
        h[0].every = 0;
        (void) run(h, 1, 100 * MS);
        CHECK(one.answered > 30);
        CHECK(one.slowest < 4 * DISK_TIME);
        end();
}

static uint64_t entries_of_crowd(size_t n_ahead)
{
        static struct holder_of h[80];
        uint64_t entries;

        memset(h, 0, sizeof(h));
        begin(h, 0, 0);
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                grant(&h[i], (int64_t) i + 1, i < n_ahead ? 10000 : 4000);
                h[i].eager = true;
                h[i].every = (nsec_t) rnd(0, 30) * STEP;
        }
        turns(100);
        (void) run(h, ARRAY_SIZE(h), 100 * MS);
        entries = run(h, ARRAY_SIZE(h), 1000 * MS);
        for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                while (h[i].out)
                        turn();
        end();
        return entries;
}

/* Which are sent in the same instant, by a command of their own. */
TEST(a_crowd_shares_entries_beside_leases_that_are_renewed_ahead)
{
        CHECK(entries_of_crowd(5) < 2 * entries_of_crowd(0));
}

/* However long it waits for its command (I2). */
TEST(a_lease_is_renewed_ahead_from_when_the_request_came)
{
        static struct holder_of h[50];

        memset(h, 0, sizeof(h));
        begin(h, ARRAY_SIZE(h), 100000);
        turns(10000);
        disk_time = 45 * MS;
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                h[i].eager = true;
                h[i].next = boot_add(one.now, (nsec_t) rnd(0, 100) * MS);
        }
        (void) run(h, ARRAY_SIZE(h), 5000 * MS);
        CHECK(one.latest <= 50 * MS + STEP);
        disk_time = DISK_TIME;
        for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                while (h[i].out)
                        turn();
        end();
}

/* A renewal that adds next to nothing costs no entry, but its term is as long as any. */
TEST(a_lease_that_is_renewed_in_a_loop_needs_few_entries)
{
        static const unsigned ttls[] = {5000, 10000, 100000, 3600000};
        static struct holder_of h[100];

        for (size_t k = 0; k < ARRAY_SIZE(ttls); k++) {
                unsigned ahead = ttls[k] / 1000 < 50 ? ttls[k] / 1000 : 50;
                uint64_t entries;

                memset(h, 0, sizeof(h));
                begin(h, ARRAY_SIZE(h), ttls[k]);
                for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                        h[i].eager = true;
                for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                        h[i].next = boot_add(one.now, (nsec_t) rnd(0, 50) * MS);
                (void) run(h, ARRAY_SIZE(h), 100 * MS);
                one.answered = 0;
                entries = run(h, ARRAY_SIZE(h), 1000 * MS);
                CHECK(entries <= 3 * 1000 / ahead + 20);
                CHECK(one.answered > 1000 * ARRAY_SIZE(h));
                end();
        }
}

/* A renewal of a lease that has been renewed ahead; the leader's confirmation takes @late.
 * Returns whether it was answered with that, without an entry. */
static bool renew_confirmed_after(struct holder_of *h, nsec_t late)
{
        const struct lease *l = leases_find(&core_state(one.core)->leases, h->renewal.lease);
        uint64_t renewed;
        unsigned answered;

        h->eager = true; /* renewed again at once, it is ahead */
        (void) run(h, 1, 5 * MS);
        while (h->out)
                turn();
        answered = one.answered;
        renewed = l->renewed;
        renew(h);
        core_flush(one.core, one.now);
        CHECK_EQ(one.answered, answered);
        one.now = boot_add(one.now, late);
        replica_flush(one.replica, one.now);
        if (one.answered > answered) {
                CHECK_EQ(l->renewed, renewed);
                return true;
        }
        for (unsigned i = 0; i < 1000 && h->out; i++)
                turn();
        CHECK(!h->out);
        CHECK(l->renewed > renewed);
        return false;
}

/* By then the leader's lease time says that less than the TTL is left; or, after so long, the
 * leader cannot say what lease time it is. */
TEST(a_renewal_that_is_confirmed_late_goes_through_the_log)
{
        static struct holder_of h[1];

        memset(h, 0, sizeof(h));
        begin(h, 1, 100000);
        turns(10000); /* lease time advances by now */
        CHECK(renew_confirmed_after(&h[0], 0));
        CHECK(!renew_confirmed_after(&h[0], 60 * MS));
        CHECK(renew_confirmed_after(&h[0], MS));
        CHECK(!renew_confirmed_after(&h[0], 300 * MS));
        end();
}

/* First the leader does not confirm it, then the disk does not write its entry: the renewal
 * ends when the core's 5 s are over. */
static void fail_in_time(struct holder_of *h)
{
        struct boot_time asked = one.now;

        renew(h);
        while (h->out) {
                one.now = boot_add(one.now, 10 * MS);
                while (boot_diff(one.now, asked) == 4800 * MS && sim_disk_busy(one.disk))
                        sim_disk_finish(one.disk); /* of the grant */
                replica_run(one.replica, one.now);
                core_run(one.core, one.now);
                core_flush(one.core, one.now);
                if (boot_diff(one.now, asked) > 4900 * MS)
                        replica_flush(one.replica, one.now);
        }
        CHECK(boot_diff(one.now, asked) <= 5000 * MS);
        CHECK(leases_find(&core_state(one.core)->leases, h->renewal.lease));
        CHECK_EQ(one.failed, 1);
        one.failed = 0;
        end();
}

TEST(a_renewal_that_is_not_confirmed_waits_no_longer_than_others)
{
        static struct holder_of h[1];

        memset(h, 0, sizeof(h));
        begin(h, 1, 100000);
        turns(10000);
        h[0].eager = true;
        (void) run(h, 1, 5 * MS);
        while (h[0].out)
                turn();
        fail_in_time(&h[0]);
}

/* Its lease was granted through another replica. */
TEST(a_renewal_of_an_unknown_lease_waits_no_longer_than_others)
{
        static struct holder_of h[1];

        memset(h, 0, sizeof(h));
        begin(h, 0, 0);
        turns(10000);
        grant(&h[0], 1, 100000);
        replica_flush(one.replica, one.now); /* it waits for others ... */
        replica_flush(one.replica, one.now); /* ... of which none has come */
        fail_in_time(&h[0]);
}

/* The others are far away: what the leader says comes too late for a lease that is ahead. So
 * one renewal takes one round trip, not a second one in vain before it. */
static void check_far(size_t n)
{
        static struct holder_of h[1000];
        struct boot_time flush_at;
        enum { WAYS = 100 };

        memset(h, 0, sizeof(h));
        begin(h, n, 100000);
        one.answered = 0;
        flush_at = one.now;
        for (unsigned i = 0; i < WAYS; flush_at = boot_add(flush_at, 60 * MS), i++) {
                while (boot_before(one.now, flush_at)) {
                        one.now = boot_add(one.now, STEP);
                        if (sim_disk_busy(one.disk))
                                sim_disk_finish(one.disk);
                        replica_run(one.replica, one.now);
                        core_run(one.core, one.now);
                        for (size_t k = 0; k < n; k++)
                                if (!h[k].out)
                                        renew(&h[k]);
                        core_flush(one.core, one.now);
                }
                replica_flush(one.replica, one.now);
        }
        for (size_t k = 0; k < n; k++)
                while (h[k].out)
                        turn();
        CHECK(one.answered > WAYS * n * 8 / 10);
        end();
}

TEST(a_renewal_waits_for_no_confirmation_that_comes_too_late)
{
        check_far(1);
        check_far(10);
        check_far(1000);
}

static unsigned n_read;

static void on_read(struct core_read *rd, struct status st)
{
        (void) rd;
        one.failed += st.code != RPC_OK;
        n_read++;
}

/* A confirmation is a read. Where as many reads wait as may, one more is refused; a renewal is
 * not, since it can go through the log. */
TEST(a_renewal_in_a_loop_is_not_refused_where_many_read)
{
        enum { N = 100000 };
        static struct holder_of h[1];
        struct core_read *reads = calloc(N, sizeof(*reads));

        memset(h, 0, sizeof(h));
        n_read = 0;
        begin(h, 1, 100000);
        h[0].eager = true;
        (void) run(h, 1, 5 * MS);
        while (h[0].out)
                turn();
        for (unsigned i = 0; i < N; i++) {
                reads[i].done = on_read;
                core_read(one.core, &reads[i], 0);
        }
        CHECK_EQ(n_read, 0);
        renew(&h[0]);
        while (h[0].out || n_read < N)
                turn();
        end();
        free(reads);
}

static void on_answer(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        (void) rn;
        (void) ttl_ms;
        one.failed += st.code != RPC_OK;
        one.answered++;
}

/* Whether it exists is known only by a confirmation: another replica may have granted it a
 * moment ago. */
TEST(a_renewal_of_an_unknown_lease_is_not_refused_where_many_read)
{
        struct core_renewal renewal = {.done = on_answer, .lease = 1};
        struct core_read refused = {.done = on_read};
        struct shares *shares;
        struct party *address;

        n_read = 0;
        begin(NULL, 0, 0);
        shares = core_shares(one.core);
        address = shares_address(shares, "reader");
        refused.by.conn = shares_connection(address);
        party_unref(address);
        shares->pots[POT_READS].n = shares->pots[POT_READS].max;
        core_read(one.core, &refused, 0);
        CHECK_EQ(n_read, 1);
        CHECK_EQ(one.failed, 1);
        one.failed = 0;
        core_renew(one.core, &renewal);
        while (one.answered == 0)
                turn();
        party_unref(refused.by.conn);
        end();
}

/* The leader does not answer for a while: what has gathered is not all answered in one turn. */
TEST(many_renewals_without_an_entry_are_answered_in_several_turns)
{
        enum { TURNS = 10, AT_ONCE = 500, MOST = 1500 }; /* READS_AT_ONCE in core/core.c */
        static struct holder_of h[TURNS * AT_ONCE];
        unsigned most = 0;
        uint64_t covered;

        memset(h, 0, sizeof(h));
        begin(h, ARRAY_SIZE(h), 100000);
        for (unsigned k = 0; k < 2; k++) { /* the second time, they are renewed ahead */
                for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                        renew(&h[i]);
                for (one.answered = 0; one.answered < ARRAY_SIZE(h);)
                        turn();
        }
        covered = core_counts(one.core)->covered;
        one.answered = 0;
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                h[i].sent = one.now;
                core_renew(one.core, &h[i].renewal);
                if ((i + 1) % AT_ONCE == 0)
                        core_flush(one.core, one.now);
        }
        while (one.answered < ARRAY_SIZE(h)) {
                unsigned was = one.answered;

                turn();
                most = max_of(most, one.answered - was);
        }
        CHECK_EQ(core_counts(one.core)->covered, covered + ARRAY_SIZE(h));
        CHECK(most <= MOST + AT_ONCE);
        end();
}

/* It reaches the core in the turn before the one that ends its lease (I1). */
TEST(a_renewal_that_came_before_the_deadline_goes_before_the_expiry)
{
        static struct holder_of h[1];
        const struct lease *l;

        memset(h, 0, sizeof(h));
        begin(h, 1, 1000);
        l = leases_find(&core_state(one.core)->leases, 1);
        while (lease_time_before(replica_lease_time(one.replica, boot_add(one.now, STEP)),
                                 deadlines_get(&core_state(one.core)->deadlines, l->slot)))
                turn();
        renew(&h[0]);
        while (h[0].out)
                turn();
        turns(100);
        CHECK_EQ(core_state(one.core)->leases.n, 1);
        end();
}

/* When it is not renewed any more, it ends a little later than after TTL. */
TEST(a_lease_that_was_renewed_in_a_loop_ends_in_time)
{
        static struct holder_of h[1];
        struct boot_time asked;

        memset(h, 0, sizeof(h));
        begin(h, 1, 10000);
        h[0].eager = true;
        (void) run(h, 1, 500 * MS);
        while (h[0].out)
                turn();
        asked = h[0].asked;
        while (core_state(one.core)->leases.n > 0)
                turn();
        CHECK(boot_diff(one.now, asked) >= 10000 * MS);
        CHECK(boot_diff(one.now, asked) <= 10020 * MS);
        end();
}

/* A few agents: none waits for a crowd that is not there. */
TEST(few_who_pace_themselves_do_not_wait)
{
        static struct holder_of h[30];

        memset(h, 0, sizeof(h));
        begin(h, ARRAY_SIZE(h), 10000);
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                h[i].every = 5000 * MS;
                h[i].next = boot_add(one.now, (nsec_t) rnd(3000, 8000) * MS);
        }
        (void) run(h, ARRAY_SIZE(h), 20000 * MS);
        CHECK(one.answered >= 2 * ARRAY_SIZE(h));
        CHECK(one.slowest < 4 * DISK_TIME);
        end();
}

/* A crowd: as many entries as the window makes, and the ticks beside them. */
TEST(a_crowd_that_paces_itself_shares_entries)
{
        static struct holder_of h[2000];
        uint64_t entries;

        memset(h, 0, sizeof(h));
        begin(h, ARRAY_SIZE(h), 10000);
        for (size_t i = 0; i < ARRAY_SIZE(h); i++) {
                h[i].every = 5000 * MS;
                h[i].next = boot_add(one.now, (nsec_t) rnd(1000, 6000) * MS);
        }
        (void) run(h, ARRAY_SIZE(h), 7000 * MS);
        entries = run(h, ARRAY_SIZE(h), 4000 * MS);
        CHECK(one.answered >= ARRAY_SIZE(h));
        CHECK(entries <= 4 * (20 + 4 + 1));
        CHECK(one.slowest < 60 * MS);
        end();
}

/* Late in its term it is sent at once, whatever the window. */
TEST(who_renews_late_waits_for_nobody)
{
        static struct holder_of h[2000];
        struct holder_of *late = &h[ARRAY_SIZE(h) - 1];

        memset(h, 0, sizeof(h));
        begin(h, ARRAY_SIZE(h), 10000);
        for (size_t i = 0; i < ARRAY_SIZE(h) - 1; i++) {
                h[i].every = 5000 * MS;
                h[i].next = boot_add(one.now, (nsec_t) rnd(1000, 6000) * MS);
        }
        late->next = BOOT_TIME_NEVER;
        (void) run(h, ARRAY_SIZE(h), 8000 * MS);
        one.answered = 0;
        one.slowest = 0;
        for (size_t i = 0; i < ARRAY_SIZE(h); i++)
                h[i].asked = one.now; /* those that wait are not looked at */
        late->next = one.now;
        late->eager = false;
        late->every = 1000 * NSEC_PER_SEC;
        (void) run(h, ARRAY_SIZE(h), 3 * DISK_TIME);
        CHECK(!late->out);
        end();
}

/* A lease was granted through another replica: a renewal that comes before the grant waits for
 * it, and its term begins when it came, not as early as an entry can say (I1). */
TEST(who_renews_before_its_grant_is_known_loses_nothing)
{
        static struct holder_of h[2];
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        struct lease_time granted, end_of;
        struct lease *l;

        memset(h, 0, sizeof(h));
        begin(h, 1, 100000);
        turns(1000); /* lease time advances by now */
        q.id = 2;
        q.ttl_ms = 100000;
        pb_append(&b, &q.base);
        h[1].grant.done = on_granted;
        h[1].renewal.done = on_renewed;
        h[1].renewal.lease = q.id;
        CHECK_EQ(core_write(one.core, &h[1].grant, CMD_GRANT, NULL, buf_head(&b), buf_len(&b),
                            0),
                 0);
        granted = core_lease_time(one.core);
        turn();
        /* The disk takes its time, and the leader answers with an entry after the grant, which
         * has no commands. */
        replica_change_members(one.replica, 1, REPLICA_MOVE, 1, "http://2:1");
        one.now = boot_add(one.now, 100 * MS);
        core_run(one.core, one.now);
        core_renew(one.core, &h[1].renewal);
        core_flush(one.core, one.now);
        core_replica_ops.read_at(one.core, one.core->next_read, core_status(one.core).last,
                                 LEASE_TIME_NEVER);
        CHECK(!leases_find(&core_state(one.core)->leases, q.id));
        while (sim_disk_busy(one.disk))
                sim_disk_finish(one.disk);
        core_flush(one.core, one.now);
        for (unsigned i = 0; i < 100 && one.answered == 0; i++)
                turn();
        CHECK_EQ(one.answered, 1);
        l = leases_find(&core_state(one.core)->leases, q.id);
        CHECK(l != NULL);
        end_of = deadlines_get(&core_state(one.core)->deadlines, l->slot);
        CHECK(lease_time_diff(end_of, granted) >= (100000 + 99) * MS);
        end();
}

/* A lease was revoked and granted anew with the same id, through another replica; this one has
 * not applied that when a renewal comes. The renewal is for the new lease, which is not
 * answered for before it is renewed (I3). */
TEST(a_lease_that_was_granted_again_is_renewed_before_the_answer)
{
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        struct core_write writes[2] = {0};
        static struct holder_of h[1];
        struct lease *l;

        memset(h, 0, sizeof(h));
        begin(h, 1, 100000);
        turns(1000); /* lease time advances by now */
        revoke.id = grant.id = 1;
        grant.ttl_ms = 100000;
        propose(&writes[0], CMD_REVOKE, &revoke.base);
        propose(&writes[1], CMD_GRANT, &grant.base);
        replica_flush(one.replica, one.now); /* they wait for others ... */
        replica_flush(one.replica, one.now); /* ... of which none has come */
        /* The disk takes its time. */
        one.now = boot_add(one.now, 50 * MS);
        core_run(one.core, one.now);
        renew(&h[0]);
        core_flush(one.core, one.now);
        replica_flush(one.replica, one.now);
        for (unsigned i = 0; i < 1000 && h[0].out; i++)
                turn();
        CHECK(!h[0].out);
        l = leases_find(&core_state(one.core)->leases, 1);
        CHECK(l && l->renewed > l->born);
        end();
}

/* A node's key, and with it the node's name, moves from one lease to another; this replica has
 * not applied that when a renewal by name comes. */
TEST(a_lease_that_got_the_name_meanwhile_is_renewed_before_the_answer)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct core_write writes[2] = {0};
        static struct holder_of h[3];
        struct lease *l;

        memset(h, 0, sizeof(h));
        begin(h, 2, 100000);
        put.key = pb_bytes("/tenure/default/nodes/a", 23);
        put.lease = 1;
        propose(&writes[0], CMD_PUT, &put.base);
        turns(1000);
        put.lease = 2;
        propose(&writes[1], CMD_PUT, &put.base);
        replica_flush(one.replica, one.now); /* it waits for others ... */
        replica_flush(one.replica, one.now); /* ... of which none has come */
        h[2].renewal.done = on_renewed;
        h[2].renewal.name = pb_bytes("a", 1);
        one.now = boot_add(one.now, 50 * MS); /* the disk takes its time */
        core_run(one.core, one.now);
        renew(&h[2]);
        core_flush(one.core, one.now);
        CHECK_EQ(h[2].renewal.lease, 1);
        for (unsigned i = 0; i < 1000 && h[2].out; i++)
                turn();
        CHECK(!h[2].out);
        CHECK_EQ(h[2].renewal.lease, 2);
        l = leases_find(&core_state(one.core)->leases, 2);
        CHECK(l && l->renewed > l->born);
        end();
}

/* Entries that each take longer than a turn to apply follow one another: what renewals get so
 * as not to suffer from that must not keep a lease alive for as long (I2). */
TEST(a_lease_ends_in_time_while_costly_entries_follow_each_other)
{
        enum { ENTRY = 3000, WRITES = 3 * ENTRY };
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct core_write *writes = calloc(WRITES, sizeof(*writes));
        static struct holder_of h[1];
        struct boot_time granted;
        unsigned n = 0;

        memset(h, 0, sizeof(h));
        begin(h, 0, 0);
        turns(1000);
        grant(&h[0], 1, 500);
        granted = one.now;
        put.key = pb_bytes("k", 1);
        do {
                if (core_n_writes(one.core) <= 2 * ENTRY)
                        for (unsigned i = 0; i < ENTRY; i++, n++)
                                propose(&writes[n % WRITES], CMD_PUT, &put.base);
                one.now = boot_add(one.now, 5 * MS - STEP);
                turn();
                CHECK(boot_diff(one.now, granted) <= 600 * MS);
        } while (boot_diff(one.now, granted) < 20 * MS || core_state(one.core)->leases.n > 0);
        CHECK(n > 10 * ENTRY);
        while (core_n_writes(one.core) > 0)
                turn();
        end();
        free(writes);
}

/* ---- writes that wait for a cache term ---- */

#define WAITING 10000

static struct core_write *waiting;

static void begin_waiting(void)
{
        Pb__CacheTerm q = PB__CACHE_TERM__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct core_write cache = {.done = on_granted};
        size_t n = 0;

        begin(NULL, 0, 0);
        turns(1000);
        q.key = put.key = pb_bytes("k", 1);
        q.term_ms = 1000;
        CHECK_EQ(core_cache(one.core, &cache, NULL, &q, 0).code, RPC_OK);
        turns(100);
        CHECK_EQ(core_n_writes(one.core), 0);
        waiting = calloc(WAITING, sizeof(*waiting));
        for (size_t i = 0; i < WAITING; i++)
                propose(&waiting[i], CMD_PUT, &put.base);
        for (; n < WAITING; n += waiting[n].waits_for != 0)
                if (waiting[n].waits_for == 0)
                        turn();
        CHECK_EQ(core_n_writes(one.core), WAITING);
}

static size_t n_proposed(void)
{
        size_t n = 0;

        for (size_t i = 0; i < WAITING; i++)
                n += waiting[i].term != 0;
        return n;
}

static void end_waiting(void)
{
        while (core_n_writes(one.core) > 0)
                turn();
        end();
        free(waiting);
}

TEST(writes_that_waited_for_a_cache_term_are_proposed_in_batches)
{
        size_t most = 0, was = 0;

        begin_waiting();
        while (was < WAITING) {
                size_t n;

                turn();
                n = n_proposed();
                most = max_of(most, n - was);
                was = n;
        }
        CHECK(most <= 2000);
        end_waiting();
}

/* The snapshot of another replica holds none of them, since none has been proposed. */
TEST(writes_that_wait_for_a_cache_term_outlast_a_snapshot)
{
        begin_waiting();
        one.now = boot_add(one.now, 1200 * MS);
        core_replica_ops.skipped(one.core);
        end_waiting();
}

static unsigned n_reported, n_reported_gone;

static void on_expired(void *u, int64_t lease, size_t n_keys, uint64_t term)
{
        (void) u;
        (void) n_keys;
        CHECK(term > 0);
        n_reported++;
        n_reported_gone += !leases_find(&core_state(one.core)->leases, lease);
}

/* Each lease that ends is logged: 8,192 lines at once were 40 ms. */
TEST(the_end_of_many_leases_is_reported_in_batches)
{
        struct core_owner owner = one_owner;
        enum { N = 5000 };
        unsigned most = 0, turns = 0;
        struct state *s;

        owner.expired = on_expired;
        begin(NULL, 0, 0);
        core_set_owner(one.core, &owner, NULL);
        n_reported = n_reported_gone = 0;
        s = core_state(one.core);
        for (int64_t id = 1; id <= N; id++) {
                struct lease *l;

                CHECK_EQ(leases_add(&s->leases, id, 1000, 1, NULL, 0, NULL, &l), 0);
                CHECK_EQ(deadlines_set(&s->deadlines, l->slot, s->time), 0);
        }
        for (; s->leases.n > 0 && turns < 20000; turns++) {
                unsigned was = n_reported;

                turn();
                most = max_of(most, n_reported - was);
        }
        CHECK_EQ(s->leases.n, 0);
        CHECK_EQ(n_reported, N);
        CHECK_EQ(n_reported_gone, 0);
        CHECK(most <= 2100); /* when the disk answers, and in the turn itself */
        core_free(one.core);
        disk_free(one.disk);
        replica_free(one.replica);
}

/* Metrics count what happens from the start of a process on, the first of it included: its
 * entry may be in the log before any entry has been applied. */
TEST(what_a_replica_applies_counts_unless_its_log_had_it_at_the_start)
{
        struct holder_of h[2];

        memset(h, 0, sizeof(h));
        start_anew(0);
        grant(&h[0], 1, 60000);
        turns(100);
        CHECK_EQ(core_state(one.core)->counts.granted, 1);
        stop();
        start(0);
        grant(&h[1], 2, 60000);
        turns(100);
        CHECK_EQ(core_state(one.core)->leases.n, 2);
        CHECK_EQ(core_state(one.core)->counts.granted, 1);
        end();
}

/* While a disk is full, lease time may stand still for hours. */
TEST(a_leader_whose_lease_time_stands_still_sleeps)
{
        static struct holder_of h[2];
        unsigned wakeups = 0;
        struct boot_time end_at;

        memset(h, 0, sizeof(h));
        begin(h, 1, 100000);
        grant(&h[1], 2, 500); /* it would end meanwhile */
        turns(100);
        disk_time = 100 * NSEC_PER_SEC;
        turns(10000);
        end_at = boot_add(one.now, NSEC_PER_SEC);
        for (; boot_before(one.now, end_at); wakeups++) {
                one.now = boot_max(one.now,
                                   boot_min(core_next(one.core), replica_next(one.replica)));
                turn();
        }
        CHECK(wakeups < 100);
        disk_time = DISK_TIME;
        end();
}

static unsigned n_overdue;

static void on_overdue(struct core_write *w)
{
        (void) w;
        n_overdue++;
}

/* A snapshot and an entry of the next term come in the turn in which a write times out: whether
 * the snapshot has it, nobody knows. */
TEST(a_write_that_a_snapshot_skips_is_overdue)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct core_write w = {.overdue = on_overdue};
        size_t left = SIZE_MAX;

        begin(NULL, 0, 0);
        n_overdue = 0;
        disk_time = 100 * NSEC_PER_SEC;
        q.key = pb_bytes("k", 1);
        propose(&w, CMD_PUT, &q.base);
        turns(10);
        core_replica_ops.skipped(one.core);
        CHECK_EQ(core_replica_ops.apply(one.core, core_status(one.core).applied,
                                        core_status(one.core).term + 1,
                                        core_state(one.core)->time, (struct view){0}, &left),
                 0);
        one.now = boot_add(one.now, 6 * NSEC_PER_SEC);
        core_run(one.core, one.now);
        CHECK_EQ(n_overdue, 1);
        CHECK_EQ(one.failed, 0);
        core_flush(one.core, one.now);
        CHECK_EQ(one.failed, 1);
        one.failed = 0;
        disk_time = DISK_TIME;
        end();
}
