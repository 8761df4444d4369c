/*
 * A member whose data directory is lost is replaced: one entry removes it and adds a learner
 * with an id of its own and the same URLs. Of the voters only one goes, so it is a change as
 * any other (Raft thesis, section 4.1), and nothing is left half done if a leader or an
 * operator's command ends.
 *
 * The address of the learner says since when it is in that place, and that it votes once it has
 * caught up (address.h), as a member that is added as a voter. A learner that takes the place
 * of a learner stays one.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "consensus/internal.h"

#define AGAIN_AFTER (10 * 60 * NSEC_PER_SEC) /* without an operator */

/* In seconds of lease time; never 0. */
static uint64_t now_of(const struct replica *r)
{
        return (uint64_t) (replica_lease_time(r, r->now).ns / NSEC_PER_SEC) + 1;
}

static int position_of_urls(const struct raft_configuration *c, const char *urls)
{
        char has[URLS_MAX];

        for (unsigned i = 0; i < c->n; i++)
                if (strcmp(address_urls(c->servers[i].address, has), urls) == 0)
                        return (int) i;
        return -1;
}

/* Whether a majority of the voters would answer without member @at. */
static bool others_suffice(struct replica *r, unsigned at)
{
        const struct raft_configuration *c = replica_conf(r);
        unsigned n = 0, n_answer = 0;

        for (unsigned i = 0; i < c->n; i++) {
                if (i == at || c->servers[i].role != RAFT_VOTER)
                        continue;
                n++;
                n_answer += members_answers(r, c->servers[i].id);
        }
        return n_answer >= n / 2 + 1;
}

bool replica_replaces_lost(const struct replica *r)
{
        return r->cfg.replace_lost;
}

int replacement_allowed(struct replica *r, enum replica_change what, const char *urls)
{
        const struct raft_configuration *c = replica_conf(r);
        int at = position_of_urls(c, urls);
        uint64_t since = at < 0 ? 0 : address_replaced(c->servers[at].address);

        if (what == REPLICA_REPLACE_LOST && !r->cfg.replace_lost)
                return REPLICA_E_NOT_LET;
        if (at < 0)
                return REPLICA_E_UNKNOWN;
        if (replica_directory(r, c->servers[at].id) == 0) {
                PROBE("a member is to be replaced that has no directory yet");
                return REPLICA_E_UNCLAIMED;
        }
        if (members_answers(r, c->servers[at].id)) {
                PROBE("a member is to be replaced that answers");
                return REPLICA_E_ALIVE;
        }
        /* A new leader may not have heard from all members yet. */
        if (boot_diff(r->now, r->led_at) < r->cfg.election)
                return REPLICA_E_BUSY;
        if (what == REPLICA_REPLACE_LOST && since != 0 &&
            now_of(r) < since + AGAIN_AFTER / NSEC_PER_SEC) {
                PROBE("a member is to be replaced again and again");
                return REPLICA_E_EARLY;
        }
        if (!others_suffice(r, (unsigned) at)) {
                PROBE("a member is not replaced because too few others answer");
                return REPLICA_E_UNHEALTHY;
        }
        for (unsigned i = 0; i < c->n; i++)
                if ((int) i != at && c->servers[i].role != RAFT_VOTER) {
                        PROBE("a member is not replaced because there is a learner");
                        return REPLICA_E_TOO_MANY;
                }
        return 0;
}

int replacement_make(const struct replica *r, uint64_t id, const char *urls,
                     struct raft_configuration *out)
{
        const struct raft_configuration *c = replica_conf(r);
        int at = position_of_urls(c, urls), k = 0;

        if (replica_position(r, id) >= 0)
                return REPLICA_E_EXISTS;
        raft_configuration_init(out);
        for (unsigned i = 0; i < c->n && k == 0; i++) {
                const struct raft_server *s = &c->servers[i];
                bool votes = members_is_voter(s);
                struct member_address a = {.replaced = votes ? now_of(r) : 0,
                                           .will_vote = votes};
                char address[ADDRESS_MAX];

                (void) address_urls(s->address, a.urls);
                k = (int) i != at ? raft_configuration_add(out, s->id, s->address, s->role)
                                  : raft_configuration_add(out, id, address_join(&a, address),
                                                           RAFT_STANDBY);
        }
        if (k == 0)
                return 0;
        raft_configuration_close(out);
        return -ENOMEM;
}

static bool is_waiting(const struct raft_server *s)
{
        return address_will_vote(s->address) && address_replaced(s->address) != 0;
}

struct replica_member replica_member(const struct replica *r, uint64_t id)
{
        int at = replica_position(r, id);

        return (struct replica_member){
                .refused = directories_refuse(r, id) || (id != 0 && r->versions.lost == id),
                .replaces = at >= 0 && is_waiting(&replica_conf(r)->servers[at]),
        };
}

void replacement_log(const struct replica *r)
{
        const struct raft_configuration *c = replica_conf(r);
        char urls[URLS_MAX];

        for (unsigned i = 0; i < c->n; i++) {
                const struct raft_server *s = &c->servers[i];
                const struct configured *had = &r->configured;
                uint64_t id = s->id;
                unsigned k = 0;

                while (k < had->n && had->id[k] != id)
                        k++;
                if (address_replaced(s->address) == 0 ||
                    (k < had->n && had->role[k] == s->role))
                        continue;
                (void) address_urls(s->address, urls);
                PROBE_IF(s->role != RAFT_VOTER, "a member is replaced");
                PROBE_IF(s->role == RAFT_VOTER, "a member that was replaced is a voter again");
                if (s->role != RAFT_VOTER)
                        log_notice(
                                "The member at %s, whose data directory is lost, is replaced "
                                "by member %016" PRIx64
                                ", which is a learner until it has caught up.",
                                urls, id);
                else if (k < had->n)
                        log_notice("Member %016" PRIx64
                                   " at %s has caught up, and is a voter now.",
                                   id, urls);
        }
}
