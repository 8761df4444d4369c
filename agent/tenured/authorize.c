#include "authorize.h"

#include <unistd.h>

#include "base/log.h"

#define DBUS "org.freedesktop.DBus"
#define POLKIT "org.freedesktop.PolicyKit1"
#define ASK_TIMEOUT_USEC (UINT64_C(120) * 1000000) /* somebody may have to type a password */

struct question {
        TAILQ_ENTRY(question) entry;
        struct question_list *list;
        sd_bus_message *m;
        sd_bus_slot *slot;
        const char *action;
        authorized_fn go;
        void *userdata;
};

static void forget(struct question *q)
{
        TAILQ_REMOVE(q->list, q, entry);
        sd_bus_slot_unref(q->slot);
        sd_bus_message_unref(q->m);
        free(q);
}

static int go(struct question *q)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r = q->go(q->m, q->userdata, &error);

        if (r < 0)
                (void) sd_bus_reply_method_errno(q->m, r, &error);
        forget(q);
        return 0;
}

static int deny(struct question *q, const char *why)
{
        (void) sd_bus_reply_method_errorf(q->m, SD_BUS_ERROR_ACCESS_DENIED, "%s", why);
        forget(q);
        return 0;
}

static int on_polkit(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct question *q = userdata;
        int may, challenge;

        (void) error;
        if (sd_bus_message_is_method_error(m, NULL)) {
                log_debug("polkit: %s.", sd_bus_message_get_error(m)->message);
                return deny(q, "only root may, and no polkit is here to ask");
        }
        if (sd_bus_message_enter_container(m, 'r', "bba{ss}") < 0 ||
            sd_bus_message_read(m, "bb", &may, &challenge) < 0)
                return deny(q, "polkit's answer makes no sense");
        if (may)
                return go(q);
        return deny(q, challenge ? "polkit wants somebody to authenticate"
                                 : "polkit does not allow it");
}

static int ask_polkit(struct question *q)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *ask = NULL;
        sd_bus *sd = sd_bus_message_get_bus(q->m);
        int r = sd_bus_message_new_method_call(sd, &ask, POLKIT,
                                               "/org/freedesktop/PolicyKit1/"
                                               "Authority",
                                               POLKIT ".Authority", "CheckAuthorization");

        if (r >= 0)
                r = sd_bus_message_append(
                        ask, "(sa{sv})sa{ss}us", "system-bus-name", 1, "name", "s",
                        sd_bus_message_get_sender(q->m), q->action, 0,
                        (uint32_t) (sd_bus_message_get_allow_interactive_authorization(q->m) >
                                    0),
                        "");
        if (r >= 0)
                r = sd_bus_call_async(sd, &q->slot, ask, on_polkit, q, ASK_TIMEOUT_USEC);
        return r;
}

static int on_uid(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct question *q = userdata;
        uint32_t uid;

        (void) error;
        q->slot = sd_bus_slot_unref(q->slot);
        if (sd_bus_message_is_method_error(m, NULL) || sd_bus_message_read(m, "u", &uid) < 0)
                return deny(q, "the bus does not say who asks");
        if (uid == 0 || uid == geteuid())
                return go(q);
        return ask_polkit(q) < 0 ? deny(q, "only root may") : 0;
}

void authorize_init(struct question_list *l)
{
        TAILQ_INIT(l);
}

int authorize(struct question_list *l, sd_bus_message *m, const char *action, authorized_fn fn,
              void *userdata)
{
        struct question *q;
        int r;

        if (!sd_bus_message_get_sender(m))
                return -EPERM;
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->list = l;
        q->m = sd_bus_message_ref(m);
        q->action = action;
        q->go = fn;
        q->userdata = userdata;
        TAILQ_INSERT_TAIL(l, q, entry);
        r = sd_bus_call_method_async(sd_bus_message_get_bus(m), &q->slot, DBUS,
                                     "/org/freedesktop/DBus", DBUS, "GetConnectionUnixUser",
                                     on_uid, q, "s", sd_bus_message_get_sender(m));
        if (r < 0) {
                forget(q);
                return r;
        }
        return 1;
}

void authorize_forget(struct question_list *l)
{
        struct question *q;

        while ((q = TAILQ_FIRST(l)))
                forget(q);
}
