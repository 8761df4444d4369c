/*
 * Lets a replica that others have added learn its id: it asks any of them, on their peer port,
 * which member has its URL.
 *
 * Tries the given URLs in turn until a replica knows it. Runs on the caller's loop.
 */
#pragma once

#include "base/buf.h"
#include "consensus/admission.h"
#include "consensus/replica.h"
#include "loop/dial.h"

/* What the other members know. */
struct joined {
        uint64_t cluster_id, member_id; /* 0: none, or one that has another directory */
        struct {
                uint64_t id;
                char urls[URLS_MAX];  /* joined by commas */
        } members[REPLICA_PEERS_MAX]; /* all members, including the one that joins */
        size_t n_members;
};

struct join;

struct join_config {
        const char *urls;   /* of the other members, joined by commas */
        const char *self;   /* one of our peer URLs, as configured */
        uint64_t directory; /* the id of our data directory; 0: it has none yet */
        struct tls *tls;    /* for https://; borrowed */
        const struct admission *admission; /* borrowed */
};

/* Called once with the result; before that, for each failed attempt, with NULL and the reason.
 * May call join_free(). */
typedef void (*join_fn)(void *userdata, const struct joined *who, const char *why);

must_check_ int join_new(struct join **ret, struct loop *l, struct resolver *rv,
                         const struct join_config *cfg, join_fn fn, void *userdata);
struct join *join_free(struct join *j);
DEFINE_CLEANUP(struct join *, join_free)

/* The request is JOIN_MAGIC, the length of the URL (u64), the id of the directory (u64; 0: none
 * yet), and the URL. The answer is the length of the rest (u32), cluster and member (u64), and
 * for each member its id (u64) and its URLs, joined by commas (preceded by their length,
 * varint). */
#define JOIN_MAGIC "TENJOIN1"
#define JOIN_URL_MAX 320

/* Writes the answer, for the side that serves it. */
void join_answer(const struct joined *who, struct buf *out);
