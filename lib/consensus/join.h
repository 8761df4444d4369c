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
        const char *urls;      /* of the other members, joined by commas */
        const char *self;      /* one of our peer URLs, as configured */
        const char *self_urls; /* all of them, joined by commas, and ... */
        const char *name;      /* ... our name; NULL: not known, and nothing is replaced */
        bool replace;       /* if this member had another directory, ask for its replacement */
        uint64_t directory; /* the id of our data directory; 0: it has none yet */
        struct tls *tls;    /* for https://; borrowed */
        const struct admission *admission; /* borrowed */
};

/* Called once with the result, and no reason; before that, for each failed attempt, with the
 * reason, and with NULL, or only the cluster, if the member has another directory there. May
 * call join_free(). */
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

/* A replica whose directory is empty asks to be put in the place of the member at its URLs,
 * which had another one. The request is REPLACE_MAGIC, the lengths of URLs and name (u64 each),
 * the URLs, joined by commas, and the name. The answer is its length (u32), and a clause for
 * people that says what is done about it. Which id the replica has then, it learns by a request
 * as above. Only a member that has refused such a one is asked: it is of 0.2.0 or later. */
#define REPLACE_MAGIC "TENREPL1"
#define REPLACE_NAME_MAX 128
#define JOIN_HEAD 24 /* of both requests */

/* For the side that serves them: */
struct join_request {
        bool replace;
        uint64_t directory;          /* unless it is to be replaced */
        char urls[URLS_MAX];         /* one URL; to be replaced, all of them */
        char name[REPLACE_NAME_MAX]; /* to be replaced */
};

/* Whether @n bytes, 8 at most, are how a request begins. */
bool join_begins(const uint8_t *p, size_t n);

/* Reads one. Returns 0; 1: it has not arrived completely; or -EBADMSG. */
must_check_ int join_read(struct view in, struct join_request *ret);

void replace_request(const char *urls, const char *name, struct buf *out);
void replace_answer(const char *clause, struct buf *out);
void join_answer(const struct joined *who, struct buf *out);
