/* tenurectl work GROUP: the options of it, and its two halves. */
#pragma once

#include "core.h"
#include "ctl.h"
#include "tenure/tenure.h"

struct work_options {
        const char *tasks;   /* as they were given; NULL: none */
        const char *name;    /* of the member; NULL: the host's */
        const char *weight;  /* NULL: 100 */
        const char *ttl;     /* NULL: 10s */
        const char *grace;   /* how long a command may take to end; NULL: 10s */
        const char *cluster; /* NULL: the agent's */
};

/* work.c: with a command, runs it for each task of this member. Without one, lists the tasks
 * and their members, in the cluster that was given, or else in that of the agent on c->bus.
 * @bus: the bus's address, NULL: the system bus. Returns an exit status. */
must_check_ int work_main(struct ctl *c, const struct core_options *core,
                          const struct work_options *o, bool endpoints_given, const char *bus,
                          int argc, char **argv);

/* work_tasks.c: "1000", "@FILE", "a,b,c". */
struct work_names {
        const char **names; /* NULL: they are numbered */
        size_t n;
        char *text; /* what they point to */
};
/* Returns 0, or -1 after printing why. */
must_check_ int work_names_parse(struct work_names *ret, const char *text);
void work_names_fini(struct work_names *w);

/* work_list.c: prints the list. Returns an exit status. */
must_check_ int work_list(const struct ctl *c, struct tenure *t, const char *cluster,
                          const char *group);
