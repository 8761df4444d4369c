#include "tenure/host_agent.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "member/tags.h"
#include "tenure/internal.h"

#define NAME "org.tenure.Membership1"
#define ROOT "/org/tenure/Membership1"
#define MANAGER NAME ".Manager"

/* The pause before a new try, which doubles up to the maximum; and how long the agent has to
 * answer before it is asked again. */
#define PAUSE (100 * NSEC_PER_MSEC)
#define PAUSE_MOST (2 * NSEC_PER_SEC)
#define PATIENCE (5 * NSEC_PER_SEC)
/* ... if it has to ask polkit, which may take long. */
#define PATIENCE_POLKIT (150 * NSEC_PER_SEC)
/* A refused registration is tried again after this time: the name may have become free. */
#define PAUSE_REFUSED (5 * NSEC_PER_SEC)

static void try_again(struct tenure *t)
{
        struct agent_tie *a = &t->agent;

        a->pause = min_of(max_of(a->pause * 2, PAUSE), PAUSE_MOST);
        if (!loop_timer_armed(&a->again))
                loop_timer_in(&a->again, a->pause);
}

static sd_bus *sd(const struct agent_tie *a)
{
        return a->bus && !a->closed ? bus_sd(a->bus) : NULL;
}

/* ---- calls ---- */

/* A call of a method of the agent; an agent that does not run is not started for it. */
static int new_call(const struct agent_tie *a, const char *interface, const char *method,
                    sd_bus_message **ret)
{
        int r = sd_bus_message_new_method_call(sd(a), ret, NAME, ROOT, interface, method);

        return r < 0 ? r : sd_bus_message_set_auto_start(*ret, 0);
}

static int send_call(const struct agent_tie *a, sd_bus_message *m, sd_bus_slot **slot,
                     sd_bus_message_handler_t done, void *userdata)
{
        *slot = sd_bus_slot_unref(*slot);
        return sd_bus_call_async(sd(a), slot, m, done, userdata, PATIENCE / NSEC_PER_USEC);
}

/* Whether @m is an answer. If not, keeps the error for tenure_error(), and tries again later;
 * if there is no agent, the bus reports when one starts. */
static bool answered(struct tenure *t, sd_bus_message *m, const char *what)
{
        const sd_bus_error *e = sd_bus_message_get_error(m);

        if (!e)
                return true;
        (void) !tenure_fail(t, -EHOSTDOWN, "cannot %s: %s", what,
                            e->message ? e->message : e->name);
        if (!sd_bus_error_has_name(e, SD_BUS_ERROR_NAME_HAS_NO_OWNER) &&
            !sd_bus_error_has_name(e, SD_BUS_ERROR_SERVICE_UNKNOWN))
                try_again(t);
        return false;
}

/* Reads the descriptor that is an answer. Returns it, for the caller, or a negative errno. */
static int read_descriptor(sd_bus_message *m)
{
        int fd, r = sd_bus_message_read(m, "h", &fd);

        if (r < 0)
                return r;
        r = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return r < 0 ? -errno : r;
}

/* ---- the page ---- */

static bool is_the_same_file(const struct page *p, int fd)
{
        struct stat st;

        return p->fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == p->dev && st.st_ino == p->ino;
}

/* Without inotify, or with too few watches, hold.c looks at the page from time to time. */
static void watch(struct agent_tie *a)
{
        char path[32];

        if (a->inotify < 0)
                return;
        if (a->watch >= 0)
                inotify_rm_watch(a->inotify, a->watch);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", a->page.fd);
        a->watch = inotify_add_watch(a->inotify, path, IN_MODIFY);
}

static void on_inotify(struct loop_io *io, int events)
{
        struct agent_tie *a = container_of(io, struct agent_tie, io);
        char bytes[16 * (sizeof(struct inotify_event) + 16)];

        (void) events;
        while (read(a->inotify, bytes, sizeof(bytes)) > 0)
                ; /* the hook of hold.c looks */
}

static int on_tenancy(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct tenure *t = userdata;
        struct agent_tie *a = &t->agent;
        int fd, r;

        if (!answered(t, m, "get the deadline of the place from the agent"))
                return 0;
        r = fd = read_descriptor(m);
        if (r >= 0 && is_the_same_file(&a->page, fd)) {
                close(fd);
                return 0;
        }
        if (r >= 0)
                r = page_open(&a->page, fd);
        if (r < 0) {
                (void) !tenure_fail(t, r, "cannot read the deadline of the place: %s",
                                    strerror(-r));
                try_again(t);
                return 0;
        }
        watch(a);
        hold_soon(t);
        return 0;
}

/* ---- where the core is ---- */

static bool text_of(sd_bus_message *m, char *to, size_t size)
{
        const char *text;

        if (sd_bus_message_read(m, "v", "s", &text) < 0 || strlen(text) >= size)
                return false;
        snprintf(to, size, "%s", text);
        return true;
}

/* The agent's present endpoint first, and then its earlier ones: one of these may live when the
 * present one has just died. */
static void follow_endpoint(struct tenure *t)
{
        struct agent_tie *a = &t->agent;
        char list[sizeof(a->endpoints)], url[320];
        const char *cursor = a->endpoints;
        size_t n = (size_t) snprintf(list, sizeof(list), "%s", a->endpoint);

        if (!*a->endpoint || !*a->cluster || !a->core)
                return;
        if (*a->core_cluster && strcmp(a->core_cluster, a->cluster) != 0) {
                (void) !tenure_fail(
                        t, -EXDEV,
                        "the agent is in the cluster '%s' now, and this tie in '%s'; "
                        "make another tie",
                        a->cluster, a->core_cluster);
                return;
        }
        strcpy(a->core_cluster, a->cluster);
        while (list_next(&cursor, url, sizeof(url)))
                if (strcmp(url, a->endpoint) != 0 && n + strlen(url) + 2 < sizeof(list))
                        n += (size_t) snprintf(list + n, sizeof(list) - n, ",%s", url);
        memcpy(a->endpoints, list, sizeof(list));
        if (tenure_core_is_at(t, a->cluster, list) < 0)
                try_again(t);
}

const char *agent_endpoint(const struct tenure *t)
{
        return t->agent.endpoint;
}

/* Reads the properties that we need from an a{sv}. */
static void read_properties(struct tenure *t, sd_bus_message *m)
{
        struct agent_tie *a = &t->agent;
        const char *name;

        if (sd_bus_message_enter_container(m, 'a', "{sv}") < 0)
                return;
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                char text[sizeof(a->endpoint)];
                bool ok = true;

                if (sd_bus_message_read(m, "s", &name) < 0)
                        return;
                if (strcmp(name, "Cluster") == 0)
                        ok = text_of(m, a->cluster, sizeof(a->cluster));
                else if (strcmp(name, "NodeName") == 0)
                        ok = text_of(m, a->node, sizeof(a->node));
                else if (strcmp(name, "CoreEndpoint") == 0 &&
                         (ok = text_of(m, text, sizeof(text))) && *text)
                        snprintf(a->endpoint, sizeof(a->endpoint), "%s", text);
                else if (strcmp(name, "CoreEndpoint") != 0)
                        ok = sd_bus_message_skip(m, "v") >= 0;
                if (!ok || sd_bus_message_exit_container(m) < 0)
                        break;
        }
        follow_endpoint(t);
        hold_soon(t);
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct tenure *t = userdata;

        if (!answered(t, m, "get the core's endpoint from the agent"))
                return 0;
        t->agent.pause = 0;
        read_properties(t, m);
        return 0;
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct tenure *t = userdata;

        if (sd_bus_message_skip(m, "s") >= 0)
                read_properties(t, m);
        return 0;
}

/* ---- services ---- */

static int on_registered(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct registration *g = userdata;
        struct tenure *t = g->tie;
        const sd_bus_error *e = sd_bus_message_get_error(m);

        g->call = sd_bus_slot_unref(g->call);
        if (!g->wanted) {
                TAILQ_REMOVE(&t->registrations, g, entry);
                free(g);
                return 0;
        }
        if (!e)
                return 0;
        (void) !tenure_fail(t, -EACCES, "the agent does not register the service '%s': %s",
                            g->record.name, e->message ? e->message : e->name);
        g->settled = sd_bus_error_has_name(e, SD_BUS_ERROR_INVALID_ARGS);
        if (!g->settled && !loop_timer_armed(&t->agent.again))
                loop_timer_in(&t->agent.again, PAUSE_REFUSED);
        return 0;
}

static int append_service(sd_bus_message *m, const struct service_record *s)
{
        char name[TAGS_MAX], value[TAGS_MAX];
        const char *cursor = s->tags;
        int r = sd_bus_message_append(m, "ss", s->name, s->instance);

        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0 && s->port > 0)
                r = sd_bus_message_append(m, "{sv}", "Port", "q", s->port);
        if (r >= 0 && *s->address)
                r = sd_bus_message_append(m, "{sv}", "Address", "s", s->address);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", "Tags");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{ss}");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{ss}");
        while (r >= 0 && tags_next(&cursor, name, value))
                r = sd_bus_message_append(m, "{ss}", name, value);
        for (int i = 0; r >= 0 && i < 4; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

static int register_service(struct tenure *t, struct registration *g)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = new_call(&t->agent, MANAGER,
                         g->wanted ? "RegisterService" : "UnregisterService", &m);

        if (r >= 0)
                r = g->wanted ? append_service(m, &g->record)
                              : sd_bus_message_append(m, "ss", g->record.name,
                                                      g->record.instance);
        return r < 0 ? r : send_call(&t->agent, m, &g->call, on_registered, g);
}

void agent_register_services(struct tenure *t)
{
        struct registration *g, *next;

        if (!sd(&t->agent))
                return;
        TAILQ_FOREACH_SAFE (g, &t->registrations, entry, next) {
                if (g->settled)
                        continue;
                g->settled = register_service(t, g) >= 0;
                if (!g->settled)
                        try_again(t);
        }
}

/* ---- turns ---- */

void agent_forget_turn(struct turn_request *q)
{
        if (!q->tie)
                return;
        LIST_REMOVE(q, entry);
        sd_bus_slot_unref(q->call);
        *q = (struct turn_request){0};
}

static void answer_turn(struct turn_request *q, int fd, const char *why)
{
        void (*fn)(struct turn_request *, int, const char *) = q->fn;

        agent_forget_turn(q);
        fn(q, fd, why);
}

static int on_turn(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        const sd_bus_error *e = sd_bus_message_get_error(m);
        struct turn_request *q = userdata;
        int r;

        if (e) {
                r = sd_bus_error_has_name(e, SD_BUS_ERROR_ACCESS_DENIED)    ? -EACCES
                    : sd_bus_error_has_name(e, SD_BUS_ERROR_UNKNOWN_METHOD) ? -ENOSYS
                                                                            : -EHOSTDOWN;
                answer_turn(q, r, e->message ? e->message : e->name);
                return 0;
        }
        r = read_descriptor(m);
        answer_turn(q, r, r < 0 ? strerror(-r) : "");
        return 0;
}

int agent_ask_turn(struct tenure *t, struct turn_request *q, const char *lock,
                   void (*fn)(struct turn_request *q, int fd, const char *why))
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct agent_tie *a = &t->agent;
        int r = sd(a) ? new_call(a, MANAGER, "OpenTurn", &m) : -ENOTCONN;

        if (r >= 0)
                r = sd_bus_message_append_array(m, 'y', lock, strlen(lock));
        if (r >= 0)
                r = sd_bus_call_async(sd(a), &q->call, m, on_turn, q,
                                      PATIENCE_POLKIT / NSEC_PER_USEC);
        if (r < 0)
                return r;
        q->tie = t;
        q->fn = fn;
        LIST_INSERT_HEAD(&a->turn_requests, q, entry);
        return 0;
}

/* ---- the bus ---- */

static int ask(struct tenure *t)
{
        struct agent_tie *a = &t->agent;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *tenancy = NULL, *properties = NULL;
        int r = 0;

        if (a->place) {
                r = new_call(a, MANAGER, "OpenTenancy", &tenancy);
                if (r >= 0)
                        r = send_call(a, tenancy, &a->tenancy, on_tenancy, t);
        }
        if (r >= 0)
                r = new_call(a, DBUS_PROPERTIES, "GetAll", &properties);
        if (r >= 0)
                r = sd_bus_message_append(properties, "s", MANAGER);
        if (r >= 0)
                r = send_call(a, properties, &a->properties, on_properties, t);
        agent_register_services(t);
        return r;
}

static void on_moved(void *userdata, const char *owner)
{
        struct registration *g;
        struct tenure *t = userdata;

        if (!*owner)
                return;
        /* A restarted agent does not know the registrations. */
        TAILQ_FOREACH (g, &t->registrations, entry)
                g->settled = false;
        t->agent.pause = 0;
        if (ask(t) < 0)
                try_again(t);
}

static void disconnect(struct tenure *t)
{
        struct agent_tie *a = &t->agent;
        struct registration *g, *next;
        struct turn_request *q;

        a->changed = sd_bus_slot_unref(a->changed);
        signals_end(&a->from);
        a->tenancy = sd_bus_slot_unref(a->tenancy);
        a->properties = sd_bus_slot_unref(a->properties);
        while ((q = LIST_FIRST(&a->turn_requests)))
                answer_turn(q, -ENOTCONN, "the connection to the system bus ended");
        TAILQ_FOREACH_SAFE (g, &t->registrations, entry, next) {
                g->call = sd_bus_slot_unref(g->call);
                g->settled = false;
                if (g->wanted)
                        continue;
                TAILQ_REMOVE(&t->registrations, g, entry); /* they end with the connection */
                free(g);
        }
        a->bus = bus_free(a->bus);
        a->closed = false;
}

static void on_closed(void *userdata, int r)
{
        struct tenure *t = userdata;

        (void) !tenure_fail(t, r, "the system bus closed the connection: %s", strerror(-r));
        t->agent.closed = true;
        t->agent.pause = 0;
        try_again(t);
}

static int connect_bus(struct tenure *t)
{
        struct agent_tie *a = &t->agent;
        int r = bus_new(&a->bus, t->loop, on_closed, t);

        if (r < 0)
                return tenure_fail(t, r, "cannot connect to the system bus: %s", strerror(-r));
        r = signals_follow(&a->from, bus_sd(a->bus), NAME, on_moved, t);
        if (r >= 0)
                r = signals_add(&a->from, &a->changed,
                                "path='" ROOT "',interface='" DBUS_PROPERTIES
                                "',member='PropertiesChanged'",
                                on_changed, t);
        return r < 0 ? r : ask(t);
}

static void on_again(struct loop_timer *timer)
{
        struct agent_tie *a = container_of(timer, struct agent_tie, again);
        struct tenure *t = container_of(a, struct tenure, agent);

        if (a->closed)
                disconnect(t);
        if (!a->bus) {
                if (connect_bus(t) >= 0)
                        return;
                disconnect(t);
                return try_again(t);
        }
        if (ask(t) < 0)
                try_again(t);
}

/* ---- ---- */

void agent_init(struct tenure *t)
{
        struct agent_tie *a = &t->agent;

        a->inotify = a->watch = -1;
        page_init(&a->page);
        TAILQ_INIT(&t->registrations);
}

void agent_start(struct tenure *t)
{
        struct agent_tie *a = &t->agent;

        loop_timer_init(&a->again, t->loop, on_again);
        if (a->place)
                a->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (a->inotify >= 0)
                loop_io_start(&a->io, t->loop, a->inotify, EV_READ, on_inotify);
        a->started = true;
        loop_timer_in(&a->again, 0);
}

void agent_fini(struct tenure *t)
{
        struct agent_tie *a = &t->agent;
        struct registration *g;

        if (a->started) {
                loop_timer_disarm(&a->again);
                disconnect(t);
        }
        if (a->inotify >= 0) {
                loop_io_stop(&a->io);
                close(a->inotify);
        }
        page_close(&a->page);
        while ((g = TAILQ_FIRST(&t->registrations))) {
                TAILQ_REMOVE(&t->registrations, g, entry);
                free(g);
        }
}
