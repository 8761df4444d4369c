#include "lock_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "ctl.h"

#define KEY "TENURE_LOCK_KEY"
#define REVISION "TENURE_LOCK_REVISION"
#define TOKEN "TENURE_TOKEN" /* overwritten in a task that runs under the lock */
/* "REVISION:LENGTH:KEY," for each lock, the innermost first. A name may have any bytes. */
#define LOCKS "TENURE_LOCKS"

int lock_env_set(const char *key, int64_t token)
{
        cleanup_(buf_fini) struct buf all = {0};
        const char *around = getenv(LOCKS);
        char text[32];

        snprintf(text, sizeof(text), "%" PRId64, token);
        buf_printf(&all, "%s:%zu:%s,%s", text, strlen(key), key, around ? around : "");
        buf_add(&all, "", 1);
        if (buf_error(&all) < 0 || setenv(KEY, key, 1) < 0 || setenv(TOKEN, text, 1) < 0 ||
            setenv(REVISION, text, 1) < 0 ||
            setenv(LOCKS, (const char *) buf_head(&all), 1) < 0)
                return -ENOMEM;
        return 0;
}

/* Parses NAME/LEASE; the name may contain slashes. */
static bool read_key(const char *key, size_t len, size_t *ret_name, int64_t *ret_lease)
{
        const char *slash = memrchr(key, '/', len);
        char hex[17], *end;

        if (!slash || (size_t) (key + len - slash - 1) >= sizeof(hex))
                return false;
        snprintf(hex, sizeof(hex), "%.*s", (int) (key + len - slash - 1), slash + 1);
        *ret_name = (size_t) (slash - key);
        *ret_lease = (int64_t) strtoull(hex, &end, 16);
        return *end == '\0' && *ret_lease != 0;
}

static bool read_number(const char *text, char behind, int64_t *ret, const char **ret_rest)
{
        char *end;

        *ret = strtoll(text, &end, 10);
        *ret_rest = end + (*end != '\0');
        return *ret > 0 && *end == behind;
}

static bool is_name(const char *key, size_t len, const char *name)
{
        return name && strlen(name) == len && memcmp(name, key, len) == 0;
}

/* Looks @name up in all locks: it may be one around the innermost, or the command may have
 * passed only $TENURE_LOCKS on. */
static int look_around(const char *name, int64_t *ret_lease, int64_t *ret_token)
{
        const char *p = getenv(LOCKS);
        int64_t token, length, lease;
        size_t name_len;

        while (p && *p) {
                if (!read_number(p, ':', &token, &p) || !read_number(p, ':', &length, &p) ||
                    strnlen(p, (size_t) length + 1) <= (size_t) length || p[length] != ',' ||
                    !read_key(p, (size_t) length, &name_len, &lease))
                        return ctl_fail("$" LOCKS " is not as tenurectl lock sets it", -EINVAL,
                                        NULL);
                if (is_name(p, name_len, name)) {
                        if (*ret_lease != 0 && *ret_lease != lease)
                                return -ESTALE;
                        *ret_lease = lease;
                        *ret_token = token;
                        return 0;
                }
                p += length + 1;
        }
        return 0;
}

int lock_env_read(const char *name, int64_t *ret_lease, int64_t *ret_token)
{
        const char *key = getenv(KEY), *revision = getenv(REVISION), *rest;
        const char *token = revision ? revision : getenv(TOKEN);
        char why[80];
        size_t len;

        *ret_lease = *ret_token = 0;
        if (key && !read_key(key, strlen(key), &len, ret_lease))
                return ctl_fail("$" KEY " is not NAME/LEASE, as tenurectl lock sets it",
                                -EINVAL, NULL);
        if (!key || !is_name(key, len, name))
                return name ? look_around(name, ret_lease, ret_token) : 0;
        if (token && read_number(token, '\0', ret_token, &rest))
                return 0;
        snprintf(why, sizeof(why), "$%s is not the token of $" KEY,
                 revision ? REVISION : TOKEN);
        return ctl_fail(why, -EINVAL, NULL);
}
