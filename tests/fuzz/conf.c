/* Settings of programs: their files, their command lines, and single values, as the environment
 * has them. */
#include "base/conf.h"
#include "base/args.h"
#include "base/utf8.h"
#include "fuzz.h"

struct settings {
        char *text, *list;
        bool flag;
        uint64_t number;
        nsec_t time;
        int mood;
};

static const struct conf_word moods[] = {{"calm", 7}, {"glad", -1}, {"sad", 0}, {NULL, 0}};

static const struct conf_option options[] = {
        {.section = "Core",
         .key = "Name",
         .flag = "name",
         .help = "what it is",
         .type = CONF_STRING,
         .offset = offsetof(struct settings, text),
         .def = "x"},
        {.section = "Core",
         .key = "Peers",
         .flag = "peers",
         .help = "what it is",
         .type = CONF_LIST,
         .offset = offsetof(struct settings, list),
         .def = "a,b"},
        {.section = "Other",
         .key = "Flag",
         .flag = "flag",
         .help = "what it is",
         .type = CONF_BOOL,
         .offset = offsetof(struct settings, flag),
         .def = "no"},
        {.section = "Other",
         .key = "Number",
         .flag = "number",
         .help = "what it is",
         .type = CONF_UINT,
         .offset = offsetof(struct settings, number),
         .def = "5",
         .min = 1,
         .max = 1000},
        {.section = "Other",
         .key = "Time",
         .flag = "time",
         .help = "what it is",
         .type = CONF_NSEC,
         .offset = offsetof(struct settings, time),
         .def = "1s",
         .min = 0,
         .max = 3600 * NSEC_PER_SEC},
        {.section = "Other",
         .key = "Mood",
         .flag = "mood",
         .help = "what it is",
         .type = CONF_ENUM,
         .offset = offsetof(struct settings, mood),
         .def = "glad",
         .words = moods},
};

#define N ARRAY_SIZE(options)

static int read_file(void *ret, const char *path)
{
        struct conf_error err = {""};
        int r;

        memset(ret, 0, sizeof(struct settings));
        if (conf_defaults(options, N, ret) < 0)
                abort();
        r = conf_read_file(options, N, ret, path, &err);
        HOLDS(r == 0 || *err.text);
        return r;
}

static bool is_text(struct view v)
{
        size_t len = 1;

        while (v.len > 0 && (len = utf8_char(v.p, v.len)) > 0)
                v = (struct view){v.p + len, v.len - len};
        return len > 0;
}

/* What is printed is read as the same, and is UTF-8 if @in, which it was read from, is. */
static void check_printed(const struct settings *a, struct view in)
{
        cleanup_(buf_fini) struct buf printed = {0};
        struct settings b;

        conf_print(options, N, a, &printed);
        HOLDS(!is_text(in) || is_text((struct view){printed.data, buf_len(&printed)}));
        check_reads_back(options, N, a, &b, read_file);
}

static void run_conf(struct view in)
{
        struct settings a;

        if (read_file(&a, as_file(in)) == 0)
                check_printed(&a, in);
        conf_clear(options, N, &a);
}

/* ---- command lines, and single settings, as from the environment ---- */

static bool ends_options(char *const operands[], size_t n)
{
        return n > 1 && strcmp(operands[0], "rest") == 0;
}

/* The settings of the command line, one by one: what is refused changes nothing. Returns the
 * first error. */
static int set_each(struct settings *s, int argc, char **argv)
{
        int first = 0;

        for (int i = 1; i < argc; i++) {
                cleanup_(buf_fini) struct buf before = {0}, after = {0};
                const struct conf_option *o = &options[(size_t) i % N];
                struct conf_error err = {""};
                int r;

                conf_print(options, N, s, &before);
                r = conf_set(o, s, argv[i], "ETCD_X", &err);
                HOLDS(r == 0 || *err.text);
                first = first < 0 ? first : r;
                conf_print(options, N, s, &after);
                HOLDS(r == 0 || (buf_len(&before) == buf_len(&after) &&
                                 memcmp(before.data, after.data, buf_len(&after)) == 0));
        }
        return first;
}

/* Words that end with a NUL; the byte before them chooses what the program takes. */
static void run_args(struct view in)
{
        uint8_t how = take_u8(&in);
        const char *value = NULL, *bare = NULL;
        bool flag = false, alone = false;
        const struct args_option own[] = {{.letter = 't', .name = "test", .flag = &flag},
                                          {.letter = 'f', .name = "file", .value = &value},
                                          {.name = "json", .value = &bare, .bare = "pretty"},
                                          {.name = "alone", .flag = &alone, .alone = true}};
        const struct args_foreign foreign[] = {
                {.name = "old", .is_flag = true, .why = "it is gone"},
                {.name = "no", .refused = true, .fine = "a b", .why = "of that"}};
        const struct args_program program = {.name = "x",
                                             .conf_path = "x.conf",
                                             .options = own,
                                             .n_options = ARRAY_SIZE(own),
                                             .table = how & 1 ? options : NULL,
                                             .n_table = how & 1 ? N : 0,
                                             .foreign = foreign,
                                             .n_foreign = how & 2 ? ARRAY_SIZE(foreign) : 0,
                                             .one_dash = how & 4,
                                             .operands = how & 8,
                                             .rest = how & 16 ? ends_options : NULL};
        char *text = malloc(in.len + 1), *argv[34] = {(char *) (uintptr_t) "x"};
        struct conf_error err = {""};
        struct settings s = {0};
        struct args a = {0};
        int argc = 1, r;

        HOLDS(text);
        memcpy(text, in.p, in.len);
        text[in.len] = '\0';
        for (char *p = text; p < text + in.len && argc < 33; p += strlen(p) + 1)
                argv[argc++] = p;
        r = args_parse(&a, &program, argc, argv, &err);
        HOLDS(r == 0 || r == ARGS_E_SHOWN || (r == -EINVAL && *err.text));
        HOLDS(a.n_operands < (size_t) argc && a.n_before <= a.n_operands);
        HOLDS(r < 0 || program.operands || a.n_operands == 0);
        HOLDS(conf_defaults(options, N, &s) == 0);
        if (r == 0 && how & 1)
                r = args_apply(&a, &s, &err);
        HOLDS(r == 0 || r == ARGS_E_SHOWN || *err.text);
        if (r == 0)
                r = set_each(&s, argc, argv);
        if (r == 0)
                check_printed(&s, in);
        conf_clear(options, N, &s);
        args_fini(&a);
        free(text);
}

const struct fuzzer fuzz_conf = {.name = "conf", .run = run_conf};
const struct fuzzer fuzz_args = {.name = "args", .run = run_args};
