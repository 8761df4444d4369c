/* In place of what loop/stream.c says of TLS: the streams of sockets.c have none, and so no
 * certificates. */
#include "loop/stream.h"

bool stream_is_greeting(const struct stream *s)
{
        (void) s;
        return false;
}

bool stream_was_refused(const struct stream *s)
{
        (void) s;
        return false;
}

bool stream_is_secure(const struct stream *s)
{
        (void) s;
        return false;
}

bool stream_peer_is(const struct stream *s, const char *host)
{
        (void) s;
        (void) host;
        return false;
}

bool stream_peer_serves(const struct stream *s)
{
        (void) s;
        return false;
}

const char *stream_peer_subject(const struct stream *s, char *out, size_t size)
{
        (void) s;
        (void) size;
        out[0] = '\0';
        return out;
}

const char *stream_peer_name(struct stream *s)
{
        (void) s;
        return NULL;
}
