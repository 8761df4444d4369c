#include "base/args.h"

#include <stdarg.h>

#include "base/near.h"

/* A setting from the table, kept until all arguments have been read. */
struct args_setting {
        const struct conf_option *option;
        const char *value;
};

struct parsing {
        const struct args_program *p;
        struct args *a;
        int argc, i;
        char **argv;
        struct conf_error *err;
        int r;
};

/* Keeps the first error only; callers may add to its text. */
static void complain(struct parsing *g, const char *fmt, ...) printf_(2, 3);
static void complain(struct parsing *g, const char *fmt, ...)
{
        va_list ap;

        if (g->r < 0)
                return;
        va_start(ap, fmt);
        vsnprintf(g->err->text, sizeof(g->err->text), fmt, ap);
        va_end(ap);
        g->r = -EINVAL;
}

static void unknown(struct parsing *g, const char *arg)
{
        const struct args_program *p = g->p;
        const char *name = arg + strspn(arg, "-");
        size_t len = strcspn(name, "=");
        struct near near = {0};

        for (size_t i = 0; *arg == '-' && i < p->n_options; i++)
                near_try(&near, name, len, p->options[i].name);
        for (size_t i = 0; *arg == '-' && i < p->n_table; i++)
                if (p->table[i].flag)
                        near_try(&near, name, len, p->table[i].flag);
        if (near.word)
                complain(g, "unknown option '%s'; the most similar one is --%s", arg,
                         near.word);
        else
                complain(g, "unknown option '%s'; see %s --help", arg, p->name);
}

static const struct args_option *find(const struct args_program *p, const char *arg,
                                      const char *name, size_t len)
{
        for (size_t i = 0; i < p->n_options; i++) {
                const struct args_option *o = &p->options[i];

                if (o->letter && arg[0] == '-' && arg[1] == o->letter && arg[2] == '\0')
                        return o;
                if (name && strlen(o->name) == len && strncmp(o->name, name, len) == 0)
                        return o;
        }
        return NULL;
}

/* Returns the argument after this one, whatever it begins with. If there is none, reports that
 * and returns NULL. */
static const char *next_value(struct parsing *g, const char *name)
{
        if (g->i + 1 < g->argc)
                return g->argv[++g->i];
        complain(g, "--%s needs a value", name);
        return NULL;
}

static void take_own(struct parsing *g, const struct args_option *o, const char *value)
{
        int needs = o->value && !o->bare && !value ? 2 : 1;

        if (o->alone && g->argc != 1 + needs) {
                complain(g, "--%s cannot be combined with other arguments", o->name);
        } else if (o->flag) {
                if (value && g->p->one_dash && bool_parse(value, o->flag) == 0)
                        return; /* as Go's package flag does */
                if (value)
                        complain(g, "--%s takes no value, but '%s' was given", o->name, value);
                else
                        *o->flag = true;
        } else {
                if (!value)
                        value = o->bare ? o->bare : next_value(g, o->name);
                if (value)
                        *o->value = value;
        }
}

static void take_setting(struct parsing *g, const struct conf_option *o, const char *value)
{
        if (!value)
                value = o->type == CONF_BOOL ? "yes" : next_value(g, o->flag);
        if (value)
                g->a->settings[g->a->n_settings++] = (struct args_setting){o, value};
}

const struct args_foreign *args_find_foreign(const struct args_foreign *f, size_t n_f,
                                             const char *name, size_t len)
{
        for (size_t i = 0; i < n_f; i++)
                if (strlen(f[i].name) == len && strncmp(f[i].name, name, len) == 0)
                        return &f[i];
        return NULL;
}

static bool among(const char *words, const char *word)
{
        size_t len = strlen(word), n;

        for (; words && *words; words += n + (words[n] == ' ')) {
                n = strcspn(words, " ");
                if (n == len && strncmp(words, word, n) == 0)
                        return true;
        }
        return false;
}

int args_check_foreign(const struct args_foreign *f, const char *shown, const char *value,
                       struct conf_error *err)
{
        if (!f->refused || (f->fine && (*value == '\0' || among(f->fine, value))))
                return 0;
        snprintf(err->text, sizeof(err->text), "%s%s%s is not supported: %s", shown,
                 f->fine ? "=" : "", f->fine ? value : "", f->why);
        return -EINVAL;
}

static void take_foreign(struct parsing *g, const struct args_foreign *f, const char *arg,
                         const char *value)
{
        struct conf_error err = {""};
        char shown[80];

        if (!value)
                value = f->is_flag ? "true" : next_value(g, f->name);
        if (!value)
                return;
        snprintf(shown, sizeof(shown), "%s%s", *arg == '-' ? "--" : "", f->name);
        if (args_check_foreign(f, shown, value, &err) < 0)
                complain(g, "%s", err.text);
        else if (!f->refused)
                g->a->foreign[g->a->n_foreign++] = f;
}

/* Handles the options that every program has. Returns whether @arg was one of them. */
static bool show(const struct args_program *p, const char *arg)
{
        if (p->help && (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0))
                p->help(p, stdout);
        else if (p->version && strcmp(arg, "--version") == 0)
                printf("%s %s\n", p->name, p->version);
        else if (p->table && strcmp(arg, "--help=conf") == 0)
                conf_man(p->table, p->n_table, p->name, p->conf_path, stdout);
        else
                return false;
        return true;
}

/* Makes sure that what was shown has been written. */
static int shown(struct conf_error *err)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return ARGS_E_SHOWN;
        snprintf(err->text, sizeof(err->text), "cannot write to standard output: %s",
                 strerror(errno));
        return -EIO;
}

static void take_option(struct parsing *g, const char *arg)
{
        const char *name = strncmp(arg, "--", 2) == 0                           ? arg + 2
                           : g->p->one_dash && arg[0] == '-' && strlen(arg) > 2 ? arg + 1
                                                                                : NULL;
        const char *eq = name ? strchr(name, '=') : NULL;
        size_t len = eq ? (size_t) (eq - name) : name ? strlen(name) : 0;
        const struct args_option *own = find(g->p, arg, name, len);
        const struct conf_option *setting =
                name ? conf_find_flag(g->p->table, g->p->n_table, name, len) : NULL;
        /* A foreign word may also be a command of etcd, such as `etcd gateway`. */
        const struct args_foreign *foreign = args_find_foreign(
                g->p->foreign, g->p->n_foreign, name ? name : arg, name ? len : strlen(arg));

        if (own)
                take_own(g, own, eq ? eq + 1 : NULL);
        else if (setting)
                take_setting(g, setting, eq ? eq + 1 : NULL);
        else if (foreign)
                take_foreign(g, foreign, arg, eq ? eq + 1 : NULL);
        else
                unknown(g, arg);
}

int args_parse(struct args *ret, const struct args_program *p, int argc, char **argv,
               struct conf_error *err)
{
        struct parsing g = {.p = p, .a = ret, .argc = argc, .argv = argv, .err = err};
        size_t most = argc > 0 ? (size_t) argc : 1;
        bool rest = false;

        *ret = (struct args){.settings = calloc(most, sizeof(*ret->settings)),
                             .operands = calloc(most, sizeof(*ret->operands)),
                             .foreign = calloc(most, sizeof(*ret->foreign))};
        if (!ret->settings || !ret->operands || !ret->foreign) {
                args_fini(ret);
                return -ENOMEM;
        }
        for (g.i = 1; g.i < argc; g.i++) {
                char *arg = argv[g.i];

                if (p->rest && !rest)
                        rest = p->rest(ret->operands, ret->n_operands);
                if (p->operands && (rest || arg[0] != '-' || arg[1] == '\0')) {
                        ret->operands[ret->n_operands++] = arg;
                        ret->n_before += !ret->dashes;
                } else if (p->operands && strcmp(arg, "--") == 0)
                        rest = ret->dashes = true;
                else if (g.r == 0 && show(p, arg))
                        return shown(err);
                else
                        take_option(&g, arg);
        }
        return g.r;
}

int args_apply(const struct args *a, void *target, struct conf_error *err)
{
        for (size_t i = 0; i < a->n_settings; i++) {
                int r = conf_set_flag(a->settings[i].option, target, a->settings[i].value, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

void args_fini(struct args *a)
{
        free(a->settings);
        free(a->operands);
        free(a->foreign);
        *a = (struct args){0};
}

static void help_line(char letter, const char *name, const char *hint, bool bare,
                      const char *help, FILE *f)
{
        char text[64], short_one[8] = "    ";

        if (letter)
                snprintf(short_one, sizeof(short_one), "-%c, ", letter);
        snprintf(text, sizeof(text), "--%s%s%s%s%s", name, hint && bare ? "[" : "",
                 hint ? "=" : "", hint ? hint : "", hint && bare ? "]" : "");
        fprintf(f, "  %s%-*s%s%s\n", short_one, *help ? 26 : 0, text, *help ? " " : "", help);
}

void args_help(const struct args_program *p, FILE *f)
{
        char help[160] = "this text";

        for (size_t i = 0; i < p->n_options; i++) {
                const struct args_option *o = &p->options[i];

                help_line(o->letter, o->name, o->hint, o->bare != NULL, o->help, f);
        }
        if (p->table)
                snprintf(help, sizeof(help),
                         "this text; --help=conf: the manual page of the settings, %s.conf(5)",
                         p->name);
        help_line('h', "help", NULL, false, help, f);
        help_line(0, "version", NULL, false, "", f);
}
