/* Names in headers and settings, whose case does not matter. */
#pragma once

#include <string.h>
#include <strings.h>

#include "base/buf.h"

static inline bool text_is(struct view v, const char *s, size_t n)
{
        return v.len == n && strncasecmp((const char *) v.p, s, n) == 0;
}

/* Whether @v is one of @list, which are joined by commas. */
static inline bool list_has(const char *list, struct view v)
{
        for (size_t n; *list; list += n + (list[n] == ',')) {
                n = strcspn(list, ",");
                if (text_is(v, list, n))
                        return true;
        }
        return false;
}
