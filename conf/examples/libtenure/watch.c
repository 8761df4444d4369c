/* Prints the changes under a prefix. cc watch.c $(pkg-config --cflags --libs libtenure) */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <tenure.h>

int main(int argc, char **argv)
{
        const char *prefix = argc > 1 ? argv[1] : "";
        struct tenure_watch_options o = {
                .key = prefix, .key_len = strlen(prefix), .prefix = true};
        struct tenure_range q = {
                .key = prefix, .key_len = strlen(prefix), .prefix = true, .count_only = true};
        const struct tenure_event *e;
        struct tenure_watch *w;
        struct tenure_call *c;
        struct tenure *t;

        if (tenure_new(&t) < 0)
                return 1;
        /* The present state first; then each change after its revision. */
        if (tenure_start(t) < 0 || tenure_get(t, &q, &c) < 0 || tenure_call_wait(c, -1) < 0)
                goto fail;
        o.revision = tenure_call_revision(c) + 1;
        if (tenure_watch(t, &o, &w) < 0)
                goto fail;
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("watching, from revision %lld on\n", (long long) o.revision);
        tenure_call_free(c);
        for (;;) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                poll(&p, 1, tenure_get_timeout(t));
                if (tenure_dispatch(t) < 0)
                        goto fail;
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_PUT) {
                                printf("put %s = %s at revision %lld\n",
                                       (const char *) e->kv->key, (const char *) e->kv->value,
                                       (long long) e->revision);
                        } else if (e->type == TENURE_DELETE) {
                                printf("deleted %s at revision %lld\n",
                                       (const char *) e->kv->key, (long long) e->revision);
                        } else if (e->type == TENURE_WATCH_ENDED) {
                                fprintf(stderr, "watch: %s.\n", e->reason);
                                tenure_free(t);
                                return 1;
                        }
        }
fail:
        fprintf(stderr, "watch: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}
