#include "top_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "top_line.h"

#define NODE_WIDTH_MAX 24
#define NODE_PRINTED 16
#define NOTES_MIN 8
#define NARROW 60
/* With fewer lines than this, all are given to the members. */
#define LINES_FOR_EVENTS 12
#define LINES_FOR_CORE 18
#define LOCKS_MAX 8

/* ---- texts ---- */

void top_duration(nsec_t d, bool tenths, char out[static TOP_DURATION])
{
        int64_t s = d / NSEC_PER_SEC;

        if (d < 0)
                snprintf(out, TOP_DURATION, "0%ss", tenths ? ".0" : "");
        else if (s < 100 && tenths)
                snprintf(out, TOP_DURATION, "%" PRId64 ".%" PRId64 "s", s,
                         d / (NSEC_PER_SEC / 10) % 10);
        else if (s < 100)
                snprintf(out, TOP_DURATION, "%" PRId64 "s", s);
        else if (s < 6000)
                snprintf(out, TOP_DURATION, "%" PRId64 "m", s / 60);
        else if (s < 100 * 3600)
                snprintf(out, TOP_DURATION, "%" PRId64 "h%02" PRId64 "m", s / 3600,
                         s / 60 % 60);
        else
                snprintf(out, TOP_DURATION, "%" PRId64 "d", s / 86400);
}

static void bytes_text(int64_t n, char out[16])
{
        static const char units[] = "BKMGT";
        double v = (double) n;
        size_t i = 0;

        while (v >= 999.5 && i + 2 < sizeof(units)) {
                v /= 1024;
                i++;
        }
        snprintf(out, 16, i > 0 && v < 9.95 ? "%.1f%c" : "%.0f%c", v, units[i]);
}

static void clock_text(int64_t wall, char out[16])
{
        time_t t = (time_t) wall;
        struct tm tm;

        strftime(out, 16, "%H:%M:%S", localtime_r(&t, &tm));
}

/* ---- members ---- */

enum { NODE, STATE, LEFT, TTL, AGE, ADDRESS, ZONE, SERVICES, NOTES, NODE_COLUMNS };

struct context {
        const struct top_model *m;
        struct boot_time now;
        int64_t wall;
        bool plain;
};

static void services_text(const struct top_node *n, char out[TOP_CELL])
{
        size_t at = 0;

        for (size_t i = 0; n->there && i < n->n_services && at < TOP_CELL; i++)
                at += (size_t) snprintf(out + at, TOP_CELL - at, "%s%s", i > 0 ? "," : "",
                                        n->services[i]);
}

static enum top_style node_cell(const void *thing, size_t column, char out[TOP_CELL], void *arg)
{
        const struct top_node *n = thing;
        const struct context *x = arg;
        enum top_state state = top_node_state(x->m, n, x->now);
        enum top_style bad = state == TOP_LOST || state == TOP_JEOPARDY ? TOP_ALARM
                             : state == TOP_HELD && !*n->degraded       ? TOP_PLAIN
                             : state == TOP_LEFT                        ? TOP_DIM
                                                                        : TOP_NOTICE;
        const char *note = top_node_note(n);
        char text[TOP_DURATION] = "";

        switch (column) {
        case NODE:
                snprintf(out, TOP_CELL, "%s", n->name);
                return x->m->host.known && strcmp(x->m->host.node, n->name) == 0 ? TOP_BOLD
                                                                                 : TOP_PLAIN;
        case STATE:
                snprintf(out, TOP_CELL, "%s", top_state_word(state));
                return bad;
        case LEFT:
                if (n->left >= 0 && x->m->followed && state != TOP_JOINING)
                        top_duration(n->left, !x->m->etcd, text);
                break;
        case TTL:
                if (n->there)
                        top_duration((nsec_t) n->ttl_ms * NSEC_PER_MSEC, n->ttl_ms % 1000 != 0,
                                     text);
                break;
        case AGE: /* of a member that has gone: for how long */
                if (!n->there)
                        top_duration(boot_diff(x->now, n->left_at), false, text);
                else if (n->since > 0)
                        top_duration((x->wall - n->since) * NSEC_PER_SEC, false, text);
                break;
        case ADDRESS:
                snprintf(out, TOP_CELL, "%s", n->address);
                return TOP_PLAIN;
        case ZONE:
                snprintf(out, TOP_CELL, "%s", n->zone);
                return TOP_PLAIN;
        case SERVICES:
                services_text(n, out);
                return TOP_PLAIN;
        default:
                if (!*note) {
                        snprintf(out, TOP_CELL, "%s", n->tags);
                        return TOP_DIM;
                }
                snprintf(out, TOP_CELL, "%s%s%s%s",
                         n->there && !*n->leaving ? "degraded: " : "", note,
                         *n->tags && x->plain ? "; " : "", x->plain ? n->tags : "");
                return bad;
        }
        snprintf(out, TOP_CELL, "%s", text);
        return state == TOP_JEOPARDY && column == LEFT ? TOP_ALARM : TOP_PLAIN;
}

static void node_columns(const struct top_model *m, const struct top_look *k,
                         struct top_column c[NODE_COLUMNS], struct top_screen *s)
{
        size_t name = 5, cap = NODE_WIDTH_MAX;
        bool zones = k->height == 0;

        if (k->height > 0 && k->width / 3 < cap)
                cap = max_of(k->width / 3, (size_t) 8);
        for (size_t i = 0; i < m->n_shown && (name < NODE_WIDTH_MAX || !zones); i++) {
                name = max_of(name, top_width(m->shown[i]->name, k->utf8));
                zones = zones || *m->shown[i]->zone;
        }
        if (k->height == 0) /* a fixed width, so that columns align across runs */
                name = max_of(name, (size_t) NODE_PRINTED);
        c[NODE] =
                (struct top_column){"NODE", min_of(name, cap), .sort = TOP_BY_NAME, .rank = 0};
        c[STATE] = (struct top_column){"STATE", k->height > 0 && k->width < NARROW ? 8 : 10,
                                       .sort = TOP_BY_STATE, .rank = 1};
        c[LEFT] = (struct top_column){"LEFT", 6, true, 2, TOP_BY_LEFT, false};
        c[NOTES] = (struct top_column){
                "NOTES", k->height == 0 ? NOTES_MIN : max_of(k->width / 4, (size_t) NOTES_MIN),
                .sort = -1, .rank = 3};
        c[AGE] = (struct top_column){"AGE", 6, true, 4, TOP_BY_AGE, false};
        c[SERVICES] = (struct top_column){"SERVICES", 14, .sort = TOP_BY_SERVICES, .rank = 5};
        c[ADDRESS] = (struct top_column){"ADDRESS", 15, .sort = TOP_BY_ADDRESS, .rank = 6};
        c[ZONE] = (struct top_column){"ZONE", zones ? 8 : 0, .sort = TOP_BY_ZONE, .rank = 7};
        c[TTL] = (struct top_column){"TTL", 6, true, 8, TOP_BY_TTL, false};
        top_columns_choose(c, NODE_COLUMNS, k);
        for (size_t i = 0; i < NODE_COLUMNS; i++)
                if (c[i].sort >= 0)
                        s->sorts[c[i].sort] = c[i].on;
}

static int nodes(const struct top_model *m, const struct top_look *k, struct context *x,
                 size_t room, struct top_screen *s)
{
        struct top_column c[NODE_COLUMNS];
        size_t first = 0, n = m->n_shown;
        struct top_line l;

        node_columns(m, k, c, s);
        if ((k->height > 0 || k->legend) &&
            top_line_heading(s, k, c, NODE_COLUMNS, (int) m->sort, m->reverse) < 0)
                return -ENOMEM;
        if (k->height > 0) {
                room = room > 0 ? room - 1 : 0;
                first = min_of(k->scroll, n > room ? n - room : 0);
                n = min_of(n - first, room);
        }
        s->first = first;
        s->n_rows = n;
        for (size_t i = 0; i < n; i++) {
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
                top_line_row(&l, c, NODE_COLUMNS, node_cell, m->shown[first + i], x);
        }
        for (size_t i = n; k->height > 0 && i < room; i++)
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
        return 0;
}

/* ---- replicas ---- */

enum {
        REPLICA,
        ROLE,
        TERM,
        APPLIED,
        LAG,
        DB,
        CLIENTS,
        TURN,
        TRIP,
        VERSION,
        REPLICA_NOTES,
        REPLICA_COLUMNS
};

static enum top_style replica_cell(const void *thing, size_t column, char out[TOP_CELL],
                                   void *arg)
{
        const struct top_replica *p = thing;
        enum top_style s = TOP_PLAIN;
        char text[16];

        (void) arg;
        if (!p->answers && column != REPLICA && column != ROLE && column != REPLICA_NOTES)
                return TOP_PLAIN;
        switch (column) {
        case REPLICA:
                snprintf(out, TOP_CELL, "%s", *p->name ? p->name : p->url);
                break;
        case ROLE:
                snprintf(out, TOP_CELL, "%s",
                         !p->answers  ? "no answer"
                         : p->learner ? "learner"
                         : p->leads   ? "leader"
                                      : "voter");
                s = !p->answers ? TOP_ALARM : p->leads ? TOP_BOLD : TOP_PLAIN;
                break;
        case TERM:
                snprintf(out, TOP_CELL, "%" PRIu64, p->term);
                break;
        case APPLIED:
                snprintf(out, TOP_CELL, "%" PRIu64, p->applied);
                break;
        case LAG:
                snprintf(out, TOP_CELL, "%" PRIu64, p->behind);
                s = p->behind > 1000 ? TOP_NOTICE : TOP_PLAIN;
                break;
        case DB:
                bytes_text(p->db_bytes, text);
                snprintf(out, TOP_CELL, "%s", text);
                break;
        case CLIENTS:
                if (p->clients >= 0)
                        snprintf(out, TOP_CELL, "%" PRId64, p->clients);
                break;
        case TURN:
                if (p->turn_us >= 0)
                        snprintf(out, TOP_CELL, "%.1fms", (double) p->turn_us / 1e3);
                break;
        case TRIP:
                snprintf(out, TOP_CELL, "%.1fms", (double) p->round_trip / 1e6);
                break;
        case VERSION:
                snprintf(out, TOP_CELL, "%s", p->version);
                break;
        default:
                snprintf(out, TOP_CELL, "%s", p->answers ? p->errors : p->why);
                s = TOP_ALARM;
        }
        return s;
}

static int replicas(const struct top_model *m, const struct top_look *k, struct top_screen *s)
{
        struct top_column c[REPLICA_COLUMNS] = {
                [REPLICA] = {"REPLICA", 12, .rank = 0, .sort = -1},
                [ROLE] = {"ROLE", 9, .rank = 1, .sort = -1},
                [LAG] = {"LAG", 5, true, 2, -1, false},
                [REPLICA_NOTES] = {"NOTES", 6, .rank = 3, .sort = -1},
                [TERM] = {"TERM", 5, true, 4, -1, false},
                [VERSION] = {"VERSION", 18, .rank = 5, .sort = -1},
                [TRIP] = {"ANSWERS", 7, true, 6, -1, false},
                [DB] = {"DB", 5, true, 7, -1, false},
                [CLIENTS] = {"CLIENTS", m->etcd ? 0 : 7, true, 8, -1, false},
                [APPLIED] = {"APPLIED", 9, true, 9, -1, false},
                [TURN] = {"TURN", m->etcd ? 0 : 7, true, 10, -1, false},
        };
        struct top_line l;

        top_columns_choose(c, REPLICA_COLUMNS, k);
        if (top_line_heading(s, k, c, REPLICA_COLUMNS, -1, false) < 0)
                return -ENOMEM;
        for (size_t i = 0; i < m->n_replicas; i++) {
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
                top_line_row(&l, c, REPLICA_COLUMNS, replica_cell, &m->replicas[i], NULL);
        }
        return 0;
}

/* ---- locks ---- */

enum { LOCK, HOLDER, TOKEN, WAITING, LOCK_COLUMNS };

static enum top_style lock_cell(const void *thing, size_t column, char out[TOP_CELL], void *arg)
{
        const struct top_lock *p = thing;

        (void) arg;
        if (column == LOCK)
                snprintf(out, TOP_CELL, "%s", p->name);
        else if (column == HOLDER)
                snprintf(out, TOP_CELL, "%s", p->holder);
        else if (column == TOKEN)
                snprintf(out, TOP_CELL, "%" PRId64, p->token);
        else if (p->n_waiting > 0)
                snprintf(out, TOP_CELL, "%zu: %s", p->n_waiting, p->waiting);
        return TOP_PLAIN;
}

static int locks(const struct top_model *m, const struct top_look *k, size_t n,
                 struct top_screen *s)
{
        struct top_column c[LOCK_COLUMNS] = {
                [LOCK] = {"LOCK", 14, .rank = 0, .sort = -1},
                [HOLDER] = {"HOLDER", 14, .rank = 1, .sort = -1},
                [WAITING] = {"WAITING", 8, .rank = 2, .sort = -1},
                [TOKEN] = {"TOKEN", 9, true, 3, -1, false},
        };
        struct top_line l;

        top_columns_choose(c, LOCK_COLUMNS, k);
        if (top_line_heading(s, k, c, LOCK_COLUMNS, -1, false) < 0)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
                top_line_row(&l, c, LOCK_COLUMNS, lock_cell, &m->locks[i], NULL);
        }
        return 0;
}

/* ---- events ---- */

static int event(const struct top_look *k, const struct top_event *e, struct top_screen *s)
{
        char when[16];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        clock_text(e->at, when);
        top_line_say(&l, TOP_DIM, when);
        top_line_say(&l, TOP_PLAIN, " ");
        top_line_rest(&l,
                      e->weight == TOP_BAD       ? TOP_ALARM
                      : e->weight == TOP_WARNING ? TOP_NOTICE
                                                 : TOP_PLAIN,
                      e->text, false);
        return 0;
}

/* Adds the last @n events, the latest at the end. */
static int events(const struct top_model *m, const struct top_look *k, size_t n,
                  struct top_screen *s)
{
        size_t had = min_of(m->n_events, n);
        struct top_line l;

        if (k->height > 0) {
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
                top_line_rest(&l, TOP_HEADING,
                              "EVENTS          ? help   / filter   < > sort   q quit", true);
        }
        for (size_t i = had; i-- > 0;)
                if (event(k, top_event_at(m, i), s) < 0)
                        return -ENOMEM;
        for (size_t i = had; k->height > 0 && i < n; i++)
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
        return 0;
}

/* ---- the first lines ---- */

static int summary(const struct top_model *m, const struct top_look *k, const struct context *x,
                   struct top_screen *s)
{
        char text[256], when[16];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        clock_text(x->wall, when);
        snprintf(text, sizeof(text), "%s  %s", when, m->cluster);
        top_line_say(&l, TOP_BOLD, text);
        snprintf(text, sizeof(text), "  %zu node(s)", m->n_there);
        top_line_say(&l, TOP_PLAIN, text);
        for (size_t i = TOP_LOST; i < TOP_HELD; i++)
                if (m->n_states[i] > 0) {
                        snprintf(text, sizeof(text), ", %zu %s", m->n_states[i],
                                 top_state_word((enum top_state) i));
                        top_line_say(&l, i <= TOP_JEOPARDY ? TOP_ALARM : TOP_PLAIN, text);
                }
        if (m->n_degraded > 0) {
                snprintf(text, sizeof(text), ", %zu degraded", m->n_degraded);
                top_line_say(&l, TOP_NOTICE, text);
        }
        snprintf(text, sizeof(text), "; %zu service(s); revision %" PRId64, m->n_services,
                 m->revision);
        top_line_say(&l, TOP_PLAIN, text);
        return 0;
}

static int core_line(const struct top_model *m, const struct top_look *k, struct top_screen *s)
{
        size_t answer = 0;
        const char *leader = NULL;
        char text[512];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        for (size_t i = 0; i < m->n_replicas; i++) {
                answer += m->replicas[i].answers;
                if (m->replicas[i].answers && m->replicas[i].leads)
                        leader = m->replicas[i].name;
        }
        if (m->n_replicas == 0) {
                top_line_say(&l, TOP_NOTICE, "Core: no replica has answered yet");
                return 0;
        }
        snprintf(text, sizeof(text), "Core: %zu of %zu replica(s) answer, ", answer,
                 m->n_replicas);
        top_line_say(&l, answer < m->n_replicas ? TOP_NOTICE : TOP_PLAIN, text);
        if (leader) {
                snprintf(text, sizeof(text), "%s leads", leader);
                top_line_say(&l, TOP_PLAIN, text);
        } else {
                top_line_say(&l, TOP_ALARM, "no leader");
        }
        if (m->etcd)
                top_line_say(&l, TOP_PLAIN,
                             "; an etcd: whole seconds, and neither its clients nor its turns");
        if (*m->cluster_version) {
                snprintf(text, sizeof(text), "; cluster version %s", m->cluster_version);
                top_line_say(&l, TOP_PLAIN, text);
        }
        if (m->ancestor != 0) {
                snprintf(text, sizeof(text), "; forced to descend from %016" PRIx64,
                         m->ancestor);
                top_line_say(&l, TOP_PLAIN, text);
        }
        return 0;
}

static void host_text(const struct top_model *m, const struct context *x, struct top_line *l)
{
        char text[512], left[TOP_DURATION];

        if (!m->host.known)
                return top_line_say(l, TOP_DIM, "No agent on this host");
        snprintf(text, sizeof(text), "This host: %s, %s", m->host.node, m->host.state);
        top_line_say(l, strcmp(m->host.state, "held") == 0 ? TOP_PLAIN : TOP_NOTICE, text);
        if (m->host.deadline.ns != BOOT_TIME_NEVER.ns) {
                top_duration(boot_diff(m->host.deadline, x->now), true, left);
                snprintf(text, sizeof(text), ", %s to its own deadline", left);
                top_line_say(l, TOP_PLAIN, text);
        }
        if (boot_before(x->now, m->host.rest_until)) {
                top_duration(boot_diff(m->host.rest_until, x->now), false, left);
                snprintf(text, sizeof(text), ", suppressed for %s more", left);
                top_line_say(l, TOP_NOTICE, text);
        }
        if (*m->host.maintenance)
                top_line_say(l, TOP_NOTICE, ", stays out until join");
        if (m->host.mass_failure)
                top_line_say(l, TOP_ALARM, "; most nodes are gone at once");
}

/* The line that an operator has to see first. */
static int host_line(const struct top_model *m, const struct top_look *k,
                     const struct context *x, struct top_screen *s)
{
        char text[512], when[16];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        if (k->asks) {
                snprintf(text, sizeof(text), "Filter: %s_", m->filter);
                top_line_rest(&l, TOP_BOLD, text, false);
        } else if (!m->followed && m->stale_since == 0) {
                top_line_rest(&l, TOP_NOTICE, "Reading from the lease core", false);
        } else if (!m->followed) {
                clock_text(m->stale_since, when);
                snprintf(text, sizeof(text), "%s %s%s%s; still trying",
                         m->ever ? "Not followed since" : "No lease core has answered since",
                         when, *m->down ? ": " : "", m->down);
                top_line_rest(&l, TOP_ALARM, text, false);
        } else {
                host_text(m, x, &l);
                if (*m->filter) {
                        snprintf(text, sizeof(text), "  [filter: %s: %zu of %zu]", m->filter,
                                 m->n_shown, m->n_nodes);
                        top_line_say(&l, TOP_BOLD, text);
                }
        }
        return 0;
}

/* ---- help ---- */

static int help(const struct top_look *k, struct top_screen *s)
{
        static const char *const lines[] = {
                "tenurectl top",
                "",
                "q, ^C         quit",
                "/             filter: all words must match, !WORD must not;",
                "              Enter keeps it, Esc drops it",
                "< >           sort by the previous or the next column",
                "n s l a v     sort by node, state, time left, age, services",
                "r             reverse the order",
                "j k, arrows   scroll; also PgUp, PgDn, Home, End",
                "c o e         show or hide replicas, locks, events",
                "space         ask now",
                "^L            redraw",
                "? h           show or leave this help",
                "",
                "LEFT: until the lease ends unless it is renewed, as the core",
                "said when it was last asked. jeopardy: not renewed for 7/8 of",
                "the TTL. lost: it expired; such a node stays for a minute.",
        };
        struct top_line l;

        for (size_t i = 0; i < k->height; i++) {
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
                if (i < ARRAY_SIZE(lines))
                        top_line_rest(&l, i == 0 ? TOP_BOLD : TOP_PLAIN, lines[i], false);
        }
        return 0;
}

/* ---- all of it ---- */

static int draw_all(const struct top_model *m, const struct top_look *k, struct context *x,
                    struct top_screen *s)
{
        size_t n_locks = k->no_locks ? 0 : m->n_locks;
        struct top_line l;

        if (!k->legend)
                return nodes(m, k, x, 0, s);
        if (summary(m, k, x, s) < 0 || core_line(m, k, s) < 0 || host_line(m, k, x, s) < 0)
                return -ENOMEM;
        if (!k->no_core && m->n_replicas > 0 &&
            (top_line_begin(s, k, &l) < 0 || replicas(m, k, s) < 0))
                return -ENOMEM;
        if (n_locks > 0 && (top_line_begin(s, k, &l) < 0 || locks(m, k, n_locks, s) < 0))
                return -ENOMEM;
        if (top_line_begin(s, k, &l) < 0 || nodes(m, k, x, 0, s) < 0)
                return -ENOMEM;
        if (k->n_events > 0 &&
            (top_line_begin(s, k, &l) < 0 || events(m, k, k->n_events, s) < 0))
                return -ENOMEM;
        return 0;
}

static size_t locks_room(size_t height)
{
        return height < 24 ? 1 : min_of((height - 16) / 4, (size_t) LOCKS_MAX);
}

int top_draw(const struct top_model *m, const struct top_look *k, struct boot_time now,
             int64_t wall, struct top_screen *s)
{
        struct context x = {.m = m, .now = now, .wall = wall, .plain = k->height == 0};
        size_t n_events = 0, n_locks = 0, n_core = 0, room;
        struct top_look all = *k;
        int r;

        s->n = s->first = s->n_rows = 0;
        if (k->height == 0) {
                all.width = SIZE_MAX / 2;
                r = draw_all(m, &all, &x, s);
        } else if (k->help) {
                r = help(k, s);
        } else {
                room = k->height > 3 ? k->height - 3 : 0;
                if (!k->no_core && k->height >= LINES_FOR_CORE && m->n_replicas > 0)
                        n_core = min_of(m->n_replicas + 1, room / 3);
                if (n_core < m->n_replicas + 1)
                        n_core = 0;
                if (!k->no_locks && k->height >= LINES_FOR_CORE && m->n_locks > 0)
                        n_locks = min_of(m->n_locks, locks_room(k->height)) + 1;
                if (!k->no_events && k->height >= LINES_FOR_EVENTS)
                        n_events = max_of(k->height / 5, (size_t) 3);
                room -= n_core + n_locks + n_events;
                r = summary(m, k, &x, s);
                if (r == 0)
                        r = core_line(m, k, s);
                if (r == 0)
                        r = host_line(m, k, &x, s);
                if (r == 0 && n_core > 0)
                        r = replicas(m, k, s);
                if (r == 0 && n_locks > 0)
                        r = locks(m, k, n_locks - 1, s);
                if (r == 0)
                        r = nodes(m, k, &x, room, s);
                if (r == 0 && n_events > 0)
                        r = events(m, k, n_events - 1, s);
                s->n = min_of(s->n, k->height); /* the terminal has hardly any lines */
        }
        for (size_t i = 0; r == 0 && i < s->n; i++)
                r = buf_error(&s->lines[i]);
        return r;
}
