/* A single replica with its services, on a disk in memory, and clients of several addresses:
 * both sides of their connections are the real ones, without sockets. Time advances with each
 * turn; a password is hashed when the test says so, and its hash is the password itself. */
#pragma once

#include "etcd/api.h"
#include "rpc/conn.h"
#include "test.h"

#define RIG_TURN NSEC_PER_MSEC

struct rig_conn {
        struct rpc_conn *client, *server;
        size_t takes; /* bytes that the client reads in a turn; 0: it does not read */
        struct api_turn turn;
        struct rpc_account *account; /* its address's */
        struct party *party;
};

/* The caller's, for as long as the connection or the call lives. */
struct rig_call {
        unsigned messages;
        size_t bytes;       /* of them */
        struct buf message; /* the last one */
        bool over;
        enum rpc_code code;
        char text[128];
        struct rpc_call *call; /* NULL once it is over */
        /* Of each message; may be NULL. Set after rig_open(). */
        void (*got)(struct rig_call *call, struct view message);
};

struct rig {
        struct core *core;
        struct api *api;
        struct boot_time now;
        struct rpc_account account; /* of all connections */
        size_t most_held;           /* of it, after any turn */
        unsigned idle;              /* turns in which the server waited for something */
        nsec_t longest; /* processor time of what the server did without a break, since this
                           was last set to 0; if rig_measures */
};
extern struct rig rig;
extern bool rig_measures; /* which takes longer than most turns */

void rig_begin(void);
void rig_end(void);

/* A connection from the address of that number, below 8. */
struct rig_conn *rig_connect(unsigned address);
void rig_disconnect(struct rig_conn *c);

/* Asks, with one message, and may go on. */
void rig_open(struct rig_conn *c, struct rig_call *call, const char *path,
              const ProtobufCMessage *m);
/* Asks, with one message. */
void rig_ask(struct rig_conn *c, struct rig_call *call, const char *path,
             const ProtobufCMessage *m);
void rig_forget(struct rig_call *call);

void rig_turn(void);
/* Turns until it is over, @max of them at most. */
void rig_wait(struct rig_call *call, unsigned max);

/* Hashes the next password; false when none waits. */
bool rig_hash(void);

/* Puts a key, past the log. */
void rig_put(const char *key, size_t value_len);
/* Compacts up to now, past the log. */
void rig_compact(void);
