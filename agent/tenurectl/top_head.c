#include "top_head.h"

#include <inttypes.h>
#include <stdio.h>

#include "top_line.h"
#include "top_verdict.h"

static int verdict_line(const struct top_model *m, const struct top_look *k, int64_t wall,
                        struct top_screen *s)
{
        char text[TOP_VERDICT], when[TOP_CLOCK];
        enum top_weight w = top_verdict(m, text);
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        top_clock(wall, when);
        top_line_say(&l, TOP_BOLD, when);
        top_line_say(&l, TOP_BOLD, "  ");
        top_line_say(&l, TOP_BOLD, m->cluster);
        top_line_say(&l, TOP_BOLD, ": ");
        top_line_rest(&l,
                      w == TOP_BAD       ? TOP_ALARM
                      : w == TOP_WARNING ? TOP_NOTICE
                                         : TOP_BOLD,
                      text, false);
        return 0;
}

static int counts_line(const struct top_model *m, const struct top_look *k,
                       struct top_screen *s)
{
        char text[256];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        snprintf(text, sizeof(text), "%zu node(s)", m->n_there);
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
                top_line_say(&l, TOP_PLAIN, "; an etcd: whole seconds, no clients and turns");
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

static void host_text(const struct top_model *m, struct boot_time now, struct top_line *l)
{
        char text[512], left[TOP_DURATION];

        if (!m->host.known)
                return top_line_say(l, TOP_DIM, "No agent on this host");
        snprintf(text, sizeof(text), "This host: %s, %s", m->host.node, m->host.state);
        top_line_say(l, strcmp(m->host.state, "held") == 0 ? TOP_PLAIN : TOP_NOTICE, text);
        if (m->host.deadline.ns != BOOT_TIME_NEVER.ns) {
                top_duration(boot_diff(m->host.deadline, now), true, left);
                snprintf(text, sizeof(text), ", %s to its own deadline", left);
                top_line_say(l, TOP_PLAIN, text);
        }
        if (boot_before(now, m->host.rest_until)) {
                top_duration(boot_diff(m->host.rest_until, now), false, left);
                snprintf(text, sizeof(text), ", suppressed for %s more", left);
                top_line_say(l, TOP_NOTICE, text);
        }
        if (*m->host.maintenance)
                top_line_say(l, TOP_NOTICE, ", stays out until join");
        if (m->host.mass_failure)
                top_line_say(l, TOP_ALARM, "; most nodes are gone at once");
}

static int host_line(const struct top_model *m, const struct top_look *k, struct boot_time now,
                     struct top_screen *s)
{
        char text[512];
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        host_text(m, now, &l);
        if (*m->filter) {
                snprintf(text, sizeof(text), "  [filter: %s: %zu of %zu]", m->filter,
                         m->n_shown, m->n_nodes);
                top_line_say(&l, TOP_BOLD, text);
        }
        return 0;
}

int top_head(const struct top_model *m, const struct top_look *k, struct boot_time now,
             int64_t wall, struct top_screen *s)
{
        return verdict_line(m, k, wall, s) < 0 || counts_line(m, k, s) < 0 ||
                               core_line(m, k, s) < 0 || host_line(m, k, now, s) < 0
                       ? -ENOMEM
                       : 0;
}
