/* Commands on a live state, as the log delivers them: two states get the same ones; one of them
 * applies them in slices, and is saved and loaded in between. Both must answer alike and stay
 * equal, and the invariants must hold between any two commands. */
#include "state/state.h"
#include "../whole.h"
#include "fuzz.h"
#include "invariants.h"
#include "state/kv_hash.h"

#define START ((struct lease_time){100 * NSEC_PER_SEC})
#define COMMANDS_MAX 4096

struct pair {
        struct state a, b; /* `b` is the one in slices, that is saved and loaded */
        uint64_t index;
        struct lease_time time;
        struct state_saver saver; /* of `a` */
        struct buf saved;         /* what it must come to */
        bool saving;
        size_t n_commands;
};

/* What a step does; those with a message are in its order of enum cmd_type. */
enum op {
        OP_TIME,
        OP_PUT,
        OP_DELETE_RANGE,
        OP_TXN,
        OP_COMPACT,
        OP_GRANT,
        OP_REVOKE,
        OP_RENEW,
        OP_EXPIRE,
        OP_TICK,
        OP_MEMBER,
        OP_ALARM,
        OP_AUTH,
        OP_RANGE,
        OP_RELOAD,
        OP_SAVE,
        OP_SAVE_MORE,
        OP_HASH,
        OP_RAW, /* the bytes of an entry */
        OP_RENEW_SLOTS,
        OP_EXPIRE_DUE,
        OP_LAST_ = OP_EXPIRE_DUE,
};

static const ProtobufCMessageDescriptor *const messages[OP_LAST_ + 1] = {
        [OP_PUT] = &pb__put_request__descriptor,
        [OP_DELETE_RANGE] = &pb__delete_range_request__descriptor,
        [OP_TXN] = &pb__txn_request__descriptor,
        [OP_COMPACT] = &pb__compaction_request__descriptor,
        [OP_GRANT] = &pb__lease_grant_request__descriptor,
        [OP_REVOKE] = &pb__lease_revoke_request__descriptor,
        [OP_MEMBER] = &pb__member__descriptor,
        [OP_ALARM] = &pb__alarm_request__descriptor,
        [OP_AUTH] = &pb__auth_change__descriptor,
        [OP_RANGE] = &pb__range_request__descriptor,
};

/* Which op a first byte means: half of them write. */
static enum op op_of(uint8_t b)
{
        static const uint8_t more[] = {OP_PUT,  OP_TXN, OP_TXN,         OP_GRANT,
                                       OP_AUTH, OP_PUT, OP_DELETE_RANGE};

        b %= OP_LAST_ + 1 + ARRAY_SIZE(more);
        return b <= OP_LAST_ ? (enum op) b : (enum op) more[b - OP_LAST_ - 1];
}

static const ProtobufCMessageDescriptor *message(struct view step, size_t *ret_at)
{
        *ret_at = 2;
        return step.len < 2 ? NULL : messages[op_of(step.p[0])];
}

/* An answer that was made in pieces, as one. */
static void put_together(struct buf *answer)
{
        Pb__DeleteRangeResponse *p;

        HOLDS(pb_unpack(&pb__delete_range_response__descriptor,
                        (struct view){buf_head(answer), buf_len(answer)}, &p) == 0);
        buf_clear(answer);
        pb_append(answer, &p->base);
        pb_free(&p->base);
}

static int apply_slices(struct pair *p, const struct cmd *c, struct state_reply *reply)
{
        struct budget left;
        size_t n = 0, slice;
        int r;

        for (;; n++) {
                left.left = slice = 1 + (p->n_commands + n) % 5;
                r = state_apply_some(&p->b, c, reply, &left);
                if (r <= 0)
                        break;
                HOLDS(budget_is_spent(&left) && slice > 0);
        }
        if (r == 0 && n > 0 && c->type == CMD_DELETE_RANGE && buf_len(reply->out) > 0)
                put_together(reply->out);
        HOLDS(!p->b.removal.on && p->b.removal.sub == 0);
        return r;
}

/* Applies to both. */
static void apply(struct pair *p, const struct cmd *c)
{
        cleanup_(buf_fini) struct buf x = {0}, y = {0};
        struct state_reply to_a = {.out = &x}, to_b = {.out = &y};

        if (p->n_commands++ > COMMANDS_MAX)
                return;
        pb__response_header__init(&to_a.header);
        pb__response_header__init(&to_b.header);
        HOLDS(state_apply(&p->a, c, &to_a) == 0 && apply_slices(p, c, &to_b) == 0);
        HOLDS(to_a.outcome == to_b.outcome && to_a.outcome <= STATE_E_LAST_);
        HOLDS(buf_len(&x) == buf_len(&y));
        HOLDS(buf_len(&x) == 0 || memcmp(x.data, y.data, buf_len(&x)) == 0);
        HOLDS(to_a.outcome == STATE_OK || buf_len(&x) == 0);
        HOLDS(p->a.revision == p->b.revision);
}

static void apply_body(struct pair *p, enum cmd_type type, uint8_t who, struct view body)
{
        static const char *const names[] = {"",  "root", "user", "u",
                                            "a", "r",    "root", "nobody"};
        const char *name = names[who >> 2 & 7];
        struct cmd c = {
                .type = type,
                .by_user = who >= 128,
                .user = {.name = {(const uint8_t *) name, strlen(name)}, .login = who & 3},
                .body = body};

        apply(p, &c);
}

/* A query answers alike, too. */
static void range(struct pair *p, struct view in)
{
        cleanup_(pb_freep) Pb__RangeRequest *q = pb__range_request__unpack(NULL, in.len, in.p);
        cleanup_(buf_fini) struct buf x = {0}, y = {0};

        if (!q || state_check_range(q) != STATE_OK)
                return;
        for (unsigned i = 0; i < 2; i++) {
                Pb__RangeResponse out = PB__RANGE_RESPONSE__INIT;
                cleanup_(arena_fini) struct arena a = {0};
                struct budget left = BUDGET_ALL;
                bool nomem;

                if (state_range(i == 0 ? &p->a : &p->b, q, &a, &out, &left, &nomem) == STATE_OK)
                        pb_append(i == 0 ? &x : &y, &out.base);
                HOLDS(!nomem && out.n_kvs <= (size_t) out.count);
        }
        HOLDS(buf_len(&x) == buf_len(&y));
        HOLDS(buf_len(&x) == 0 || memcmp(x.data, y.data, buf_len(&x)) == 0);
}

static void reload(struct pair *p)
{
        cleanup_(buf_fini) struct buf saved = {0};

        state_save(&p->b, &saved);
        HOLDS(buf_error(&saved) == 0);
        state_fini(&p->b);
        HOLDS(state_load(&p->b, (struct view){saved.data, buf_len(&saved)}) == 0);
        check_equal(&p->a, &p->b);
}

static void save_more(struct pair *p, size_t bytes)
{
        int r;

        if (!p->saving)
                return;
        r = state_save_more(&p->saver, bytes);
        if (r == -ESTALE && !p->saver.auth_done) { /* a user changed meanwhile */
                state_saver_fini(&p->saver);
                p->saving = false;
                return;
        }
        HOLDS(r == 0 || r == 1);
        if (r == 1)
                return;
        if (r == 0)
                HOLDS(buf_len(&p->saver.out) == buf_len(&p->saved) &&
                      memcmp(p->saver.out.data, p->saved.data, buf_len(&p->saved)) == 0);
        state_saver_fini(&p->saver);
        p->saving = false;
}

static void save(struct pair *p)
{
        while (p->saving)
                save_more(p, 1 << 20);
        buf_clear(&p->saved);
        state_save(&p->a, &p->saved);
        state_save_start(&p->saver, &p->a);
        p->saving = true;
}

static void hash(struct pair *p, struct view in)
{
        int64_t revision = 1 + take_u8(&in);
        struct kv_hasher x = {0}, y = {0};
        uint32_t u = 0, v = 0;
        int r, q;

        if (revision < p->a.kv.compacted || revision > p->a.revision)
                revision = p->a.revision;
        kv_hash_start(&x, &p->a.kv, revision);
        kv_hash_start(&y, &p->b.kv, revision);
        while ((r = kv_hash_more(&x, 20, &u)) == 1)
                ;
        while ((q = kv_hash_more(&y, 1000, &v)) == 1)
                ;
        HOLDS(r == q && u == v);
        kv_hash_fini(&x);
        kv_hash_fini(&y);
}

/* The entry of a batch of renewals; its bytes tell the slots. */
static void renew_slots(struct pair *p, uint8_t ago, struct view in)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct cmd_slots slots;
        uint32_t slot = 0;
        bool ahead = ago & 128;

        ago &= 127;
        cmd_renew_begin(&b, &slots, p->index - min_of(p->index, (uint64_t) ago));
        while (in.len > 0) {
                slot += take_u8(&in) & 7;
                cmd_renew_add(&b, &slots, slot++, take_u8(&in) & CMD_AGE_MAX);
        }
        apply_body(p, ahead ? CMD_RENEW_AHEAD : CMD_RENEW, 0,
                   (struct view){b.data, buf_len(&b)});
}

static void expire_due(struct pair *p, uint8_t max)
{
        cleanup_(buf_fini) struct buf b = {0};

        if (state_expire(&p->a, p->time, lease_time_add(p->time, NSEC_PER_SEC), max, &b) > 0)
                apply_body(p, CMD_EXPIRE, 0, (struct view){b.data, buf_len(&b)});
        (void) deadlines_next(&p->a.deadlines);
}

static void run_step(struct pair *p, struct view step)
{
        enum op op = op_of(take_u8(&step));
        uint8_t who = take_u8(&step);
        struct cmd c;

        p->index++;
        state_begin(&p->a, p->index, p->time);
        state_begin(&p->b, p->index, p->time);
        switch (op) {
        case OP_TIME:
                p->time = lease_time_add(p->time, (int64_t) (take_u16(&step) + 1) *
                                                          NSEC_PER_MSEC * (who + 1));
                break;
        case OP_RANGE:
                range(p, step);
                break;
        case OP_RELOAD:
                reload(p);
                break;
        case OP_SAVE:
                save(p);
                break;
        case OP_SAVE_MORE:
                save_more(p, who);
                break;
        case OP_HASH:
                hash(p, step);
                break;
        case OP_RAW:
                while (cmd_next(&step, CLUSTER_NEWEST, &c) == 0)
                        apply(p, &c);
                break;
        case OP_RENEW_SLOTS:
                renew_slots(p, who, step);
                break;
        case OP_EXPIRE_DUE:
                expire_due(p, who);
                break;
        default:
                apply_body(p, (enum cmd_type) op, who, step);
        }
}

static void run(struct view in)
{
        struct pair p = {.time = START};
        struct view step;

        state_init(&p.a);
        state_init(&p.b);
        while (step_next(&in, &step))
                run_step(&p, step);
        while (p.saving)
                save_more(&p, 64);
        check_state(&p.a);
        check_state(&p.b);
        reload(&p);
        check_state(&p.b);
        buf_fini(&p.saved);
        state_fini(&p.a);
        state_fini(&p.b);
}

const struct fuzzer fuzz_state = {
        .name = "state", .run = run, .steps = true, .message = message};

/* Any bytes are a snapshot, or refused; what they hold can be saved and loaded again. */
static void run_snapshot(struct view in)
{
        cleanup_(buf_fini) struct buf saved = {0}, again = {0};
        struct state s, back;

        if (state_load(&s, in) == 0) {
                check_attached(&s);
                state_save(&s, &saved);
                HOLDS(state_load(&back, (struct view){saved.data, buf_len(&saved)}) == 0);
                state_save(&back, &again);
                HOLDS(buf_len(&saved) == buf_len(&again) &&
                      memcmp(saved.data, again.data, buf_len(&saved)) == 0);
                state_fini(&back);
        }
        state_fini(&s);
}

const struct fuzzer fuzz_snapshot = {.name = "snapshot", .run = run_snapshot};
