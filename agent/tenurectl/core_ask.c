#include "core_ask.h"

#include <inttypes.h>
#include <stdio.h>

#include "talk.h"

int core_ask_members(const struct core_options *o, Pb__MemberListResponse **ret)
{
        Pb__MemberListRequest q = PB__MEMBER_LIST_REQUEST__INIT;

        return talk_call(o, "/etcdserverpb.Cluster/MemberList", &q.base,
                         &pb__member_list_response__descriptor, (void **) ret);
}

int core_ask_status(const struct core_options *o, Pb__StatusResponse **ret)
{
        Pb__StatusRequest q = PB__STATUS_REQUEST__INIT;

        return talk_call(o, "/etcdserverpb.Maintenance/Status", &q.base,
                         &pb__status_response__descriptor, (void **) ret);
}

const Pb__Member *core_find(const Pb__MemberListResponse *p, const char *what)
{
        char id[24];

        for (size_t i = 0; *what && i < p->n_members; i++) {
                snprintf(id, sizeof(id), "%" PRIx64, p->members[i]->id);
                if (strcmp(what, p->members[i]->name) == 0 ||
                    strcmp(what + strspn(what, "0"), id) == 0)
                        return p->members[i];
        }
        return NULL;
}

const Pb__Member *core_member(const Pb__MemberListResponse *p, uint64_t id)
{
        for (size_t i = 0; i < p->n_members; i++)
                if (p->members[i]->id == id)
                        return p->members[i];
        return NULL;
}

const Pb__MemberVersion *core_status_of(const Pb__StatusResponse *s, uint64_t id)
{
        for (size_t i = 0; i < s->n_member_versions; i++)
                if (s->member_versions[i]->id == id)
                        return s->member_versions[i];
        return NULL;
}

void core_ask_leader(struct core_options *o, const Pb__MemberListResponse *list,
                     uint64_t leader)
{
        const Pb__Member *m = core_member(list, leader);

        if (m && m->n_clienturls > 0)
                o->endpoints = m->clienturls[0];
}
