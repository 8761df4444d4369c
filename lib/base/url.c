#include "base/url.h"

#include <stdio.h>

#include "base/conf.h"

#define SOCKET_PATH_MAX 107 /* unix(7), without the terminating zero */

/* Parses the path after unix: or unixs:, with or without the slashes of a URL. */
static int parse_path(const char *s, bool tls, struct url *ret)
{
        struct url u = {.tls = tls, .local = true};
        size_t len;

        if (strncmp(s, "//", 2) == 0)
                s += 2;
        len = strlen(s);
        if (len == 0 || len > SOCKET_PATH_MAX || strchr(s, ','))
                return -EINVAL;
        strcpy(u.host, s);
        *ret = u;
        return 0;
}

/* Whether the text is four numbers up to 255. */
static bool is_ipv4(const char *s, size_t n)
{
        unsigned parts = 0, value = 0;
        bool digit = false;

        for (size_t i = 0; i <= n; i++) {
                if (i < n && s[i] != '.') {
                        value = value * 10 + (unsigned) (s[i] - '0');
                        digit = true;
                        if (value > 255)
                                return false;
                        continue;
                }
                if (!digit)
                        return false;
                parts++;
                value = 0;
                digit = false;
        }
        return parts == 4;
}

bool host_is_valid(const char *s, size_t n)
{
        bool numbers = memchr(s, '.', n) != NULL; /* and nothing else */

        for (size_t i = 0; i < n; i++) {
                char c = s[i];
                bool digit = c >= '0' && c <= '9';

                if (!digit && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' &&
                    c != '.' && c != '_')
                        return false;
                numbers = numbers && (digit || c == '.');
        }
        return n > 0 && (!numbers || is_ipv4(s, n));
}

/* The address that stands in brackets in a URL (RFC 3986, 3.2.2), perhaps with a zone
 * (RFC 6874); whether there is such an address shows when it is used. */
static bool may_be_ipv6(const char *s, size_t n)
{
        size_t len = strspn(s, "0123456789abcdefABCDEF:.");

        if (len >= n)
                return memchr(s, ':', n) != NULL;
        return s[len] == '%' && len > 0 && host_is_valid(s + len + 1, n - len - 1);
}

int url_parse(const char *s, struct url *ret)
{
        struct url u = {0};
        const char *host, *port;
        char *end;
        unsigned long v;
        size_t n;

        if (strncmp(s, "unix:", 5) == 0)
                return parse_path(s + 5, false, ret);
        if (strncmp(s, "unixs:", 6) == 0)
                return parse_path(s + 6, true, ret);

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
                if (!may_be_ipv6(host, n))
                        return -EINVAL;
        } else {
                port = strchr(s, ':');
                if (!port)
                        return -EINVAL;
                n = (size_t) (port - host);
                port++;
                if (!host_is_valid(host, n))
                        return -EINVAL;
        }
        if (n >= sizeof(u.host))
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

        if (u->local) {
                snprintf(out, 320, "%s://%s", u->tls ? "unixs" : "unix", u->host);
                return out;
        }
        snprintf(out, 320, "%s://%s%s%s:%u", u->tls ? "https" : "http", v6 ? "[" : "", u->host,
                 v6 ? "]" : "", u->port);
        return out;
}

bool url_is_loopback(const struct url *u)
{
        return u->local || strcmp(u->host, "localhost") == 0 || strcmp(u->host, "::1") == 0 ||
               (strncmp(u->host, "127.", 4) == 0 &&
                strspn(u->host, "0123456789.") == strlen(u->host));
}

static int text_cmp(const void *a, const void *b)
{
        return strcmp(a, b);
}

int urls_join(char *const urls[], size_t n, char out[static URLS_MAX])
{
        char each[8][320];
        struct url u;
        size_t len = 0;

        if (n == 0 || n > ARRAY_SIZE(each))
                return -EINVAL;
        for (size_t i = 0; i < n; i++) {
                if (url_parse(urls[i], &u) < 0 || u.local || strchr(u.host, ','))
                        return -EINVAL;
                url_format(&u, each[i]);
        }
        qsort(each, n, sizeof(each[0]), text_cmp);
        for (size_t i = 0; i < n; i++) {
                if (i > 0 && strcmp(each[i], each[i - 1]) == 0)
                        continue;
                if (len + 1 + strlen(each[i]) >= URLS_MAX)
                        return -EINVAL;
                if (i > 0)
                        out[len++] = ',';
                strcpy(out + len, each[i]);
                len += strlen(each[i]);
        }
        return 0;
}

bool urls_meet(const char *joined, const char *other)
{
        const char *a = joined, *b;
        char x[320], y[320];

        while (list_next(&a, x, sizeof(x)))
                for (b = other; list_next(&b, y, sizeof(y));)
                        if (strcmp(x, y) == 0)
                                return true;
        return false;
}
