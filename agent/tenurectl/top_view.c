#include "top_view.h"

#include <inttypes.h>
#include <stdio.h>

#include "top_head.h"
#include "top_line.h"
#include "top_pages.h"

#define NODE_WIDTH_MAX 24
#define NODE_PRINTED 16
#define NOTES_MIN 8
#define NARROW 60
#define BAR_WIDTH 8
/* With fewer lines than this, all are given to the members. */
#define LINES_FOR_KEYS 8
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

/* ---- members ---- */

enum { NODE, STATE, LEFT, BAR, TTL, AGE, ADDRESS, ZONE, SERVICES, NOTES, NODE_COLUMNS };

struct context {
        const struct top_model *m;
        struct boot_time now;
        int64_t wall;
        bool plain, utf8;
        const struct top_node *cursor; /* NULL: none */
};

static void services_text(const struct top_node *n, char out[TOP_CELL])
{
        size_t at = 0;

        for (size_t i = 0; n->there && i < n->n_services && at < TOP_CELL; i++)
                at += (size_t) snprintf(out + at, TOP_CELL - at, "%s%s", i > 0 ? "," : "",
                                        n->services[i]);
}

/* Whether what is known of a member is out of date, since the core has not been heard from
 * since; not for this host, whose agent knows. */
static bool is_stale(const struct top_model *m, const struct top_node *n)
{
        return !m->followed && m->ever && !top_node_is_host(m, n);
}

/* How much of the TTL is left. */
static void bar_text(const struct top_node *n, bool utf8, char out[TOP_CELL])
{
        int64_t full = BAR_WIDTH * n->left / ((int64_t) n->ttl_ms * NSEC_PER_MSEC);

        for (int i = 0; i < BAR_WIDTH; i++)
                strcat(out, i < full ? (utf8 ? "\xe2\x96\x88" : "#")
                                     : (utf8 ? "\xe2\x96\x91" : "."));
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
        char text[TOP_DURATION] = "", when[TOP_CLOCK], stale[TOP_CLOCK + 16] = "";

        switch (column) {
        case NODE:
                snprintf(out, TOP_CELL, "%s", n->name);
                return n == x->cursor              ? TOP_HEADING
                       : top_node_is_host(x->m, n) ? TOP_BOLD
                                                   : TOP_PLAIN;
        case STATE:
                snprintf(out, TOP_CELL, "%s", top_state_word(state));
                return is_stale(x->m, n) ? TOP_DIM : bad;
        case LEFT:
                if (n->left >= 0 && x->m->followed && state != TOP_JOINING)
                        top_duration(n->left, !x->m->etcd, text);
                break;
        case BAR:
                if (n->left >= 0 && n->ttl_ms > 0 && x->m->followed)
                        bar_text(n, x->utf8, out);
                return state == TOP_JEOPARDY ? TOP_ALARM : TOP_PLAIN;
        case TTL:
                if (n->there)
                        top_duration((nsec_t) n->ttl_ms * NSEC_PER_MSEC, n->ttl_ms % 1000 != 0,
                                     text);
                break;
        case AGE: /* for a member that has gone: how long ago */
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
                if (is_stale(x->m, n)) {
                        top_clock(x->m->stale_since, when);
                        snprintf(stale, sizeof(stale), "as of %s%s", when,
                                 *note || *n->tags ? "; " : "");
                }
                if (!*note) {
                        snprintf(out, TOP_CELL, "%s%s", stale, n->tags);
                        return TOP_DIM;
                }
                snprintf(out, TOP_CELL, "%s%s%s%s%s", stale,
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
        c[BAR] = (struct top_column){"", k->height > 0 ? BAR_WIDTH : 0, .sort = -1, .rank = 5};
        c[SERVICES] = (struct top_column){"SERVICES", 14, .sort = TOP_BY_SERVICES, .rank = 6};
        c[ADDRESS] = (struct top_column){"ADDRESS", 15, .sort = TOP_BY_ADDRESS, .rank = 7};
        c[ZONE] = (struct top_column){"ZONE", zones ? 8 : 0, .sort = TOP_BY_ZONE, .rank = 8};
        c[TTL] = (struct top_column){"TTL", 6, true, 9, TOP_BY_TTL, false};
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
        for (size_t i = 0; i < n; i++)
                top_columns_widen(c, NODE_COLUMNS, k, node_cell, m->shown[i], x);
        if ((k->height > 0 || k->legend) &&
            top_line_heading(s, k, c, NODE_COLUMNS, (int) m->sort, m->reverse) < 0)
                return -ENOMEM;
        if (k->height > 0) {
                room = room > 0 ? room - 1 : 0;
                s->cursor = n > 0 ? min_of(k->cursor, n - 1) : 0;
                first = min_of(k->scroll, n > room ? n - room : 0);
                if (room > 0)
                        first = max_of(min_of(first, s->cursor),
                                       s->cursor - min_of(s->cursor, room - 1));
                x->cursor = n > 0 ? m->shown[s->cursor] : NULL;
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
                [VERSION] = {"VERSION", 20, .rank = 5, .sort = -1},
                [TRIP] = {"ANSWERS", 7, true, 6, -1, false},
                [DB] = {"DB", 5, true, 7, -1, false},
                [CLIENTS] = {"CLIENTS", m->etcd ? 0 : 7, true, 8, -1, false},
                [APPLIED] = {"APPLIED", 9, true, 9, -1, false},
                [TURN] = {"TURN", m->etcd ? 0 : 7, true, 10, -1, false},
        };
        struct top_line l;

        top_columns_choose(c, REPLICA_COLUMNS, k);
        for (size_t i = 0; i < m->n_replicas; i++)
                top_columns_widen(c, REPLICA_COLUMNS, k, replica_cell, &m->replicas[i], NULL);
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
        for (size_t i = 0; i < n; i++)
                top_columns_widen(c, LOCK_COLUMNS, k, lock_cell, &m->locks[i], NULL);
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
        char when[TOP_CLOCK];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        top_clock(e->at, when);
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
                top_line_rest(&l, TOP_HEADING, "EVENTS", true);
        }
        for (size_t i = had; i-- > 0;)
                if (event(k, top_event_at(m, i), s) < 0)
                        return -ENOMEM;
        for (size_t i = had; k->height > 0 && i < n; i++)
                if (top_line_begin(s, k, &l) < 0)
                        return -ENOMEM;
        return 0;
}

/* The last line: the keys, or the text being typed. */
static int keys_line(const struct top_model *m, const struct top_look *k, struct top_screen *s)
{
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        if (!k->asks) {
                top_line_rest(&l, TOP_HEADING,
                              "? help   / filter   < > sort   Enter details   q quit", true);
                return 0;
        }
        top_line_say(&l, TOP_BOLD, "Filter: ");
        top_line_say(&l, TOP_BOLD, m->filter);
        top_line_say(&l, TOP_BOLD, "_");
        return 0;
}

/* ---- the whole page ---- */

static int draw_all(const struct top_model *m, const struct top_look *k, struct context *x,
                    struct top_screen *s)
{
        size_t n_locks = k->no_locks ? 0 : m->n_locks;
        struct top_line l;

        if (!k->legend)
                return nodes(m, k, x, 0, s);
        if (top_head(m, k, x->now, x->wall, s) < 0)
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
        struct context x = {
                .m = m, .now = now, .wall = wall, .plain = k->height == 0, .utf8 = k->utf8};
        size_t n_events = 0, n_locks = 0, n_core = 0, n_keys, room;
        struct top_look all = *k;
        int r;

        s->n = s->first = s->n_rows = s->cursor = 0;
        if (k->height == 0) {
                all.width = SIZE_MAX / 2;
                r = draw_all(m, &all, &x, s);
        } else if (k->help) {
                r = top_help(k, s);
        } else if (*k->detail) {
                r = top_detail(m, k, now, wall, s);
                s->n = min_of(s->n, k->height);
                s->first = k->scroll;
                s->cursor = k->cursor;
        } else {
                n_keys = k->height >= LINES_FOR_KEYS;
                room = k->height - min_of(k->height, TOP_HEAD_LINES + n_keys);
                if (!k->no_core && k->height >= LINES_FOR_CORE && m->n_replicas > 0)
                        n_core = min_of(m->n_replicas + 1, room / 3);
                if (n_core < m->n_replicas + 1)
                        n_core = 0;
                if (!k->no_locks && k->height >= LINES_FOR_CORE && m->n_locks > 0)
                        n_locks = min_of(m->n_locks, locks_room(k->height)) + 1;
                if (!k->no_events && k->height >= LINES_FOR_EVENTS)
                        n_events = max_of(k->height / 5, (size_t) 3);
                room -= n_core + n_locks + n_events;
                r = top_head(m, k, now, wall, s);
                if (r == 0 && n_core > 0)
                        r = replicas(m, k, s);
                if (r == 0 && n_locks > 0)
                        r = locks(m, k, n_locks - 1, s);
                if (r == 0)
                        r = nodes(m, k, &x, room, s);
                if (r == 0 && n_events > 0)
                        r = events(m, k, n_events - 1, s);
                if (r == 0 && n_keys > 0)
                        r = keys_line(m, k, s);
                s->n = min_of(s->n, k->height); /* the terminal has hardly any lines */
        }
        for (size_t i = 0; r == 0 && i < s->n; i++)
                r = buf_error(&s->lines[i]);
        return r;
}
