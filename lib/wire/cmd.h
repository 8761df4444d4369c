/*
 * The content of a log entry: one or more commands, in the order in which they are applied.
 *
 *     command = type:u8  origin:varint  seq:varint  [user:bytes login:varint]  [quota:varint]
 *               body:bytes
 *
 * With bit 7 of `type` set the command names the user that requested it; without it the command
 * is the core's own, which is permitted everything. With bit 6 set it may be applied only if
 * the state stays below `quota` bytes: the quota of the origin, so that all replicas apply the
 * same one whatever their own settings. `origin` is the replica that took the request and
 * answers it when the command is applied there; `seq` is that replica's number for it. Requests
 * of clients travel as their own protobuf bytes, so that every replica applies exactly what was
 * asked. RENEW and EXPIRE name leases by their dense slot, delta-coded: 10,000 renewals are 10
 * to 13 KB. Pure: bytes in, bytes out.
 */
#pragma once

#include "base/buf.h"
#include "base/version.h"

enum cmd_type {
        CMD_PUT = 1,      /* PutRequest */
        CMD_DELETE_RANGE, /* DeleteRangeRequest */
        CMD_TXN,          /* TxnRequest */
        CMD_COMPACT,      /* CompactionRequest */
        CMD_GRANT,        /* LeaseGrantRequest: ID chosen, ttl_ms final */
        CMD_REVOKE,       /* LeaseRevokeRequest */
        CMD_RENEW,        /* cmd_renew_begin() below */
        CMD_EXPIRE,       /* cmd_expire_add() below */
        CMD_TICK,         /* nothing; its entry carries the lease time */
        CMD_MEMBER,       /* Member: what a replica says of itself: name and client URLs. From
                           * cluster version 0.2 on, without both: it is no member any more */
        CMD_ALARM,        /* AlarmRequest */
        CMD_AUTH,         /* AuthChange */
        CMD_CACHE,        /* CacheTerm */
        CMD_UNCACHE,      /* cmd_uncache() below */
        CMD_RENEW_AHEAD,  /* as CMD_RENEW, but the terms begin later */
        CMD_VERSION,      /* cmd_version() below */
        CMD_DESCEND,      /* cmd_descend() below */
        CMD_LAST_ = CMD_DESCEND,
};

static inline bool cmd_is_renewal(enum cmd_type type)
{
        return type == CMD_RENEW || type == CMD_RENEW_AHEAD;
}

/* The user that made the request, as the replica that took it knows. Permissions are checked
 * where the command is applied. */
struct cmd_user {
        struct view name; /* empty: a client that is not logged in */
        uint64_t login;   /* struct auth_user; 0: by certificate, which ends by itself */
};

struct cmd {
        enum cmd_type type;
        uint64_t origin;
        uint64_t seq;
        bool by_user; /* `user` counts */
        struct cmd_user user;
        uint64_t quota;   /* 0: none */
        struct view body; /* borrowed, as the user's name is */
};

/* @user NULL: the core itself. @quota 0: none. */
void cmd_append(struct buf *b, enum cmd_type type, uint64_t origin, uint64_t seq,
                const struct cmd_user *user, uint64_t quota, const void *body, size_t body_len);

/* Takes the next command off @entry; the command borrows from its bytes. Returns 0, -ENODATA at
 * the end, -ENOTSUP if a program that knows cluster versions up to @newest cannot apply it, or
 * -EBADMSG. */
must_check_ int cmd_next(struct view *entry, uint32_t newest, struct cmd *ret);

/* Checks whether cmd_next() accepts all commands of @entry. Returns 0, or the error for the
 * first that it does not accept. */
must_check_ int cmd_check(struct view entry, uint32_t newest);

/*
 * RENEW = as_of:varint, then for each lease a varint: slot delta * 64 + age. The slots must
 * ascend. `as_of` is the log index that the origin had applied when it looked the slots up: a
 * slot given to another lease later than that is skipped at apply. `age` is how many
 * milliseconds, rounded down, the renewal had waited for its batch: the term begins that much
 * earlier. RENEW_AHEAD has the same form; its terms begin so many milliseconds later.
 */
#define CMD_AGE_MAX 63

struct cmd_slots {
        uint32_t last; /* the slot before, plus one */
};

void cmd_renew_begin(struct buf *b, struct cmd_slots *s, uint64_t as_of);
void cmd_renew_add(struct buf *b, struct cmd_slots *s, uint32_t slot, unsigned age_ms);
must_check_ int cmd_renew_start(struct view *body, struct cmd_slots *s, uint64_t *ret_as_of);
must_check_ int cmd_renew_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                               unsigned *ret_age_ms); /* -ENODATA: end */

/* EXPIRE = pairs of slot delta and the log index of the last renewal that the proposer had
 * seen; at apply the lease goes only if that index still stands (I1, A1). */
void cmd_expire_add(struct buf *b, struct cmd_slots *s, uint32_t slot, uint64_t renewed);
must_check_ int cmd_expire_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                                uint64_t *ret_renewed); /* -ENODATA: end */

/* UNCACHE = the cached range, the issuer, and the end of the term that is given back
 * (state/cached.h). */
void cmd_uncache(struct buf *b, uint64_t serial, uint64_t issuer, uint64_t until);
must_check_ int cmd_uncache_read(struct view body, uint64_t *ret_serial, uint64_t *ret_issuer,
                                 uint64_t *ret_until);

/* VERSION = the cluster version from now on; ignored unless that is later than the present
 * one. */
void cmd_version(struct buf *b, uint32_t version);
must_check_ int cmd_version_read(struct view body, uint32_t *ret_version);

/* DESCEND = the cluster to which the log belongs from now on, and the one from which it was
 * forced to descend. */
void cmd_descend(struct buf *b, uint64_t cluster, uint64_t ancestor);
must_check_ int cmd_descend_read(struct view body, uint64_t *ret_cluster,
                                 uint64_t *ret_ancestor);
