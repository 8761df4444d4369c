#include "base/url.h"

#include <stdio.h>

int url_parse(const char *s, struct url *ret)
{
        struct url u = {0};
        const char *host, *port;
        char *end;
        unsigned long v;
        size_t n;

        if (strncmp(s, "https://", 8) == 0) {
                u.tls = true;
                s += 8;
        } else if (strncmp(s, "http://", 7) == 0) {
                s += 7;
        } else if (strstr(s, "://")) {
                return -EINVAL;
        }
        host = s;
        if (*s == '[') {
                host = s + 1;
                port = strchr(s, ']');
                if (!port || port[1] != ':')
                        return -EINVAL;
                n = (size_t) (port - host);
                port += 2;
        } else {
                port = strchr(s, ':');
                if (!port)
                        return -EINVAL;
                n = (size_t) (port - host);
                port++;
        }
        if (n == 0 || n >= sizeof(u.host))
                return -EINVAL;
        memcpy(u.host, host, n);
        if (*port < '0' || *port > '9')
                return -EINVAL;
        v = strtoul(port, &end, 10);
        if (*end == '/')
                end++;
        if (*end != '\0' || v > UINT16_MAX)
                return -EINVAL;
        u.port = (uint16_t) v;
        *ret = u;
        return 0;
}

int url_parse_srv(const char *s, char name[static 256], bool *ret_tls)
{
        bool tls = strncmp(s, "srvs://", 7) == 0;
        int n;

        if (!tls && strncmp(s, "srv://", 6) != 0)
                return -ENOENT;
        s += tls ? 7 : 6;
        if (!*s ||
            strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") !=
                    strlen(s))
                return -EINVAL;
        n = snprintf(name, 256, "%s%s",
                     *s == '_' ? ""
                     : tls     ? "_etcd-client-ssl._tcp."
                               : "_etcd-client._tcp.",
                     s);
        *ret_tls = tls;
        return n < 256 ? 0 : -EINVAL;
}

const char *url_format(const struct url *u, char out[static 320])
{
        bool v6 = strchr(u->host, ':') != NULL;

        snprintf(out, 320, "%s://%s%s%s:%u", u->tls ? "https" : "http", v6 ? "[" : "", u->host,
                 v6 ? "]" : "", u->port);
        return out;
}
