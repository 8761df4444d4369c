#include "tenure/call_stream.h"

#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC

void call_stream_init(struct call_stream *s, struct tenure *t)
{
        *s = (struct call_stream){.tenure = t, .backoff = RETRY_MIN};
}

bool call_stream_begin(struct call_stream *s, const char *path,
                       const struct rpc_handler *handler, void *userdata, struct boot_time now)
{
        struct tenure *t = s->tenure;
        size_t i;

        if (boot_before(now, s->retry_at) || !calls_endpoint(t, now, &i))
                return false;
        if (rpc_call_new(client_rpc(t->client, i), path, true, handler, userdata, &s->call) <
            0) {
                calls_avoid(t, i);
                call_stream_try_again(s);
                return false;
        }
        s->endpoint = i;
        return true;
}

int call_stream_send(struct call_stream *s, const ProtobufCMessage *q)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r;

        pb_append(&b, q);
        r = buf_error(&b);
        if (r == 0)
                r = rpc_call_send(s->call, b.data, buf_len(&b));
        client_kick(s->tenure->client, s->endpoint);
        return r;
}

int call_stream_heard(struct call_stream *s, const Pb__ResponseHeader *h, bool no_revision)
{
        struct member *m = client_member(s->tenure->client);
        unsigned worlds = member_worlds(m);

        if (!member_header_is_sane(h) && !(no_revision && h && h->revision == 0))
                return -EBADMSG;
        if (!member_answered(m, s->endpoint, h) || worlds != member_worlds(m))
                return -EXDEV; /* from another core: calls_run() handles that */
        return 0;
}

void call_stream_works(struct call_stream *s)
{
        s->backoff = RETRY_MIN;
}

void call_stream_leave(struct call_stream *s)
{
        if (!s->call)
                return;
        rpc_call_cancel(s->call); /* its on_close() sets s->call */
        client_kick(s->tenure->client, s->endpoint);
}

void call_stream_try_again(struct call_stream *s)
{
        struct boot_time now = loop_now(s->tenure->loop);

        if (boot_diff(now, s->retry_at) >= RETRY_MAX) /* the last stream worked for a while */
                s->backoff = RETRY_MIN;
        s->retry_at = boot_add(now, s->backoff);
        s->backoff = min_of(2 * s->backoff, RETRY_MAX);
        calls_soon(s->tenure);
}

void call_stream_go_elsewhere(struct call_stream *s)
{
        calls_avoid(s->tenure, s->endpoint);
        call_stream_leave(s);
        call_stream_try_again(s);
}

void call_stream_silent(struct call_stream *s, size_t i)
{
        if (s->call && s->endpoint == i)
                call_stream_leave(s);
}
