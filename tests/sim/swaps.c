/*
 * Disks that come back otherwise than they went. While the host of a replica has no power, its
 * data directory is emptied, or replaced by an older copy, or by one of another replica's; or a
 * bit of it flips. The replica starts again under the same id, with the same settings; if it
 * refuses the disk, it gets the right one back. That happens to a minority at most, so a
 * majority keeps its disks, and all that was promised (I5).
 *
 * So it is in the worlds of the aim `lost disks`, and in one of ten others. Until its directory
 * is recorded, a member is whoever comes first: its disk is lost only after that.
 */
#include "base/log.h"
#include "consensus/internal.h"
#include "store/internal.h"
#include "world.h"

enum swap { EMPTIED, OLDER, ANOTHERS, FLIPPED, SWAPS };

static struct disk *copy; /* of a disk as it was ... */
static unsigned copy_of;  /* ... of this replica; it may be NULL */

void swaps_draw(struct world *w)
{
        w->swaps = w->swaps || w->seed % 10 == 6;
}

void swaps_begin(void)
{
        copy = disk_free(copy);
}

void swaps_copy(struct world *w)
{
        const struct replica_node *n = &w->r[rnd_between(&w->rnd, 0, w->n_replicas - 1)];

        if (!w->swaps || !n->up)
                return;
        swaps_begin();
        copy = sim_disk_new();
        sim_disk_copy(copy, n->disk);
        copy_of = n->i;
}

static struct store *open_copy(const struct disk *d, struct disk **ret_copy)
{
        struct store_error err;
        struct store *s = NULL;

        *ret_copy = sim_disk_new();
        sim_disk_copy(*ret_copy, d);
        return store_open(&s, *ret_copy, &(struct store_config){0}, NULL, NULL, &err) == 0
                       ? s
                       : NULL;
}

static bool same_entry(const struct store_entry *a, const struct store_entry *b)
{
        return a->index == b->index && a->term == b->term && a->type == b->type &&
               bytes_cmp(a->data.p, a->data.len, b->data.p, b->data.len) == 0;
}

/* What a start finds, but for the mark of a member that lacks entries, of which there is one.
 */
static bool same_content(const struct store *sa, const struct store *sb)
{
        const struct store_recovered *a = store_recovered(sa), *b = store_recovered(sb);
        bool same = a->fresh == b->fresh && a->term == b->term && a->vote == b->vote &&
                    a->snapshot.index == b->snapshot.index && a->n_entries == b->n_entries;

        for (size_t i = 0; i < a->n_entries && same; i++)
                same = same_entry(&a->entries[i], &b->entries[i]);
        return same;
}

/* From format 2 on, a damaged disk is refused, unless that changes nothing. */
static void check_damaged(struct world *w, const struct replica_node *n)
{
        struct disk *right_copy, *damaged_copy;
        struct store *right = open_copy(n->right_disk, &right_copy),
                     *s = open_copy(n->disk, &damaged_copy);
        const struct segment *last =
                right ? STAILQ_LAST(&right->segments, segment, next) : NULL;

        if (last && last->format >= FORMAT_SEALED && last->last > 0) {
                w->counts.damaged_disks++;
                if (s && !same_content(right, s))
                        fail(w, "replica %u does not notice that its disk is damaged",
                             n->i + 1);
        }
        store_free(right);
        store_free(s);
        disk_free(right_copy);
        disk_free(damaged_copy);
}

/* What a member has acknowledged, the leader knows that got it; and the member's own disk, if
 * it is the right one. */
static bool is_known(struct world *w, const struct replica_node *n)
{
        const struct replica_node *leader = the_leader(w);

        return leader && leader != n && leader->up;
}

/* Whether its directory is recorded, as far as all others know, which are most. */
static bool is_recorded(const struct world *w, const struct replica_node *n)
{
        unsigned up = 0;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                if (!w->r[i].up)
                        continue;
                if (replica_directory(w->r[i].node.replica, n->id) == 0)
                        return false;
                up++;
        }
        return up > w->n_replicas / 2;
}

void swap_disk(struct world *w, struct replica_node *n)
{
        static const char *const names[] = {"emptied", "an older copy", "another replica's",
                                            "damaged"};
        enum swap what;

        if (!w->swaps || w->calm || n->right_disk || n->gone || !is_recorded(w, n) ||
            (w->n_swapped >= (w->n_replicas - 1) / 2 && !n->joins) ||
            !chance(w, w->replaces ? 60 : 30))
                return;
        what = (enum swap) rnd_between(&w->rnd, 0, SWAPS - 1);
        if ((what == OLDER || what == ANOTHERS) &&
            (!copy || (copy_of == n->i) != (what == OLDER)))
                what = EMPTIED;
        if (what == OLDER && !is_known(w, n))
                what = EMPTIED;
        log_debug("%.3f s: the disk of replica %u is %s", (double) w->now / 1e9, n->i + 1,
                  names[what]);
        w->n_swapped++;
        n->right_disk = sim_disk_new();
        sim_disk_copy(n->right_disk, n->disk);
        if (what == EMPTIED)
                sim_disk_empty(n->disk);
        else if (what == FLIPPED)
                sim_disk_flip(n->disk, &w->rnd);
        else
                sim_disk_copy(n->disk, copy);
        if (what == FLIPPED)
                check_damaged(w, n);
        n->made = what != EMPTIED;
        n->older = what == OLDER;
        if (n->older)
                w->older_term =
                        max_of(w->older_term, replica_term(the_leader(w)->node.replica));
        n->seen = (struct seen){0};
}

static void swap_noticed(struct world *w, struct replica_node *n)
{
        if (n->refused)
                return;
        if (!swap_refused(n))
                return fail(w, "I5: replica %u is refused with its own disk", n->i + 1);
        if (w->calm)
                post(w, MSEC, EV_START)->to = n->i;
}

/* With the leader goes what nobody else knows: a later one may have been elected with the vote
 * of an older copy, and lack what the right disk had acknowledged. Nothing is judged then. */
static void look_for_older(struct world *w, const struct replica *r)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].older && !w->r[i].refused && replica_leads(r) &&
                    replica_term(r) > w->older_term)
                        w->unknowable = true;
}

/* Whether one is known to refuse the directory that another one has now. */
static bool refuses(const struct replica_node *by, const struct replica_node *whom)
{
        const struct replica *r = by->node.replica, *of = whom->node.replica;
        uint64_t directory = replica_introduction(of, 0).directory;
        const struct member_version *v = versions_of(of, by->id);

        return (directories_refuse(r, whom->id) &&
                versions_of(r, whom->id)->is.directory == directory) ||
               (v && v->is.yours != 0 && v->is.yours != directory);
}

void swaps_look(struct world *w, struct replica_node *n)
{
        replaced_look(w, n);
        look_for_older(w, n->node.replica);
        for (unsigned i = 0; i < w->n_replicas && w->n_swapped > 0; i++)
                if (i != n->i && w->r[i].up && refuses(n, &w->r[i]))
                        swap_noticed(w, &w->r[i]);
                else if (i != n->i && w->r[i].up && refuses(&w->r[i], n))
                        swap_noticed(w, n);
}

/* No member gets the id of an earlier one; only here members are added again. So whoever has
 * another disk is not removed, and has the right one before it is added. */
bool swap_settles(struct world *w, struct replica_node *n, bool added)
{
        if (n->right_disk && added) {
                n->refused = true;
                swap_heal(w, n);
        }
        return !n->right_disk && !n->gone;
}

static bool is_lost(struct world *w)
{
        return w->replaces && chance(w, 80);
}

void swap_heal(struct world *w, struct replica_node *n)
{
        if (!n->refused || !n->up)
                return;
        kill_replica(w, n, END_KILL);
        boot(w, n);
}

bool swap_refused(struct replica_node *n)
{
        n->refused = n->right_disk || n->again;
        return n->refused;
}

void swap_back(struct replica_node *n)
{
        if (!n->refused)
                return;
        W->counts.refused_disks++;
        n->seen = (struct seen){0};
        n->refused = n->older = false;
        if (n->again || is_lost(W)) {
                replaced_empty(n);
        } else {
                log_debug("%.3f s: replica %u has its disk back", (double) W->now / 1e9,
                          n->i + 1);
                sim_disk_copy(n->disk, n->right_disk);
                n->made = true;
        }
        n->right_disk = disk_free(n->right_disk);
}
