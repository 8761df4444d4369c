/*
 * Patient clients of long worlds. Two lock without a lease of their own, so that the core
 * grants one of a minute, which it renews while they wait (etcd/claim_session.c); they never
 * unlock, and each gets the lock when the lease of the other one ends. A third one puts a
 * node's record that is too large for agents to read, once in each trouble.
 *
 * If all has been well, no lock ends before the minute since its last renewal is over, and the
 * next one that waits has it then.
 */
#include <stdio.h>

#include "asker.h"
#include "base/probe.h"
#include "hoard.h"
#include "member/json.h"

#define N_LOCKERS 2
#define LOCK "doze"
#define TTL (60 * NSEC_PER_SEC)
#define RENEWED (20 * NSEC_PER_SEC) /* so often while it waits */
#define BLUR (300 * MSEC)           /* a fast clock, over the TTL, and what answers take */
#define LARGE (RECORD_MAX + 1000)

static struct asker lockers[N_LOCKERS], writer;

static nsec_t won_at;    /* when the lock was last won; 0: it was not */
static bool renewed;     /* its lease had been renewed when it was to be */
static nsec_t unsure_at; /* when it was last not known what became of a request */
static unsigned put_at;  /* in which night the record was put */
static size_t n_put;

static void lock(struct asker *a)
{
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;

        q.name = pb_bytes(LOCK, strlen(LOCK));
        asker_ask(a, "/v3lockpb.Lock/Lock", &q.base);
        prompt_end(&a->waits); /* it waits for the other one */
        a->act_at = W->now + 3 * TTL;
}

/* Whether nothing but the other one's lease has been in the way since then. */
static bool all_well_since(nsec_t t)
{
        return well_for(W) > W->now - t && W->now - unsure_at > 3 * TTL;
}

static void locked(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        nsec_t held = W->now - won_at;

        (void) m;
        a->act_at = W->now + TTL / 2;
        if (code != RPC_OK || lost) {
                unsure_at = W->now;
                a->act_at = W->now + some_time(W, MSEC, NSEC_PER_SEC);
                return;
        }
        if (renewed && held < TTL - RENEWED - BLUR)
                fail(W, "I1: a lock with a lease of %.0f s was won %.3f s after the last time",
                     (double) TTL / 1e9, (double) held / 1e9);
        if (won_at > 0 && a->asked_at < won_at && all_well_since(won_at)) {
                PROBE("a lock ends with the lease of a minute that it came with");
                if (held > TTL + BLUR)
                        fail(W,
                             "I2: a lock with a lease of %.0f s was won %.3f s later, though "
                             "all was well",
                             (double) TTL / 1e9, (double) held / 1e9);
        }
        W->counts.dozed++;
        won_at = W->now;
        renewed = well_for(W) > TTL;
}

static const struct asker_ops locker_ops = {.act = lock, .answered = locked};

static void put(struct asker *a)
{
        static uint8_t value[LARGE];
        static const char key[] = "/tenure/sim/nodes/" HOARD_FLEET_NAME "-large";
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        if (put_at == W->nights) {
                a->act_at = W->now + NSEC_PER_SEC;
                return;
        }
        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, sizeof(value));
        asker_ask(a, "/etcdserverpb.KV/Put", &q.base);
}

static void was_put(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        (void) m;
        a->act_at = W->now + some_time(W, MSEC, NSEC_PER_SEC);
        n_put++;
        if (code == RPC_OK && !lost)
                put_at = W->nights;
}

static const struct asker_ops writer_ops = {.act = put, .answered = was_put};

size_t dozers_bytes(void)
{
        return n_put * LARGE;
}

void dozers_begin(struct world *w)
{
        won_at = unsure_at = 0;
        renewed = false;
        put_at = UINT32_MAX;
        n_put = 0;
        for (unsigned i = 0; w->dozes && i < N_LOCKERS; i++) {
                asker_begin(&lockers[i], i, &locker_ops);
                lockers[i].restless = true;
        }
        if (w->dozes)
                asker_begin(&writer, N_LOCKERS, &writer_ops);
}
