#include "authorize.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

#define POLKIT "org.freedesktop.PolicyKit1"
#define AUTHORITY "/org/freedesktop/PolicyKit1/Authority"
#define ASK_TIMEOUT_USEC (UINT64_C(120) * 1000000) /* somebody may have to type a password */

struct question {
        struct kept_call call;
        sd_bus_slot *slot;
        char id[24]; /* by which polkit can be asked to forget the question */
        const char *action;
        char details[AUTHORIZE_DETAILS_MAX]
                    [AUTHORIZE_DETAIL_MAX]; /* name, value, ...; "": no more */
        authorized_fn go;
        void *userdata;
};

/* Nobody waits for the answer any more: a dialog that asks for a password disappears. */
static void cancel(struct question *q)
{
        int r = sd_bus_call_method_async(sd_bus_message_get_bus(q->call.m), NULL, POLKIT,
                                         AUTHORITY, POLKIT ".Authority",
                                         "CancelCheckAuthorization", NULL, NULL, "s", q->id);

        if (r < 0)
                log_debug("polkit: cannot cancel a question: %s.", strerror(-r));
}

static void forget(struct kept_call *k)
{
        struct question *q = container_of(k, struct question, call);

        if (q->slot)
                cancel(q);
        sd_bus_slot_unref(q->slot);
        callers_drop(k);
        free(q);
}

static int go(struct question *q)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r = q->go(q->call.m, q->userdata, &error);

        if (r < 0)
                (void) sd_bus_reply_method_errno(q->call.m, r, &error);
        forget(&q->call);
        return 0;
}

static int deny(struct question *q, const char *why)
{
        (void) sd_bus_reply_method_errorf(q->call.m, SD_BUS_ERROR_ACCESS_DENIED, "%s", why);
        forget(&q->call);
        return 0;
}

static int on_polkit(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct question *q = userdata;
        int may, challenge;

        if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_NO_REPLY))
                cancel(q);
        q->slot = sd_bus_slot_unref(q->slot);
        if (sd_bus_message_is_method_error(m, NULL)) {
                log_debug("polkit: %s.", sd_bus_message_get_error(m)->message);
                return deny(q, "only root may do this where polkit does not run");
        }
        if (sd_bus_message_enter_container(m, 'r', "bba{ss}") < 0 ||
            sd_bus_message_read(m, "bb", &may, &challenge) < 0)
                return deny(q, "polkit's answer cannot be parsed");
        if (may)
                return go(q);
        return deny(q,
                    challenge ? "polkit asks for authentication" : "polkit does not allow it");
}

static int ask_polkit(struct question *q)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *ask = NULL;
        sd_bus *sd = sd_bus_message_get_bus(q->call.m);
        static uint64_t n_asked;
        int r = sd_bus_message_new_method_call(sd, &ask, POLKIT, AUTHORITY, POLKIT ".Authority",
                                               "CheckAuthorization");

        snprintf(q->id, sizeof(q->id), "%" PRIu64, ++n_asked);
        if (r >= 0)
                r = sd_bus_message_append(ask, "(sa{sv})s", "system-bus-name", 1, "name", "s",
                                          callers_name(&q->call), q->action);
        if (r >= 0)
                r = sd_bus_message_open_container(ask, 'a', "{ss}");
        for (size_t i = 0; r >= 0 && i + 1 < AUTHORIZE_DETAILS_MAX && *q->details[i]; i += 2)
                r = sd_bus_message_append(ask, "{ss}", q->details[i], q->details[i + 1]);
        if (r >= 0)
                r = sd_bus_message_close_container(ask);
        if (r >= 0)
                r = sd_bus_message_append(
                        ask, "us",
                        (uint32_t) (sd_bus_message_get_allow_interactive_authorization(
                                            q->call.m) > 0),
                        q->id);
        if (r >= 0)
                r = sd_bus_call_async(sd, &q->slot, ask, on_polkit, q, ASK_TIMEOUT_USEC);
        return r;
}

static void on_caller(struct kept_call *k)
{
        struct question *q = container_of(k, struct question, call);
        uid_t uid = callers_uid(k);

        if (uid == 0 || uid == geteuid())
                go(q);
        else if (ask_polkit(q) < 0)
                deny(q, "only root may");
}

int authorize(struct callers *c, sd_bus_message *m, const char *action,
              const char *const details[], authorized_fn fn, void *userdata)
{
        struct question *q = calloc(1, sizeof(*q));
        int r;

        if (!q)
                return -ENOMEM;
        q->action = action;
        q->go = fn;
        q->userdata = userdata;
        for (size_t i = 0; i < AUTHORIZE_DETAILS_MAX && details && details[i]; i++)
                snprintf(q->details[i], sizeof(q->details[i]), "%s", details[i]);
        r = callers_keep(c, &q->call, m, CALL_PERMISSION, on_caller, forget);
        if (r < 0)
                free(q);
        return r;
}
