/*
 * lib/member/work.h: shared work, from the side of members that are late or paused, whose
 * requests and answers are lost, and whose leases end, with a core that is always right.
 * Whatever they see, no task is at two members (I12); and once all is calm, each task is at the
 * member that should have it.
 */
#include "member/work.h"

#include <stdio.h>

#include "member/rendezvous.h"
#include "test.h"

#define MEMBERS 4
#define TASKS 12
#define LOG 20000
#define TTL 60 /* as the core counts; the holder's deadline is a little before */
#define HOLDER 55
#define STEPS 4000

/* ---- the core ---- */

enum what { MEMBER, TASK };

struct change {
        enum what what;
        size_t i;               /* which member, which task */
        int64_t lease, created; /* 0: deleted */
};

struct key {
        int64_t lease, created;
};

static struct {
        int64_t revision;
        struct key members[MEMBERS], tasks[TASKS];
        struct {
                int64_t id; /* 0: none */
                int until;
        } leases[MEMBERS];
        int64_t lease; /* the last one granted */
        struct change log[LOG];
        size_t n;
} core;

static struct key *key_of(enum what what, size_t i)
{
        return what == MEMBER ? &core.members[i] : &core.tasks[i];
}

static void change(enum what what, size_t i, int64_t lease)
{
        struct key *k = key_of(what, i);

        *k = (struct key){lease, lease == 0 ? 0 : core.revision};
        CHECK(core.n < LOG);
        core.log[core.n++] = (struct change){what, i, k->lease, k->created};
}

static void end_lease(size_t m)
{
        int64_t id = core.leases[m].id;

        core.leases[m].id = 0;
        core.revision++;
        for (size_t i = 0; i < MEMBERS; i++)
                if (core.members[i].lease == id)
                        change(MEMBER, i, 0);
        for (size_t i = 0; i < TASKS; i++)
                if (core.tasks[i].lease == id)
                        change(TASK, i, 0);
}

/* ---- members ---- */

struct request {
        bool there, done; /* done: the answer is on its way */
        bool ok;
        enum work_step what;
        int64_t lease;
        size_t n, tasks[TASKS];
        int64_t created[TASKS];
        bool did[TASKS];
};

static struct member {
        char name[8];
        struct work w;
        bool up; /* it is in the group, or is joining */
        bool listed;
        bool leaves;
        int frozen; /* until then it does nothing */
        int cut;    /* until then it renews nothing */
        int held_until;
        size_t at; /* how much of the log it has seen */
        struct request takes, gives;
        int64_t by[TASKS];      /* the lease by which it began each */
        struct request late[4]; /* in doubt: they may happen still */
} nodes[MEMBERS];

static int now;
static size_t moves, owner_of[TASKS];

static struct boot_time instant(void)
{
        return (struct boot_time){.ns = 1 + now};
}

static struct view view_of(const char *text)
{
        return (struct view){(const uint8_t *) text, strlen(text)};
}

static void see(struct member *m, const struct change *c)
{
        char key[32], value[48];
        struct view k;

        if (c->what == MEMBER)
                snprintf(key, sizeof(key), "members/%s", nodes[c->i].name);
        else
                snprintf(key, sizeof(key), "tasks/%zu", c->i + 1);
        k = view_of(key);
        if (c->created == 0)
                return work_seen_deleted(&m->w, k);
        snprintf(value, sizeof(value), "{\"weight\":%u,\"tasks\":%d}",
                 nodes[c->i % MEMBERS].w.self.record.weight, TASKS);
        CHECK_EQ(work_seen(&m->w, k, view_of(value), c->lease, c->created, instant()), 0);
}

static void look(struct member *m)
{
        work_look(&m->w);
        for (size_t i = 0; i < MEMBERS; i++)
                if (core.members[i].created)
                        see(m, &(struct change){MEMBER, i, core.members[i].lease,
                                                core.members[i].created});
        for (size_t i = 0; i < TASKS; i++)
                if (core.tasks[i].created)
                        see(m, &(struct change){TASK, i, core.tasks[i].lease,
                                                core.tasks[i].created});
        work_looked(&m->w);
        m->at = core.n;
}

static bool may_act(const struct member *m)
{
        return m->w.lease != 0 && now < m->held_until;
}

/* At any instant. A frozen member whose deadline has not passed may be in the middle of a
 * task. */
static void check_owners(void)
{
        for (size_t i = 0; i < TASKS; i++) {
                size_t n = 0;

                for (size_t j = 0; j < MEMBERS; j++)
                        n += nodes[j].w.tasks[i].run != WORK_IDLE && may_act(&nodes[j]) &&
                             nodes[j].by[i] == nodes[j].w.lease;
                if (n > 1)
                        test_fail(__FILE__, __LINE__, "task %zu is at %zu members", i + 1, n);
        }
}

/* ---- what is under way ---- */

static void apply(struct member *m, struct request *q)
{
        size_t me = (size_t) (m - nodes);

        q->done = true;
        q->ok = q->what == WORK_GIVE ||
                (core.members[me].created != 0 && core.members[me].lease == q->lease);
        if (!q->ok)
                return;
        core.revision++;
        for (size_t i = 0; i < q->n; i++) {
                q->did[i] = core.tasks[q->tasks[i]].created == q->created[i];
                if (!q->did[i])
                        continue;
                change(TASK, q->tasks[i], q->what == WORK_TAKE ? q->lease : 0);
        }
}

static void answer(struct member *m, struct request *q, bool lost)
{
        if (lost && !q->done) {
                struct request *late = &m->late[rnd(0, ARRAY_SIZE(m->late) - 1)];

                if (late->there)
                        return;
                *late = *q;
        }
        q->there = false;
        for (size_t i = 0; i < q->n; i++)
                if (lost || !q->ok || (q->what == WORK_TAKE && !q->did[i]))
                        work_refused(&m->w.tasks[q->tasks[i]], q->what);
}

static void add(struct request *q, struct member *m, size_t task, enum work_step what)
{
        if (q->there && (q->n == TASKS || q->done))
                return;
        if (!q->there)
                *q = (struct request){.there = true, .what = what, .lease = m->w.lease};
        work_asked(&m->w.tasks[task], what);
        q->tasks[q->n] = task;
        q->created[q->n++] = what == WORK_GIVE ? m->w.tasks[task].given : 0;
}

static void act(struct member *m)
{
        bool takes = m->takes.there, gives = m->gives.there;

        work_assign(&m->w);
        for (size_t i = 0; i < TASKS; i++) {
                struct work_task *t = &m->w.tasks[i];

                switch (work_next_step(&m->w, t, instant())) {
                case WORK_BEGIN:
                        if (!may_act(m))
                                break;
                        work_began(t);
                        m->by[i] = m->w.lease;
                        moves += owner_of[i] != (size_t) (m - nodes);
                        owner_of[i] = (size_t) (m - nodes);
                        break;
                case WORK_END:
                        work_stops(t);
                        break;
                case WORK_TAKE:
                        if (!takes)
                                add(&m->takes, m, i, WORK_TAKE);
                        break;
                case WORK_GIVE:
                        if (!gives)
                                add(&m->gives, m, i, WORK_GIVE);
                        break;
                case WORK_NOTHING:
                        break;
                }
                if (t->run == WORK_STOPS && rnd(0, 3) == 0)
                        work_ended(t);
        }
}

static void hold(struct member *m, size_t me)
{
        core.leases[me].id = ++core.lease;
        m->held_until = now + HOLDER;
        core.leases[me].until = now + TTL;
        work_hold(&m->w, core.lease);
        core.revision++;
        change(MEMBER, me, core.lease);
        look(m);
}

static void lose(struct member *m)
{
        /* Requests that are under way may still be carried out. */
        if (m->takes.there)
                answer(m, &m->takes, true);
        m->takes.there = m->gives.there = false;
        work_hold(&m->w, 0);
        for (size_t i = 0; i < TASKS; i++)
                if (m->w.tasks[i].run == WORK_RUNS)
                        work_stops(&m->w.tasks[i]);
}

static void go_on(size_t me, bool calm)
{
        struct member *m = &nodes[me];
        struct request *q = rnd(0, 1) ? &m->takes : &m->gives;

        for (size_t i = 0; i < ARRAY_SIZE(m->late); i++)
                if (m->late[i].there && rnd(0, 9) == 0) {
                        apply(m, &m->late[i]);
                        m->late[i].there = false;
                }
        if (q->there && !q->done && rnd(0, 2) == 0)
                apply(m, q);
        if (now < m->frozen)
                return;
        if (m->w.lease != 0 && now >= m->held_until)
                lose(m);
        if (m->w.lease != 0 && now >= m->cut && core.leases[me].id == m->w.lease) {
                m->held_until = now + HOLDER;
                core.leases[me].until = now + TTL;
        }
        if (q->there && (q->done ? rnd(0, 1) == 0 : !calm && rnd(0, 19) == 0))
                answer(m, q, !calm && rnd(0, 9) == 0);
        if (m->w.lease != 0)
                for (size_t n = rnd(0, 3); n > 0 && m->at < core.n; n--)
                        see(m, &core.log[m->at++]);
        if (!calm && m->w.lease != 0 && rnd(0, 99) == 0)
                look(m);
        if (m->up && m->w.lease == 0 && now >= m->cut && core.leases[me].id == 0)
                hold(m, me);
        act(m);
}

static void expire(void)
{
        for (size_t i = 0; i < MEMBERS; i++)
                if (core.leases[i].id != 0 && now >= core.leases[i].until)
                        end_lease(i);
}

static void disturb(void)
{
        struct member *m = &nodes[rnd(0, MEMBERS - 1)];

        switch (rnd(0, 3)) {
        case 0:
                m->frozen = now + (int) rnd(1, 2 * TTL);
                break;
        case 1:
                m->cut = now + (int) rnd(1, 2 * TTL);
                break;
        case 2: /* by hand */
                core.revision++;
                if (core.members[m - nodes].created)
                        change(MEMBER, (size_t) (m - nodes), 0);
                m->frozen = m->cut = now;
                if (m->w.lease && core.leases[m - nodes].id == m->w.lease) {
                        core.revision++;
                        change(MEMBER, (size_t) (m - nodes), m->w.lease);
                }
                break;
        default:
                m->frozen = m->cut = now;
                break;
        }
}

static void begin(void)
{
        memset(&core, 0, sizeof(core));
        now = 0;
        moves = 0;
        for (size_t i = 0; i < TASKS; i++)
                owner_of[i] = SIZE_MAX;
        for (size_t i = 0; i < MEMBERS; i++) {
                struct work_record r = {.weight = (unsigned) rnd(1, 200), .n = TASKS};

                nodes[i] = (struct member){.up = true};
                snprintf(nodes[i].name, sizeof(nodes[i].name), "m%zu", i);
                CHECK_EQ(work_init(&nodes[i].w, nodes[i].name, &r, (nsec_t) rnd(1, 20)), 0);
        }
}

static void end(void)
{
        for (size_t i = 0; i < MEMBERS; i++)
                work_fini(&nodes[i].w);
}

static void pass(int steps, bool calm)
{
        for (int until = now + steps; now < until; now++) {
                expire();
                if (!calm && rnd(0, 39) == 0)
                        disturb();
                for (size_t i = 0; i < MEMBERS; i++) {
                        go_on(rnd(0, MEMBERS - 1), calm);
                        check_owners();
                }
        }
}

/* Each task is at the member that should have it, at no other, and the key is that member's. */
static void check_settled(void)
{
        for (size_t i = 0; i < TASKS; i++) {
                size_t best = SIZE_MAX;

                for (size_t j = 0; j < MEMBERS; j++) {
                        const struct work_task *t = &nodes[j].w.tasks[i];

                        if (!nodes[j].up) {
                                CHECK(t->run == WORK_IDLE);
                                continue;
                        }
                        if (best == SIZE_MAX ||
                            rendezvous_less(rendezvous_log(t->hash, nodes[j].w.self.hash),
                                            nodes[j].w.self.record.weight,
                                            rendezvous_log(t->hash, nodes[best].w.self.hash),
                                            nodes[best].w.self.record.weight))
                                best = j;
                }
                for (size_t j = 0; j < MEMBERS; j++) {
                        const struct work_task *t = &nodes[j].w.tasks[i];

                        CHECK_EQ(t->run, j == best ? WORK_RUNS : WORK_IDLE);
                        if (j == best)
                                CHECK_EQ(t->token, core.tasks[i].created);
                }
        }
}

static void calm_down(void)
{
        for (size_t i = 0; i < MEMBERS; i++) {
                nodes[i].frozen = nodes[i].cut = now;
                for (size_t k = 0; k < ARRAY_SIZE(nodes[i].late); k++)
                        nodes[i].late[k].there = false; /* they did not arrive */
        }
}

TEST(a_task_is_at_one_member_at_a_time_whatever_they_have_seen)
{
        for (int round = 0; round < 40; round++) {
                begin();
                pass(STEPS / 10, false);
                calm_down();
                pass(STEPS / 4, true);
                check_settled();
                end();
        }
}

TEST(tasks_of_who_dies_move_and_no_others)
{
        for (int round = 0; round < 20; round++) {
                size_t dead = rnd(0, MEMBERS - 1), had = 0, was[TASKS];

                begin();
                pass(STEPS / 4, true);
                check_settled();
                memcpy(was, owner_of, sizeof(was));
                for (size_t i = 0; i < TASKS; i++)
                        had += was[i] == dead;
                moves = 0;
                nodes[dead].up = false;
                nodes[dead].frozen = nodes[dead].cut = now + 3 * TTL;
                pass(STEPS / 8, true);
                CHECK_EQ(moves, had);
                /* It comes back, and gets the tasks that it had. */
                moves = 0;
                nodes[dead].up = true;
                pass(STEPS / 4, true);
                CHECK_EQ(moves, had);
                CHECK(memcmp(was, owner_of, sizeof(was)) == 0);
                check_settled();
                end();
        }
}

TEST(what_was_asked_to_be_deleted_never_begins_again)
{
        struct work_record r = {.weight = 100, .n = 1};
        struct work_task *t;
        struct work w;

        now = 0; /* whatever ran before */
        CHECK_EQ(work_init(&w, "m0", &r, 10), 0);
        t = &w.tasks[0];
        work_hold(&w, 5);
        work_assign(&w);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_TAKE);
        work_asked(t, WORK_TAKE);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_NOTHING);
        CHECK_EQ(work_seen(&w, view_of("tasks/1"), view_of("m0"), 5, 77, instant()), 0);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_BEGIN);
        work_began(t);
        CHECK_EQ(t->token, 77);
        /* Meant for a member with nearly all of the weight, after some time without another
         * one. */
        CHECK_EQ(work_seen(&w, view_of("members/zz"), view_of("{\"weight\":10000,\"tasks\":1}"),
                           6, 78, instant()),
                 0);
        work_assign(&w);
        CHECK_STR(t->best->name, "zz");
        now = 0;
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_NOTHING);
        CHECK_EQ(work_next(&w, instant()).ns, instant().ns + 10);
        now = 10;
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_END);
        work_stops(t);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_NOTHING);
        CHECK(work_is_busy(&w));
        work_ended(t);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_GIVE);
        work_asked(t, WORK_GIVE);
        /* The other member goes before the answer comes. */
        work_seen_deleted(&w, view_of("members/zz"));
        work_assign(&w);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_NOTHING);
        work_refused(t, WORK_GIVE);
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_GIVE);
        work_asked(t, WORK_GIVE);
        work_seen_deleted(&w, view_of("tasks/1"));
        CHECK_EQ(work_next_step(&w, t, instant()), WORK_TAKE);
        CHECK(!work_is_busy(&w));
        work_fini(&w);
}

/* Members that keep joining are waited for, but not for ever; and a later one is waited for
 * again. */
TEST(members_settle)
{
        static const char *const value = "{\"weight\":1,\"tasks\":1}";
        struct work_record r = {.weight = 100, .n = 1};
        char key[24];
        struct work w;

        CHECK_EQ(work_init(&w, "m0", &r, 10), 0);
        work_hold(&w, 5);
        for (int round = 0; round < 2; round++) {
                int began = now = round * 1000;

                CHECK_EQ(work_next(&w, instant()).ns, BOOT_TIME_NEVER.ns);
                for (int i = 0; i < 9; i++, now += 9) {
                        snprintf(key, sizeof(key), "members/j%d-%d", round, i);
                        CHECK_EQ(work_seen(&w, view_of(key), view_of(value), 6, 7, instant()),
                                 0);
                        CHECK_EQ(work_next(&w, instant()).ns,
                                 now >= began + 50 ? BOOT_TIME_NEVER.ns
                                                   : 1 + min_of(now + 10, began + 50));
                        if (now >= began + 40)
                                break;
                }
                /* A key that was seen already is no new member. */
                now = began + 49;
                CHECK_EQ(work_seen(&w, view_of(key), view_of(value), 6, 7, instant()), 0);
                CHECK_EQ(work_next(&w, instant()).ns, 1 + began + 50);
                now = began + 50;
                CHECK_EQ(work_next(&w, instant()).ns, BOOT_TIME_NEVER.ns);
        }
        work_fini(&w);
}

/* Keys that belong to nobody, members that we do not understand, and tasks of others. */
TEST(other_keys_of_a_group)
{
        static const char *const names[] = {"b", "a"};
        struct work_record r;
        const char *bad;
        struct work w;

        CHECK_EQ(work_record_make(&r, 100, names, 2, &bad), 0);
        CHECK_EQ(work_init(&w, "m0", &r, 10), 0);
        work_hold(&w, 5);
        CHECK_EQ(work_seen(&w, view_of("tasks/c"), view_of(""), 6, 7, instant()), 0);
        CHECK_EQ(work_seen(&w, view_of("else"), view_of(""), 6, 7, instant()), 0);
        CHECK_EQ(work_seen(&w, view_of("members/"), view_of(""), 6, 7, instant()), 0);
        CHECK_EQ(work_seen(&w, view_of("members/x"), view_of("{"), 6, 7, instant()), 0);
        /* This one has other tasks, and one that we have, too. */
        CHECK_EQ(work_seen(&w, view_of("members/y"),
                           view_of("{\"weight\":10000,\"tasks\":[\"b\",\"d\"]}"), 6, 7,
                           instant()),
                 0);
        work_assign(&w);
        CHECK_STR(work_find(&w, "a")->best->name, "m0");
        CHECK_STR(work_find(&w, "b")->best->name, "y");
        CHECK(work_find(&w, "d") == NULL);
        /* A member key without a lease, written by hand, would keep its share from all. */
        CHECK_EQ(work_seen(&w, view_of("members/z"),
                           view_of("{\"weight\":10000,\"tasks\":[\"a\",\"b\"]}"), 0, 7,
                           instant()),
                 0);
        work_assign(&w);
        CHECK_STR(work_find(&w, "a")->best->name, "m0");
        CHECK_STR(work_find(&w, "b")->best->name, "y");
        work_fini(&w);
}

/* Tasks are taken only while our own key is on our own lease; here it has to be created
 * again. */
TEST(our_own_key_is_written_by_somebody_else)
{
        struct work_record r = {.weight = 100, .n = 1};
        struct work w;

        CHECK_EQ(work_init(&w, "m0", &r, 10), 0);
        work_hold(&w, 5);
        CHECK_EQ(work_seen(&w, view_of("members/m0"), view_of("x"), 5, 7, instant()), 0);
        CHECK(!w.unlisted);
        CHECK_EQ(work_seen(&w, view_of("members/m0"), view_of("x"), 0, 7, instant()), 0);
        CHECK(w.unlisted);
        CHECK_EQ(work_seen(&w, view_of("members/m0"), view_of("x"), 5, 7, instant()), 0);
        CHECK(!w.unlisted);
        work_fini(&w);
}

/* ---- who comes and who goes moves only what it has to ---- */

#define MANY 300
#define COMERS 12

static struct comer {
        char name[16];
        unsigned weight; /* 0: it is not there */
        size_t n;        /* of the tasks, the first */
} comers[COMERS];

/* The assignment, computed from nothing but the list of members. */
static const char *due(const char *task, size_t i, bool leaving)
{
        const char *best = leaving ? NULL : "m0";
        unsigned weight = 100;
        uint64_t hash = rendezvous_hash(task),
                 log = rendezvous_log(hash, rendezvous_hash("m0"));

        for (size_t k = 0; k < COMERS; k++) {
                const struct comer *c = &comers[k];
                uint64_t other = rendezvous_log(hash, rendezvous_hash(c->name));

                if (c->weight == 0 || i >= c->n ||
                    (best && !rendezvous_less(other, c->weight, log, weight)))
                        continue;
                best = c->name;
                weight = c->weight;
                log = other;
        }
        return best;
}

static void come(struct work *w, struct comer *c, bool goes)
{
        char key[32], value[64];

        snprintf(key, sizeof(key), "members/%s", c->name);
        c->weight = goes ? 0 : (unsigned) rnd(1, 200);
        c->n = rnd(0, MANY);
        snprintf(value, sizeof(value), "{\"weight\":%u,\"tasks\":%zu}", c->weight, c->n);
        if (goes)
                work_seen_deleted(w, view_of(key));
        else
                CHECK_EQ(work_seen(w, view_of(key), view_of(value), 6, 7, instant()), 0);
}

TEST(each_task_is_whose_it_is_however_members_came_and_went)
{
        struct work_record r = {.weight = 100, .n = MANY};
        struct work w;

        CHECK_EQ(work_init(&w, "m0", &r, 10), 0);
        work_hold(&w, 5);
        for (size_t k = 0; k < COMERS; k++)
                snprintf(comers[k].name, sizeof(comers[k].name), "c%zu", k);
        for (int step = 0; step < 400; step++) {
                if (step == 200) { /* another lease: everything is read again */
                        work_hold(&w, 6);
                        for (size_t k = 0; k < COMERS; k++)
                                comers[k].weight = 0;
                } else if (step == 300) {
                        work_leave(&w);
                }
                for (uint64_t n = rnd(0, 3); n > 0; n--)
                        come(&w, &comers[rnd(0, COMERS - 1)], rnd(0, 2) == 0);
                work_assign(&w);
                for (size_t i = 0; i < MANY; i++) {
                        const struct work_task *t = &w.tasks[i];
                        const char *want = due(t->name, i, step >= 300);

                        CHECK_STR(t->best ? t->best->name : "", want ? want : "");
                }
        }
        work_fini(&w);
}
