/*
 * tenurectl cache KEY: prints what a libtenure program that caches the key sees
 * (tenure_cache(3)), until interrupted. Then it gives the cache lease back, as a write would
 * otherwise wait for the rest of its term.
 */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "loop/loop.h"
#include "text.h"
#include "tie.h"
#include "verbs.h"

/* A core that has not answered by then is reported. */
#define ANSWER_MS 5000

static struct view key_of(const struct tenure_kv *kv)
{
        return (struct view){kv->key, kv->key_len};
}

static struct view value_of(const struct tenure_kv *kv)
{
        return (struct view){kv->value, kv->value_len};
}

static void write_json(struct buf *b, const struct ctl *c, const struct tenure_event *e,
                       const struct timespec *now)
{
        struct json_object *o = json_object_new_object(), *keys, *key;
        const struct tenure_kv *kv;
        bool cached = e->type == TENURE_CACHED;

        json_put_text(o, "event", cached ? "Cached" : "Uncached");
        if (cached) {
                json_put_number(o, "revision", e->revision);
                keys = json_object_new_array();
                for (size_t i = 0; (kv = tenure_cache_kv(e->cache, i)); i++) {
                        key = json_object_new_object();
                        json_object_object_add(key, "key", text_json(key_of(kv)));
                        json_object_object_add(key, "value", text_json(value_of(kv)));
                        json_put_number(key, "mod_revision", kv->mod_revision);
                        json_object_array_add(keys, key);
                }
                json_object_object_add(o, "keys", keys);
        } else {
                json_put_text(o, "reason", e->reason);
        }
        json_put_time(o, now);
        text_add_json(b, o, ctl_json_flags(c));
        json_object_put(o);
}

static void write_text(struct buf *b, const struct tenure_event *e, const struct timespec *now)
{
        const struct tenure_kv *kv;
        char when[TEXT_CLOCK];

        buf_printf(b, "%s ", text_clock(now, when));
        if (e->type == TENURE_UNCACHED) {
                buf_printf(b, "not cached: ");
                text_add(b, view_str(e->reason));
                buf_add(b, "\n", 1);
                return;
        }
        buf_printf(b, "cached, as of revision %" PRId64 ": %zu key(s)\n", e->revision,
                   tenure_cache_n_kvs(e->cache));
        for (size_t i = 0; (kv = tenure_cache_kv(e->cache, i)); i++) {
                text_add(b, key_of(kv));
                buf_add(b, " = ", 3);
                text_add(b, value_of(kv));
                buf_add(b, "\n", 1);
        }
}

/* Writes a piece whenever there is room for it, so that signals are handled even if nobody
 * reads. Returns 0; 1 if a signal came; or -1 after reporting an error. */
static int put_out(const struct buf *b, int sfd)
{
        struct pollfd p[] = {{.fd = STDOUT_FILENO, .events = POLLOUT},
                             {.fd = sfd, .events = POLLIN}};
        size_t done = 0;

        while (done < buf_len(b)) {
                ssize_t n;

                if (poll(p, 2, -1) < 0 && errno == EINTR)
                        continue;
                if (p[1].revents)
                        return 1;
                n = write(STDOUT_FILENO, buf_head(b) + done,
                          min_of(buf_len(b) - done, (size_t) PIPE_BUF));
                if (n < 0 && errno != EAGAIN)
                        return ctl_fail("cannot write to standard output", -errno, NULL);
                done += (size_t) max_of(n, (ssize_t) 0);
        }
        return 0;
}

/* Returns 1 if this is the end, 0 if not, or -1 after reporting an error. */
static int on_event(const struct ctl *c, const struct tenure_event *e, int sfd)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct timespec now;
        int r;

        if (e->type != TENURE_CACHED && e->type != TENURE_UNCACHED)
                return 0;
        if (e->error < 0)
                return say("%s", e->reason);
        clock_gettime(CLOCK_REALTIME, &now);
        if (c->json == JSON_OFF)
                write_text(&b, e, &now);
        else
                write_json(&b, c, e, &now);
        if (buf_error(&b) < 0)
                return ctl_fail("cannot show it", -ENOMEM, NULL);
        /* It may have been recalled meanwhile, or have ended; that is the next event. */
        if (e->type == TENURE_CACHED && !tenure_cache_is_good(e->cache))
                return 0;
        r = put_out(&b, sfd);
        return r != 0 ? r : e->type == TENURE_CACHED && c->o.once;
}

/* Reports that no core has answered yet. Returns 0, or -1 if the command ends because of
 * that. */
static int say_silent(const struct ctl *c, const struct tenure *t)
{
        const char *why = tenure_error(t);

        say("no lease core answers%s%s%s", *why ? ": " : "", why,
            c->o.once ? "" : "; waiting for one");
        return c->o.once ? -1 : 0;
}

static int follow(const struct ctl *c, struct tenure *t, int sfd)
{
        struct pollfd p[] = {{.fd = tenure_get_fd(t), .events = POLLIN},
                             {.fd = sfd, .events = POLLIN}};
        struct boot_time silent = boot_add(boot_now(), ANSWER_MS * NSEC_PER_MSEC);
        const struct tenure_event *e;
        int timeout, r = 0;

        while (r == 0 && p[1].revents == 0) {
                if (tenure_dispatch(t) < 0)
                        return tie_fail(t);
                while (r == 0 && (e = tenure_pop_event(t))) {
                        silent = BOOT_TIME_NEVER;
                        r = on_event(c, e, sfd);
                }
                if (r == 0 && !boot_before(boot_now(), silent)) {
                        silent = BOOT_TIME_NEVER;
                        r = say_silent(c, t);
                }
                timeout = tenure_get_timeout(t);
                if (timeout < 0 && boot_before(silent, BOOT_TIME_NEVER))
                        timeout = ANSWER_MS;
                if (r == 0 && poll(p, 2, timeout) < 0 && errno != EINTR)
                        return ctl_fail("cannot wait", -errno, NULL);
        }
        return r;
}

int verb_cache(struct ctl *c, int argc unused_, char **argv)
{
        struct tenure_range q = {
                .key = argv[0], .key_len = strlen(argv[0]), .prefix = c->o.prefix};
        struct tenure_cache *cache;
        struct tenure *t;
        sigset_t ends;
        int r, sfd;

        signal(SIGPIPE, SIG_IGN); /* or the cache lease would not be given back */
        sigemptyset(&ends);
        sigaddset(&ends, SIGINT);
        sigaddset(&ends, SIGTERM);
        sigaddset(&ends, SIGHUP);
        sigprocmask(SIG_BLOCK, &ends, NULL);
        sfd = signalfd(-1, &ends, SFD_CLOEXEC);
        if (sfd < 0)
                return ctl_fail("cannot wait for signals", -errno, NULL);
        r = tie_new(c, &t);
        if (r == 0) {
                r = tenure_cache(t, &q, &cache) < 0 ? tie_fail(t) : follow(c, t, sfd);
                tenure_free(t);
        }
        close(sfd);
        return r < 0 ? -1 : 0;
}
