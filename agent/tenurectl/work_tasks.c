/* The tasks of `tenurectl work --tasks=`. */
#include <stdio.h>

#include "member/work_record.h"
#include "work.h"

void work_names_fini(struct work_names *w)
{
        free(w->names);
        free(w->text);
        *w = (struct work_names){0};
}

static int read_file(const char *path, char **ret)
{
        FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
        cleanup_(freep) char *text = malloc(WORK_RECORD_MAX + 1);
        size_t n;
        bool whole;

        if (!f || !text) {
                say("cannot read tasks from %s: %s", path, strerror(f ? ENOMEM : errno));
                if (f && f != stdin)
                        fclose(f);
                return -1;
        }
        n = fread(text, 1, WORK_RECORD_MAX, f);
        whole = feof(f) && !ferror(f);
        if (f != stdin)
                fclose(f);
        if (!whole || memchr(text, '\0', n))
                return say("%s is not a list of tasks, one per line, of at most %d bytes", path,
                           WORK_RECORD_MAX);
        text[n] = '\0';
        *ret = take_ptr(text);
        return 0;
}

/* Splits into lines or items; lines may be empty, or begin with #. */
static int split(struct work_names *w, const char *between, bool lines)
{
        size_t cap = 0;
        char *save;

        for (char *s = strtok_r(w->text, between, &save); s;
             s = strtok_r(NULL, between, &save)) {
                s += strspn(s, " \t\r");
                for (size_t n = strlen(s); n > 0 && strchr(" \t\r", s[n - 1]); n--)
                        s[n - 1] = '\0';
                if (lines && (*s == '\0' || *s == '#'))
                        continue;
                if (array_reserve(&w->names, &cap, w->n + 1, sizeof(*w->names)) < 0)
                        return say("out of memory");
                w->names[w->n++] = s;
        }
        return w->n > 0 ? 0 : say("--tasks names no task");
}

int work_names_parse(struct work_names *ret, const char *text)
{
        struct work_names w = {0};
        size_t digits = strspn(text, "0123456789");
        int r;

        if (*text && text[digits] == '\0') {
                w.n = digits > 6 ? SIZE_MAX : strtoul(text, NULL, 10);
                if (w.n < 1 || w.n > WORK_TASKS_MAX)
                        return say("--tasks must be a number from 1 to %d, @FILE or names "
                                   "separated by commas, not '%s'",
                                   WORK_TASKS_MAX, text);
                *ret = w;
                return 0;
        }
        if (*text == '@') {
                r = read_file(text + 1, &w.text);
        } else {
                w.text = strdup(text);
                r = w.text ? 0 : say("out of memory");
        }
        if (r == 0)
                r = split(&w, *text == '@' ? "\n" : ",", *text == '@');
        if (r < 0)
                work_names_fini(&w);
        else
                *ret = w;
        return r;
}
