/* Reports what happens to the nodes, the services and our own place: to the journal, to
 * systemd's status line, and to the bus. */
#include <inttypes.h>
#include <stdio.h>

#include "agent.h"
#include "base/log.h"
#include "base/utf8.h"
#include "bus/messages.h"
#include "bus/notify.h"

#define CLAIM_EVERY (60 * NSEC_PER_SEC)
#define TROUBLE_FIRST NSEC_PER_SEC
#define TROUBLE_AGAIN (60 * NSEC_PER_SEC)

/* ---- membership ---- */

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        struct agent *a = userdata;

        if (!member_remembers(a->member))
                news_add(a, NEWS_NODE_JOINED, n->record.name, n->record.id, "", "", revision);
        brake_joined(&a->stability.brake, n->record.name);
        stability_nodes(&a->stability, member_nodes(a->member)->n, boot_now());
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct agent *a = userdata;

        news_add(a, NEWS_NODE_LEFT, n->record.name, n->record.id,
                 *n->record.leaving ? n->record.leaving_note : "", reason, revision);
        /* Those that expired in the course of a long gap did not do so at once. */
        if (strcmp(reason, "expired") == 0 &&
            member_gap(a->member, revision) < a->stability.brake_cfg.window)
                brake_expired(&a->stability.brake, n->record.name, boot_now());
        stability_nodes(&a->stability, member_nodes(a->member)->n, boot_now());
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        news_add(userdata, NEWS_NODE_CHANGED, n->record.name, n->record.id, "", "", revision);
}

static void on_service_added(const struct service *s, int64_t revision, void *userdata)
{
        struct agent *a = userdata;

        if (member_remembers(a->member))
                return;
        news_add(userdata, NEWS_SERVICE_ADDED, s->name, s->node, s->instance, "", revision);
}

static void on_service_removed(const struct service *s, const char *reason, int64_t revision,
                               void *userdata)
{
        news_add(userdata, NEWS_SERVICE_REMOVED, s->name, s->node, s->instance, reason,
                 revision);
}

static void on_service_changed(const struct service *s, int64_t revision, void *userdata)
{
        news_add(userdata, NEWS_SERVICE_CHANGED, s->name, s->node, s->instance, "", revision);
}

void agent_brake(struct stability *s)
{
        struct agent *a = container_of(s, struct agent, stability);
        const char *fields[] = {MESSAGE_MASS, NULL};
        size_t missing = s->brake.n_missing, of = s->n_nodes + missing;

        if (s->brake.on)
                log_full(LOG_WARNING, fields,
                         "%zu of %zu nodes have expired within %" PRId64
                         " s; software that moves work should wait.",
                         missing, of, s->brake_cfg.window / NSEC_PER_SEC);
        else
                log_notice("No mass failure any more: %zu of %zu nodes are missing. Those that "
                           "expired more than %" PRId64 " s ago do not count.",
                           missing, of,
                           max_of(s->brake_cfg.window, BRAKE_MISSED_FOR) / NSEC_PER_SEC);
        root_changed(a, "MassFailure");
}

/* ---- our own place ---- */

/* A refusal of the core is more than a failure to reach it elsewhere, but does not outlive it.
 */
const char *agent_trouble(const struct agent *a)
{
        const char *why = member_trouble(a->member);

        if (a->state == SESSION_HELD || a->state == SESSION_LEFT)
                return "";
        return !*why || member_is_refused(a->member) ? a->why : why;
}

void agent_tell_status(struct agent *a)
{
        const struct session *s = member_session(a->member);
        const char *why = agent_trouble(a);
        size_t n = member_nodes(a->member)->n;

        a->reported_nodes = n;
        switch (a->state) {
        case SESSION_JOINING:
                if (!fence_is_down(&a->fence)) {
                        const char *what = fence_still_up(&a->fence);

                        notify_status("Not joining before %s is down.",
                                      *what ? what : a->opt.held_target);
                        break;
                }
                if (boot_before(boot_now(), a->stability.damping.until)) {
                        notify_status("Staying out for %" PRId64 " s after %" PRIu64
                                      " losses; tenurectl join ends that.",
                                      boot_diff(a->stability.damping.until, boot_now()) /
                                              NSEC_PER_SEC,
                                      a->opt.flap_limit);
                        break;
                }
                notify_status("Joining cluster %s as %s%s%s.", a->opt.cluster, a->opt.node_name,
                              *why ? ": " : "", why);
                break;
        case SESSION_HELD:
                if (a->held_back) {
                        notify_status(
                                "Holding lease %016" PRIx64 " as %s, but %s stays down: the "
                                "core acknowledges renewals too slowly for its TTL.",
                                (uint64_t) s->lease, a->opt.node_name, a->opt.held_target);
                        break;
                }
                notify_status("Holding lease %016" PRIx64 " as %s in cluster %s of %zu nodes.",
                              (uint64_t) s->lease, a->opt.node_name, a->opt.cluster, n);
                break;
        case SESSION_JEOPARDY:
                notify_status("Lease in jeopardy: renewals fail%s%s.", *a->why ? ": " : "",
                              a->why);
                break;
        case SESSION_LOST:
                notify_status("Lost the lease: %s.", a->why);
                break;
        case SESSION_LEAVING:
                notify_status("Leaving.");
                break;
        case SESSION_LEFT:
                if (a->maintenance != MAINTENANCE_NONE && !(a->leaving.causes & LEAVING_EXIT))
                        notify_status("Staying out%s; tenurectl join ends that.",
                                      a->maintenance == MAINTENANCE_PERSISTENT
                                              ? ", also after the next boot"
                                              : "");
                else
                        notify_status("Left.");
                break;
        }
}

static void on_session(void *userdata, enum session_state state, const char *why)
{
        struct agent *a = userdata;
        const struct session *s = member_session(a->member);
        bool again = state == a->state && state == SESSION_JOINING && strcmp(why, a->why) == 0;
        char lease[48];
        const char *fields[] = {NULL, lease, NULL};

        /* Stop what depends on the place before anything is logged. */
        if (state == SESSION_LOST)
                fence_run(&a->fence, s, leaving_is_under_way(&a->leaving), boot_now());
        snprintf(lease, sizeof(lease), "LEASE=%016" PRIx64, (uint64_t) s->lease);
        utf8_print(a->why, sizeof(a->why), "%s", why);
        counters_session(&a->counters, a->state, state);
        a->state = state;
        switch (state) {
        case SESSION_HELD:
                fields[0] = MESSAGE_HELD;
                log_full(LOG_NOTICE, fields,
                         "Node %s %s its place (lease %016" PRIx64 ", TTL %" PRId64 " ms).",
                         a->opt.node_name, a->resumed && !a->ready ? "still holds" : "holds",
                         (uint64_t) s->lease, s->ttl / NSEC_PER_MSEC);
                break;
        case SESSION_JEOPARDY:
                evidence_jeopardy(a->measured.evidence, boot_now());
                fields[0] = MESSAGE_JEOPARDY;
                log_full(LOG_WARNING, fields,
                         "Renewals fail; the place is lost in %" PRId64
                         " ms unless one succeeds%s%s.",
                         boot_diff(session_deadline(s), boot_now()) / NSEC_PER_MSEC,
                         *why ? ": " : "", why);
                break;
        case SESSION_LOST:
                a->resumed = false;
                /* A lease that was ended before its deadline says nothing about the TTL. */
                if (!boot_before(boot_now(), session_deadline(s)))
                        evidence_lost(a->measured.evidence, session_due(s), boot_now());
                fields[0] = MESSAGE_LOST;
                if (stability_lost(&a->stability, boot_now())) {
                        held_keep_out(a);
                        log_full(LOG_ERR, fields,
                                 "Node %s lost its place: %s; %" PRIu64
                                 " times by now, so it stays out for %" PRId64 " s.",
                                 a->opt.node_name, why, a->opt.flap_limit,
                                 a->opt.flap_rest / NSEC_PER_SEC);
                } else {
                        log_full(LOG_ERR, fields, "Node %s lost its place: %s; joining again.",
                                 a->opt.node_name, why);
                }
                break;
        case SESSION_JOINING:
                if (again)
                        break;
                if (*why)
                        log_warning("Cannot join yet: %s.", why);
                a->trouble_log_at = boot_add(boot_now(), *why ? TROUBLE_AGAIN : TROUBLE_FIRST);
                break;
        case SESSION_LEFT:
                log_info("Left.");
                break;
        case SESSION_LEAVING:
                break;
        }
        root_session_changed(a, state, why);
        agent_tell_status(a);
        if (state == SESSION_HELD)
                held_check(a);
}

/* on_session() is told what the core refuses, but not that no core can be reached. The first
 * failures are not logged: another endpoint may answer. */
struct boot_time agent_tell_trouble(struct agent *a, struct boot_time now)
{
        const char *why = agent_trouble(a);

        if (a->state != SESSION_JOINING)
                return BOOT_TIME_NEVER;
        if (a->trouble_log_at.ns == 0)
                a->trouble_log_at = boot_add(now, TROUBLE_FIRST);
        if (!boot_before(now, a->trouble_log_at)) {
                if (*why)
                        log_warning("Cannot join yet: %s; still trying.", why);
                a->trouble_log_at = boot_add(now, *why ? TROUBLE_AGAIN : TROUBLE_FIRST);
                agent_tell_status(a);
        }
        return a->trouble_log_at;
}

static void on_renewed(void *userdata, const struct session_renewal *r)
{
        struct agent *a = userdata;

        measured_renewed(&a->measured, r, member_endpoint(a->member));
        counters_renewed(&a->counters, member_session(a->member), r);
}

static void on_synced(void *userdata, bool synced unused_)
{
        struct agent *a = userdata;

        root_place_changed(a);
        agent_tell_status(a);
}

/* The other host repeats its claim: log each of its boots once, and not often if there are
 * many. */
static void on_claimed(void *userdata, const struct node_record *by)
{
        struct agent *a = userdata;
        char f_id[80], f_boot[80], f_address[NODE_ADDRESSES_MAX + 16];
        const char *fields[] = {MESSAGE_CLAIMED, f_id, f_boot, f_address, NULL};

        if (strcmp(a->claimed_by, by->boot_id) == 0 || boot_before(boot_now(), a->claim_log_at))
                return;
        a->claim_log_at = boot_add(boot_now(), CLAIM_EVERY);
        strcpy(a->claimed_by, by->boot_id);
        snprintf(f_id, sizeof(f_id), "NODE_ID=%s", by->id);
        snprintf(f_boot, sizeof(f_boot), "CLAIMED_BY_BOOT=%s", by->boot_id);
        snprintf(f_address, sizeof(f_address), "ADDRESS=%s", by->addresses);
        if (strcmp(by->name, a->opt.node_name) != 0)
                return log_full(LOG_ERR, fields,
                                "Another host, %s, has our node id (boot %s, at %s); if one is "
                                "a clone of the other, give it a machine id of its own.",
                                by->name, *by->boot_id ? by->boot_id : "unknown",
                                *by->addresses ? by->addresses : "an unknown address");
        log_full(
                LOG_ERR, fields,
                "Another host claims to be node %s, with %s node id (boot %s, at %s). It is "
                "refused while we hold the place; %s.",
                a->opt.node_name, strcmp(by->id, a->opt.node_id) == 0 ? "our" : "another",
                *by->boot_id ? by->boot_id : "unknown",
                *by->addresses ? by->addresses : "an unknown address",
                strcmp(by->id, a->opt.node_id) == 0
                        ? "if one is a clone of the other, give it a machine id of its own and "
                          "another NodeName="
                        : "give it another NodeName=");
}

const struct member_events agent_events = {
        .members = {.joined = on_joined, .left = on_left, .changed = on_changed},
        .services = {.added = on_service_added,
                     .removed = on_service_removed,
                     .changed = on_service_changed},
        .session = on_session,
        .renewed = on_renewed,
        .synced = on_synced,
        .claimed = on_claimed,
};
