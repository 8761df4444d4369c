/* tenured's settings, from a file. Its names, which tenure-core has as well, are hidden from
 * the other fuzzers (tests.mk). */
#include "../../agent/tenured/agent.h"
#include "fuzz.h"

static int read_agent(struct options *o, const char *path, struct conf_error *err)
{
        int r;

        *o = (struct options){0};
        r = conf_defaults(options_table, n_options, o);
        if (r == 0)
                r = conf_read_file(options_table, n_options, o, path, err);
        return r == 0 ? options_resolve(o, err) : r;
}

static int read_again(void *o, const char *path)
{
        struct conf_error err = {""};

        return read_agent(o, path, &err);
}

/* What `tenured -t` prints is read as the same. */
static void run_agent_settings(struct view in)
{
        struct conf_error err = {""};
        struct options a, b;
        int r = read_agent(&a, as_file(in), &err);

        HOLDS(r == 0 || (*err.text && !strchr(err.text, '\n')));
        if (r == 0)
                check_reads_back(options_table, n_options, &a, &b, read_again);
        conf_clear(options_table, n_options, &a);
}

const struct fuzzer fuzz_agent_settings = {.name = "agent-settings", .run = run_agent_settings};
