#include "loop/dial.h"

#include "base/probe.h"

#define DELAY_MAX (250 * NSEC_PER_MSEC)
#define DELAY_MIN (100 * NSEC_PER_MSEC)
#define ALL_WITHIN (750 * NSEC_PER_MSEC)

nsec_t dial_delay(size_t n)
{
        nsec_t delay = n > 0 ? ALL_WITHIN / (nsec_t) n : DELAY_MAX;

        delay = min_of(delay, DELAY_MAX);
        return max_of(delay, DELAY_MIN);
}

static void hang_up(struct dial *d)
{
        for (size_t i = 0; i < ADDRESSES_MAX; i++)
                d->tries[i] = stream_free(d->tries[i]);
}

static bool any_under_way(const struct dial *d)
{
        for (size_t i = 0; i < ADDRESSES_MAX; i++)
                if (d->tries[i])
                        return true;
        return false;
}

static void try_next(struct dial *d, const char *why);

static size_t number_of(const struct dial *d, const struct stream *s)
{
        size_t i = 0;

        while (d->tries[i] != s)
                i++;
        return i;
}

static void on_open(struct stream *s)
{
        struct dial *d = stream_userdata(s);
        size_t i = number_of(d, s);

        d->good = d->addresses.a[i];
        d->tries[i] = NULL;
        PROBE_IF(any_under_way(d), "an address answers while others are tried as well");
        dial_stop(d);
        stream_set_owner(s, d->stream_ops, d->userdata);
        d->ops->connected(s, d->userdata);
}

static void on_close(struct stream *s, const char *why)
{
        struct dial *d = stream_userdata(s);
        size_t i = number_of(d, s);

        d->refused = stream_was_refused(s);
        d->tries[i] = stream_free(s);
        PROBE_IF(d->next < d->addresses.n, "an address refuses, and the next one is tried");
        try_next(d, why);
}

static const struct stream_ops try_ops = {.on_open = on_open, .on_close = on_close};

/* Tries the next address. The one before has failed, for @why, or has not answered for a
 * moment. */
static void try_next(struct dial *d, const char *why)
{
        while (d->next < d->addresses.n) {
                size_t i = d->next++;
                const struct inet_address *a = &d->addresses.a[i];
                int r = stream_connect(&d->tries[i], d->loop,
                                       (const struct sockaddr *) &a->addr, a->len, d->tls,
                                       d->host, &try_ops, d);

                if (r < 0) {
                        d->tries[i] = NULL;
                        why = strerror(-r);
                        continue;
                }
                if (d->next < d->addresses.n)
                        loop_timer_in(&d->timer, dial_delay(d->addresses.n));
                return;
        }
        if (any_under_way(d))
                return;
        dial_stop(d);
        d->ops->failed(why, d->userdata); /* last: the callback may end @d */
}

static void on_timer(struct loop_timer *t)
{
        PROBE("an address does not answer, and the next one is tried as well");
        try_next(container_of(t, struct dial, timer), "no answer");
}

static void good_first(struct inet_addresses *a, const struct inet_address *good)
{
        for (size_t i = 1; i < a->n; i++) {
                struct inet_address first = a->a[i];

                if (!inet_address_is(&first, good))
                        continue;
                PROBE("the address that worked last is not the first, and is tried first");
                memmove(&a->a[1], &a->a[0], i * sizeof(a->a[0]));
                a->a[0] = first;
                return;
        }
}

static void on_resolved(int r, const struct inet_addresses *a, void *userdata)
{
        struct dial *d = userdata;

        d->query = NULL;
        if (r < 0) {
                dial_stop(d);
                d->ops->failed(r == -EHOSTUNREACH
                                       ? "no such host name is known, or DNS does not answer"
                                       : strerror(-r),
                               d->userdata);
                return;
        }
        d->addresses = *a;
        good_first(&d->addresses, &d->good);
        try_next(d, "no address");
}

void dial_init(struct dial *d, struct loop *l, struct resolver *rv, const struct dial_ops *ops,
               const struct stream_ops *stream_ops, void *userdata)
{
        *d = (struct dial){.loop = l,
                           .resolver = rv,
                           .ops = ops,
                           .stream_ops = stream_ops,
                           .userdata = userdata};
        loop_timer_init(&d->timer, l, on_timer);
}

void dial_start(struct dial *d, const struct url *u, struct tls *tls)
{
        int r;

        dial_stop(d);
        d->trying = true;
        d->refused = false;
        d->tls = u->tls ? tls : NULL;
        strcpy(d->host, u->local ? "localhost" : u->host);
        r = resolve(d->resolver, u, on_resolved, d, &d->query);
        if (r < 0) {
                dial_stop(d);
                d->ops->failed(strerror(-r), d->userdata);
        }
}

void dial_stop(struct dial *d)
{
        d->trying = false;
        d->query = resolve_cancel(d->query);
        d->addresses.n = d->next = 0;
        hang_up(d);
        if (d->loop)
                loop_timer_disarm(&d->timer);
}

bool dial_is_greeting(const struct dial *d)
{
        for (size_t i = 0; i < ADDRESSES_MAX; i++)
                if (d->tries[i] && stream_is_greeting(d->tries[i]))
                        return true;
        return false;
}

bool dial_was_refused(const struct dial *d)
{
        return d->refused;
}

bool dial_is_trying(const struct dial *d)
{
        return d->trying;
}
