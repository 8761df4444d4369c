/* Prints the changes under a prefix, in a libev loop.
 * cc ev.c $(pkg-config --cflags --libs libtenure) -lev */
#include <ev.h>
#include <stdio.h>
#include <string.h>
#include <tenure.h>

static struct tenure *tie;

static void on_ready(struct ev_loop *loop, struct ev_io *io, int events)
{
        const struct tenure_event *e;

        (void) io;
        (void) events;
        if (tenure_dispatch(tie) < 0) {
                fprintf(stderr, "ev: %s.\n", tenure_error(tie));
                ev_break(loop, EVBREAK_ALL);
                return;
        }
        /* Take all of them: nothing calls this again for events that are left. */
        while ((e = tenure_pop_event(tie)))
                if (e->type == TENURE_PUT)
                        printf("put %s = %s at revision %lld\n", (const char *) e->kv->key,
                               (const char *) e->kv->value, (long long) e->revision);
                else if (e->type == TENURE_DELETE)
                        printf("deleted %s at revision %lld\n", (const char *) e->kv->key,
                               (long long) e->revision);
                else if (e->type == TENURE_WATCH_ENDED)
                        ev_break(loop, EVBREAK_ALL);
}

int main(int argc, char **argv)
{
        const char *prefix = argc > 1 ? argv[1] : "";
        struct tenure_watch_options o = {
                .key = prefix, .key_len = strlen(prefix), .prefix = true};
        struct ev_loop *loop = ev_default_loop(0);
        struct tenure_call *c;
        struct tenure_watch *w;
        struct ev_io io;

        if (tenure_new(&tie) < 0)
                return 1;
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (tenure_start(tie) < 0 ||
            tenure_get(tie, &(struct tenure_range){.prefix = true, .count_only = true}, &c) <
                    0 ||
            tenure_call_wait(c, 10000) < 0)
                goto fail;
        o.revision = tenure_call_revision(c) + 1;
        tenure_call_free(c);
        if (tenure_watch(tie, &o, &w) < 0)
                goto fail;
        printf("watching, from revision %lld on\n", (long long) o.revision);
        ev_io_init(&io, on_ready, tenure_get_fd(tie), EV_READ);
        ev_io_start(loop, &io);
        ev_run(loop, 0);
        tenure_free(tie);
        return 1;
fail:
        fprintf(stderr, "ev: %s.\n", tenure_error(tie));
        tenure_free(tie);
        return 1;
}
