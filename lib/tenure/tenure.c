/* The tie: its settings, its start, and waiting. */
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/utf8.h"
#include "tenure/calls.h"
#include "tenure/internal.h"

int tenure_fail(struct tenure *t, int r, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        utf8_vprint(t->error, sizeof(t->error), fmt, ap);
        va_end(ap);
        return r;
}

int tenure_draw(struct tenure *t, void *to, size_t n)
{
        if (getentropy(to, n) == 0)
                return 0;
        return tenure_fail(t, -errno, "cannot draw a random number: %s", strerror(errno));
}

int tenure_draw_id(struct tenure *t, char to[static DRAWN_ID])
{
        uint64_t n[2];
        int r = tenure_draw(t, n, sizeof(n));

        if (r == 0)
                snprintf(to, DRAWN_ID, "%016" PRIx64 "%016" PRIx64, n[0], n[1]);
        return r;
}

const char *tenure_error(const struct tenure *t)
{
        if (*t->error || !t->client)
                return t->error;
        return member_trouble(client_member(t->client));
}

const char *tenure_version(void)
{
        return TENURE_VERSION;
}

/* ---- waiting ---- */

void tenure_wake(struct tenure *t)
{
        if (!t->awake)
                t->awake = eventfd_write(t->wake_fd, 1) == 0;
}

static void on_wake(struct loop_io *io, int events)
{
        struct tenure *t = container_of(io, struct tenure, wake);
        eventfd_t n;

        (void) events;
        (void) !eventfd_read(t->wake_fd, &n);
        t->awake = false;
}

int tenure_get_fd(const struct tenure *t)
{
        return t->fd;
}

int tenure_get_timeout(const struct tenure *t)
{
        return TAILQ_EMPTY(&t->events) ? -1 : 0;
}

int tenure_dispatch(struct tenure *t)
{
        if (!tenure_is_ours(t))
                return tenure_fail(t, -ECHILD,
                                   "the tie belongs to the parent of this process, and cannot "
                                   "be used here");
        if (t->broken < 0)
                return tenure_fail(t, t->broken,
                                   "out of memory: changes were lost; free this tie and make "
                                   "another one");
        hold_came_back(t);
        if (loop_dispatch(t->loop))
                tenure_wake(t);
        return 0;
}

int tenure_wait(struct tenure *t, int timeout_ms)
{
        struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};
        struct boot_time until = timeout_ms < 0
                                         ? BOOT_TIME_NEVER
                                         : boot_add(boot_now(), timeout_ms * NSEC_PER_MSEC);

        for (;;) {
                nsec_t left;
                int r = tenure_dispatch(t);

                if (r < 0)
                        return r;
                if (!TAILQ_EMPTY(&t->events))
                        return 1;
                left = timeout_ms < 0 ? -1 : boot_diff(until, boot_now());
                if (timeout_ms >= 0 && left <= 0)
                        return 0;
                r = poll(&p, 1,
                         timeout_ms < 0 ? -1
                                        : (int) ((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC));
                if (r < 0 && errno != EINTR)
                        return tenure_fail(t, -errno, "cannot wait: %s", strerror(errno));
        }
}

/* ---- settings ---- */

static int set(struct tenure *t, char **field, const char *value)
{
        char *copy = NULL;

        if (t->started)
                return tenure_fail(t, -EBUSY,
                                   "set the tie's endpoints and credentials before "
                                   "tenure_start(), not after it");
        if (value) {
                copy = strdup(value);
                if (!copy)
                        return tenure_fail(t, -ENOMEM, "out of memory");
        }
        free(*field);
        *field = copy;
        return 0;
}

int tenure_set_endpoints(struct tenure *t, const char *urls)
{
        return set(t, &t->endpoints, urls);
}

int tenure_set_cluster(struct tenure *t, const char *name)
{
        if (name && !node_name_is_valid(name))
                return tenure_fail(
                        t, -EINVAL,
                        "a cluster's name has 1 to 255 letters, digits and . _ - :, without a "
                        "leading dot; '%s' is not one",
                        name);
        return set(t, &t->cluster, name);
}

int tenure_set_tls(struct tenure *t, const char *ca, const char *cert, const char *key)
{
        int r;

        if (!cert != !key)
                return tenure_fail(
                        t, -EINVAL,
                        "a certificate and its key are given together; one of them is missing");
        r = set(t, &t->ca, ca);
        if (r == 0)
                r = set(t, &t->cert, cert);
        return r < 0 ? r : set(t, &t->key, key);
}

int tenure_set_user(struct tenure *t, const char *name, const char *password)
{
        int r;

        if (name && !password)
                return tenure_fail(t, -EINVAL, "user '%s' has no password", name);
        r = set(t, &t->user, name);
        return r < 0 ? r : set(t, &t->password, name ? password : NULL);
}

/* ---- ---- */

static int make_tls(struct tenure *t, const char *endpoints)
{
        struct tls_files files = {.cert = t->cert, .key = t->key, .ca = t->ca, .http2 = true};
        struct tls_error err;
        int r;

        if (!strstr(endpoints, "https://") && !strstr(endpoints, "unixs:") && !t->ca &&
            !t->cert)
                return 0;
        r = tls_new_client(&t->tls, &files, &err);
        return r < 0 ? tenure_fail(t, r, "%s", r == -ENOMEM ? "out of memory" : err.text) : 0;
}

const char *tenure_cluster(const struct tenure *t)
{
        return t->cluster ? t->cluster : t->agent.core ? t->agent.core_cluster : "default";
}

/* Stands for the endpoint until the agent has reported it. */
#define NOWHERE "http://0.0.0.0:0"

int tenure_core_is_at(struct tenure *t, const char *cluster, const char *urls)
{
        int r = t->cluster ? 0 : member_set_cluster(client_member(t->client), cluster);

        if (r < 0)
                return tenure_fail(t, r, "out of memory");
        r = t->tls ? 0 : make_tls(t, urls);
        return r < 0 ? r : client_set_endpoints(t->client, urls, t->tls);
}

int tenure_start(struct tenure *t)
{
        const char *given = t->endpoints ? t->endpoints : getenv("TENURE_ENDPOINTS"),
                   *endpoints = given && *given ? given : NOWHERE;
        struct client_config cfg = {.cluster = t->cluster ? t->cluster : "default",
                                    .endpoints = endpoints,
                                    .user = t->user,
                                    .password = t->password,
                                    .observe = true,
                                    .no_view = t->follow == 0};
        char err[512];
        int r;

        if (t->started)
                return tenure_fail(t, -EBUSY, "this tie was started before");
        t->agent.core = endpoints != given;
        r = hold_configure(t, &cfg);
        if (r == 0)
                r = tenure_draw(t, &cfg.seed, sizeof(cfg.seed));
        if (r == 0)
                r = make_tls(t, endpoints);
        if (r < 0)
                return r;
        cfg.tls = t->tls;
        r = client_new(&t->client, t->loop, &cfg, &follow_events, t, err, sizeof(err));
        if (r < 0) {
                t->tls = tls_free(t->tls);
                return tenure_fail(t, r, "%s", err);
        }
        t->started = true;
        calls_start(t);
        hold_start(t);
        locks_start(t);
        works_start(t);
        if (t->agent.core || t->agent.place)
                agent_start(t);
        tenure_wake(t);
        return register_start(t);
}

static int mark_process(struct tenure *t)
{
        size_t page = (size_t) sysconf(_SC_PAGESIZE);
        void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int r;

        if (p == MAP_FAILED)
                return -errno;
        if (madvise(p, page, MADV_WIPEONFORK) < 0) {
                r = -errno;
                munmap(p, page);
                return r;
        }
        t->ours = p;
        *t->ours = 1;
        return 0;
}

int tenure_new(struct tenure **ret)
{
        struct tenure *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return -ENOMEM;
        TAILQ_INIT(&t->events);
        agent_init(t);
        t->wake_fd = -1;
        r = mark_process(t);
        if (r == 0)
                r = loop_new(&t->loop);
        if (r == 0)
                r = t->fd = loop_nest(t->loop);
        if (r >= 0) {
                t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
                r = t->wake_fd < 0 ? -errno : 0;
        }
        if (r >= 0)
                r = calls_new(t);
        if (r >= 0)
                r = watches_new(t);
        if (r >= 0)
                r = caches_new(t);
        if (r < 0) {
                tenure_free(t);
                return r;
        }
        loop_io_start(&t->wake, t->loop, t->wake_fd, EV_READ, on_wake);
        tenure_wake(t);
        *ret = t;
        return 0;
}

struct tenure *tenure_free(struct tenure *t)
{
        if (!t)
                return NULL;
        if (t->loop && !tenure_is_ours(t))
                loop_leave_to_parent(t->loop);
        works_fini(t);
        locks_fini(t);
        switchings_stop(t);
        watches_stop(t);
        caches_stop(t);
        calls_stop(t);
        hold_fini(t);
        agent_fini(t);
        client_free(t->client);
        tls_free(t->tls);
        watches_free(t);
        caches_free(t);
        calls_free(t);
        queue_fini(t);
        if (t->wake_fd >= 0) {
                loop_io_stop(&t->wake);
                close(t->wake_fd);
        }
        loop_free(t->loop);
        free(t->endpoints);
        free(t->cluster);
        free(t->ca);
        free(t->cert);
        free(t->key);
        free(t->user);
        secret_free(t->password);
        if (t->ours)
                munmap(t->ours, (size_t) sysconf(_SC_PAGESIZE));
        free(t);
        return NULL;
}
