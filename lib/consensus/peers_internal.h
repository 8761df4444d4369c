/* What the files of the links share: peers.c has the ports and all links, peers_out.c those
 * that we make, and peers_in.c those that are made to us. A link of one kind decides when one
 * of the other kind is made or ends. */
#pragma once

#include <bsd/sys/queue.h>

#include "consensus/link_window.h"
#include "consensus/peers.h"

#define PEERS_MAGIC "TENPEER1"
#define PEERS_GREETING 24 /* bytes: magic, cluster, member */
#define PEERS_NOTICE 13   /* a frame: length, its type, a number */
#define LISTENERS_MAX 8

struct peers {
        struct loop *loop;
        struct resolver *resolver;
        struct peers_config cfg;
        const struct peers_ops *ops;
        void *userdata;
        struct port {
                struct peers *peers;
                struct listener *listener;
                bool tls;
        } ports[LISTENERS_MAX];
        size_t n_ports;
        bool stopped;
        LIST_HEAD(, link_out) out;
        LIST_HEAD(, link_in) in;
};

/* Logs a refusal, the same one at most once a minute. */
void peers_refuse(struct peers *p, const char *kind, uint64_t id, const char *at,
                  const char *why);

/* ---- peers_out.c ---- */

struct link_out {
        LIST_ENTRY(link_out) next;
        struct peers *peers;
        uint64_t id;
        char urls[URLS_MAX];
        const char *next_url; /* into urls: the URL to try next */
        struct url url;
        struct dial dial;
        struct stream *stream; /* NULL until it is connected */
        bool open;
        struct boot_time opened_at;
        struct buf rx;           /* bytes of an answer, which can only be a refusal */
        struct loop_timer retry; /* when to connect again; while connecting, when to give up */
        nsec_t backoff;
        struct peers_losses losses;
        struct link_window window;
};

/* Our link to member @id, made or not; NULL: it is not a member as far as we know. */
struct link_out *peers_out_of(const struct peers *p, uint64_t id);
void peers_out_free(struct link_out *o);

/* A peer that connects to us can be reached: connects to it without delay. An attempt that
 * began before that may wait for TCP to repeat what was lost then. If the peer was @cut_off,
 * our link to it may be half open, and what is sent on it lost: makes it anew, unless it was
 * just made, or the two ends would do so by turns. */
void peers_out_hurry(struct link_out *o, bool cut_off);

/* ---- peers_in.c ---- */

enum caller {
        CALLER_UNKNOWN, /* it has not said who it is */
        CALLER_MEMBER,
        CALLER_ANSWERED /* no member: it got its answer, and what else it sends is ignored */
};

struct link_in {
        LIST_ENTRY(link_in) next;
        struct peers *peers;
        struct stream *stream;
        enum caller caller;
        bool reading, freed; /* peers_in_free() waits for the reader of `rx` to return */
        uint64_t id;
        bool introduced; /* its first frame has arrived, and was accepted ... */
        char program[sizeof(((struct introduction *) 0)->program)]; /* ... and said this */
        struct buf rx;
        struct loop_timer timeout;
};

/* The owner may end all links while it handles a frame of one, whose reader is still
 * running. */
void peers_in_free(struct link_in *i);

/* Handles a peer that is not a member: it is notified, if that is certain, and its frames are
 * ignored. Returns false if the link has ended. */
bool peers_in_refuse(struct link_in *i);

/* Takes a connection of a port (loop/listener.h). */
void peers_in_accept(int fd, void *port);
