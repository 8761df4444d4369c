/* The replica's callbacks. They apply an entry in slices, save the state, load a second state
 * that then replaces ours, and free the old one in slices. */
#include "base/probe.h"
#include "core/internal.h"

/* Returns false if *@left ran out. */
bool core_free_gone(struct core *c, struct budget *left)
{
        struct aside *a;

        while ((a = STAILQ_FIRST(&c->gone))) {
                if (!state_free_some(&a->state, left))
                        return false;
                STAILQ_REMOVE_HEAD(&c->gone, next);
                free(a);
        }
        return true;
}

void core_drop_loaded(struct core *c)
{
        if (!c->loaded)
                return;
        STAILQ_INSERT_TAIL(&c->gone, c->loaded, next);
        c->loaded = NULL;
}

/* Finds the requester anew for each slice, since it may have given up. Returns 1 if there is
 * more to do. */
static int apply_command(struct core *c, const struct cmd *cmd, uint64_t term,
                         struct budget *left)
{
        struct core_write *w = NULL;
        struct state_reply reply = {0};
        struct buf *out = &c->part.out;
        int r;

        if (cmd->origin == c->cfg.member_id && cmd->seq != 0)
                w = core_write_find(c, cmd->seq);
        if (w) {
                core_header(c, &reply.header);
                reply.out = out;
        }
        if (cmd->type == CMD_EXPIRE && c->owner && c->owner->expired && core_status(c).leader &&
            !c->state.removal.on && !core_report_expired(c, cmd, term, left))
                return 1;
        c->part.reported = 0;
        c->part.reported_slots = (struct cmd_slots){0};
        r = state_apply_some(&c->state, cmd, &reply, left);
        if (r == 0)
                r = buf_error(out);
        if (r != 0)
                return r;
        if (cmd->type == CMD_VERSION)
                replica_set_version(c->replica, c->state.cluster_version);
        if (w && reply.outcome == STATE_E_CACHED)
                core_write_waits(c, w, &reply.wait);
        else if (w)
                core_write_finish(c, w, status_of(reply.outcome),
                                  (struct view){out->data, buf_len(out)});
        buf_reuse(out, SCRATCH_KEEP);
        return 0;
}

static int apply_entry(struct core *c, uint64_t index, uint64_t term, struct lease_time at,
                       struct view commands, struct budget *left)
{
        struct view rest = commands;
        struct cmd cmd;
        int r;

        c->now = boot_max(c->now, replica_now(c->replica));
        c->state.counts.now = core_lease_time(c);
        if (!c->part.on) {
                state_begin(&c->state, index, at);
                core_writes_term(c, term);
                c->part.at = 0;
        }
        rest.p = (const uint8_t *) rest.p + c->part.at;
        rest.len -= c->part.at;
        c->part.on = false;
        while ((r = cmd_next(&rest, c->newest, &cmd)) == 0) {
                r = !budget_is_spent(left) ? apply_command(c, &cmd, term, left) : 1;
                if (r < 0)
                        return r;
                if (r > 0) {
                        c->part.on = true;
                        return 1;
                }
                c->part.at = commands.len - rest.len;
        }
        if (r != -ENODATA)
                return r; /* written by another version; skipping it would break I4 */
        core_reads_serve(c, index);
        return 0;
}

static int on_check(void *u, struct view commands)
{
        const struct core *c = u;

        return cmd_check(commands, c->newest);
}

static int on_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                    struct view commands, size_t *left)
{
        struct core *c = u;
        struct budget b = {*left};
        int r = apply_entry(c, index, term, at, commands, &b);

        *left = b.left;
        /* An earlier process may have applied and counted this entry. */
        if (index <= c->replayed_to)
                c->state.counts = (struct state_counts){0};
        return r;
}

static void on_save(void *u, unsigned slot)
{
        struct core *c = u;

        state_save_start(&c->savers[slot], &c->state);
}

static int on_save_count(void *u, unsigned slot, size_t bytes, size_t *ret)
{
        struct core *c = u;
        int r = state_save_count(&c->savers[slot], bytes);

        *ret = c->savers[slot].size;
        return r;
}

static int on_save_more(void *u, unsigned slot, size_t bytes, struct buf *out)
{
        struct state_saver *sv = &((struct core *) u)->savers[slot];
        size_t n = min_of(bytes, buf_len(&sv->out));
        int r;

        if (n > 0) { /* what was encoded when it was counted, or at the beginning */
                buf_add(out, buf_head(&sv->out), n);
                buf_consume(&sv->out, n);
                return buf_error(out) < 0 ? -ENOMEM : 1;
        }
        buf_fini(&sv->out);
        sv->out = *out;
        r = state_save_more(sv, bytes);
        *out = sv->out;
        sv->out = (struct buf){0};
        return r;
}

static void on_save_end(void *u, unsigned slot)
{
        state_saver_fini(&((struct core *) u)->savers[slot]);
}

static void on_drop(void *u)
{
        core_drop_loaded(u);
}

static int on_load(void *u, struct view snapshot)
{
        struct core *c = u;

        core_drop_loaded(c);
        c->loaded = calloc(1, sizeof(*c->loaded));
        if (!c->loaded)
                return -ENOMEM;
        state_load_start(&c->loader, &c->loaded->state, snapshot);
        c->loader.newest = c->newest;
        return 0;
}

/* Frees an old state first, so that there are never three states in memory. */
static int on_load_more(void *u, size_t *left, const char **ret_wrong)
{
        struct core *c = u;
        struct budget b = {*left};
        int r = core_free_gone(c, &b) ? state_load_some(&c->loader, &b) : 1;

        *left = b.left;
        *ret_wrong = c->loader.wrong;
        if (r < 0)
                core_drop_loaded(c);
        return r;
}

static struct lease_time on_adopt(void *u)
{
        struct core *c = u;
        struct state old;

        state_drop_readers(&c->state);
        old = c->state;
        PROBE_IF(c->part.on, "a snapshot replaces a state while an entry is half applied");
        c->state = c->loaded->state;
        c->state.counts = old.counts;
        c->loaded->state = old;
        core_drop_loaded(c);
        buf_fini(&c->part.out);
        memset(&c->part, 0, sizeof(c->part));
        c->installs++;
        if (c->replica) /* otherwise it is our own, at the start */
                replica_set_version(c->replica, c->state.cluster_version);
        return c->state.time;
}

static void on_changed(void *u)
{
        struct core *c = u;

        if (core_status(c).leader_id != 0)
                core_writes_again(c, 0);
        if (c->owner && c->owner->changed)
                c->owner->changed(c->owner_data);
}

/* A snapshot skipped entries, some of which may hold our commands. */
static void on_skipped(void *u)
{
        struct core *c = u;

        /* If commands that an earlier snapshot skipped have not all been ended yet, the new
         * range includes them. */
        PROBE_IF(c->skipped.on,
                 "a snapshot comes before the commands that the last one skipped are ended");
        if (!c->skipped.on)
                c->skipped.term = c->term_seen;
        c->skipped.on = true;
        c->skipped.from = 0;
        c->skipped.upto = c->next_seq;
}

static void on_changed_members(void *u, uint64_t request, int outcome)
{
        struct core *c = u;

        changes_answered(&c->changes, request, outcome);
}

static void on_configured(void *u)
{
        struct core *c = u;

        if (c->owner && c->owner->configured)
                c->owner->configured(c->owner_data);
}

static void on_removed(void *u)
{
        struct core *c = u;

        changes_removed(&c->changes, c->cfg.member_id);
        if (c->owner && c->owner->removed)
                c->owner->removed(c->owner_data);
}

static bool on_started(void *u, uint64_t id)
{
        const struct core *c = u;
        const struct member *m = state_member(&c->state, id);

        return m && *m->name;
}

static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct core *c = u;

        c->owner->send(c->owner_data, peer, frame);
}

static size_t on_room(void *u, uint64_t peer)
{
        struct core *c = u;

        return c->owner->room ? c->owner->room(c->owner_data, peer) : SIZE_MAX;
}

static void on_fatal(void *u, const char *why)
{
        struct core *c = u;

        c->owner->fatal(c->owner_data, why);
}

const struct replica_ops core_replica_ops = {
        .send = on_send,
        .room = on_room,
        .check = on_check,
        .apply = on_apply,
        .save = on_save,
        .save_count = on_save_count,
        .save_more = on_save_more,
        .save_end = on_save_end,
        .load = on_load,
        .load_more = on_load_more,
        .adopt = on_adopt,
        .drop = on_drop,
        .found = core_found,
        .changed = on_changed,
        .read_at = core_reads_at,
        .skipped = on_skipped,
        .changed_members = on_changed_members,
        .started = on_started,
        .configured = on_configured,
        .removed = on_removed,
        .fatal = on_fatal,
};
