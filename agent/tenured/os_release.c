#include "os_release.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define KEY "PRETTY_NAME="

/* Unquotes a word of a shell; nothing is substituted. */
static void unquote(const char *word, char *out, size_t size)
{
        char quote = *word == '"' || *word == '\'' ? *word++ : '\0';
        size_t n = 0;

        for (; *word && *word != '\n' && *word != quote && n + 1 < size; word++) {
                if (*word == '\\' && quote != '\'' && word[1] && word[1] != '\n')
                        word++;
                out[n++] = *word;
        }
        /* Do not cut within a UTF-8 character. */
        while (n > 0 && (*word & 0xc0) == 0x80)
                word--, n--;
        utf8_dbus_mend(out, n);
        out[n] = '\0';
}

void os_release(char *out, size_t size)
{
        cleanup_(freep) char *line = NULL;
        size_t len = 0;
        FILE *f = fopen("/etc/os-release", "re");

        if (!f)
                f = fopen("/usr/lib/os-release", "re");
        snprintf(out, size, "Linux");
        if (!f)
                return;
        while (getline(&line, &len, f) >= 0)
                if (strncmp(line, KEY, strlen(KEY)) == 0)
                        unquote(line + strlen(KEY), out, size);
        fclose(f);
}
