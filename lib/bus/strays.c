#include "bus/strays.h"

static char *copy_of(const char *text)
{
        char *copy = strdup(text);

        if (!copy)
                abort();
        return copy;
}

bool strays_add(struct strays *s, const char *unit, const char *group, bool is_ours)
{
        for (size_t i = 0; i < s->n; i++)
                if (strcmp(s->all[i].unit, unit) == 0 && strcmp(s->all[i].group, group) == 0)
                        return false;
        s->all = reallocarray(s->all, s->n + 1, sizeof(*s->all));
        if (!s->all)
                abort();
        s->all[s->n++] = (struct bound_stray){
                .unit = copy_of(unit), .group = copy_of(group), .is_ours = is_ours};
        return true;
}

static void forget(struct strays *s, size_t i)
{
        free(s->all[i].unit);
        free(s->all[i].group);
        s->all[i] = s->all[--s->n];
}

bool strays_forget(struct strays *s, bool (*is_over)(const void *userdata, const char *group),
                   const void *userdata)
{
        size_t before = s->n;

        for (size_t i = s->n; i-- > 0;)
                if (is_over(userdata, s->all[i].group))
                        forget(s, i);
        return s->n < before;
}

void strays_clear(struct strays *s)
{
        while (s->n > 0)
                forget(s, s->n - 1);
        free(s->all);
        *s = (struct strays){0};
}
