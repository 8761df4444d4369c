#include "verbs.h"

#include <ctype.h>
#include <stdio.h>

#include "base/near.h"
#include "options.h"
#include "text.h"

/* What a verb needs and prints, which determines the options that it takes in addition to its
 * own. */
#define AGENT (OF_BUS | VERB_AGENT)
#define BUS OF_BUS
#define CORE OF_CORE
#define POLKIT OF_POLKIT
#define JSON OF_JSON
#define TABLE (OF_JSON | OF_TABLE)

/* clang-format off */
const struct verb verbs[] = {
        {"status", NULL, "", "this host's place in the cluster (the default)", AGENT | JSON, .fn = verb_status},
        {"check", NULL, "", "whether everything that is bound to the place can be fenced in time", AGENT | TABLE, .fn = verb_check_fencing},
        {"nodes", "state tag zone", "[NODE...]", "the nodes in the cluster", AGENT | TABLE, .fn = verb_nodes},
        {"services", "node tag", "[SERVICE...]", "the services, and the nodes that provide them", AGENT | TABLE, .fn = verb_services},
        {"entries", NULL, "", "the files of services on this host, and why some are refused", AGENT | TABLE, .fn = verb_entries},
        {"register", NULL, "SERVICE[/INSTANCE] [NAME=VALUE...]", "register a service of this host until interrupted; Port=, Address=, tags", AGENT | POLKIT | JSON, .fn = verb_register},
        {"set-tags", NULL, "NAME=VALUE...", "set tags of this node; NAME= removes one", AGENT | POLKIT, .fn = verb_set_tags},
        {"wait node", "gone wait", "NODE", "wait until a node holds a place, or is gone", AGENT | JSON, .fn = verb_wait_node},
        {"wait service", "gone wait", "SERVICE", "wait until a service has a provider, or none", AGENT | JSON, .fn = verb_wait_service},
        {"wait-revision", NULL, "REVISION [TIME]", "wait until the agent has announced everything up to REVISION", AGENT | JSON, .fn = verb_wait_revision},
        {"describe", NULL, "", "print everything that the agent knows, as JSON", AGENT | JSON, .fn = verb_describe},
        {"leave", "persistent reason", "", "give this host's place back, and stay out until join", AGENT | POLKIT, .fn = verb_leave},
        {"join", NULL, "", "end a leave: take a place again", AGENT | POLKIT, .fn = verb_join},
        {"watch", "event since", "[NAME...] [-- COMMAND...]", "the nodes, then what changes, until interrupted; or run a command for each change", AGENT | CORE | TABLE, .fn = verb_watch},
        {"ttl advise", NULL, "", "recommend a TTL on the evidence of the last day's renewals", AGENT | TABLE, .fn = verb_ttl_advise},
        {"metrics", "output http", "", "the agent's counters, in the format of Prometheus", BUS, .fn = verb_metrics},
        {"top", "once iterations interval sort filter cluster no-legend", "", "the members, the core's replicas and the last events, live", BUS | CORE, .fn = verb_top},
        {"lock", "wait nonblock conflict-exit-code", "NAME -- COMMAND...", "run a command while this host has a lock", AGENT | CORE | POLKIT, .fn = verb_lock, .failed = EXIT_OURS, .rest = 3},
        {"unlock", NULL, "NAME", "give back a lock whose command was killed", AGENT | CORE | POLKIT, .fn = verb_unlock, .failed = EXIT_OURS},
        {"switchover", "wait", "NAME [NODE]", "ask the holder of a lock to hand it over to a node that waits for it", BUS | CORE | JSON, .fn = verb_switchover},
        {"work", "tasks name weight ttl grace cluster", "GROUP [-- COMMAND...]", "run a command for each task that this member gets, or list the tasks", BUS | CORE | TABLE, .fn = verb_work, .failed = EXIT_OURS, .rest = 3},
        {"put", "while-held lock file", "KEY [VALUE]", "write a key of the core, but only while the place or a lock is held", AGENT | CORE | JSON, .fn = verb_put},
        {"cache", "prefix once", "KEY", "cache a key of the core, and print it each time that it changes", BUS | CORE | JSON, .fn = verb_cache},
        {"lease list", NULL, "", "all leases, with the time that they have left", CORE | TABLE, .fn = verb_lease_list, .alias = "lease leases"},
        {"lease grant", NULL, "TTL [NAME]", "grant a lease, for 60 (seconds), 10s or 500ms", CORE | JSON, .fn = verb_lease_grant},
        {"lease revoke", NULL, "LEASE...", "end leases, and delete their keys", CORE | JSON, .fn = verb_lease_revoke},
        {"lease keep-alive", "once", "LEASE", "renew a lease until interrupted", CORE | JSON, .fn = verb_lease_keep_alive, .alias = "lease keepalive"},
        {"lease ttl", "keys", "LEASE", "the time that a lease has left", CORE | JSON, .fn = verb_lease_ttl, .alias = "lease timetolive"},
        {"core members", NULL, "", "the replicas, their roles, versions and URLs", CORE | TABLE, .fn = verb_core_members},
        {"core add", "voter", "PEER-URL", "add a replica, as a learner or a voter", CORE | JSON, .fn = verb_core_add},
        {"core promote", NULL, "MEMBER", "make a learner that is in sync a voter", CORE | JSON, .fn = verb_core_promote},
        {"core remove", NULL, "MEMBER", "remove a replica", CORE | JSON, .fn = verb_core_remove},
        {"core replace", NULL, "MEMBER", "replace a replica whose data directory is lost", CORE | JSON, .fn = verb_core_replace},
        {"core move-leader", NULL, "MEMBER", "make a replica the leader", CORE | JSON, .fn = verb_core_move_leader},
        {"core upgrade", "finish", "", "show how far an upgrade has come, or end it", CORE | TABLE, .fn = verb_core_upgrade},
        {"core leases", NULL, "", "the same as lease list", CORE | TABLE, .fn = verb_lease_list},
        {"core snapshot save", NULL, "FILE", "save the state of a replica", CORE | JSON, .fn = verb_snapshot_save},
        {"core snapshot restore", NULL, "FILE [OPTION...]", "fill a new data directory; OPTION: of tenure-core", 0, .fn = verb_snapshot_restore, .rest = 3},
        {"complete", NULL, "[WORD...]", "what may follow on a command line, for shells", 0, .fn = verb_complete, .rest = 1},
        {"help", NULL, "[COMMAND...]", "show the options and operands of a command", 0, .fn = verb_help},
};
/* clang-format on */
const size_t n_verbs = ARRAY_SIZE(verbs);

/* What is left of @name after the first @n words, "" at its end; NULL: it does not begin with
 * them. */
static const char *behind(const char *name, char *const words[], size_t n)
{
        for (size_t i = 0; i < n; i++) {
                size_t len = strcspn(name, " ");

                if (len == 0 || strlen(words[i]) != len || strncmp(words[i], name, len) != 0)
                        return NULL;
                name += len + (name[len] == ' ');
        }
        return name;
}

static size_t n_words(const char *name)
{
        size_t n = 1;

        for (; *name; name++)
                n += *name == ' ';
        return n;
}

/* How many words @name has, if they are the first of @words; otherwise 0. */
static size_t match(const char *name, char *const words[], size_t n)
{
        return n_words(name) <= n && behind(name, words, n_words(name)) ? n_words(name) : 0;
}

const struct verb *verb_find(char *const words[], size_t n, size_t *ret_n)
{
        *ret_n = 0;
        if (n == 0)
                return &verbs[0];
        for (size_t i = 0; i < n_verbs; i++) {
                *ret_n = match(verbs[i].name, words, n);
                if (*ret_n == 0 && verbs[i].alias)
                        *ret_n = match(verbs[i].alias, words, n);
                if (*ret_n > 0)
                        return &verbs[i];
        }
        return NULL;
}

bool verb_is_rest(char *const operands[], size_t n)
{
        size_t n_name;
        const struct verb *v = n > 0 ? verb_find(operands, n, &n_name) : NULL;

        return v && v->rest > 0 && n >= v->rest;
}

void verb_print_next(char *const words[], size_t n)
{
        size_t last = 0; /* verbs that begin with the same word are neighbours */

        for (size_t i = 0; i < n_verbs; i++) {
                const char *next = behind(verbs[i].name, words, n);
                size_t len = next ? strcspn(next, " ") : 0;

                if (len > 0 && (i == last || strncmp(verbs[last].name, verbs[i].name,
                                                     (size_t) (next - verbs[i].name) + len)))
                        printf("%.*s\n", (int) len, next);
                last = i;
        }
}

int verb_unknown(char *const words[], size_t n)
{
        struct near near = {0};
        size_t known = 0;
        char word[NEAR_WORD_MAX + 1];

        for (size_t i = 0; i < n_verbs; i++)
                while (known < n && behind(verbs[i].name, words, known + 1))
                        known++;
        if (known == n)
                return say("%s needs a command; see tenurectl %s --help", words[0], words[0]);
        for (size_t i = 0; i < n_verbs; i++) {
                const char *name = behind(verbs[i].name, words, known);

                if (!name)
                        continue;
                snprintf(word, sizeof(word), "%.*s", (int) strcspn(name, " "), name);
                near_try(&near, words[known], strlen(words[known]), word);
                if (near.word == word)
                        near.word = name;
        }
        if (near.word)
                return say("unknown command '%s'; the most similar one is '%.*s'", words[known],
                           (int) strcspn(near.word, " "), near.word);
        return say("unknown command '%s'; see tenurectl --help", words[known]);
}

/* ---- operands ---- */

bool verb_operand(const struct verb *v, size_t i, char out[static VERB_OPERAND_MAX],
                  bool *ret_required)
{
        bool optional = false;

        for (const char *p = v->operands; *p; i--) {
                size_t word, len;

                optional |= *p == '[';
                p += *p == '[';
                p += strncmp(p, "-- ", 3) == 0 ? 3 : 0;
                word = strcspn(p, " ");
                len = word - (optional && p[word - 1] == ']'); /* not that of A[/B] */
                if (i == 0 || (len > 3 && strncmp(p + len - 3, "...", 3) == 0)) {
                        snprintf(out, VERB_OPERAND_MAX, "%.*s", (int) len, p);
                        *ret_required = i == 0 && !optional;
                        return true;
                }
                p += word + (p[word] == ' ');
        }
        return false;
}

/* Whether the operand is one of the command, or of tenure-core, which may be empty. */
static bool is_rest(const struct ctl *c, const struct verb *v, size_t i)
{
        return i >= c->n_before || (v->rest > 0 && i + n_words(v->name) >= v->rest);
}

int verb_check(const struct ctl *c, const struct verb *v, int argc, char **argv)
{
        const char *refused = options_refused(c, v->options, v->of | OF_ALL);
        char operand[VERB_OPERAND_MAX];
        bool required;
        size_t i;

        if (refused)
                return say("%s does not take --%s; see tenurectl %s --help", v->name, refused,
                           v->name);
        for (i = 0; i < (size_t) argc; i++) {
                if (!verb_operand(v, i, operand, &required))
                        return say("%s does not take '%s'; see tenurectl %s --help", v->name,
                                   argv[i], v->name);
                if (*argv[i] == '\0' && !is_rest(c, v, i) && strcmp(operand, "VALUE") != 0)
                        return say("%s: %s is empty", v->name, operand);
        }
        if (verb_operand(v, i, operand, &required) && required)
                return say("%s needs %s; see tenurectl %s --help", v->name, v->operands,
                           v->name);
        return 0;
}

/* ---- help ---- */

static void print_line(const struct verb *v)
{
        char text[64];
        int n = snprintf(text, sizeof(text), "%s%s%s", v->name, *v->operands ? " " : "",
                         v->operands);

        printf(n > 30 ? "  %s\n  %30s %s\n" : "  %-30s%s %s\n", text, "", v->help);
}

static void print_section(const char *head, bool agent, char *const words[], size_t n)
{
        for (size_t i = 0; i < n_verbs; i++) {
                if (((verbs[i].of & OF_BUS) != 0) != agent || !behind(verbs[i].name, words, n))
                        continue;
                if (head)
                        puts(head);
                head = NULL;
                print_line(&verbs[i]);
        }
}

static void print_verb(const struct verb *v)
{
        printf("usage: tenurectl %s", v->name);
        options_print_synopsis(v->options, stdout);
        printf("%s%s\n\n%c%s.%s\n\nOptions:\n", *v->operands ? " " : "", v->operands,
               toupper((unsigned char) *v->help), v->help + 1,
               v->of & OF_POLKIT ? "\nFor root, and for users that polkit permits." : "");
        options_print_help(v->options, v->of | OF_ALL, stdout);
        puts("\nSee tenurectl(1).");
}

int verbs_help(char *const words[], size_t n)
{
        size_t n_name;
        const struct verb *v = n > 0 ? verb_find(words, n, &n_name) : NULL;
        bool any = false;

        if (v) {
                print_verb(v);
                return 0;
        }
        for (size_t i = 0; i < n_verbs; i++)
                any |= behind(verbs[i].name, words, n) != NULL;
        if (!any)
                return verb_unknown(words, n);
        puts("usage: tenurectl [OPTION...] COMMAND");
        print_section("\nCommands that ask the agent on this host:", true, words, n);
        print_section("\nCommands that ask the lease core:", false, words, n);
        puts("\nOptions of all commands:");
        options_print_help(NULL, OF_ALL, stdout);
        puts("\nSee tenurectl help COMMAND, and tenurectl(1).");
        return 0;
}

int verb_help(struct ctl *c unused_, int argc, char **argv)
{
        return verbs_help(argv, (size_t) argc);
}
