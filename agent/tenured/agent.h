/* What the files of the agent share. */
#pragma once

#include "advice.h"
#include "authorize.h"
#include "bus/bus.h"
#include "bus/logind.h"
#include "client/client.h"
#include "counters.h"
#include "entries.h"
#include "fence.h"
#include "health.h"
#include "holders.h"
#include "keep.h"
#include "link/link.h"
#include "loop/cert_end.h"
#include "loop/standstill.h"
#include "maintenance.h"
#include "names.h"
#include "options.h"
#include "registry.h"
#include "session/leaving.h"
#include "stability.h"

struct wait;

/* Calls of WaitForRevision. */
struct waits {
        TAILQ_HEAD(wait_list, wait) list;
        size_t n;
        int64_t revision; /* callers that wait for a revision up to this one have been answered
                           */
        struct boot_time next; /* when the first of them times out */
        struct boot_time ask_at, refilled_at;
        unsigned asks; /* how many times in a row the core may still be asked */
};

/* Calls that ask for lists; each caller waits for its turn. */
struct lists {
        TAILQ_HEAD(list_call_list, list_call) waiting;
        struct list_call *running; /* takes several turns; the first in `waiting` */
        uid_t last_uid;            /* the user served last, */
        char last_name[256];       /* and its connection */
        struct boot_time
                without_core_at;  /* after a restart: answer, though the core does not */
        struct boot_time next_at; /* serve nobody before this */
        nsec_t spent;             /* time that other work must get first */
};

/* An instant as it was reported on D-Bus, in microseconds of CLOCK_BOOTTIME. */
struct reported_instant {
        struct boot_time t;
        int64_t usec;
};

struct agent {
        struct options opt;
        struct loop *loop;
        struct tls *tls;
        struct client *client;
        struct member *member; /* owned by `client` */
        struct bus *bus;       /* NULL while there is none */
        bool on_bus;           /* with our name */
        bool bus_missing_logged;
        struct loop_timer bus_retry, watchdog;
        struct cert_end certificate;
        nsec_t watchdog_most, watchdog_period;
        struct loop_signal sigterm, sigint, sigusr1, sighup;
        struct arguments args; /* their settings override those of the file, after a reload as
                                * well */
        struct loop_hook hook; /* agent_run() of main.c */
        struct boot_time turn_log_at;
        struct keep keep;
        bool has_place; /* `keep` contains a place */
        struct holders holders;
        int turns; /* where programs take turns, see openings.h; -1: nowhere */
        struct names names;
        bool resumed;      /* an earlier run of the agent held the place, which has not ended */
        struct pid1 *pid1; /* NULL if we are not a unit of systemd */
        struct fence fence;
        struct boot_time extend_at;
        bool kept_out;  /* not allowed to join: bound units are not down yet */
        bool held_back; /* see fence_is_held_back() */
        struct leaving leaving;
        char leave_note[LEAVING_NOTE_MAX + 1]; /* what was said about the order to leave */
        struct boot_time delay_log_at; /* a holder delays leaving: when that is logged; 0: none
                                        * does */
        enum maintenance maintenance;  /* stay out until an order to join */
        bool persisted;                /* nothing of `maintenance` has to be written to disk */
        sd_bus_message *leave_call;    /* the Leave() call that waits until the place is given
                                        * back; NULL: none */
        struct logind logind;
        struct links *links; /* NULL if the kernel does not report links */
        struct link_table no_links;
        char source[64];        /* the address that we publish for `core` in Addresses= */
        char published_at[320]; /* the endpoint for which it was chosen */
        char claimed_by[64];    /* the last boot of another host that claimed our place, as
                                 * logged, */
        struct boot_time claim_log_at; /* and when the next one may be logged */
        struct units *units;           /* NULL if we are not a unit of systemd */
        struct health health;
        struct measured measured;
        struct counters counters;
        struct entries entries;
        struct registry registry;
        struct boot_time door_told_at; /* when the door warns again at the soonest */
        struct callers callers;
        struct lists lists;
        TAILQ_HEAD(news_list, news) news;
        struct boot_time news_without_bus_at; /* after a restart: announce, though the bus is
                                                 not there */
        int64_t sent; /* the revision up to which the bus had what was announced */
        struct stability stability;
        struct standstill standstill;
        struct waits waits;
        enum session_state state;
        char why[512];
        struct boot_time trouble_log_at; /* while joining: when the log says next what is in the
                                          * way; 0: the agent has just been started */
        bool ready;                      /* READY=1 was sent */
        struct loop_timer ready_at;      /* when READY=1 is sent in any case */
        size_t reported_nodes;           /* in STATUS= */
        nsec_t reported_ttl;             /* on D-Bus */
        struct reported_instant reported_deadline, reported_renewal, reported_heard;
        int exit_code;
};

/* main.c: the outcome of asking for the name on the bus. */
void agent_bus_ready(struct agent *a);
void agent_bus_refused(struct agent *a, const char *why);

/* events.c: reports to the journal, STATUS= and the bus. */
extern const struct member_events agent_events;
void agent_tell_status(struct agent *a);
const char *agent_trouble(const struct agent *a); /* why no place is held; "": not known */
struct boot_time agent_tell_trouble(struct agent *a, struct boot_time now);
void agent_brake(struct stability *s);

/* leave.c: agent_leave() leaves, and stays out until the next boot or, if @m says so, after it
 * as well; @note: what people have said about that; false: the agent is about to exit.
 * agent_join() joins again and returns 0, AGENT_E_EXITS, or a negative errno if the next boot
 * may find that it has to stay out. */
enum { AGENT_E_EXITS = 1 };
bool agent_leave(struct agent *a, enum maintenance m, const char *note);
must_check_ int agent_join(struct agent *a);
void agent_exit(struct agent *a); /* leaves and exits; a second call exits at once */
void leave_init(struct agent *a);
struct boot_time leave_run(struct agent *a, struct boot_time now);

/* held.c: what may be up while the place is held. */
void held_make(struct agent *a);
void held_set(struct agent *a);   /* after a change of the settings */
void held_check(struct agent *a); /* after a change of the bound units, the settings or the TTL:
                                   * can all of them still be fenced in time? */
void held_keep_out(struct agent *a); /* forbids to join while a bound unit is not down */
/* Asks the service manager for more time to stop while bound units or holders need it. */
struct boot_time held_extend(struct agent *a, struct boot_time now);

/* watchdog.c: its period follows the TTL; its timer's function. */
void watchdog_set(struct agent *a);
void watchdog_beat(struct loop_timer *t);

/* certificate.c */
void certificate_start(struct agent *a);

/* publish.c: what this node publishes about itself and its services. */
must_check_ int publish_start(struct agent *a);
void publish_reload(struct agent *a); /* after a change of the settings */
struct boot_time publish_run(struct agent *a, struct boot_time now);
void publish_stop(struct agent *a);
void agent_publish(struct agent *a); /* after a change of anything that is published */
/* The tags of the settings and those that are @set over D-Bus. Returns 0, or -ENOSPC if some of
 * these do not fit. */
must_check_ int publish_tags(const struct agent *a, const char *set,
                             char tags[static TAGS_MAX]);

/* waits.c */
void waits_init(struct waits *w);
struct boot_time waits_run(struct agent *a, struct boot_time now);

/* news.c: changes of nodes and services, for the log and the bus. They are announced in order,
 * for a few milliseconds in each turn: 10,000 nodes that expire at once must not delay a
 * heartbeat. */
enum news_kind {
        NEWS_NODE_JOINED,
        NEWS_NODE_LEFT,
        NEWS_NODE_CHANGED,
        NEWS_SERVICE_ADDED,
        NEWS_SERVICE_REMOVED,
        NEWS_SERVICE_CHANGED,
};
/* @sent: what the run before has announced. */
void news_init(struct agent *a, int64_t sent);
void news_fini(struct agent *a);
/* @of: the node's id; for a service, the node that it is on. @instance: of a service; of a node
 * that has left, its note. */
void news_add(struct agent *a, enum news_kind kind, const char *name, const char *of,
              const char *instance, const char *reason, int64_t revision);
struct boot_time news_run(struct agent *a, struct boot_time now);
/* The revision up to which everything has been announced. */
int64_t news_revision(const struct agent *a);
/* The revision up to which everything, as far as it is @known, was announced and sent by the
 * bus. */
int64_t news_sent(struct agent *a, int64_t known);

/* lists.c */
void lists_init(struct agent *a);
struct boot_time lists_run(struct agent *a, struct boot_time now);
/* The object at @path was added, changed or removed. */
void lists_changed(struct agent *a, const char *path);
/* Whether connection @name still has to get announcements that were made while its list was
 * written. */
bool lists_owe(const struct agent *a, const char *name);

/* root_object.c: the Manager object on D-Bus. */

/* The place was given back: answers the call that asked for it. */
void root_left(struct agent *a);

/* Puts the objects on the bus and asks for the name: agent_bus_ready() or agent_bus_refused()
 * follows. Returns 0 or a negative errno. */
must_check_ int root_attach(struct agent *a);

/* log_control.c */
must_check_ int log_control_attach(struct agent *a);

/* Announces the change of a property that emits PropertiesChanged. */
void root_changed(struct agent *a, const char *property);

/* The session is in @state now: announces that, and the properties that follow it.
 * root_place_changed() announces these alone. */
void root_session_changed(struct agent *a, enum session_state state, const char *why);
void root_place_changed(struct agent *a);
