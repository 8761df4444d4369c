/* conf.h: settings as people read them: the canonical form, --help and the manual page. */
#include "base/conf.h"

#include <inttypes.h>

void conf_print(const struct conf_option *o, size_t n_o, const void *target, struct buf *out)
{
        const char *section = "";

        for (size_t i = 0; i < n_o; i++) {
                const void *field = (const char *) target + o[i].offset;
                char text[32];

                if (strcmp(section, o[i].section) != 0) {
                        buf_printf(out, "%s[%s]\n", *section ? "\n" : "", o[i].section);
                        section = o[i].section;
                }
                switch (o[i].type) {
                case CONF_STRING:
                case CONF_LIST:
                        if (*(char *const *) field)
                                buf_printf(out, "%s=%s\n", o[i].key, *(char *const *) field);
                        break;
                case CONF_BOOL:
                        buf_printf(out, "%s=%s\n", o[i].key,
                                   *(const bool *) field ? "yes" : "no");
                        break;
                case CONF_UINT:
                        buf_printf(out, "%s=%" PRIu64 "\n", o[i].key,
                                   *(const uint64_t *) field);
                        break;
                case CONF_NSEC:
                case CONF_MSEC:
                        conf_time_format(*(const nsec_t *) field, text);
                        buf_printf(out, "%s=%s\n", o[i].key, text);
                        break;
                case CONF_ENUM:
                        buf_printf(out, "%s=%s\n", o[i].key,
                                   conf_word_of(o[i].words, *(const int *) field));
                        break;
                }
        }
}

static const char *const type_words[] = {
        [CONF_STRING] = "a string", [CONF_LIST] = "a list, joined by commas or one item a line",
        [CONF_BOOL] = "yes or no",  [CONF_UINT] = "a number",
        [CONF_NSEC] = "a time",     [CONF_MSEC] = "a time, as a bare number in milliseconds,",
        [CONF_ENUM] = "one of",
};

/* Prints the permitted values: words, or a range. Bounds that are merely the type's are left
 * out. */
static void man_range(const struct conf_option *o, FILE *f)
{
        char low[32], high[32], words[128];

        if (o->type == CONF_ENUM) {
                fprintf(f, " %s", conf_words(o->words, words, sizeof(words)));
        } else if (o->type == CONF_NSEC || o->type == CONF_MSEC) {
                conf_time_format(o->min, low);
                conf_time_format(o->max, high);
                fprintf(f, " from %s to %s", low, high);
        } else if (o->type == CONF_UINT && o->max > 0 && o->max < INT64_MAX) {
                fprintf(f, " from %lld to %lld", (long long) o->min, (long long) o->max);
        }
}

void conf_man(const struct conf_option *o, size_t n_o, const char *program, const char *path,
              FILE *f)
{
        const char *section = "";
        char title[64] = "";

        for (size_t i = 0; program[i] && i < sizeof(title) - 1; i++)
                title[i] = (char) (program[i] >= 'a' && program[i] <= 'z' ? program[i] - 32
                                                                          : program[i]);
        fprintf(f,
                ".Dd November 21, 2026\n.Dt %s.CONF 5\n.Os Tenure\n.Sh NAME\n.Nm %s.conf\n.Nd "
                "settings of %s\n.Sh SYNOPSIS\n.Pa %s\n.Sh DESCRIPTION\nThe file has sections "
                "in "
                "brackets, and in them a\n.Ar Key Ns = Ns Ar value\non each line; a line that "
                "begins with # or ; is a comment.\nAn empty value clears a list.\nTimes are "
                "written as 500ms, 10s, 5min.\nAn unknown section or key, or an invalid value, "
                "is "
                "an error that names file and line; nothing in the file takes effect "
                "then.\n.Pp\nEach key has a command line option of the same meaning, which "
                "overrides the file.\n.Li %s --test\nchecks the file and prints the settings "
                "in "
                "force.\n",
                title, program, program, path, program);
        for (size_t i = 0; i < n_o; i++) {
                if (strcmp(section, o[i].section) != 0) {
                        if (*section)
                                fprintf(f, ".El\n");
                        section = o[i].section;
                        fprintf(f, ".Ss [%s]\n.Bl -tag -width Ds\n", section);
                }
                fprintf(f, ".It Ar %s Ns =%s", o[i].key, o[i].def && *o[i].def ? " Ns " : "");
                for (const char *p = o[i].def ? o[i].def : ""; *p; p++)
                        fprintf(f, "%c%s", *p,
                                *p == ',' ? "\\:" : ""); /* permits a line break there */
                fputc('\n', f);
                fprintf(f, "%c%s.\n%c%s",
                        o[i].help[0] >= 'a' && o[i].help[0] <= 'z' ? o[i].help[0] - 32
                                                                   : o[i].help[0],
                        o[i].help + 1, type_words[o[i].type][0] - 32,
                        type_words[o[i].type] + 1);
                man_range(&o[i], f);
                fprintf(f, "; option\n.Fl -%s%s.\n", o[i].flag,
                        o[i].live ? " ;\na reload applies a change" : " ");
        }
        fprintf(f, ".El\n.Sh SEE ALSO\n.Xr %s 8\n", program);
}

void conf_help(const struct conf_option *o, size_t n_o, FILE *f)
{
        char words[128];

        for (size_t i = 0; i < n_o; i++) {
                if (!o[i].flag)
                        continue;
                fprintf(f, "  --%-28s %s", o[i].flag, o[i].help);
                if (o[i].type == CONF_ENUM)
                        fprintf(f, ": %s", conf_words(o[i].words, words, sizeof(words)));
                if (o[i].def && *o[i].def)
                        fprintf(f, " [%s]", o[i].def);
                fputc('\n', f);
        }
}
