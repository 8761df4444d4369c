/* The results of calls, and waiting for them. */
#include <limits.h>
#include <poll.h>

#include "tenure/calls.h"

int tenure_call_result(const struct tenure_call *c)
{
        return c->result;
}

const char *tenure_call_error(const struct tenure_call *c)
{
        if (c->result == 0 || c->result == -EINPROGRESS)
                return "";
        return c->says ? c->says : strerror(-c->result);
}

int64_t tenure_call_revision(const struct tenure_call *c)
{
        return c->revision;
}

size_t tenure_call_n_kvs(const struct tenure_call *c, size_t op)
{
        return op < c->n_found ? c->found[op].n : 0;
}

const struct tenure_kv *tenure_call_kv(const struct tenure_call *c, size_t op, size_t i)
{
        return i < tenure_call_n_kvs(c, op) ? &c->found[op].kvs[i] : NULL;
}

int64_t tenure_call_count(const struct tenure_call *c, size_t op)
{
        return op < c->n_found ? c->found[op].count : 0;
}

int64_t tenure_call_lease(const struct tenure_call *c)
{
        return c->lease;
}

int64_t tenure_call_ttl_ms(const struct tenure_call *c)
{
        return c->ttl_ms;
}

const char *tenure_call_lease_name(const struct tenure_call *c)
{
        return c->name ? c->name : "";
}

/* ---- waiting ---- */

static int wait_more(struct tenure *t, const struct tenure_call *c, int timeout_ms)
{
        struct boot_time until = timeout_ms < 0
                                         ? BOOT_TIME_NEVER
                                         : boot_add(boot_now(), timeout_ms * NSEC_PER_MSEC);
        struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

        for (;;) {
                nsec_t left;
                int r = tenure_dispatch(t);

                if (c->result != -EINPROGRESS)
                        return c->result;
                if (r < 0)
                        return r;
                left = timeout_ms < 0 ? -1 : boot_diff(until, boot_now());
                if (timeout_ms >= 0 && left <= 0)
                        return tenure_fail(t, -ETIMEDOUT, "no answer yet");
                r = poll(&p, 1,
                         timeout_ms < 0
                                 ? -1
                                 : (int) min_of((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC,
                                                (nsec_t) INT_MAX));
                if (r < 0 && errno != EINTR)
                        return tenure_fail(t, -errno, "cannot wait: %s", strerror(errno));
        }
}

int tenure_call_wait(struct tenure_call *c, int timeout_ms)
{
        struct tenure *t = call_tenure(c);
        int r;

        if (!t->started)
                return tenure_fail(t, -ENOTCONN,
                                   "call tenure_start() first: without it no call is answered");
        if (c->result != -EINPROGRESS) {
                if (c->event) {
                        queue_take_back(t, c->event);
                        c->event = NULL;
                }
                r = c->result;
        } else {
                c->waits = true;
                r = wait_more(t, c, timeout_ms);
                c->waits = false;
        }
        if (c->result != -EINPROGRESS && r < 0)
                return tenure_fail(t, r, "%s", tenure_call_error(c));
        return r == -ETIMEDOUT ? tenure_fail(t, r, "no answer yet") : r;
}
