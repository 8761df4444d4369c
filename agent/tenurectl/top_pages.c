#include "top_pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "top_line.h"

#define TITLE 10 /* columns of the names of facts */

/* ---- help ---- */

int top_help(const struct top_look *k, struct top_screen *s)
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
                "j k, arrows   move; also PgUp, PgDn, Home, End",
                "Enter         details of the node under the cursor",
                "c o e         show or hide replicas, locks, events",
                "space         ask now",
                "^L            redraw",
                "? h           show or leave this help",
                "",
                "LEFT: until the lease ends unless it is renewed, as the core",
                "said when it was last asked. jeopardy: not renewed for 7/8 of",
                "the TTL. lost: it expired; such a node stays for an hour.",
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

/* ---- the details of a node ---- */

static int fact(struct top_screen *s, const struct top_look *k, const char *title,
                enum top_style style, const char *text)
{
        struct top_line l;

        if (!*text)
                return 0;
        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        top_line_put(&l, TOP_DIM, title, min_of((size_t) TITLE, k->width), false, true);
        top_line_rest(&l, style, text, false);
        return 0;
}

static void since_text(const struct top_node *n, int64_t wall, char *out, size_t size)
{
        int64_t at = n->there ? n->since : n->left_wall;
        time_t t = (time_t) at;
        char age[TOP_DURATION];
        struct tm tm;

        *out = '\0';
        if (at <= 0)
                return;
        top_duration((wall - at) * NSEC_PER_SEC, false, age);
        snprintf(out + strftime(out, size, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm)),
                 size - 24, ", %s ago", age);
}

/* Adds the last events that name the node, as far as there is room. */
static int its_events(const struct top_model *m, const struct top_node *n,
                      const struct top_look *k, struct top_screen *s)
{
        char text[sizeof(((struct top_event *) 0)->text) + TOP_CLOCK], when[TOP_CLOCK];
        const struct top_event *e;
        int r = 0;

        for (size_t i = 0; r == 0 && s->n < k->height && (e = top_event_at(m, i)); i++) {
                size_t len = strlen(n->name);
                const char *at = strstr(e->text, n->name);

                if (!at || (at > e->text && at[-1] != ' ') || (at[len] && at[len] != ' '))
                        continue;
                top_clock(e->at, when);
                snprintf(text, sizeof(text), "%s %s", when, e->text);
                r = fact(s, k, "Event", TOP_PLAIN, text);
        }
        return r;
}

static int facts(const struct top_model *m, const struct top_node *n, const struct top_look *k,
                 struct boot_time now, int64_t wall, struct top_screen *s)
{
        char since[96], left[TOP_DURATION] = "", ttl[TOP_DURATION], lease[24] = "";
        const struct {
                const char *title;
                enum top_style style;
                const char *text;
        } known[] = {{"State", TOP_BOLD, top_state_word(top_node_state(m, n, now))},
                     {"Why", TOP_NOTICE, top_node_note(n)},
                     {"Since", TOP_PLAIN, since},
                     {"Left", TOP_PLAIN, left},
                     {"TTL", TOP_PLAIN, ttl},
                     {"Lease", TOP_PLAIN, lease},
                     {"Address", TOP_PLAIN, n->address},
                     {"Tags", TOP_PLAIN, n->tags}};
        int r = 0;

        since_text(n, wall, since, sizeof(since));
        top_duration((nsec_t) n->ttl_ms * NSEC_PER_MSEC, n->ttl_ms % 1000 != 0, ttl);
        if (n->left >= 0 && m->followed)
                top_duration(n->left, !m->etcd, left);
        if (n->there)
                snprintf(lease, sizeof(lease), "%016" PRIx64, (uint64_t) n->lease);
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(known); i++)
                r = fact(s, k, known[i].title, known[i].style, known[i].text);
        for (size_t i = 0; r == 0 && i < n->n_services; i++)
                r = fact(s, k, "Service", TOP_PLAIN, n->services[i]);
        return r < 0 ? r : its_events(m, n, k, s);
}

int top_detail(const struct top_model *m, const struct top_look *k, struct boot_time now,
               int64_t wall, struct top_screen *s)
{
        const struct top_node *n = top_node_find(m, k->detail);
        struct top_line l;
        int r;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        top_line_rest(&l, TOP_HEADING, k->detail, true);
        r = n ? facts(m, n, k, now, wall, s) : fact(s, k, "State", TOP_PLAIN, "gone");
        while (r == 0 && s->n < k->height)
                r = top_line_begin(s, k, &l);
        return r;
}
