#include "member/tags.h"

#include <ctype.h>
#include <stdio.h>

#include "base/utf8.h"

static bool is_name(const char *s)
{
        if (!*s)
                return false;
        for (; *s; s++)
                if (!isalnum((unsigned char) *s) && !strchr("._-", *s))
                        return false;
        return true;
}

bool tags_value_is_valid(const char *s)
{
        size_t n = strlen(s);

        for (size_t i = 0, len; i < n; i += len) {
                len = utf8_dbus((const uint8_t *) s + i, n - i);
                if (len == 0 || (unsigned char) s[i] < ' ' || s[i] == ',' || s[i] == 0x7f)
                        return false;
        }
        return true;
}

bool tags_next(const char **cursor, char name[static TAGS_MAX], char value[static TAGS_MAX])
{
        const char *s = *cursor;
        size_t n = strcspn(s, ","), k = strcspn(s, "=,");

        if (n == 0 || n >= TAGS_MAX)
                return false;
        memcpy(name, s, k);
        name[k] = '\0';
        if (k < n)
                k++;
        memcpy(value, s + k, n - k);
        value[n - k] = '\0';
        *cursor = s + n + (s[n] == ',');
        return true;
}

int tags_set(char tags[static TAGS_MAX], const char *name, const char *value)
{
        char fresh[TAGS_MAX] = "", k[TAGS_MAX], v[TAGS_MAX];
        const char *cursor = tags;
        size_t len = 0;
        bool done = *value == '\0';

        if (!is_name(name) || !tags_value_is_valid(value))
                return -EINVAL;
        for (;;) {
                bool more = tags_next(&cursor, k, v);
                int c = more ? strcmp(k, name) : 1, n;

                if (c >= 0 && !done) { /* the new tag belongs here */
                        n = snprintf(fresh + len, TAGS_MAX - len, "%s%s=%s", len ? "," : "",
                                     name, value);
                        if ((size_t) n >= TAGS_MAX - len)
                                return -ENOSPC;
                        len += (size_t) n;
                        done = true;
                }
                if (!more)
                        break;
                if (c == 0)
                        continue; /* the new tag replaces it */
                n = snprintf(fresh + len, TAGS_MAX - len, "%s%s=%s", len ? "," : "", k, v);
                if ((size_t) n >= TAGS_MAX - len)
                        return -ENOSPC;
                len += (size_t) n;
        }
        memcpy(tags, fresh, TAGS_MAX);
        return 0;
}

int tags_set_list(char tags[static TAGS_MAX], const char *list)
{
        char name[TAGS_MAX], value[TAGS_MAX];
        int r = 0;

        while (r == 0 && tags_next(&list, name, value))
                r = *value ? tags_set(tags, name, value) : -EINVAL;
        return r == 0 && *list ? -ENOSPC : r;
}
