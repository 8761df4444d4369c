#include "options.h"

#include "base/conf.h"
#include "pick.h"
#include "text.h"

#define ENDPOINTS "http://127.0.0.1:2379"
#define HOUR (3600 * NSEC_PER_SEC)
#define YEAR (365 * 24 * HOUR)

/* CONF_STRING: borrowed, and not empty. CONF_BOOL: without a value. */
struct row {
        const char *name, *hint, *help;
        enum conf_type type;
        size_t offset;      /* in struct ctl */
        enum options_of of; /* which verbs take it; 0: those that name it */
        int64_t min, max;
        char letter;        /* 0: none */
        const char *values; /* its values, separated by commas; NULL: any */
        bool list;          /* the value is a list of these */
};

#define AT(field) offsetof(struct ctl, field)

/* clang-format off */
static const struct row rows[] = {
        {"cluster", "NAME", "the cluster [the agent's]", CONF_STRING, AT(o.cluster), .of = 0},
        {"conflict-exit-code", "N", "the exit status if another holder has the lock [124]", CONF_UINT, AT(o.conflict), .of = 0, .letter = 'E', .min = 0, .max = 255},
        {"event", "EVENTS", "only these events, separated by commas", CONF_STRING, AT(o.event), .values = "NodeJoined,NodeLeft,NodeChanged,ServiceAdded,ServiceRemoved,ServiceChanged,LeaseHeld,LeaseJeopardy,LeaseLost", .list = true, .of = 0},
        {"file", "FILE", "read the value from this file; -: standard input", CONF_STRING, AT(o.file), .of = 0},
        {"filter", "WORDS", "only members that match all these words; !WORD: that do not match it", CONF_STRING, AT(o.filter), .of = 0},
        {"finish", NULL, "raise the cluster version, after which no replica can be downgraded", CONF_BOOL, AT(o.finish), .of = 0},
        {"gone", NULL, "wait until it is gone", CONF_BOOL, AT(o.gone), .of = 0},
        {"grace", "TIME", "kill a command that takes longer to end [10s]", CONF_NSEC, AT(o.grace), .of = 0, .min = NSEC_PER_MSEC, .max = YEAR},
        {"http", NULL, "answer one request on standard input", CONF_BOOL, AT(o.http), .of = 0},
        {"interval", "TIME", "the time between updates [1s]", CONF_NSEC, AT(o.interval), .of = 0, .min = 100 * NSEC_PER_MSEC, .max = HOUR},
        {"iterations", "N", "print this many tables; 0: until interrupted", CONF_UINT, AT(o.iterations), .of = 0, .min = 0, .max = INT64_MAX},
        {"keys", NULL, "also print the keys that are attached to the lease", CONF_BOOL, AT(o.keys), .of = 0},
        {"lock", "NAME", "write only if, in addition, this host has that lock", CONF_STRING, AT(o.lock), .of = 0},
        {"name", "NAME", "the member's name [the host's]", CONF_STRING, AT(o.name), .of = 0},
        {"node", "NODES", "only those on these nodes, separated by commas", CONF_STRING, AT(o.node), .of = 0},
        {"nonblock", NULL, "do not wait for the lock: the same as --wait=0", CONF_BOOL, AT(o.nonblock), .of = 0, .letter = 'n'},
        {"once", NULL, "print or renew once, then end", CONF_BOOL, AT(o.once), .of = 0},
        {"output", "FILE", "write to this file, for node_exporter", CONF_STRING, AT(o.output), .of = 0},
        {"persistent", NULL, "stay out after a boot, too", CONF_BOOL, AT(o.persistent), .of = 0},
        {"prefix", NULL, "all keys that begin with KEY", CONF_BOOL, AT(o.prefix), .of = 0},
        {"reason", "TEXT", "why, for the logs: one line of at most 127 bytes", CONF_STRING, AT(o.reason), .of = 0},
        {"since", "REVISION", "begin with what has happened after this revision of the core", CONF_UINT, AT(o.since), .of = 0, .min = 1, .max = INT64_MAX - 1},
        {"sort", "[-]COLUMN", "sort by node, state, left, ttl, age, address, zone or services [node]", CONF_STRING, AT(o.sort), .values = "node,state,left,ttl,age,address,zone,services", .of = 0},
        {"state", "STATES", "only nodes in these states, separated by commas: held, degraded, leaving", CONF_STRING, AT(o.state), .values = "held,degraded,leaving", .list = true, .of = 0},
        {"tag", "TAGS", "only those with all these tags, NAME or NAME=VALUE, separated by commas", CONF_STRING, AT(o.tag), .of = 0},
        {"tasks", "TASKS", "the tasks: N for 1 to N, names separated by commas, or @FILE with one name per line", CONF_STRING, AT(o.tasks), .of = 0},
        {"ttl", "TIME", "the TTL of the member's lease [10s]", CONF_NSEC, AT(o.ttl), .of = 0, .min = NSEC_PER_MSEC, .max = YEAR},
        {"voter", NULL, "add it as a voter at once, not as a learner", CONF_BOOL, AT(o.voter), .of = 0},
        {"wait", "TIME", "how long to wait [for ever], or for the lock's holder to stop [30s]", CONF_NSEC, AT(o.wait), .of = 0, .min = 0, .max = YEAR},
        {"weight", "N", "this member's share relative to the others [100]", CONF_UINT, AT(o.weight), .of = 0, .min = 1, .max = 10000},
        {"while-held", NULL, "write only if the core finds that this host holds its place", CONF_BOOL, AT(o.while_held), .of = 0},
        {"zone", "ZONES", "only nodes in these zones, which are their tag zone, separated by commas", CONF_STRING, AT(o.zone), .of = 0},
        {"bus", "ADDRESS", "use this bus, not the system bus", CONF_STRING, AT(address), .of = OF_BUS},
        {"endpoints", "URLS", "the core's URLs [$TENURE_ENDPOINTS, " ENDPOINTS "]", CONF_STRING, AT(core.endpoints), .of = OF_CORE},
        {"cacert", "FILE", "the CA for https:// URLs", CONF_STRING, AT(core.cacert), .of = OF_CORE},
        {"cert", "FILE", "the client's certificate", CONF_STRING, AT(core.cert), .of = OF_CORE},
        {"key", "FILE", "the key of the client's certificate", CONF_STRING, AT(core.key), .of = OF_CORE},
        {"user", "NAME[:PASSWORD]", "log in as this user; the password is asked for unless it is given", CONF_STRING, AT(core.user), .of = OF_CORE},
        {"password-file", "FILE", "read the password from this file", CONF_STRING, AT(core.password_file), .of = OF_CORE},
        {"json", "short|pretty|off", "print JSON [off]; --json alone: pretty", CONF_ENUM, AT(json), .values = "short,pretty,off", .of = OF_JSON},
        {"no-legend", NULL, "omit headings and totals", CONF_BOOL, AT(o.no_legend), .of = OF_TABLE},
        {"no-ask-password", NULL, "do not let polkit ask for a password", CONF_BOOL, AT(o.no_ask), .of = OF_POLKIT},
        {"no-pager", NULL, "accepted and ignored; there is no pager", CONF_BOOL, AT(o.no_pager), .of = OF_ALL},
        {"help", NULL, "this text", CONF_BOOL, AT(o.help), .of = OF_ALL, .letter = 'h'},
        {"version", NULL, "print the version of tenurectl", CONF_BOOL, AT(o.version), .of = OF_ALL},
};
/* clang-format on */

#define N_ROWS ARRAY_SIZE(rows)
_Static_assert(N_ROWS <= OPTIONS_MAX, "struct ctl has room for all");

static const struct conf_word json_modes[] = {
        {"short", JSON_SHORT}, {"pretty", JSON_PRETTY}, {"off", JSON_OFF}, {NULL, 0}};

/* Whether the option is one of the groups, or among the words of @own. */
static bool takes(const struct row *o, const char *own, unsigned of)
{
        size_t len = strlen(o->name);

        if (o->of & of)
                return true;
        for (const char *p = own; p && *p; p += strcspn(p, " "), p += *p == ' ')
                if (strcspn(p, " ") == len && strncmp(p, o->name, len) == 0)
                        return true;
        return false;
}

/* ---- to read them ---- */

/* Returns 0, or -1 after printing which item of @list is none of the option's values. */
static int check_items(const struct row *o, const char *list)
{
        struct view item;

        while (pick_next(&list, &item))
                if (!pick_item(o->values, item))
                        return say("--%s knows no '%.*s', but %s", o->name, (int) item.len,
                                   (const char *) item.p, o->values);
        return 0;
}

static int set(struct ctl *c, const struct row *o, const char *value)
{
        const struct conf_option option = {
                .type = o->type,
                .offset = o->offset,
                .min = o->min,
                .max = o->max,
                .words = json_modes,
        };
        struct conf_error err;
        char name[40];

        snprintf(name, sizeof(name), "--%s", o->name);
        if (*value == '\0')
                return say("%s needs a value", name);
        if (o->type == CONF_STRING) {
                *(const char **) (void *) ((char *) c + o->offset) = value;
                return o->list ? check_items(o, value) : 0;
        }
        return conf_set(&option, c, value, name, &err) < 0 ? say("%s", err.text) : 0;
}

int options_parse(struct ctl *c, int argc, char **argv,
                  bool (*rest)(char *const operands[], size_t n), struct args *ret)
{
        const char *values[N_ROWS] = {NULL};
        struct args_option options[N_ROWS];
        const struct args_program program = {.name = "tenurectl",
                                             .options = options,
                                             .n_options = N_ROWS,
                                             .operands = true,
                                             .rest = rest};
        const char *env = getenv("TENURE_ENDPOINTS");
        struct conf_error err = {""};
        int json = JSON_OFF, r;

        for (size_t i = 0; i < N_ROWS; i++)
                options[i] = (struct args_option){
                        .letter = rows[i].letter,
                        .name = rows[i].name,
                        .flag = rows[i].type == CONF_BOOL ? &c->given[i] : NULL,
                        .value = rows[i].type == CONF_BOOL ? NULL : &values[i],
                        .bare = rows[i].type == CONF_ENUM ? "pretty" : NULL,
                };
        r = args_parse(ret, &program, argc, argv, &err);
        for (size_t i = 0; i < N_ROWS; i++)
                if (values[i] && rows[i].type == CONF_ENUM &&
                    conf_word_parse(json_modes, values[i], &json) == 0 && json != JSON_OFF)
                        say_json();
        if (r < 0)
                return say("%s", *err.text ? err.text : strerror(-r));
        for (size_t i = 0; i < N_ROWS; i++) {
                if (rows[i].type == CONF_BOOL)
                        *(bool *) ((char *) c + rows[i].offset) = c->given[i];
                else if (values[i] && set(c, &rows[i], values[i]) < 0)
                        return -1;
                c->given[i] |= values[i] != NULL;
        }
        if (!c->core.endpoints && env && *env)
                c->core.endpoints = env;
        c->core.given = c->core.endpoints != NULL;
        if (!c->core.given)
                c->core.endpoints = ENDPOINTS;
        return 0;
}

const char *options_refused(const struct ctl *c, const char *own, unsigned of)
{
        for (size_t i = 0; i < N_ROWS; i++)
                if (c->given[i] && !takes(&rows[i], own, of))
                        return rows[i].name;
        return NULL;
}

/* ---- to show them ---- */

void options_print_synopsis(const char *own, FILE *f)
{
        for (size_t i = 0; i < N_ROWS; i++)
                if (takes(&rows[i], own, 0))
                        fprintf(f, " [--%s%s%s]", rows[i].name, rows[i].hint ? "=" : "",
                                rows[i].hint ? rows[i].hint : "");
}

void options_print_help(const char *own, unsigned of, FILE *f)
{
        for (size_t i = 0; i < N_ROWS; i++) {
                const struct row *o = &rows[i];
                char text[64], letter[8] = "    ";

                if (!takes(o, own, of))
                        continue;
                if (o->letter)
                        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
                snprintf(text, sizeof(text), "--%s%s%s", o->name, o->hint ? "=" : "",
                         o->hint ? o->hint : "");
                fprintf(f, "  %s%-26s %s\n", letter, text, o->help);
        }
}

static void print_values(const struct row *o)
{
        struct view value;

        if (!o->values)
                puts(":file");
        for (const char *list = o->values; pick_next(&list, &value);)
                printf("--%s=%.*s\n", o->name, (int) value.len, (const char *) value.p);
}

void options_print_words(const char *typed, const char *own, unsigned of)
{
        const char *name = typed + strspn(typed, "-");
        size_t len = strcspn(name, "=");

        for (size_t i = 0; i < N_ROWS; i++)
                if (!takes(&rows[i], own, of))
                        continue;
                else if (name[len] != '=')
                        printf("--%s%s\n", rows[i].name, rows[i].hint ? "=" : "");
                else if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0)
                        print_values(&rows[i]);
}
