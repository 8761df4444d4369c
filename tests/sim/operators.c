/*
 * Operators, who change the members by the real services: two at a time add members that never
 * start, as voters and as learners, at URLs that may be taken, remove, promote and move them,
 * and list all members. Answers are lost, and requests carried out late.
 *
 * What an answer says about a member holds until somebody asks for something else: one that was
 * added is there, with its URL, one that was removed is not, nobody is there without having
 * been asked for, and no two have the same URL. Nobody who never started is promoted, or
 * replaced: it has no directory that could be lost. Nor is a replica replaced that answers. In
 * some worlds the core refuses what may cost the majority; in the others the operators do not
 * ask for it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "asker.h"

#define N_OPERATORS 2
#define N_URLS 4
#define STRAYS_MAX 512
#define A_WHILE (10 * MSEC)      /* for a leader to hear that a change is committed */
#define ASKED_TWICE (600 * MSEC) /* for the leader to be asked again for what is answered */

enum order {
        ADD,
        ADD_LEARNER,
        REMOVE,
        PROMOTE,
        MOVE,
        REPLACE,
        REPLACE_LOST,
        REPLACE_WELL,
        LIST
};

static struct admin {
        struct asker asker;
        enum order op;
        struct stray *of;
        char url[32];
        uint64_t term; /* the last one that had begun when it asked */
} operators[N_OPERATORS];

/* A member that never starts. */
static struct stray {
        uint64_t id;
        nsec_t added; /* when its existence was known */
        nsec_t removing,
                removed;   /* when its removal was first asked for, and done; 0: not yet */
        unsigned removals; /* that were asked for */
        char url[32];      /* "": not known */
        bool learner;
        nsec_t told; /* when its addition was answered; 0: not yet */
        bool by_one; /* ... and nobody else had led since it was asked for */
        bool moving; /* somebody has asked for another URL, and the outcome is not known */
} strays[STRAYS_MAX];
static size_t n_strays;
/* Additions of which nobody was told that they were made. One that was refused may be made by
 * another leader, which was asked meanwhile. */
static unsigned unsure;

static struct admin *admin_of(struct asker *a)
{
        return container_of(a, struct admin, asker);
}

static struct stray *find(uint64_t id)
{
        for (size_t i = 0; i < n_strays; i++)
                if (strays[i].id == id)
                        return &strays[i];
        return NULL;
}

static struct stray *note(uint64_t id, const char *url, bool learner)
{
        struct stray *s = &strays[n_strays];

        if (n_strays == STRAYS_MAX) {
                fail_full(W, "members that never start");
                return &strays[0];
        }
        n_strays++;
        *s = (struct stray){.id = id, .added = W->now, .learner = learner};
        snprintf(s->url, sizeof(s->url), "%s", url);
        return s;
}

/* One that may still be there; NULL: there is none. */
static struct stray *some_stray(void)
{
        struct stray *there[STRAYS_MAX];
        size_t n = 0;

        for (size_t i = 0; i < n_strays; i++)
                if (strays[i].removed == 0)
                        there[n++] = &strays[i];
        return n > 0 ? there[rnd_between(&W->rnd, 0, n - 1)] : NULL;
}

/* ---- requests ---- */

static enum order choose(void)
{
        static const enum order faulty[] = {ADD,    ADD,    ADD_LEARNER, ADD_LEARNER, REMOVE,
                                            REMOVE, REMOVE, PROMOTE,     MOVE,        REPLACE,
                                            LIST,   LIST,   LIST,        LIST};

        if (replaced_lost(W) && (!W->asks_itself || W->calm) && chance(W, 30))
                return REPLACE_LOST;
        if (well_for(W) > 0 && chance(W, 15)) /* it could not go on if that were done */
                return REPLACE_WELL;
        if (W->calm) /* all of them have to go */
                return rnd_between(&W->rnd, 0, 2) > 0 ? REMOVE : LIST;
        return faulty[rnd_between(&W->rnd, 0, ARRAY_SIZE(faulty) - 1)];
}

/* The replicas are a majority without the strays, or the core sees to that. A core of one would
 * take a second voter all the same, and wait for it. */
static bool may_add_voter(void)
{
        unsigned n = unsure;

        for (size_t i = 0; i < n_strays; i++)
                n += strays[i].removed == 0;
        return W->n_replicas > 1 && (!W->any_change || n + 3 <= W->n_replicas);
}

/* A new leader is busy until it may have heard from every member, for an election timeout, and
 * is asked again after that. */
static void ask_for_change(struct asker *a, const char *path, const ProtobufCMessage *m)
{
        asker_ask(a, path, m);
        a->waits.bound = PROMPT_MAJORITY + 2 * W->election;
}

static void act(struct asker *a)
{
        Pb__MemberAddRequest add = PB__MEMBER_ADD_REQUEST__INIT;
        Pb__MemberRemoveRequest remove = PB__MEMBER_REMOVE_REQUEST__INIT;
        Pb__MemberPromoteRequest promote = PB__MEMBER_PROMOTE_REQUEST__INIT;
        Pb__MemberUpdateRequest move = PB__MEMBER_UPDATE_REQUEST__INIT;
        Pb__ReplaceMemberRequest replace = PB__REPLACE_MEMBER_REQUEST__INIT;
        Pb__MemberListRequest list = PB__MEMBER_LIST_REQUEST__INIT;
        struct admin *o = admin_of(a);
        char *urls[] = {o->url};

        o->term = W->top_term;
        o->op = choose();
        o->of = some_stray();
        if (!o->of && o->op != ADD && o->op != ADD_LEARNER && o->op != REPLACE_LOST &&
            o->op != REPLACE_WELL)
                o->op = LIST;
        if (o->op == ADD && !may_add_voter())
                o->op = ADD_LEARNER;
        snprintf(o->url, sizeof(o->url), "http://127.0.0.1:%u",
                 (unsigned) rnd_between(&W->rnd, 9001, 9000 + N_URLS));
        switch (o->op) {
        case ADD:
        case ADD_LEARNER:
                unsure++;
                add.peerurls = urls;
                add.n_peerurls = 1;
                add.islearner = o->op == ADD_LEARNER;
                return ask_for_change(a, "/etcdserverpb.Cluster/MemberAdd", &add.base);
        case REMOVE:
                if (o->of->removing == 0)
                        o->of->removing = W->now;
                o->of->removals++;
                remove.id = o->of->id;
                return ask_for_change(a, "/etcdserverpb.Cluster/MemberRemove", &remove.base);
        case PROMOTE:
                promote.id = o->of->id;
                return ask_for_change(a, "/etcdserverpb.Cluster/MemberPromote", &promote.base);
        case MOVE:
                o->of->moving = true;
                move.id = o->of->id;
                move.peerurls = urls;
                move.n_peerurls = 1;
                return ask_for_change(a, "/etcdserverpb.Cluster/MemberUpdate", &move.base);
        case REPLACE:
        case REPLACE_LOST:
                replace.id = o->op == REPLACE ? o->of->id : replaced_lost(W)->id;
                return ask_for_change(a, "/tenurepb.Cluster/ReplaceMember", &replace.base);
        case REPLACE_WELL:
                replace.id = W->r[rnd_between(&W->rnd, 0, W->n_replicas - 1)].id;
                return ask_for_change(a, "/tenurepb.Cluster/ReplaceMember", &replace.base);
        case LIST:
                list.linearizable = true;
                return asker_ask(a, "/etcdserverpb.Cluster/MemberList", &list.base);
        }
}

/* ---- answers ---- */

/* A core that looks after its majority takes no other voter while one does not answer. */
static void check_allowed(const struct admin *o)
{
        for (size_t i = 0; i < n_strays && !W->any_change; i++)
                if (!strays[i].learner && strays[i].told > 0 &&
                    strays[i].told < o->asker.asked_at && strays[i].removing == 0)
                        fail(W,
                             "members: a voter was added, though %" PRIx64
                             ", which votes, does not answer",
                             strays[i].id);
}

static void on_added(struct admin *o, struct view m)
{
        Pb__MemberAddResponse *p = pb__member_add_response__unpack(NULL, m.len, m.p);
        struct stray *s = find(p->member->id);

        if (o->op == ADD)
                check_allowed(o);
        unsure--;
        /* A list may have had it before. */
        if (!s)
                s = note(p->member->id, o->url, o->op == ADD_LEARNER);
        s->told = W->now;
        s->by_one = o->term == W->top_term;
        W->counts.added++;
        pb_free(p);
}

static const Pb__Member *listed(const Pb__MemberListResponse *p, uint64_t id)
{
        for (size_t i = 0; i < p->n_members; i++)
                if (p->members[i]->id == id)
                        return p->members[i];
        return NULL;
}

static bool is_listed_at(const Pb__MemberListResponse *p, const char *url)
{
        for (size_t i = 0; i < p->n_members; i++)
                if (p->members[i]->n_peerurls == 1 &&
                    strcmp(p->members[i]->peerurls[0], url) == 0)
                        return true;
        return false;
}

static void check_stray(const struct admin *o, const Pb__MemberListResponse *p,
                        const struct stray *s)
{
        const Pb__Member *m = listed(p, s->id);

        /* A list also has who is not committed, and may yet be lost with the leader; and a
         * replica that is behind does not know who was answered before that. */
        if (!m && s->told > 0 && s->removing == 0 &&
            max_of(s->told, W->changed_at) + A_WHILE < o->asker.asked_at)
                fail(W,
                     "members: %" PRIx64 " was added at %.3f s, nobody removed it, and it is "
                     "not listed",
                     s->id, (double) s->added / 1e9);
        /* One leader may have answered the addition, while another was asked for it again. */
        if (m && s->told > 0 && (s->by_one || s->removing > s->told + ASKED_TWICE) &&
            s->removed > 0 && s->removed < o->asker.asked_at)
                fail(W, "members: %" PRIx64 " was removed at %.3f s, and is listed", s->id,
                     (double) s->removed / 1e9);
        if (m && *s->url && !s->moving && s->added < o->asker.asked_at &&
            (m->n_peerurls != 1 || strcmp(m->peerurls[0], s->url) != 0))
                fail(W, "members: %" PRIx64 " is at %s, and listed at %s", s->id, s->url,
                     m->n_peerurls > 0 ? m->peerurls[0] : "nothing");
}

static void check_listed(const Pb__MemberListResponse *p, size_t i)
{
        const Pb__Member *m = p->members[i];

        for (size_t k = 0; k < i; k++)
                if (m->n_peerurls == 1 && p->members[k]->n_peerurls == 1 &&
                    strcmp(m->peerurls[0], p->members[k]->peerurls[0]) == 0)
                        fail(W, "members: %" PRIx64 " and %" PRIx64 " are both at %s", m->id,
                             p->members[k]->id, m->peerurls[0]);
        if ((m->n_peerurls == 1 && replica_at(m->peerurls[0]) < W->n_replicas) || find(m->id))
                return;
        if (unsure == 0)
                fail(W, "members: %" PRIx64 " is listed, and nobody added it", m->id);
        (void) note(m->id, "", m->islearner);
}

static void on_listed(struct admin *o, struct view m)
{
        Pb__MemberListResponse *p = pb__member_list_response__unpack(NULL, m.len, m.p);

        for (unsigned i = 0; i < W->n_replicas; i++)
                if (!is_listed_at(p, address_of(i)))
                        fail(W, "members: replica %u is not listed", i + 1);
        for (size_t i = 0; i < n_strays; i++)
                check_stray(o, p, &strays[i]);
        for (size_t i = 0; i < p->n_members; i++)
                check_listed(p, i);
        pb_free(p);
}

static void on_done(struct admin *o, struct view m)
{
        switch (o->op) {
        case ADD:
        case ADD_LEARNER:
                return on_added(o, m);
        case REMOVE:
                if (o->of->removed == 0)
                        o->of->removed = W->now;
                return;
        case PROMOTE: /* or it voted before, and the first answer was lost */
                if (o->of->learner)
                        fail(W, "members: %" PRIx64 " was promoted, and never started",
                             o->of->id);
                return;
        case MOVE:
                return;
        case REPLACE:
                return fail(W, "members: %" PRIx64 " was replaced, and never started",
                            o->of->id);
        case REPLACE_LOST:
                W->counts.replaced++;
                return;
        case REPLACE_WELL:
                return fail(W, "members: a replica was replaced, though all was well");
        case LIST:
                return on_listed(o, m);
        }
}

/* It was refused, for good or because time ran out. */
static void on_refused(struct admin *o, enum rpc_code code)
{
        if ((o->op == ADD || o->op == ADD_LEARNER) && code == RPC_FAILED_PRECONDITION &&
            o->term == W->top_term)
                unsure--;
        if (o->op == REMOVE && code == RPC_NOT_FOUND) {
                /* A refusal that arrives twice stands for that of another attempt. */
                if (o->of->removals == 1 && o->of->told > 0 && !W->faults.loss)
                        fail(W,
                             "members: %" PRIx64 " was added and not removed, and is not found",
                             o->of->id);
                if (o->of->removed == 0)
                        o->of->removed = W->now;
        }
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct admin *o = admin_of(a);

        a->act_at = W->now + some_time(W, 0, 300 * MSEC);
        if (code == RPC_OK && !lost)
                on_done(o, m);
        else if (!lost)
                on_refused(o, code);
}

static const struct asker_ops ops = {.act = act, .answered = answered};

/* ---- ---- */

void operators_begin(struct world *w)
{
        n_strays = unsure = 0;
        for (unsigned i = 0; w->operated && i < N_OPERATORS; i++)
                asker_begin(&operators[i].asker, i, &ops);
}
