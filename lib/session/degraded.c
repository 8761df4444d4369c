#include "session/degraded.h"

#include <inttypes.h>
#include <stdio.h>

#define AT_LEAST (10 * NSEC_PER_SEC)

double pressure_parse(const char *text, const char *kind)
{
        size_t n = strlen(kind);

        for (const char *line = text; line; line = strchr(line, '\n')) {
                const char *at;
                char *end;
                double v;

                line += *line == '\n';
                if (strncmp(line, kind, n) != 0 || line[n] != ' ')
                        continue;
                at = strstr(line, "avg10=");
                if (!at)
                        return -1;
                v = strtod(at + 6, &end);
                return end > at + 6 && v >= 0 && v <= 100 ? v : -1;
        }
        return -1;
}

bool degraded_update(struct degraded *d, const struct degraded_config *cfg,
                     const struct degraded_reading *r, struct boot_time now)
{
        const struct {
                const char *what;
                double value;
                unsigned percent;
        } kinds[] = {{"memory", r->memory, cfg->percent},
                     {"io", r->io, cfg->percent},
                     {"cpu", r->cpu, cfg->cpu_percent}};
        bool never = cfg->percent == 0 && cfg->cpu_percent == 0;
        bool calm = r->lag * 2 <= cfg->lag;
        char why[sizeof(d->why)] = "";

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (kinds[i].percent == 0)
                        continue;
                calm = calm && kinds[i].value * 2 < kinds[i].percent;
                if (!*why && kinds[i].value >= kinds[i].percent)
                        snprintf(why, sizeof(why), "%s pressure %.0f %%", kinds[i].what,
                                 kinds[i].value);
        }
        if (!*why && cfg->percent > 0 && r->lag > cfg->lag)
                snprintf(why, sizeof(why), "the agent ran %" PRId64 " ms late",
                         r->lag / NSEC_PER_MSEC);
        if (*d->why) {
                bool over = never || (calm && boot_diff(now, d->since) >= AT_LEAST);

                if (*why && !calm)
                        d->since = now;
                if (over)
                        d->why[0] = '\0';
                return over;
        }
        if (!*why)
                return false;
        strcpy(d->why, why);
        d->since = now;
        return true;
}
