/* Watches that have to move: the endpoint of a watch freezes, or its answers are late, while
 * others have something to report; and heartbeats that are due meanwhile. Or the endpoint to
 * which a host publishes its services freezes, so that what it sent there arrives after it has
 * sent something else to another one. */
#include "insides.h"
#include "member/member.h"
#include "world.h"

/* Makes others, or the holder itself, report something soon. */
static void act_soon(struct world *w, const struct holder *of, bool itself)
{
        for (unsigned i = 0; i < w->n_holders; i++) {
                struct holder *h = &w->h[i];

                if (!h->alive || (h == of) != itself || (!itself && chance(w, 30)))
                        continue;
                h->act_at = w->now + some_time(w, 0, itself ? 50 * MSEC : 300 * MSEC);
                h->wake = 0;
        }
}

void delay_watch(struct world *w)
{
        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];
        nsec_t until = w->now + some_time(w, 300 * MSEC, 6000 * MSEC);
        bool tells = chance(w, 35);
        struct insides in;
        struct wire *k;

        if (!h->alive)
                return;
        in = insides_of(h->member);
        k = &h->ends[tells ? member_current(h->member) : in.watch_at].wire;
        if ((!in.watching && !tells) || !k->client)
                return;
        w->counts.late++;
        wire_be_late(k, until, tells || chance(w, 60) ? w->now : until,
                     !tells && chance(w, 30));
        act_soon(w, h, tells);
}

void moves_before(struct holder *h)
{
        const struct session *s = member_session(h->member);

        h->beats_beside = s->state == SESSION_HELD && session_attempt(s) == 0 &&
                          insides_of(h->member).waits;
}

static bool is_frozen(const struct holder_end *e)
{
        return e->reach.silent || (e->wire.client && e->wire.late_until > W->now);
}

void moves_after(struct holder *h)
{
        const struct session *s = member_session(h->member);
        int64_t knows = member_nodes(h->member)->revision;
        struct insides in = insides_of(h->member);

        W->met.heartbeat_beside += h->beats_beside && session_attempt(s) > 0;
        if (!in.watching)
                return;
        if (in.watch_at != h->watch_at && knows > 0 && view_has_news(knows))
                W->met.moved_watch += is_frozen(&h->ends[h->watch_at]);
        h->watch_at = in.watch_at;
}
