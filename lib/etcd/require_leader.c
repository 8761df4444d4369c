/* Streams whose clients asked for a replica that has a leader (metadata `hasleader`). */
#include "etcd/internal.h"

#define ENDS_MAX 500 /* streams that are ended in one turn: about 2 ms */

/* As in etcd, an election does not end them, so that their clients need not move for nothing.
 */
void require_leader_flush(struct api *a, struct boot_time now)
{
        nsec_t patience = core_config(a->core)->leader_timeout;
        struct rpc_call *call, *next = NULL;
        int n = 0;

        a->leaderless_at = BOOT_TIME_NEVER;
        if (core_status(a->core).leader_id != 0) {
                a->leaderless_since = BOOT_TIME_NEVER;
                return;
        }
        if (a->leaderless_since.ns == BOOT_TIME_NEVER.ns)
                a->leaderless_since = now;
        a->leaderless_at = boot_add(now, 100 * NSEC_PER_MSEC);
        if (boot_diff(now, a->leaderless_since) < patience)
                return;
        for (call = LIST_FIRST(&a->streams); call && n < ENDS_MAX; call = next) {
                next = LIST_NEXT(call, next_listed);
                if (!call->want_leader)
                        continue;
                rpc_call_unlist(call);
                rpc_call_finish(call, status_no_leader.code, status_no_leader.text);
                api_kick(a, call);
                n++;
        }
        if (call)
                a->leaderless_at = now;
}
