#include "lock_holder.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "member/lock_name.h"
#include "talk.h"

#define QUIET_FOR NSEC_PER_SEC /* as long as the user waits for the holder's name */

struct json_object *lock_holder_value(const char *node, const char *command)
{
        struct json_object *o = json_object_new_object();
        time_t now = time(NULL);
        char since[32];
        struct tm tm;

        strftime(since, sizeof(since), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
        json_put_text(o, "node", node);
        json_put_number(o, "pid", getpid());
        json_put_text(o, "command", command);
        json_put_text(o, "since", since);
        return o;
}

/* Describes a holder by its key's value, which is as above, or as another program wrote it. */
static void describe(const Pb__KeyValue *kv, char *out, size_t size)
{
        cleanup_(freep) char *text =
                kv->value.len > 0 ? strndup((const char *) kv->value.data, kv->value.len)
                                  : NULL;
        struct json_object *o = text && *text == '{' ? json_tokener_parse(text) : NULL;
        bool ours = json_object_is_type(o, json_type_object) && *ctl_text(o, "node");

        if (ours)
                snprintf(out, size, "%s%s%s", ctl_text(o, "node"),
                         *ctl_text(o, "since") ? " since " : "", ctl_text(o, "since"));
        else if (kv->lease != 0)
                snprintf(out, size, "the lease %016" PRIx64, (uint64_t) kv->lease);
        else
                snprintf(out, size, "the key %.*s, which has no lease", (int) kv->key.len,
                         (const char *) kv->key.data);
        json_object_put(o);
}

int lock_holder_read(const struct core_options *core, const char *name, const char *own,
                     bool quiet, struct lock_holder *ret)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.KV/Range",
                         .request = &q.base,
                         .reply_type = &pb__range_response__descriptor,
                         .asks_again = quiet,
                         .quiet = quiet ? RPC_PERMISSION_DENIED : 0,
                         .patience = quiet ? QUIET_FOR : 0,
                         .limit = quiet ? QUIET_FOR : 0};
        char from[LOCK_KEY_MAX], to[LOCK_KEY_MAX];
        const Pb__RangeResponse *p;
        bool found = false;
        int r;

        snprintf(from, sizeof(from), "%s/", name);
        snprintf(to, sizeof(to), "%s%c", name, '/' + 1);
        q.key = pb_bytes(from, strlen(from));
        q.range_end = pb_bytes(to, strlen(to));
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__CREATE;
        r = talk(core, &t);
        p = t.reply;
        *ret = (struct lock_holder){.waits = false};
        for (size_t i = 0; r == 0 && i < p->n_kvs; i++) {
                const Pb__KeyValue *kv = p->kvs[i];

                if (!lock_name_has(name, kv->key.data, kv->key.len) ||
                    kv->key.len >= LOCK_KEY_MAX)
                        continue;
                ret->waits |= strlen(own) == kv->key.len &&
                              memcmp(own, kv->key.data, kv->key.len) == 0;
                if (found)
                        continue;
                found = true;
                memcpy(ret->key, kv->key.data, kv->key.len);
                ret->created = kv->create_revision;
                describe(kv, ret->text, sizeof(ret->text));
        }
        t.reply = pb_free(t.reply);
        return r < 0 ? -1 : found ? 0 : LOCK_HOLDER_E_NOBODY;
}
