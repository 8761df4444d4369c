/*
 * Three replicas on a virtual network, each of which may get any frame: genuine ones, and
 * changed, forged, lost, duplicated or late ones. A replica may refuse a frame, and may end
 * itself by `fatal` on a frame that contradicts what it knows; it may not crash, nor go on for
 * ever. As long as nothing was forged, all reach the same state.
 */
#include <raft.h>
#include <stdio.h>

#include "../whole.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "consensus/message.h"
#include "core/core.h"
#include "disk.h"
#include "fuzz.h"
#include "invariants.h"

#define N 3
#define FRAMES_MAX 256
#define MSEC NSEC_PER_MSEC

enum op {
        OP_TIME,
        OP_FORGE, /* a frame of numbers */
        OP_RAFT,  /* a raft message */
        OP_CHANGE,
        OP_DELIVER,
        OP_LOSE,
        OP_WRITE,
        OP_DISK,
        OP_RAW,
        OP_DOWN,
        OP_MEMBERS,
        OP_SNAPSHOT,
        OP_READ,
        OP_TRANSFER,
        OP_RESTART,
        OP_CUT,
        OP_LAST_ = OP_CUT
};

struct node {
        struct disk *disk;
        struct core *core;
        struct replica *replica;
        bool dead; /* it ended itself, or must */
        bool stalled, cut;
        unsigned lives;
};

struct frame {
        unsigned from, to;
        struct buf bytes;
};

struct world {
        struct boot_time now;
        struct node n[N];
        struct frame *frames[FRAMES_MAX];
        size_t n_frames;
        bool forged; /* what is not so was told as being so */
};

static struct world *W;

/* ---- replicas ---- */

static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct node *n = u;
        struct frame *f;

        if (peer < 1 || peer > N || W->n_frames == FRAMES_MAX || n->cut || W->n[peer - 1].cut)
                return;
        f = calloc(1, sizeof(*f));
        if (!f)
                abort();
        f->from = (unsigned) (n - W->n);
        f->to = (unsigned) peer - 1;
        buf_add(&f->bytes, frame.p, frame.len);
        W->frames[W->n_frames++] = f;
}

static void on_fatal(void *u, const char *why)
{
        struct node *n = u;

        if (getenv("FUZZ_VERBOSE"))
                fprintf(stderr, "replica %d ends: %s\n", (int) (n - W->n) + 1, why);
        HOLDS(W->forged);
        n->dead = true;
}

static const struct core_owner owner = {
        .send = on_send, .fatal = on_fatal, .expired = check_expired};

static void start(struct node *n)
{
        static const struct replica_peer peers[N] = {
                {1, "http://1:1"}, {2, "http://2:1"}, {3, "http://3:1"}};
        uint64_t id = (uint64_t) (n - W->n) + 1;
        struct store_error err;

        n->lives++;
        if (core_new(&n->core,
                     &(struct core_config){.cluster_id = 7,
                                           .member_id = id,
                                           .min_ttl = 1000 * MSEC,
                                           .timeout = 6000 * MSEC,
                                           .leader_timeout = 500 * MSEC,
                                           .watch_progress = 2000 * MSEC,
                                           .seed = id},
                     W->now) < 0)
                abort();
        core_set_owner(n->core, &owner, n);
        if (replica_new(&n->replica,
                        &(struct replica_config){.id = id,
                                                 .cluster_id = 7,
                                                 .peers = peers,
                                                 .n_peers = N,
                                                 .election = 500 * MSEC,
                                                 .heartbeat = 50 * MSEC,
                                                 .seed = id * 10 + n->lives,
                                                 .snapshot_entries = 20,
                                                 .snapshot_slice = 200,
                                                 .log_bytes = 4096,
                                                 .message_bytes = 1024,
                                                 .segment_size = 8192},
                        n->disk, &core_replica_ops, n->core, W->now, &err) < 0) {
                HOLDS(W->forged);
                n->dead = true;
                return;
        }
        core_attach(n->core, n->replica);
        if (replica_start(n->replica) < 0)
                n->dead = true;
}

static void stop(struct node *n)
{
        n->core = core_free(n->core);
        n->replica = replica_free(n->replica);
}

static void drive(struct node *n)
{
        if (n->dead)
                return;
        replica_run(n->replica, W->now);
        core_run(n->core, W->now);
        core_flush(n->core, W->now);
        replica_flush(n->replica, W->now);
        while (!n->dead && !n->stalled && fuzz_disk_step(n->disk))
                replica_flush(n->replica, W->now);
}

/* ---- the network ---- */

static void give(unsigned from, unsigned to, struct view bytes)
{
        struct node *n = &W->n[to];
        uint8_t *own;

        if (n->dead)
                return;
        /* Of its size exactly, for the sanitizer to see its end. */
        own = malloc(bytes.len > 0 ? bytes.len : 1);
        if (!own)
                abort();
        if (bytes.len > 0)
                memcpy(own, bytes.p, bytes.len);
        if (replica_input(n->replica, from + 1, (struct view){own, bytes.len}, W->now) < 0 &&
            !n->dead)
                replica_peer_down(n->replica, from + 1, W->now);
        free(own);
        drive(n);
}

static struct frame *take(size_t i)
{
        struct frame *f = W->frames[i];

        memmove(W->frames + i, W->frames + i + 1, (--W->n_frames - i) * sizeof(*W->frames));
        return f;
}

static void frame_free(struct frame *f)
{
        buf_fini(&f->bytes);
        free(f);
}

static void deliver(size_t i)
{
        struct frame *f = take(i);

        give(f->from, f->to, (struct view){f->bytes.data, buf_len(&f->bytes)});
        frame_free(f);
}

static void pass(nsec_t time)
{
        struct boot_time end = boot_add(W->now, time);

        for (unsigned turns = 0; turns < 150 && boot_before(W->now, end); turns++) {
                struct boot_time next = end;

                for (unsigned i = 0; i < N; i++)
                        if (!W->n[i].dead)
                                next = boot_min(next, boot_min(replica_next(W->n[i].replica),
                                                               core_next(W->n[i].core)));
                W->now = boot_min(end, boot_max(next, boot_add(W->now, MSEC)));
                for (unsigned i = 0; i < N; i++)
                        drive(&W->n[i]);
                for (unsigned n = 0; W->n_frames > 0 && n < FRAMES_MAX; n++)
                        deliver(0);
        }
        W->now = boot_max(W->now, end);
}

/* ---- what is made up ---- */

/* A number near one that means something to the one that gets it. */
static uint64_t near(const struct node *n, struct view *step)
{
        struct replica_status st = replica_status(n->replica);
        uint8_t how = take_u8(step);
        uint64_t base;

        switch (how >> 5) {
        case 0:
                base = st.term;
                break;
        case 1:
                base = st.last;
                break;
        case 2:
                base = st.commit;
                break;
        case 3:
                base = st.applied;
                break;
        case 4:
                base = 0;
                break;
        case 5:
                base = (uint64_t) (n - W->n) + 1;
                break;
        case 6:
                base = (uint64_t) replica_lease_time(n->replica, W->now).ns;
                break;
        default:
                return (uint64_t) take_number(step);
        }
        return base + (how & 31) - ((how & 31) > 24 ? 32 : 0);
}

static void forge(unsigned from, struct node *to, struct view step)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint8_t type = take_u8(&step), numbers = take_u8(&step);

        buf_add_u8(&b, type % (FRAME_SNAPSHOT_ACK + 2));
        for (unsigned i = 0; i < (numbers & 7); i++)
                buf_add_u64(&b, near(to, &step));
        buf_add(&b, step.p, step.len);
        W->forged = true;
        give(from, (unsigned) (to - W->n), (struct view){b.data, buf_len(&b)});
}

/* A configuration as raft encodes it. */
static void add_conf(struct buf *b, uint8_t which)
{
        static const char *const urls[N] = {"http://1:1", "http://8:1", "http://9:1"};
        struct raft_configuration c;
        struct raft_buffer out;

        raft_configuration_init(&c);
        for (unsigned i = 0; i < N; i++)
                if (raft_configuration_add(&c, i + 1 + (which >> 6), urls[i],
                                           (int) ((which >> 2 * i) & 3) % 3) != 0)
                        abort();
        if (raft_configuration_encode(&c, &out) != 0)
                abort();
        buf_add(b, out.base, out.len);
        raft_free(out.base);
        raft_configuration_close(&c);
}

static void add_entries(struct node *to, struct buf *b, struct view *step)
{
        unsigned n = take_u8(step) & 7;

        buf_add_u32(b, n);
        for (unsigned i = 0; i < n; i++) {
                cleanup_(buf_fini) struct buf data = {0};
                uint8_t type = take_u8(step);
                uint64_t term = near(to, step);
                struct view own = {NULL, 0};

                (void) !view_take(step, min_of((size_t) (type >> 2), step->len), &own);
                if (type % 4 == RAFT_CHANGE) {
                        add_conf(&data, take_u8(step));
                } else if (type % 4 == RAFT_COMMAND) {
                        buf_add_u64(&data, near(to, step));
                        cmd_append(&data, (enum cmd_type)(1 + type / 4 % CMD_LAST_), 1,
                                   take_u8(step), NULL, 0, own.len > 0 ? own.p : (uint8_t *) "",
                                   own.len);
                } else if (own.len > 0) {
                        buf_add(&data, own.p, own.len);
                }
                buf_add_u64(b, term);
                buf_add_u8(b, type % 4);
                buf_add_u32(b, (uint32_t) buf_len(&data));
                if (buf_len(&data) > 0)
                        buf_add(b, data.data, buf_len(&data));
        }
}

/* An InstallSnapshot comes as a frame of its own, with a checksum that is right, all of it as
 * one part. */
static void make_part(const struct buf *raft, struct buf *ret)
{
        const uint8_t *p = buf_head(raft) + 1;
        size_t len = buf_len(raft) - 1;

        buf_add_u8(ret, FRAME_SNAPSHOT);
        buf_add(ret, p + 1, 2 * sizeof(uint64_t)); /* term and index */
        buf_add_u64(ret, len + SNAPSHOT_CRC);
        buf_add_u64(ret, 0);
        buf_add(ret, p, len);
        buf_add_u32(ret, crc32c(0, p, len));
}

static void forge_raft(unsigned from, struct node *to, struct view step)
{
        cleanup_(buf_fini) struct buf part = {0};
        cleanup_(buf_fini) struct buf b = {0};
        uint8_t type = take_u8(&step) % (RAFT_TIMEOUT_NOW + 2);

        buf_add_u8(&b, FRAME_RAFT);
        buf_add_u8(&b, type);
        buf_add_u64(&b, near(to, &step));
        switch (type) {
        case RAFT_APPEND_ENTRIES:
                for (unsigned i = 0; i < 3; i++)
                        buf_add_u64(&b, near(to, &step));
                add_entries(to, &b, &step);
                break;
        case RAFT_APPEND_ENTRIES_RESULT:
                buf_add_u64(&b, near(to, &step));
                buf_add_u64(&b, near(to, &step));
                buf_add_u32(&b, take_u8(&step));
                buf_add_u32(&b, take_u8(&step));
                break;
        case RAFT_REQUEST_VOTE:
                for (unsigned i = 0; i < 3; i++)
                        buf_add_u64(&b, near(to, &step));
                buf_add_u8(&b, take_u8(&step) & 1);
                buf_add_u8(&b, take_u8(&step) & 1);
                break;
        case RAFT_REQUEST_VOTE_RESULT:
                buf_add_u8(&b, take_u8(&step) & 1);
                buf_add_u8(&b, take_u8(&step) & 1);
                buf_add_u32(&b, take_u8(&step));
                buf_add_u32(&b, take_u8(&step));
                break;
        case RAFT_INSTALL_SNAPSHOT: {
                cleanup_(buf_fini) struct buf conf = {0}, state = {0};

                for (unsigned i = 0; i < 3; i++)
                        buf_add_u64(&b, near(to, &step));
                add_conf(&conf, take_u8(&step));
                if (take_u8(&step) & 1)
                        state_save(core_state(to->core), &state);
                buf_add(&state, step.p, step.len);
                buf_add_bytes(&b, conf.data, buf_len(&conf));
                buf_add_bytes(&b, buf_len(&state) > 0 ? state.data : (uint8_t *) "",
                              buf_len(&state));
                step.len = 0;
                break;
        }
        case RAFT_TIMEOUT_NOW:
                buf_add_u64(&b, near(to, &step));
                buf_add_u64(&b, near(to, &step));
                break;
        default:
                break;
        }
        /* What is left makes it malformed. */
        buf_add(&b, step.p, step.len);
        W->forged = true;
        if (type == RAFT_INSTALL_SNAPSHOT)
                make_part(&b, &part);
        give(from, (unsigned) (to - W->n),
             type == RAFT_INSTALL_SNAPSHOT ? (struct view){part.data, buf_len(&part)}
                                           : (struct view){b.data, buf_len(&b)});
}

/* A frame that is under way gets there with a byte changed, or cut, or longer. */
static void change(struct view step)
{
        struct frame *f;
        uint8_t how;

        if (W->n_frames == 0)
                return;
        f = W->frames[take_u8(&step) % W->n_frames];
        W->forged = true;
        for (how = take_u8(&step); step.len > 0 && buf_len(&f->bytes) > 0;) {
                size_t at = take_u16(&step) % buf_len(&f->bytes);

                switch (how & 3) {
                case 0:
                        f->bytes.data[at] = take_u8(&step);
                        break;
                case 1:
                        f->bytes.data[at] ^= (uint8_t) (1 << (take_u8(&step) & 7));
                        break;
                case 2:
                        f->bytes.end = f->bytes.off + at;
                        break;
                default:
                        buf_add_u8(&f->bytes, take_u8(&step));
                }
        }
}

/* ---- commands of clients ---- */

struct ask {
        struct core_write write;
        struct core_read read;
};

static void write_done(struct core_write *w, struct status st, struct view reply)
{
        (void) st;
        (void) reply;
        free(container_of(w, struct ask, write));
}

static void read_done(struct core_read *rd, struct status st)
{
        (void) st;
        free(container_of(rd, struct ask, read));
}

static void ask(struct node *n, bool write, struct view step)
{
        struct ask *a = calloc(1, sizeof(*a));
        cleanup_(buf_fini) struct buf body = {0};
        enum cmd_type type = CMD_PUT;

        if (!a)
                abort();
        a->write.done = write_done;
        a->read.done = read_done;
        if (!write)
                return core_read(n->core, &a->read, 0);
        if (take_u8(&step) & 1) {
                Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

                q.id = 1 + (take_u8(&step) & 7);
                q.ttl_ms = 1000 + take_u8(&step);
                pb_append(&body, &q.base);
                type = CMD_GRANT;
        } else {
                Pb__PutRequest q = PB__PUT_REQUEST__INIT;

                q.key = pb_bytes("abcdefgh", 1 + (take_u8(&step) & 7));
                q.lease = take_u8(&step) & 7;
                q.value = pb_bytes(step.p, step.len);
                pb_append(&body, &q.base);
        }
        if (core_write(n->core, &a->write, type, NULL, body.data, buf_len(&body), 0) < 0)
                free(a);
}

/* ---- ---- */

static void run_step(struct view step)
{
        static const uint8_t more[] = {OP_FORGE, OP_RAFT, OP_RAFT, OP_TIME, OP_WRITE};
        uint8_t b = take_u8(&step) % (OP_LAST_ + 1 + ARRAY_SIZE(more));
        enum op op = b <= OP_LAST_ ? (enum op) b : (enum op) more[b - OP_LAST_ - 1];
        uint8_t who = take_u8(&step);
        unsigned from = who % N, to = who / N % N;
        struct node *n = &W->n[to];

        if (op == OP_TIME)
                return pass((nsec_t) (who + 1) * (take_u8(&step) % 8 + 1) * MSEC / 2);
        if (n->dead)
                return;
        switch (op) {
        case OP_TIME:
                break;
        case OP_FORGE:
                forge(from, n, step);
                break;
        case OP_RAFT:
                forge_raft(from, n, step);
                break;
        case OP_RAW:
                W->forged = true;
                give(from, to, step);
                break;
        case OP_CHANGE:
                change(step);
                break;
        case OP_DELIVER:
                if (W->n_frames > 0)
                        deliver(who % W->n_frames);
                break;
        case OP_LOSE:
                if (W->n_frames > 0)
                        frame_free(take(who % W->n_frames));
                break;
        case OP_WRITE:
                ask(n, true, step);
                break;
        case OP_READ:
                ask(n, false, step);
                break;
        case OP_DISK:
                n->stalled = who & 0x80;
                break;
        case OP_DOWN:
                replica_peer_down(n->replica, from + 1, W->now);
                break;
        case OP_MEMBERS:
                /* Members that are not there: the others may come to a standstill. */
                W->forged = true;
                replica_change_members(n->replica, 1 + take_u8(&step),
                                       (enum replica_change)(1 + take_u8(&step) % 5),
                                       take_u8(&step) % 6, "http://4:1");
                break;
        case OP_SNAPSHOT:
                replica_want_snapshot(n->replica);
                break;
        case OP_TRANSFER:
                (void) !replica_transfer(n->replica, from + 1, W->now);
                break;
        case OP_RESTART:
                while (!n->dead && fuzz_disk_step(n->disk))
                        ;
                stop(n);
                start(n);
                break;
        case OP_CUT:
                n->cut = who & 0x80;
                break;
        }
        for (unsigned i = 0; i < N; i++)
                drive(&W->n[i]);
}

static void check_end(void)
{
        for (unsigned i = 0; i < N; i++)
                W->n[i].stalled = W->n[i].cut = false;
        pass(2500 * MSEC);
        for (unsigned i = 0; i < N; i++)
                check_state(core_state(W->n[i].core));
        for (unsigned i = 1; i < N; i++) {
                struct state *a = core_state(W->n[0].core), *b = core_state(W->n[i].core);

                if (a->applied == b->applied)
                        check_equal(a, b);
        }
}

static void run(struct view in)
{
        struct world w = {.now = {1000 * NSEC_PER_SEC}};
        struct view step;

        log_set_level(0);
        W = &w;
        for (unsigned i = 0; i < N; i++) {
                w.n[i].disk = fuzz_disk_new();
                start(&w.n[i]);
        }
        pass(900 * MSEC);
        while (step_next(&in, &step))
                run_step(step);
        if (!w.forged)
                check_end();
        for (unsigned i = 0; i < N; i++) {
                stop(&w.n[i]);
                w.n[i].disk = disk_free(w.n[i].disk);
        }
        while (w.n_frames > 0)
                frame_free(take(0));
}

const struct fuzzer fuzz_peers = {.name = "peers", .run = run, .steps = true};

/* A message of raft's, as bytes: what is read is owned, and freed. */
static void run_message(struct view in)
{
        struct raft_message m;

        if (message_decode(in, 1, UINT64_MAX, &m) == 0)
                message_discard(&m);
}

const struct fuzzer fuzz_message = {.name = "message", .run = run_message};
