#include "loop/cert_end.h"

#include <time.h>

#define WITHIN_DAYS 21
#define DAY (86400 * NSEC_PER_SEC)

void cert_end_run(struct cert_end *e)
{
        char text[64];

        if (!e->tls)
                return;
        if (*tls_end_text(e->tls, time(NULL), WITHIN_DAYS, text))
                e->fn(e, text);
        loop_timer_in(&e->timer, DAY);
}

static void on_timer(struct loop_timer *t)
{
        cert_end_run(container_of(t, struct cert_end, timer));
}

void cert_end_start(struct cert_end *e, struct loop *l, const struct tls *tls, cert_end_fn fn)
{
        e->tls = tls;
        e->fn = fn;
        loop_timer_init(&e->timer, l, on_timer);
        cert_end_run(e);
}
