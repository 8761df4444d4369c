#include "http/host.h"

#include "http/list.h"

/* Drops the port, and then also the brackets of an IPv6 address, as etcd does. */
static struct view name_of(struct view host)
{
        const uint8_t *p = host.p, *colon = memrchr(p, ':', host.len);

        if (!colon || colon == p)
                return host;
        if (*p == '[' && colon[-1] == ']')
                return (struct view){p + 1, (size_t) (colon - 2 - p)};
        if (*p == '[' || memchr(p, ':', (size_t) (colon - p)))
                return host;
        return (struct view){p, (size_t) (colon - p)};
}

bool host_is_listed(const char *names, struct view host)
{
        return !*names || list_has(names, (struct view){(const uint8_t *) "*", 1}) ||
               list_has(names, name_of(host));
}
