/* A core that learns of another one that continues from the same data: both were forced to,
 * from replicas of the same cluster. No program can know which of them is right, so each stops
 * until an operator has ended the other (I10). */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "etcd/internal.h"

#define ENDS_MAX 500 /* streams that are ended in one turn: about 2 ms */

bool api_is_stopped(const struct api *a, char text[static 320])
{
        uint64_t other = state_sibling(core_state(a->core));

        if (other != 0)
                snprintf(text, 320,
                         "tenure: this core (%016" PRIx64
                         ") has stopped: another core (%016" PRIx64
                         ") continues from the same data. Keep one of them: end the other, "
                         "then disarm the alarm of this one (etcdctl alarm disarm); see "
                         "tenure-core(8)",
                         core_config(a->core)->cluster_id, other);
        return other != 0;
}

/* Anybody can show anything; but who may write what agents write can do worse. */
void api_hear_of(struct api *a, const struct rpc_call *call)
{
        static const char prefix[] = "/tenure/", end[] = "/tenure0";
        const ProtobufCBinaryData from = pb_bytes(prefix, sizeof(prefix) - 1),
                                  to = pb_bytes(end, sizeof(end) - 1);
        cleanup_(identity_fini) struct identity who = {0};

        if (core_is_kin(a->core, call->core, call->core_ancestor) &&
            identify(a, call, &who).code == RPC_OK &&
            permit_range(core_state(a->core), &who.user, &from, &to, PERMIT_WRITE) == STATE_OK)
                core_hear_of(a->core, call->core);
}

void stopped_flush(struct api *a)
{
        char text[320];
        struct rpc_call *call = NULL;
        bool stopped = api_is_stopped(a, text);

        if (stopped && !a->stopped)
                log_error("%s.", text);
        if (!stopped && a->stopped)
                log_notice("The alarm about another core was disarmed: this core (%016" PRIx64
                           ") serves again.",
                           core_config(a->core)->cluster_id);
        a->stopped = stopped;
        a->stopping = false;
        if (!stopped)
                return;
        for (int i = 0; i < ENDS_MAX && (call = LIST_FIRST(&a->streams)); i++) {
                rpc_call_unlist(call);
                rpc_call_finish(call, RPC_FAILED_PRECONDITION, text);
                api_kick(a, call);
        }
        a->stopping = call != NULL;
}
