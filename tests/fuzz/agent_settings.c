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

/* What `tenured -t` prints is read as the same. */
static void run_agent_settings(struct view in)
{
        cleanup_(buf_fini) struct buf printed = {0}, again = {0};
        struct conf_error err = {""};
        struct options a, b;
        int r = read_agent(&a, as_file(in), &err);

        HOLDS(r == 0 || (*err.text && !strchr(err.text, '\n')));
        if (r == 0) {
                conf_print(options_table, n_options, &a, &printed);
                HOLDS(read_agent(&b, as_file((struct view){printed.data, buf_len(&printed)}),
                                 &err) == 0);
                conf_print(options_table, n_options, &b, &again);
                HOLDS(buf_len(&printed) == buf_len(&again) &&
                      memcmp(printed.data, again.data, buf_len(&again)) == 0);
                conf_clear(options_table, n_options, &b);
        }
        conf_clear(options_table, n_options, &a);
}

const struct fuzzer fuzz_agent_settings = {.name = "agent-settings", .run = run_agent_settings};
