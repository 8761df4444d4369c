/* Prints the changes under a prefix, in an sd-event(3) loop.
 * cc sd-event.c $(pkg-config --cflags --libs libtenure libsystemd) */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <systemd/sd-event.h>
#include <tenure.h>

static int on_ready(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
        struct tenure *t = userdata;
        const struct tenure_event *e;

        (void) fd;
        (void) revents;
        if (tenure_dispatch(t) < 0)
                return sd_event_exit(sd_event_source_get_event(source), 1);
        /* Take all of them: nothing calls this again for events that are left. */
        while ((e = tenure_pop_event(t)))
                if (e->type == TENURE_PUT)
                        printf("put %s = %s at revision %lld\n", (const char *) e->kv->key,
                               (const char *) e->kv->value, (long long) e->revision);
                else if (e->type == TENURE_DELETE)
                        printf("deleted %s at revision %lld\n", (const char *) e->kv->key,
                               (long long) e->revision);
                else if (e->type == TENURE_WATCH_ENDED)
                        return sd_event_exit(sd_event_source_get_event(source), 1);
        return 0;
}

int main(int argc, char **argv)
{
        const char *prefix = argc > 1 ? argv[1] : "";
        struct tenure_watch_options o = {
                .key = prefix, .key_len = strlen(prefix), .prefix = true};
        struct tenure_call *c;
        struct tenure_watch *w;
        sd_event *loop = NULL;
        struct tenure *t;
        int r = 1;

        if (tenure_new(&t) < 0)
                return 1;
        setvbuf(stdout, NULL, _IOLBF, 0);
        if (tenure_start(t) < 0 ||
            tenure_get(t, &(struct tenure_range){.prefix = true, .count_only = true}, &c) < 0 ||
            tenure_call_wait(c, 10000) < 0)
                goto out;
        o.revision = tenure_call_revision(c) + 1;
        tenure_call_free(c);
        if (tenure_watch(t, &o, &w) < 0)
                goto out;
        printf("watching, from revision %lld on\n", (long long) o.revision);
        if (sd_event_default(&loop) < 0 ||
            sd_event_add_io(loop, NULL, tenure_get_fd(t), EPOLLIN, on_ready, t) < 0)
                goto out;
        r = sd_event_loop(loop);
out:
        if (r != 0 && *tenure_error(t))
                fprintf(stderr, "sd-event: %s.\n", tenure_error(t));
        sd_event_unref(loop);
        tenure_free(t);
        return r != 0;
}
