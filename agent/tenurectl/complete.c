/*
 * tenurectl complete WORD...: what shells call when TAB is pressed. The words are those behind
 * `tenurectl`; the last is being typed, and may be empty. Prints a candidate per line, whatever
 * it begins with: a word of a command, an option, a name that the agent or the core knows; or
 * ":file", where any file will do. The options on the line say where to ask.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/utf8.h"
#include "options.h"
#include "text.h"
#include "verbs.h"

#define PATIENCE_S 2 /* for whoever pressed TAB; then SIGALRM ends us */

/* Where the names for an operand come from: the fields of what a verb lists. */
static const struct {
        const char *operand, *verb, *fields[2];
} kinds[] = {
        {"NODE", "nodes", {"Name"}},
        {"SERVICE", "services", {"Name"}},
        {"LEASE", "lease list", {"name", "id"}},
        {"MEMBER", "core members", {"name", "id"}},
};

/* Skips names with other characters: they cannot be typed, and shells would run some. */
static void print_name(const char *name)
{
        size_t n = strlen(name), i = 0, len = 1;

        while (i < n && (len = utf8_printable((const uint8_t *) name + i, n - i)) > 0)
                i += len;
        if (n > 0 && i == n)
                puts(name);
}

static void print_names(struct ctl *c, size_t kind)
{
        char verb[32], *words[2] = {verb};
        struct json_object *list = NULL;
        size_t n = 1, own;

        if (c->core.user && !strchr(c->core.user, ':') && !c->core.password_file)
                return; /* a completion never asks for a password */
        snprintf(verb, sizeof(verb), "%s", kinds[kind].verb);
        for (char *space = strchr(verb, ' '); space; space = NULL) {
                *space = '\0';
                words[n++] = space + 1;
        }
        c->json = JSON_SHORT;
        c->taken = &list;
        if (verb_call(c, verb_find(words, n, &own), 0, NULL) == 0)
                for (size_t i = 0; i < json_object_array_length(list); i++)
                        for (size_t k = 0; k < 2 && kinds[kind].fields[k]; k++)
                                print_name(ctl_text(json_object_array_get_idx(list, i),
                                                    kinds[kind].fields[k]));
        json_object_put(list);
}

static void complete_operand(struct ctl *c, const char *operand)
{
        size_t n = strcspn(operand, ".");

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
                if (strlen(kinds[i].operand) == n && strncmp(kinds[i].operand, operand, n) == 0)
                        return print_names(c, i);
        if (strcmp(operand, "FILE") == 0 || strcmp(operand, "COMMAND...") == 0 ||
            strcmp(operand, "OPTION...") == 0)
                puts(":file");
}

int verb_complete(struct ctl *c unused_, int argc, char **argv)
{
        struct ctl line = {.legend = true};
        const char *typed = argc > 0 ? argv[argc - 1] : "";
        char **words = calloc((size_t) argc + 1, sizeof(*words));
        char operand[VERB_OPERAND_MAX];
        const struct verb *v;
        struct args a = {0};
        size_t n_name;
        bool required;
        int r;

        if (!words)
                return ctl_fail("cannot complete", -ENOMEM, NULL);
        alarm(PATIENCE_S);
        for (int i = 0; i < argc; i++) /* as main() gets it, without what is being typed */
                words[i] = i == 0 ? (char *) (uintptr_t) "tenurectl" : argv[i - 1];
        r = options_parse(&line, max_of(argc, 1), words, verb_is_rest, &a);
        v = a.n_operands > 0 ? verb_find(a.operands, a.n_operands, &n_name) : NULL;
        if (v && (a.dashes || verb_is_rest(a.operands, a.n_operands)))
                puts(":file");
        else if (r < 0) /* an option lacks its value, which is perhaps a file */
                puts(":file");
        else if (*typed == '-')
                options_print_words(typed, v ? v->options : NULL, v ? v->of | OF_ALL : ~0U);
        else if (!v)
                verb_print_next(a.operands, a.n_operands);
        else if (strcmp(v->name, "help") == 0)
                verb_print_next(a.operands + 1, a.n_operands - 1);
        else if (verb_operand(v, a.n_operands - n_name, operand, &required))
                complete_operand(&line, operand);
        args_fini(&a);
        free(words);
        return 0;
}
