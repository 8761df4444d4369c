#include "http/accept.h"

#include <ctype.h>

#include "http/list.h"

#define WHOLE 1000u

/* Takes the text from @at up to the next of @ends, without the blanks around it. */
static struct view take(const char **at, const char *ends)
{
        const char *p = *at + strspn(*at, " \t"), *end = p + strcspn(p, ends);

        *at = end;
        while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
        return (struct view){(const uint8_t *) p, (size_t) (end - p)};
}

/* Parses "0.5". A value that is no quality counts as 1, like a missing one. */
static unsigned quality(struct view v)
{
        unsigned q, digit = WHOLE / 10;

        if (v.len == 0 || v.p[0] != '0' || (v.len > 1 && v.p[1] != '.'))
                return WHOLE;
        q = 0;
        for (size_t i = 2; i < v.len; i++, digit /= 10) {
                if (!isdigit(v.p[i]))
                        return WHOLE;
                q += digit * (unsigned) (v.p[i] - '0');
        }
        return q;
}

unsigned http_wants(const char *accept, const char *type, const char *versions)
{
        unsigned most = 0;

        for (const char *at = accept; *at; at += *at == ',') {
                bool wanted = text_is(take(&at, ",;"), type, strlen(type));
                unsigned q = WHOLE;

                while (*at == ';') {
                        struct view name, value;

                        at++;
                        name = take(&at, ",;=");
                        at += *at == '=';
                        value = take(&at, ",;");
                        if (text_is(name, "q", 1))
                                q = quality(value);
                        else if (text_is(name, "version", 7))
                                wanted = wanted && list_has(versions, value);
                }
                if (wanted)
                        most = max_of(most, q);
        }
        return most;
}
