/*
 * What a service on a node says of itself: the JSON value of its key,
 * /tenure/<cluster>/services/<service>/<node>[/<instance>], for people with etcdctl and for
 * agents. The key hangs on the node's lease: it goes with the node. Pure.
 *
 *     {"service": "postgresql", "node": "db1", "instance": "main", "address": "10.0.0.7",
 *      "port": 5432, "tags": {"role": "primary"}, "unit": "postgresql@15-main.service",
 *      "state": "running", "invocation": "<32 hex>", "since": "2026-11-21T02:00:00Z"}
 *
 * `invocation` is another one for every start of the unit (systemd.exec(5), $INVOCATION_ID),
 * and for every program that registers: a service that was started again is another life of
 * it, even where nobody saw it down.
 */
#pragma once

#include "member/node_record.h"

#define SERVICE_NAME_MAX 63

struct service_record {
        char name[SERVICE_NAME_MAX + 1];
        char node[NODE_NAME_MAX + 1];
        char instance[SERVICE_NAME_MAX + 1]; /* "": the only one of its name on the node */
        char address[64];                    /* "": the node's */
        uint16_t port;                       /* 0: none to tell */
        char tags[TAGS_MAX];
        char unit[256]; /* "": bound to no unit */
        char invocation[64];
        char state[32]; /* the unit's SubState: running, exited, reload, ... */
        char since[32]; /* when this life of it began */
};

void service_record_write(const struct service_record *s, struct buf *out);

/* Reads a value; as node_record_read(). */
must_check_ int service_record_read(struct service_record *s, const void *p, size_t len);

/* Appends <service>/<node>[/<instance>]. */
void service_record_key(const struct service_record *s, struct buf *out);

/* The three names out of such a key. Returns 0, or -EBADMSG for what no agent wrote. */
must_check_ int service_record_read_key(struct service_record *s, struct view key);

/* A service's or an instance's name: as a node's, and shorter. */
bool service_name_is_valid(const char *name);
