/*
 * The record that a service on a node publishes: the JSON value of its key,
 * /tenure/<cluster>/services/<service>/<node>[/<instance>], for agents, and for operators with
 * etcdctl. The key is attached to the node's lease, and ends with it. Pure.
 *
 *     {"service": "postgresql", "node": "db1", "instance": "main", "address": "10.0.0.7",
 *      "port": 5432, "tags": {"role": "primary"}, "unit": "postgresql@15-main.service",
 *      "state": "running", "invocation": "<32 hex>", "since": "2026-11-21T02:00:00Z"}
 *
 * `invocation` is different for every start of the unit (systemd.exec(5), $INVOCATION_ID) and
 * for every program that registers. So a service that was restarted is a new life of it, even
 * if nobody saw it down.
 */
#pragma once

#include "member/node_record.h"

#define SERVICE_NAME_MAX 63

struct service_record {
        char name[SERVICE_NAME_MAX + 1];
        char node[NODE_NAME_MAX + 1];
        char instance[SERVICE_NAME_MAX + 1]; /* "": the only one of its name on the node */
        char address[64];                    /* "": the node's */
        uint16_t port;                       /* 0: none */
        char tags[TAGS_MAX];
        char unit[256]; /* "": not bound to a unit */
        char invocation[64];
        char state[32]; /* the unit's SubState: running, exited, reload, ... */
        char since[32]; /* when this life of the service began */
};

void service_record_write(const struct service_record *s, struct buf *out);

/* Reads a value, as node_record_read() does. */
must_check_ int service_record_read(struct service_record *s, const void *p, size_t len);

/* Appends <service>/<node>[/<instance>]. */
void service_record_key(const struct service_record *s, struct buf *out);

/* Reads the three names from such a key. Returns 0, or -EBADMSG if no agent can have written
 * it. */
must_check_ int service_record_read_key(struct service_record *s, struct view key);

/* Whether the name can be that of a service or an instance: as a node's, but shorter. */
bool service_name_is_valid(const char *name);

/* Whether the address fits, and is one word of text, or "". */
bool service_address_is_valid(const char *address);
