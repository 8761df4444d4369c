#include "top_verdict.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "top_line.h"

/* Losses that are no further apart than this are reported as one. */
#define AT_ONCE 10 /* seconds */

struct verdict {
        char *out;
        size_t n;
        enum top_weight weight;
};

static printf_(3, 4) void say(struct verdict *v, enum top_weight w, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        utf8_vprint(v->out + v->n, TOP_VERDICT - v->n, fmt, ap);
        va_end(ap);
        v->n += strlen(v->out + v->n);
        v->weight = max_of(v->weight, w);
}

static const char *more(const struct verdict *v)
{
        return v->n > 0 ? "; " : "";
}

struct voters {
        size_t n, silent;
};

/* A replica that has not been heard yet counts as one that answers. */
static struct voters count_voters(const struct top_model *m)
{
        struct voters c = {0};

        for (size_t i = 0; i < m->n_replicas; i++) {
                const struct top_replica *p = &m->replicas[i];

                c.n += !p->learner;
                c.silent += !p->learner && !p->answers && *p->why;
        }
        return c;
}

static bool have_majority(struct voters c)
{
        return c.n == 0 || c.n - c.silent > c.n / 2;
}

static void say_core(struct verdict *v, const struct top_model *m, struct voters c)
{
        const char *why = m->down;
        char when[TOP_CLOCK];

        if (!have_majority(c)) {
                say(v, TOP_BAD, "no majority: %zu of %zu replica(s) answer", c.n - c.silent,
                    c.n);
                why = "";
        }
        if (m->followed)
                return;
        top_clock(m->stale_since, when);
        if (m->stale_since == 0)
                say(v, TOP_WARNING, "%sreading from the lease core", more(v));
        else if (m->ever)
                say(v, TOP_BAD, "%snot followed since %s%s%s", more(v), when, *why ? ": " : "",
                    why);
        else
                say(v, TOP_BAD, "%sno lease core has answered since %s%s%s", more(v), when,
                    *why ? ": " : "", why);
}

static void say_lost(struct verdict *v, const struct top_model *m)
{
        int64_t first = INT64_MAX, last = 0;
        size_t lost = 0;
        char when[TOP_CLOCK];

        for (size_t i = 0; i < m->n_nodes; i++) {
                const struct top_node *n = m->nodes[i];

                if (!top_node_is_lost(n))
                        continue;
                lost++;
                first = min_of(first, n->left_wall);
                last = max_of(last, n->left_wall);
        }
        if (lost == 0)
                return;
        if (last - first <= AT_ONCE)
                last = first;
        top_clock(last, when);
        say(v, TOP_BAD, "%s%zu of %zu hosts lost%s at %s", more(v), lost, m->n_there + lost,
            last > first ? ", the last one" : "", when);
}

static void say_held(struct verdict *v, const struct top_model *m)
{
        size_t held = m->n_states[TOP_HELD];

        if (m->n_there == 0)
                say(v, TOP_NEWS, "no host has joined");
        else if (held == 1 && m->n_there == 1)
                say(v, TOP_NEWS, "the only host holds its place");
        else if (held == m->n_there)
                say(v, TOP_NEWS, "all %zu hosts hold their places", held);
        else
                say(v, TOP_WARNING, "%zu of %zu hosts hold their places", held, m->n_there);
        for (size_t i = TOP_JEOPARDY; i < TOP_HELD; i++)
                if (i != TOP_LEFT && m->n_states[i] > 0)
                        say(v, i == TOP_JEOPARDY ? TOP_BAD : TOP_WARNING, ", %zu %s",
                            m->n_states[i], top_state_word((enum top_state) i));
        if (m->n_degraded > 0)
                say(v, TOP_WARNING, ", %zu degraded", m->n_degraded);
}

enum top_weight top_verdict(const struct top_model *m, char out[static TOP_VERDICT])
{
        struct verdict v = {.out = out};
        struct voters c = count_voters(m);

        *out = '\0';
        say_core(&v, m, c);
        if (m->ever)
                say_lost(&v, m);
        if (v.n == 0)
                say_held(&v, m);
        if (c.silent > 0 && have_majority(c))
                say(&v, TOP_WARNING, "; %zu of %zu replicas %s not answer", c.silent, c.n,
                    c.silent == 1 ? "does" : "do");
        return v.weight;
}
