#include "member/lock_name.h"

/* Where the agents keep nodes, services and sessions. */
#define OURS "/tenure/"

const char *lock_name_problem(const char *name)
{
        if (!*name || strlen(name) > LOCK_NAME_MOST)
                return "has 1 to 900 bytes";
        if (strncmp(name, OURS, strlen(OURS)) == 0)
                return "does not begin with " OURS ", where nodes and services are";
        return NULL;
}

bool lock_name_has(const char *name, const void *key, size_t len)
{
        size_t n = strlen(name);
        const char *at = key;

        return len > n + 1 && memcmp(at, name, n) == 0 && at[n] == '/' &&
               !memchr(at + n + 1, '/', len - n - 1);
}
