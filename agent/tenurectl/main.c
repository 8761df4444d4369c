/* tenurectl: queries and commands for the agent on this host and for the lease core. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/args.h"
#include "base/conf.h"
#include "base/std_fds.h"
#include "options.h"
#include "talk.h"
#include "text.h"
#include "verbs.h"

int ctl_open_bus(struct ctl *c)
{
        const char *address = c->address ? c->address : getenv("DBUS_SYSTEM_BUS_ADDRESS");
        int r;

        if (!c->address) {
                r = sd_bus_open_system(&c->bus);
        } else {
                r = sd_bus_new(&c->bus);
                if (r >= 0)
                        r = sd_bus_set_address(c->bus, c->address);
                if (r >= 0)
                        r = sd_bus_set_bus_client(c->bus, true);
                if (r >= 0)
                        r = sd_bus_start(c->bus);
        }
        if (r >= 0)
                return 0;
        if (address)
                return say("cannot reach the bus at %s: %s", address, strerror(-r));
        return say("cannot reach the system bus: %s; is dbus running? --bus=ADDRESS names "
                   "another bus",
                   strerror(-r));
}

int ctl_flush(struct ctl *c)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return 0;
        return say("cannot write to standard output: %s%s%s", strerror(errno),
                   c->done ? "; what was done: " : "", c->done ? c->done : "");
}

int ctl_hear_for(struct ctl *c, uint64_t usec)
{
        int r;

        if (ctl_flush(c) < 0)
                return -1;
        r = sd_bus_process(c->bus, NULL);
        if (r == 0)
                r = sd_bus_wait(c->bus, usec);
        return r < 0 && r != -EINTR ? ctl_fail("the bus connection ended", r, NULL) : 0;
}

int ctl_hear(struct ctl *c)
{
        return ctl_hear_for(c, UINT64_MAX);
}

static int check_endpoints(const char *list)
{
        const char *rest = list_too_long(list, TALK_URL_MAX);

        if (*list == '\0' || *list == ',' || rest == list)
                return say("'%s' names no endpoint of the core", list);
        return rest ? say("--endpoints: '%s' is too long", rest) : 0;
}

int verb_call(struct ctl *c, const struct verb *v, int argc, char **argv)
{
        char user[TALK_USER], password[TALK_PASSWORD];
        int r = v->of & OF_CORE ? check_endpoints(c->core.endpoints) : 0;

        if (r == 0 && (v->of & VERB_AGENT))
                r = ctl_open_bus(c);
        if (r == 0 && (v->of & OF_CORE))
                r = talk_log_in(&c->core, user, password);
        if (r == 0)
                r = v->fn(c, argc, argv);
        explicit_bzero(password, sizeof(password));
        c->bus = sd_bus_flush_close_unref(c->bus);
        return r;
}

/* Returns an exit status, or -1. */
static int run(struct ctl *c, const struct verb *v, const struct args *a, size_t n_words)
{
        char **argv = a->operands + n_words;
        int argc = (int) (a->n_operands - n_words), r;

        c->n_before = a->n_before - min_of(n_words, a->n_before);
        if (c->o.version)
                r = printf("tenurectl %s\n", TENURE_VERSION) < 0;
        else if (c->o.help)
                r = verbs_help(a->operands, v ? n_words : a->n_operands);
        else if (!v)
                r = verb_unknown(a->operands, a->n_operands);
        else
                r = verb_check(c, v, argc, argv);
        if (r == 0 && !c->o.version && !c->o.help)
                r = verb_call(c, v, argc, argv);
        return r >= 0 && ctl_flush(c) < 0 ? -1 : r;
}

int main(int argc, char **argv)
{
        struct ctl c = {.o = {.wait = -1,
                              .interval = NSEC_PER_SEC,
                              .ttl = 10 * NSEC_PER_SEC,
                              .grace = 10 * NSEC_PER_SEC,
                              .iterations = UINT64_MAX,
                              .conflict = EXIT_NOT_MINE}};
        const struct verb *v;
        struct args a = {0};
        size_t n_words;
        int r;

        std_fds_reserve();
        r = options_parse(&c, argc, argv, verb_is_rest, &a);
        v = verb_find(a.operands, a.n_operands, &n_words);
        c.legend = !c.o.no_legend;
        c.ask = !c.o.no_ask;
        if (r == 0)
                r = run(&c, v, &a, n_words);
        if (r < 0)
                r = v && v->failed ? v->failed : EXIT_FAILED;
        args_fini(&a);
        free(c.done);
        return r;
}
