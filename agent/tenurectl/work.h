/* tenurectl work GROUP: its parts. */
#pragma once

#include "ctl.h"
#include "tenure/tenure.h"

/* work_tasks.c: "1000", "@FILE", "a,b,c". */
struct work_names {
        const char **names; /* NULL: they are numbered */
        size_t n;
        char *text; /* the text that `names` points into */
};
/* Returns 0, or -1 after printing why. */
must_check_ int work_names_parse(struct work_names *ret, const char *text);
void work_names_fini(struct work_names *w);

/* work_list.c: prints the list. Returns 0, or -1 after printing why it cannot. */
must_check_ int work_list(const struct ctl *c, struct tenure *t, const char *cluster,
                          const char *group);
