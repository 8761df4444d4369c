/*
 * What a node publishes about itself: the JSON value of its key,
 * /tenure/<cluster>/nodes/<name>, for agents, and for people with etcdctl. Pure.
 *
 *     {"name": "web1", "id": "<32 hex>", "incarnation": "<32 hex>", "boot_id": "<32 hex>",
 *      "since": "2026-11-21T02:00:00Z", "ttl_ms": 10000, "version": "0.1.0",
 *      "os_release": "Debian GNU/Linux 12 (bookworm)",
 *      "addresses": ["10.0.0.7"], "tags": {"zone": "a"}, "degraded": "memory pressure 71 %",
 *      "leaving": "left", "leaving_note": "new kernel"}
 *
 * `degraded` is there only while something slows the host down, and `leaving` only while the
 * node gives its place back; both say why. `leaving_note` is what who ordered that has said.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "member/tags.h"

#define NODE_NAME_MAX 255
#define NODE_ADDRESSES_MAX 256
#define LEAVING_NOTE_MAX 127

struct node_record {
        char name[NODE_NAME_MAX + 1];
        char id[64];
        char incarnation[64];
        char boot_id[64];
        char since[32];
        char version[32];
        char os_release[96]; /* the host's system, for people */
        char leaving[32];    /* "" while it stays */
        char leaving_note[LEAVING_NOTE_MAX + 1];
        char degraded[96]; /* "" while it is well */
        int64_t ttl_ms;
        char addresses[NODE_ADDRESSES_MAX]; /* separated by commas, the preferred one first */
        char tags[TAGS_MAX];
};

void node_record_write(const struct node_record *n, struct buf *out);

/* Whether both records have the same content. */
bool node_record_same(const struct node_record *a, const struct node_record *b);

/* Reads a value. A field that is missing, or of the wrong type, stays empty. Returns 0, or
 * -EBADMSG if the value is not a JSON object of at most RECORD_MAX bytes. */
must_check_ int node_record_read(struct node_record *n, const void *p, size_t len);

/* Whether the note fits, and is one line of text, or "". */
bool leaving_note_is_valid(const char *note);

/* Whether the name can be a part of a key and of a line: 1 to NODE_NAME_MAX letters, digits and
 * . _ - : without a leading dot; a superset of hostname(7). */
bool node_name_is_valid(const char *name);
