#include "fence_known.h"

#include <limits.h>
#include <stdio.h>

#include "runtime.h"

/* A line for each unit, the root first, as HeldTarget= names it: its name, and its control
 * group if it has one; then one for each stray: its unit's name again, and its group. */
static void write_units(const void *userdata, FILE *f)
{
        size_t n;
        const struct bound_unit *u = bound_units(userdata, &n);
        const struct bound_stray *s;

        for (size_t i = 0; i < n; i++)
                fprintf(f, "%s %s\n", i == 0 ? bound_root(userdata) : u[i].name,
                        u[i].control_group ? u[i].control_group : "");
        s = bound_strays(userdata, &n);
        for (size_t i = 0; i < n; i++)
                fprintf(f, "%s %s\n", s[i].unit, s[i].group);
}

void fence_known_save(const struct bound *b)
{
        runtime_write(FENCE_KNOWN, write_units, b,
                      "not know what is bound before systemd has answered");
}

void fence_known_load(struct bound *b)
{
        char line[PATH_MAX + NAME_MAX];
        FILE *f = fopen(FENCE_KNOWN, "re");
        bool first = true;

        if (!f)
                return;
        while (fgets(line, sizeof(line), f)) {
                char *end = strchr(line, '\n'), *group = strchr(line, ' ');

                if (!end || !group)
                        break;
                *end = *group++ = '\0';
                /* The file is about another HeldTarget=. */
                if (first && strcmp(line, bound_root(b)) != 0)
                        break;
                first = false;
                bound_remember(b, line, *group ? group : NULL);
        }
        fclose(f);
}
