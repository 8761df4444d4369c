/*
 * The format of a snapshot: one table of fields for each record (snapshot.c), by which it is
 * saved and loaded, so that both agree about order, width and allowed values.
 *
 * Little endian; the store's record adds the checksum. Equal state gives equal bytes on every
 * replica (I4). A snapshot is, in this order, where `n` is a u64 that precedes a list:
 *
 *     head
 *     n lease*
 *     n key*        each followed by its versions, oldest first
 *     n member*
 *     n alarm*
 *     auth          the first snapshots end before it
 *     n user*       each followed by the names of its roles
 *     n role*       each followed by its permissions
 *     n owner*      at cluster version 0.1, nothing if no lease has one and no range is cached
 *     cached        at cluster version 0.1, nothing if no range was ever cached
 *     n range*      each followed by its issuers
 *     cluster       its version: nothing if that is 0.1
 *     descent       nothing if it was never forced to descend from another cluster
 */
#pragma once

#include "base/buf.h"
#include "state/cached.h"
#include "state/lease_past.h"

struct saved_member {
        uint64_t id;
        struct view name, client_urls;
};

struct saved_alarm {
        uint64_t member;
        uint8_t type_and_why; /* type + 16 * why */
};

struct saved_user {
        struct view name, hash;
        uint8_t no_password;
        uint64_t login, n_roles;
};

struct saved_role {
        struct view name;
        uint64_t n_permissions;
};

struct saved_permission {
        uint8_t type;
        struct view key, range_end;
};

struct saved_range {
        uint64_t serial;
        uint8_t flags;
        struct view key, range_end;
        struct lease_time awaited_at, rests_until;
        uint64_t n_issuers;
};

struct snapshot_in {
        struct view rest; /* not read yet; borrowed */
        char wrong[96];   /* what was refused */
};

/* Notes what is wrong and returns -EBADMSG. */
must_check_ int snapshot_wrong(struct snapshot_in *in, const char *fmt, ...) printf_(2, 3);

#define SNAPSHOT_RECORDS(X)                    \
        X(head, struct state)                  \
        X(lease, struct lease_then)            \
        X(key, struct kv_key)                  \
        X(versions, uint64_t)                  \
        X(version, struct kv_version)          \
        X(member, struct saved_member)         \
        X(alarm, struct saved_alarm)           \
        X(auth, struct auth)                   \
        X(user, struct saved_user)             \
        X(user_role, struct view)              \
        X(role, struct saved_role)             \
        X(permission, struct saved_permission) \
        X(owner, struct lease_then)            \
        X(cached, uint64_t)                    \
        X(range, struct saved_range)           \
        X(issuer, struct cached_issuer)        \
        X(cluster, struct state)               \
        X(descent, struct descent)

/* snapshot_save_x() appends a record x; snapshot_load_x() reads one into *@ret, which borrows
 * from the snapshot, and returns 0 or -EBADMSG: it is cut short, or a value is not allowed. Of
 * a key and of a version both pass over the bytes, which may be many and follow. */
#define DECLARE(record, type)                                           \
        void snapshot_save_##record(const type *from, struct buf *out); \
        must_check_ int snapshot_load_##record(struct snapshot_in *in, type *ret);
SNAPSHOT_RECORDS(DECLARE)
#undef DECLARE
