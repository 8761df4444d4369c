/* What programs read themselves: tenure-core's settings, entries of services, a request for
 * metrics, and what the kernel says of a process. */
#include <stdio.h>
#include <unistd.h>

#include "../../agent/tenure-core/options.h"
#include "../../agent/tenurectl/metrics_request.h"
#include "../../agent/tenurectl/offspring.h"
#include "../../agent/tenured/entry_file.h"
#include "fuzz.h"

/* ---- settings of tenure-core: a file of ours, one of etcd's, or the environment ---- */

static char *nothing[] = {NULL};

static int read_core(struct options *o, const char *path, struct buf *notes,
                     struct conf_error *err)
{
        const struct arguments args = {.file = path};
        struct options_cluster cluster = {0};
        int r;

        *o = (struct options){0};
        r = options_read(o, &cluster, &args, notes, err);
        HOLDS(r < 0 || (cluster.n_peers > 0 && cluster.n_peers <= OPTIONS_PEERS_MAX &&
                        cluster.self < cluster.n_peers));
        return r;
}

static int read_again(void *o, const char *path)
{
        cleanup_(buf_fini) struct buf notes = {0};
        struct conf_error err = {""};

        return read_core(o, path, &notes, &err);
}

/* Variables that end with a NUL, if the first byte is one; else a file. */
static void run_core_settings(struct view in)
{
        cleanup_(buf_fini) struct buf notes = {0};
        char *text = malloc(in.len + 1), *variables[33] = {NULL};
        bool is_file = in.len == 0 || in.p[0] != 0;
        struct conf_error err = {""};
        struct options o, again;
        size_t n = 0;
        int r;

        HOLDS(text);
        memcpy(text, in.p, in.len);
        text[in.len] = '\0';
        for (char *p = text + 1; !is_file && p < text + in.len && n < 32; p += strlen(p) + 1)
                variables[n++] = p;
        environ = variables;
        r = read_core(&o, is_file ? as_file(in) : NULL, &notes, &err);
        environ = nothing;
        if (r < 0)
                HOLDS(*err.text);
        else if (is_file) /* what `tenure-core -t` prints is read as the same */
                check_reads_back(options_table, n_options, &o, &again, read_again);
        conf_clear(options_table, n_options, &o);
        free(text);
}

/* ---- ---- */

static void run_entry(struct view in)
{
        cleanup_(buf_fini) struct buf text = {0};
        struct service_record r, back;
        struct conf_error err = {""};
        int q = entry_file_read(as_file(in), "web", &r, &err);

        HOLDS((q == 0) == (in.len == 0));
        if (q < 0)
                HOLDS(*err.text);
        if (q <= 0)
                return;
        strcpy(r.node, "h1");
        service_record_key(&r, &text);
        HOLDS(service_record_read_key(&back, (struct view){text.data, buf_len(&text)}) == 0 &&
              strcmp(back.name, r.name) == 0 && strcmp(back.instance, r.instance) == 0);
        buf_clear(&text);
        service_record_write(&r, &text);
        HOLDS(service_record_read(&back, text.data, buf_len(&text)) == 0 &&
              strcmp(back.tags, r.tags) == 0 && strcmp(back.unit, r.unit) == 0 &&
              strcmp(back.address, r.address) == 0 && back.port == r.port);
}

static void run_request(struct view in)
{
        char text[8192];
        size_t n = min_of(in.len, sizeof(text) - 1);
        const char *status;
        bool body;

        memcpy(text, in.p, n);
        text[n] = '\0';
        status = metrics_judge(text, &body);
        HOLDS(strlen(status) > 4 && status[3] == ' ');
        HOLDS(body || strncmp(text, "HEAD ", 5) == 0);
        HOLDS(strncmp(status, "200", 3) != 0 || strncmp(text, "GET", 3) == 0 ||
              strncmp(text, "HEAD", 4) == 0);
}

/* A name, as a program chooses it, in a line that is otherwise the kernel's. */
static void run_stat(struct view in)
{
        unsigned long long began = 0;
        char text[1024], line[1100];
        size_t n = min_of(in.len, (size_t) 64);
        pid_t parent = 0;

        snprintf(text, sizeof(text), "%.*s", (int) n, (const char *) in.p);
        (void) !offspring_parse(text, &parent, &began);
        snprintf(line, sizeof(line),
                 "77 (%s) S 4711 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 9 9", text);
        HOLDS(offspring_parse(line, &parent, &began) && parent == 4711 && began == 12345);
}

const struct fuzzer fuzz_core_settings = {.name = "core-settings", .run = run_core_settings};
const struct fuzzer fuzz_entry = {.name = "entry", .run = run_entry};
const struct fuzzer fuzz_request = {.name = "request", .run = run_request};
const struct fuzzer fuzz_stat = {.name = "stat", .run = run_stat};
