/* One pass over the command line: the order of arguments, repeated ones, and invalid ones. */
#include "base/args.h"
#include "nomem.h"
#include "test.h"

struct target {
        char *name, *list;
        bool on;
        uint64_t n;
        nsec_t beat;
};

static const struct conf_option table[] = {
        {"A", "Name", "name", CONF_STRING, offsetof(struct target, name), "x", "", 0, 0, false,
         NULL},
        {"A", "List", "list", CONF_LIST, offsetof(struct target, list), "a,b", "", 0, 0, false,
         NULL},
        {"A", "On", "on", CONF_BOOL, offsetof(struct target, on), "no", "", 0, 0, false, NULL},
        {"A", "N", "n", CONF_UINT, offsetof(struct target, n), "5", "", 1, 10, false, NULL},
        {"A", "Beat", "beat", CONF_MSEC, offsetof(struct target, beat), "100", "", 0,
         3600 * NSEC_PER_SEC, false, NULL},
};

static const struct args_foreign foreign[] = {
        {"wal", false, false, NULL, "there is none"},
        {"sure", true, false, NULL, "it is always on"},
        {"proxy", false, true, "off none", "have none"},
        {"v2", true, true, "false", "use v3"},
        {"gone", false, true, NULL, "use --n"},
        {"gateway", true, true, NULL, "do without"},
};

static struct said {
        const char *file, *mode, *only;
        bool test, alone;
        struct args args;
        struct conf_error err;
        int r;
} s;

static const struct args_option own[] = {
        {'c', "file", "FILE", "", .value = &s.file},
        {0, "mode", "WORD", "", .value = &s.mode, .bare = "fast"},
        {'t', "test", NULL, "", .flag = &s.test},
        {0, "only", "WORD", "", .value = &s.only, .alone = true},
        {0, "alone", NULL, "", .flag = &s.alone, .alone = true},
};

static bool all_rest(char *const operands[], size_t n)
{
        return n == 1 && strcmp(operands[0], "run") == 0;
}

static void no_help(const struct args_program *p, FILE *f)
{
        (void) p;
        (void) f;
}

/* A daemon, which takes no operands; a tool, which does; or a daemon that stands in for another
 * one. */
static bool other;

static int parse(bool tool, const char *const argv[])
{
        const struct args_program p = {
                .name = "prog",
                .version = "1",
                .options = own,
                .n_options = ARRAY_SIZE(own),
                .table = table,
                .n_table = ARRAY_SIZE(table),
                .help = no_help,
                .foreign = other ? foreign : NULL,
                .n_foreign = other ? ARRAY_SIZE(foreign) : 0,
                .one_dash = other,
                .operands = tool,
                .rest = tool ? all_rest : NULL,
        };
        int argc = 0;

        while (argv[argc])
                argc++;
        args_fini(&s.args);
        s = (struct said){0};
        s.r = args_parse(&s.args, &p, argc, (char **) (uintptr_t) argv, &s.err);
        return s.r;
}

#define DAEMON(...) parse(false, (const char *const[]){"prog", __VA_ARGS__, NULL})
#define TOOL(...) parse(true, (const char *const[]){"prog", __VA_ARGS__, NULL})

/* What the arguments of the last parse() make of the defaults, printed; or of the error. */
static const char *applied(void)
{
        static char text[256];
        struct target t = {0};
        int r = conf_defaults(table, ARRAY_SIZE(table), &t);

        if (r == 0)
                r = args_apply(&s.args, &t, &s.err);
        if (r == 0)
                snprintf(text, sizeof(text), "%s %s %s %d", t.name, t.list, t.on ? "on" : "off",
                         (int) t.n);
        conf_clear(table, ARRAY_SIZE(table), &t);
        return r == 0 ? text : s.err.text;
}

TEST(arguments_are_options_and_settings_in_any_order)
{
        CHECK_EQ(parse(false, (const char *const[]){"prog", NULL}), 0);
        CHECK(strcmp(applied(), "x a,b off 5") == 0);
        CHECK(!s.file && !s.mode && !s.test);

        CHECK_EQ(DAEMON("--n", "7", "-t", "--on", "-c", "f", "--name=y"), 0);
        CHECK(strcmp(applied(), "y a,b on 7") == 0);
        CHECK(s.test && strcmp(s.file, "f") == 0);
        /* Once more, over the values of a file. */
        CHECK(strcmp(applied(), "y a,b on 7") == 0);

        CHECK_EQ(DAEMON("--name=", "--file=a=b", "--on=no"), 0);
        CHECK(strcmp(applied(), " a,b off 5") == 0);
        CHECK(strcmp(s.file, "a=b") == 0);
        args_fini(&s.args);
}

/* The value of one is no option, whatever it looks like: this named a file to the first of two
 * passes, and a replica to the second. */
TEST(a_value_may_look_like_an_option)
{
        CHECK_EQ(DAEMON("--name", "--file=f", "--n", "2"), 0);
        CHECK(strcmp(applied(), "--file=f a,b off 2") == 0);
        CHECK(!s.file);
        CHECK_EQ(DAEMON("--file", "--name", "-t"), 0);
        CHECK(strcmp(s.file, "--name") == 0 && s.test);
        CHECK_EQ(DAEMON("--name", "-t"), 0);
        CHECK(!s.test);
        CHECK_EQ(DAEMON("--name", "--help"), 0);
        CHECK_EQ(DAEMON("-c", "--"), 0);
        CHECK(strcmp(s.file, "--") == 0);
        args_fini(&s.args);
}

TEST(of_an_option_that_is_repeated_the_last_counts)
{
        CHECK_EQ(DAEMON("--name", "y", "--file=f", "--list=c", "--name=z", "-c", "g", "-t",
                        "--test", "--list", "d e"),
                 0);
        CHECK(strcmp(applied(), "z d,e off 5") == 0);
        CHECK(strcmp(s.file, "g") == 0);
        /* But none may be wrong. */
        CHECK_EQ(DAEMON("--n=99", "--n=3"), 0);
        CHECK(strcmp(applied(), "--n must be a whole number from 1 to 10, not '99'") == 0);
        args_fini(&s.args);
}

TEST(arguments_that_cannot_be_are_named)
{
        static const struct {
                const char *a, *b, *why;
        } wrong[] = {
                {"--nmae", "x", "unknown option '--nmae'; the most similar one is --name"},
                {"--nam=x", "-t", "unknown option '--nam=x'; the most similar one is --name"},
                {"--names", "-t", "unknown option '--names'; the most similar one is --name"},
                {"-x", "-t", "unknown option '-x'; see prog --help"},
                {"-tc", "f", "unknown option '-tc'; see prog --help"},
                {"-t", "word", "unknown option 'word'; see prog --help"},
                {"-t", "at", "unknown option 'at'; see prog --help"},
                {"-t", "", "unknown option ''; see prog --help"},
                {"-t", "-", "unknown option '-'; see prog --help"},
                {"-t", "--", "unknown option '--'; see prog --help"},
                {"-t", "--=", "unknown option '--='; see prog --help"},
                {"-t", "--help=x", "unknown option '--help=x'; see prog --help"},
                {"-t", "--name", "--name needs a value"},
                {"-t", "-c", "--file needs a value"},
                {"--on", "yes", "unknown option 'yes'; see prog --help"},
                {"--test=yes", "-t", "--test takes no value, but 'yes' was given"},
                {"--alone", "-t", "--alone cannot be combined with other arguments"},
                {"--wrong", "--help", "unknown option '--wrong'; see prog --help"},
                {"--wrong", "--name", "unknown option '--wrong'; see prog --help"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                CHECK_EQ(DAEMON(wrong[i].a, wrong[i].b), -EINVAL);
                CHECK(strcmp(s.err.text, wrong[i].why) == 0);
        }
        CHECK_EQ(DAEMON("--alone"), 0);
        CHECK(s.alone);
        CHECK_EQ(DAEMON("--only", "x"), 0);
        CHECK(strcmp(s.only, "x") == 0);
        CHECK_EQ(DAEMON("--only=x"), 0);
        CHECK_EQ(DAEMON("--only"), -EINVAL);
        CHECK_EQ(DAEMON("--only", "x", "-t"), -EINVAL);
        CHECK(strcmp(s.err.text, "--only cannot be combined with other arguments") == 0);
        CHECK_EQ(DAEMON("-t", "-h", "--wrong"), ARGS_E_SHOWN);
        args_fini(&s.args);
}

/* A tool: options anywhere before `--`, or before some word. */
TEST(operands_may_stand_anywhere)
{
        CHECK_EQ(TOOL("lock", "--mode", "l", "-t", "--", "cmd", "--mode=x", "--help", "--"), 0);
        CHECK(s.test && strcmp(s.mode, "fast") == 0);
        CHECK_EQ(s.args.n_operands, 6);
        CHECK(s.args.dashes && s.args.n_before == 2); /* "lock", "l" */
        CHECK(strcmp(s.args.operands[1], "l") == 0);
        CHECK(strcmp(s.args.operands[3], "--mode=x") == 0);
        CHECK(strcmp(s.args.operands[5], "--") == 0);
        CHECK(!s.args.operands[6]);

        CHECK_EQ(TOOL("--mode=", "run", "-x", "--help", "--"), 0);
        CHECK(*s.mode == '\0');
        CHECK_EQ(s.args.n_operands, 4);
        CHECK(!s.args.dashes && s.args.n_before == 4); /* the last is an operand */

        CHECK_EQ(TOOL("put", "-", "-t"), 0);
        CHECK(s.test && s.args.n_operands == 2 && strcmp(s.args.operands[1], "-") == 0);

        /* The command is known, however wrong the rest is. */
        CHECK_EQ(TOOL("-x", "lock", "--y", "z"), -EINVAL);
        CHECK(strcmp(s.err.text, "unknown option '-x'; see prog --help") == 0);
        CHECK_EQ(s.args.n_operands, 2);
        CHECK(strcmp(s.args.operands[0], "lock") == 0);
        args_fini(&s.args);
}

TEST(arguments_without_memory)
{
        for (size_t n = 0; n < 3; n++) {
                nomem_after(n);
                CHECK_EQ(TOOL("--name", "x", "word"), -ENOMEM);
                CHECK(nomem_end());
                CHECK(!s.args.operands && !s.args.settings);
        }
        CHECK_EQ(TOOL("--name", "x", "word"), 0);
        args_fini(&s.args);
}

/* Options of the program that ours replaces: without effect, refused, or fine with their
 * default values. */
TEST(settings_of_another_program_are_known)
{
        static const struct {
                const char *a, *b, *why;
        } wrong[] = {
                {"--proxy=on", "-t", "--proxy=on is not supported: have none"},
                {"-proxy", "readonly", "--proxy=readonly is not supported: have none"},
                {"--v2", "-t", "--v2=true is not supported: use v3"},
                {"--v2=true", "-t", "--v2=true is not supported: use v3"},
                {"--gone", "", "--gone is not supported: use --n"},
                {"--gone=", "-t", "--gone is not supported: use --n"},
                {"gateway", "start", "gateway is not supported: do without"},
                {"-t", "--wal", "--wal needs a value"},
                {"--wall", "x", "unknown option '--wall'; see prog --help"},
                {"-test=x", "-t", "--test takes no value, but 'x' was given"},
                {"-x", "-t", "unknown option '-x'; see prog --help"},
        };

        other = true;
        CHECK_EQ(DAEMON("--wal", "/x", "-sure", "--sure=false", "--proxy", "off", "-v2=false",
                        "--proxy=", "-name", "y", "-on", "-n=7"),
                 0);
        CHECK(strcmp(applied(), "y a,b on 7") == 0);
        CHECK_EQ(s.args.n_foreign, 3);
        CHECK_STR(s.args.foreign[1]->name, "sure");
        CHECK_EQ(DAEMON("--on=F", "--test=false"), 0);
        CHECK(strcmp(applied(), "x a,b off 5") == 0);
        CHECK(!s.test);
        CHECK_EQ(DAEMON("--test=T"), 0);
        CHECK(s.test);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                CHECK_EQ(DAEMON(wrong[i].a, wrong[i].b), -EINVAL);
                CHECK(strncmp(s.err.text, wrong[i].why, strlen(wrong[i].why)) == 0);
        }
        other = false;
        args_fini(&s.args);
}

/* A bare number counts milliseconds; a unit may be given. */
TEST(times_in_milliseconds)
{
        static const struct {
                const char *in;
                nsec_t ns;
        } t[] = {{"100", 100 * NSEC_PER_MSEC},
                 {"1s", NSEC_PER_SEC},
                 {"1m", 60 * NSEC_PER_SEC},
                 {"250us", 250 * NSEC_PER_USEC},
                 {"0", 0}};
        const struct conf_option *o = conf_find_flag(table, ARRAY_SIZE(table), "beat", 4);
        struct conf_error err = {""};
        struct target x = {0};

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                CHECK_EQ(conf_set(o, &x, t[i].in, "BEAT", &err), 0);
                CHECK_EQ(x.beat, t[i].ns);
        }
        CHECK_EQ(conf_set(o, &x, "2h", "BEAT", &err), -EINVAL);
        CHECK_STR(err.text, "BEAT must be a time from 0s to 1h such as 500ms or 10s, not '2h'");
}

/* What a file would drop is refused, since -t prints a file. */
TEST(a_value_that_no_file_can_have)
{
        static const struct {
                const char *in, *why;
        } t[] = {{" a", "NAME must not begin or end with a blank"},
                 {"a\t", "NAME must not begin or end with a blank"},
                 {"a ;b", "NAME must not contain a ';' behind a blank, where a comment begins"},
                 {"a\nb", "NAME must not contain control characters"}};
        const struct conf_option *o = conf_find_flag(table, ARRAY_SIZE(table), "name", 4);
        struct conf_error err = {""};
        struct target x = {0};

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                CHECK_EQ(conf_set(o, &x, t[i].in, "NAME", &err), -EINVAL);
                CHECK_STR(err.text, t[i].why);
        }
        CHECK(!x.name);
        CHECK_EQ(conf_set(o, &x, "a;b c", "NAME", &err), 0);
        CHECK_STR(x.name, "a;b c");
        conf_clear(table, ARRAY_SIZE(table), &x);
}
