/* tenurectl core replace: puts a new member in the place of one whose data directory is lost.
 * Waits until the new member is what the old one was, and may be run again at any time. */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "core_ask.h"
#include "talk.h"
#include "text.h"
#include "verbs.h"

#define LOOK_EVERY (500 * NSEC_PER_MSEC)

enum stage { ASKED, WAITS, CATCHES_UP, DONE };

struct replacing {
        struct ctl *c;
        const char *what; /* the name or id that was given */
        uint64_t former, id;
        char url[TEXT_SHOWN];
        enum stage told; /* the last stage that was reported */
        bool live;       /* there is a line of progress on the terminal */
};

/* Call it before any other output, here or by talk(). */
static void hide_progress(struct replacing *p)
{
        if (p->live)
                fputs("\r\033[K", stdout);
        fflush(stdout);
        p->live = false;
}

__attribute__((format(printf, 2, 3))) static void tell(struct replacing *p, const char *fmt,
                                                       ...)
{
        FILE *f = p->c->json ? stderr : stdout;
        va_list ap;

        hide_progress(p);
        va_start(ap, fmt);
        vfprintf(f, fmt, ap);
        va_end(ap);
        fflush(f);
}

static void tell_behind(struct replacing *p, uint64_t behind)
{
        if (p->c->json || !isatty(STDOUT_FILENO))
                return;
        printf("%" PRIu64 " entries behind", behind);
        fflush(stdout);
        p->live = true;
}

static void tell_what_to_do(struct replacing *p)
{
        tell(p,
             "Waiting for it to start with an empty data directory. On its host, with the\n"
             "settings as they are:\n"
             "  systemctl stop tenure-core\n"
             "  find /var/lib/tenure-core -mindepth 1 -delete\n"
             "  systemctl start tenure-core\n"
             "A replica that has been started like that goes on by itself. If the cluster has\n"
             "grown since it began, it needs --initial-cluster-state=existing for that.\n");
}

static int refuse_etcd(const char *what, const Pb__Member *m)
{
        char url[TEXT_SHOWN], name[TEXT_SHOWN];

        fprintf(stderr,
                "tenurectl: the replica that was asked is an etcd, or runs release 0.1.0, and "
                "cannot replace a member in one step. Use these steps:\n"
                "  tenurectl core remove %s\n"
                "  tenurectl core add %s\n"
                "  (start it with an empty data directory, as that command says)\n"
                "  tenurectl core promote %s\n",
                text_shown(what, name),
                m->n_peerurls > 0 ? text_shown(m->peerurls[0], url) : "PEER-URL",
                text_shown(what, name));
        return -EOPNOTSUPP;
}

/* The member that has taken the place of one, and has no name yet since it has not started.
 * There is one learner at most. */
static const Pb__Member *find_nameless(const Pb__MemberListResponse *list,
                                       const Pb__StatusResponse *s)
{
        for (size_t i = 0; i < list->n_members; i++) {
                const Pb__MemberVersion *v = core_status_of(s, list->members[i]->id);

                if (v && v->replaces && !*list->members[i]->name)
                        return list->members[i];
        }
        return NULL;
}

static void go_on_with(struct replacing *p, const Pb__Member *m)
{
        p->id = m->id;
        if (m->n_peerurls > 0)
                (void) text_shown(m->peerurls[0], p->url);
        tell(p, "%016" PRIx64 " at %s takes the place of a member that was replaced already.\n",
             p->id, p->url);
}

static int ask(struct replacing *p, const Pb__Member *m)
{
        cleanup_(pb_freep) Pb__ReplaceMemberResponse *reply = NULL;
        Pb__ReplaceMemberRequest q = PB__REPLACE_MEMBER_REQUEST__INIT;
        struct talk t = {.path = "/tenurepb.Cluster/ReplaceMember",
                         .request = &q.base,
                         .reply_type = &pb__replace_member_response__descriptor,
                         .quiet = RPC_UNIMPLEMENTED};
        int r;

        q.id = p->former = m->id;
        r = talk(&p->c->core, &t);
        reply = t.reply;
        if (r < 0 && t.code == RPC_UNIMPLEMENTED)
                return refuse_etcd(p->what, m);
        if (r == 0 && !reply->member)
                r = -EBADMSG;
        if (r < 0)
                return r;
        p->id = reply->member->id;
        if (m->n_peerurls > 0)
                (void) text_shown(m->peerurls[0], p->url);
        tell(p,
             "Replaced %016" PRIx64 " by %016" PRIx64 " at %s%s.\n"
             "This command may be interrupted: the core continues, and so does this command "
             "when it is run again.\n",
             p->former, p->id, p->url,
             m->islearner ? "" : ", a learner until it has caught up");
        return 0;
}

/* Finds the member that is meant, and has it replaced unless it was replaced already. */
static int begin(struct replacing *p)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        const Pb__MemberVersion *v;
        const Pb__Member *m;
        char shown[TEXT_SHOWN];
        int r = core_ask_members(&p->c->core, &list);

        if (r == 0)
                r = core_ask_status(&p->c->core, &s);
        if (r < 0)
                return r;
        m = core_find(list, p->what);
        if (!m) {
                m = find_nameless(list, s);
                if (!m)
                        return say("no member is named '%s'; see tenurectl core members",
                                   p->what);
                tell(p, "No member is named '%s' now.\n", text_shown(p->what, shown));
                go_on_with(p, m);
                return 0;
        }
        v = core_status_of(s, m->id);
        if (v && v->replaces && !v->refused) {
                go_on_with(p, m);
                return 0;
        }
        return ask(p, m);
}

static enum stage look(const Pb__Member *m, const Pb__MemberVersion *v)
{
        if (!v || !v->linked)
                return WAITS;
        return v->replaces || !*m->name ? CATCHES_UP : DONE; /* it has reported its name */
}

/* Asks again later while the core has no leader, or if the replica that is asked has just died.
 * Returns as talk(). */
static int look_for(const struct core_options *o, const char *path, const ProtobufCMessage *q,
                    const ProtobufCMessageDescriptor *type, void **ret)
{
        struct talk t = {.path = path, .request = q, .reply_type = type, .asks_again = true};
        int r = talk(o, &t);

        *ret = t.reply;
        return r;
}

/* Returns 1 while the replacement is not complete. */
static int follow(struct replacing *p)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL, *leaders = NULL;
        const Pb__MemberVersion *v;
        const Pb__Member *m;
        struct core_options at = p->c->core;
        Pb__MemberListRequest members = PB__MEMBER_LIST_REQUEST__INIT;
        Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
        enum stage stage;
        int r;

        hide_progress(p);
        r = look_for(&p->c->core, "/etcdserverpb.Cluster/MemberList", &members.base,
                     &pb__member_list_response__descriptor, (void **) &list);

        if (r == 0)
                r = look_for(&p->c->core, "/etcdserverpb.Maintenance/Status", &status.base,
                             &pb__status_response__descriptor, (void **) &s);
        if (r < 0)
                return r == -ENOTCONN ? 1 : r;
        m = core_member(list, p->id);
        if (!m)
                return say("%016" PRIx64 " was removed meanwhile", p->id);
        if (s->leader == 0)
                return 1;
        core_ask_leader(&at, list, s->leader);
        r = look_for(&at, "/etcdserverpb.Maintenance/Status", &status.base,
                     &pb__status_response__descriptor, (void **) &leaders);
        if (r < 0)
                return r == -ENOTCONN ? 1 : r;
        v = core_status_of(leaders, p->id);
        stage = look(m, v);
        if (stage == WAITS && p->told < WAITS)
                tell_what_to_do(p);
        else if (stage == CATCHES_UP && p->told < CATCHES_UP)
                tell(p, "It has started, and is catching up.\n");
        if (stage == CATCHES_UP)
                tell_behind(p, v->behind);
        p->told = max_of(p->told, stage);
        if (stage < DONE)
                return 1;
        tell(p, "%016" PRIx64 " has caught up, and is a %s.\n", p->id,
             m->islearner ? "learner, as the one before" : "voter");
        if (p->c->json) {
                struct json_object *j = json_object_new_object();

                json_put_id(j, "id", p->id);
                json_put_text(j, "name", m->name);
                json_put_text(j, "role", m->islearner ? "learner" : "voter");
                json_put_text(j, "peer_url", m->n_peerurls > 0 ? m->peerurls[0] : "");
                ctl_print(p->c, j);
        }
        return 0;
}

int verb_core_replace(struct ctl *c, int argc unused_, char **argv)
{
        struct replacing p = {.c = c, .what = argv[0]};
        struct timespec pause = {.tv_nsec = LOOK_EVERY};
        int r = begin(&p);

        while (r >= 0 && (r = follow(&p)) > 0)
                nanosleep(&pause, NULL);
        return r;
}
