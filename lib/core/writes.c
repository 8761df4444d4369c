/* Commands on their way through the log, until they are applied, fail or time out. */
#include "base/probe.h"
#include "core/internal.h"

#define PROPOSED_AT_ONCE ((size_t) 2000) /* proposed again in one turn: about 3 ms ... */
#define PROPOSED_BYTES 2048          /* ... a command counts once more per this many bytes */
#define LOST_AT_ONCE ((size_t) 1000) /* writes in doubt that are ended in one turn */

static int write_cmp(const struct core_write *a, const struct core_write *b)
{
        return a->seq < b->seq ? -1 : a->seq > b->seq;
}

TREE_GENERATE(core_writes, core_write, by_seq, write_cmp)

/* ---- its share ---- */

static bool take_share(struct core *c, const struct core_write *w, size_t n)
{
        if (cmd_is_renewal(w->type))
                return true;
        if (requester_is_core(w->by))
                return shares_take(&c->shares, POT_OWN_WRITES, w->by, 1);
        if (!shares_take(&c->shares, POT_WRITES, w->by, 1))
                return false;
        if (shares_take(&c->shares, POT_WRITE_BYTES, w->by, n))
                return true;
        shares_give(&c->shares, POT_WRITES, w->by, 1);
        return false;
}

static void give_share(struct core *c, const struct core_write *w, size_t n)
{
        if (cmd_is_renewal(w->type))
                return;
        if (requester_is_core(w->by))
                return shares_give(&c->shares, POT_OWN_WRITES, w->by, 1);
        shares_give(&c->shares, POT_WRITE_BYTES, w->by, n);
        shares_give(&c->shares, POT_WRITES, w->by, 1);
}

/* ---- on its way ---- */

void core_write_finish(struct core *c, struct core_write *w, struct status st,
                       struct view reply)
{
        core_write_waits_no_more(c, w);
        core_timeout_stop(c, &w->timeout);
        RB_REMOVE(core_writes, &c->writes, w);
        c->n_writes--;
        give_share(c, w, buf_len(&w->body));
        buf_fini(&w->body);
        w->done(w, st, reply);
}

void core_write_fail(struct core *c, struct core_write *w, struct status st)
{
        c->counts.writes_failed++;
        core_write_finish(c, w, st, (struct view){0});
}

static enum replica_priority priority_of(enum cmd_type type)
{
        switch (type) {
        case CMD_RENEW:
        case CMD_RENEW_AHEAD:
                return REPLICA_URGENT;
        default:
                return REPLICA_NORMAL;
        }
}

int core_propose_own(struct core *c, enum cmd_type type, const struct buf *body)
{
        cleanup_(buf_fini) struct buf cmd = {0};

        cmd_append(&cmd, type, c->cfg.member_id, 0, NULL, 0, buf_head(body), buf_len(body));
        if (buf_error(body) < 0 || buf_error(&cmd) < 0)
                return -ENOMEM;
        return replica_propose(c->replica, cmd.data, buf_len(&cmd), REPLICA_URGENT);
}

/* Whether the command may still be applied, or was in an entry that a snapshot has skipped: it
 * was proposed, and no entry of a later term had been applied by then. */
static bool may_be_applied(const struct core *c, const struct core_write *w)
{
        bool skipped = c->skipped.on && w->seq <= c->skipped.upto;

        return w->term != 0 && w->term >= (skipped ? c->skipped.term : c->term_seen);
}

static void timed_out(struct core *c, struct core_timeout *t)
{
        struct core_write *w = container_of(t, struct core_write, timeout);

        if (!w->overdue || !may_be_applied(c, w))
                return core_write_fail(c, w, core_timeout_status(c));
        PROBE("a claim is overdue, and may still be made");
        w->overdue(w);
}

static uint64_t quota_of(const struct core *c, enum cmd_type type, const struct cmd_user *user)
{
        return user && (type == CMD_PUT || type == CMD_TXN || type == CMD_GRANT ||
                        type == CMD_AUTH)
                       ? c->cfg.quota
                       : 0;
}

/* Returns 0 even if there is no leader; then the command waits for one. */
static int propose(struct core *c, struct core_write *w)
{
        struct buf *b = &c->command;
        int r;

        w->term = 0;
        buf_reuse(b, SCRATCH_KEEP);
        cmd_append(b, w->type, c->cfg.member_id, w->seq, w->user, quota_of(c, w->type, w->user),
                   buf_head(&w->body), buf_len(&w->body));
        r = buf_error(b);
        if (r < 0)
                return r;
        r = replica_propose(c->replica, b->data, buf_len(b), priority_of(w->type));
        if (r == 0)
                w->term = core_term(c);
        else if (r == -ENOTCONN)
                core_writes_again(c, w->seq);
        return r == -ENOTCONN ? 0 : r;
}

/* To propose what grows would take log space that renewals and expiry may need. */
static bool is_disk_full(const struct core *c)
{
        bool full = upkeep_disks_full(&c->state) || replica_short_of_room(c->replica);

        PROBE_IF(full, "a write comes while a disk is full");
        return full;
}

struct status core_admit(struct core *c, enum cmd_type type, const struct cmd_user *user,
                         const void *m, struct budget *left, struct state_admission *ret)
{
        struct cmd cmd = {.type = type, .by_user = user, .quota = quota_of(c, type, user)};
        int r;

        if (user)
                cmd.user = *user;
        *ret = (struct state_admission){.at = ADMIT_DOOR, .max_txn_ops = c->cfg.max_txn_ops};
        r = state_admit(&c->state, &cmd, m, left, ret);
        if (r < 0)
                return status_nomem;
        if (r == STATE_E_NOSPACE) {
                PROBE("a write is refused before the log because of the quota");
                c->upkeep.refused = true;
        } else if (r == 0 && ret->grows && is_disk_full(c)) {
                r = STATE_E_NOSPACE;
        }
        return status_of((enum state_outcome) r);
}

int core_write(struct core *c, struct core_write *w, enum cmd_type type,
               const struct cmd_user *user, const void *body, size_t n, nsec_t timeout)
{
        int r;

        w->type = type;
        if (!take_share(c, w, n)) {
                c->counts.writes_failed++;
                return -ENOBUFS;
        }
        w->seq = ++c->next_seq;
        w->user = user;
        w->body = (struct buf){0};
        w->waits_for = 0;
        buf_add(&w->body, body, n);
        r = buf_error(&w->body);
        if (r == 0)
                r = propose(c, w);
        if (r < 0) {
                c->counts.writes_failed++;
                give_share(c, w, n);
                buf_fini(&w->body);
                return r;
        }
        core_timeout_start(c, &w->timeout, timeout, timed_out);
        RB_INSERT(core_writes, &c->writes, w);
        c->n_writes++;
        return 0;
}

void core_writes_again(struct core *c, uint64_t seq)
{
        c->repropose_from = min_of(c->repropose_from, seq);
}

/* The first waiting command whose number is at least @seq. */
static struct core_write *write_from(struct core *c, uint64_t seq)
{
        return RB_NFIND(core_writes, &c->writes, &(struct core_write){.seq = seq});
}

/* Sends commands to the current leader that were never proposed, or were lost with the term in
 * which they were proposed. Each turn sends some of them, since there may be 100,000. */
void core_writes_repropose(struct core *c)
{
        size_t left = PROPOSED_AT_ONCE;
        struct core_write *w;
        uint64_t seq = c->repropose_from;

        if (seq == NO_WRITE || core_status(c).leader_id == 0)
                return;
        c->repropose_from = NO_WRITE;
        for (w = write_from(c, seq); w && left > 0; w = write_from(c, seq + 1)) {
                seq = w->seq;
                left--;
                if (may_be_applied(c, w) || w->waits_for != 0)
                        continue;
                PROBE_IF(w->term != 0, "a write of a term that is over is proposed again");
                PROBE_IF(w->term == 0,
                         "a write that waited for a leader or a cache term is proposed");
                left -= min_of(left, buf_len(&w->body) / PROPOSED_BYTES);
                if (w->timeout.at.ns == BOOT_TIME_NEVER.ns) /* nobody waits for the outcome */
                        core_write_fail(c, w, status_timeout);
                else if (propose(c, w) < 0)
                        core_write_fail(c, w, status_too_many);
        }
        if (w)
                core_writes_again(c, w->seq);
}

/* The outcome of our commands in the skipped entries is unknown. Renewals may be repeated,
 * other commands may not. Until all of them have been dealt with, no command is proposed again,
 * because the outcome of that proposal would be unknown, too. */
void core_writes_end_skipped(struct core *c)
{
        size_t left = LOST_AT_ONCE;
        struct core_write *w;
        uint64_t seq;

        for (w = write_from(c, c->skipped.from); w && w->seq <= c->skipped.upto && left > 0;
             w = write_from(c, seq + 1)) {
                seq = w->seq;
                left--;
                if (!may_be_applied(c, w))
                        continue;
                if (cmd_is_renewal(w->type)) {
                        PROBE("a snapshot skips a renewal, which is repeated");
                        w->term = 0;
                } else {
                        PROBE("a snapshot skips a write, whose outcome nobody knows");
                        core_write_fail(c, w, status_lost);
                }
        }
        c->skipped.on = w && w->seq <= c->skipped.upto;
        c->skipped.from = w ? w->seq : 0;
        if (!c->skipped.on)
                core_writes_again(c, 0);
}

void core_writes_term(struct core *c, uint64_t term)
{
        if (term <= c->term_seen)
                return;
        /* An entry of this term has been applied, so none of an older term can follow. */
        c->term_seen = term;
        core_writes_again(c, 0);
}

void core_write_stop_first(struct core *c)
{
        struct core_write *w = RB_MIN(core_writes, &c->writes);

        if (w)
                core_write_fail(c, w, status_stopped);
}

struct core_write *core_write_find(struct core *c, uint64_t seq)
{
        return RB_FIND(core_writes, &c->writes, &(struct core_write){.seq = seq});
}
