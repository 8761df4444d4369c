#include "consensus/address.h"

#include <inttypes.h>
#include <stdio.h>

#define DIGITS 16

struct parts {
        size_t urls; /* their length */
        uint64_t replaced, directory;
        bool will_vote;
};

/* Whether the first *@len bytes of @address end with @sign and a number; then *@ret is that,
 * and *@len the length of what comes before. */
static bool cut(const char *address, size_t *len, char sign, uint64_t *ret)
{
        const char *number = *len > DIGITS ? address + *len - DIGITS : NULL;

        if (!number || number[-1] != sign || strspn(number, "0123456789abcdef") < DIGITS)
                return false;
        *ret = 0;
        for (unsigned i = 0; i < DIGITS; i++)
                *ret = *ret << 4 |
                       (uint64_t) (number[i] <= '9' ? number[i] - '0' : number[i] - 'a' + 10);
        *len -= DIGITS + 1;
        return true;
}

static struct parts split(const char *address)
{
        struct parts p = {.urls = strlen(address)};

        p.will_vote = cut(address, &p.urls, '+', &p.directory);
        if (!p.will_vote)
                (void) cut(address, &p.urls, '#', &p.directory);
        (void) cut(address, &p.urls, '!', &p.replaced);
        return p;
}

uint64_t address_directory(const char *address)
{
        return split(address).directory;
}

bool address_will_vote(const char *address)
{
        return split(address).will_vote;
}

uint64_t address_replaced(const char *address)
{
        return split(address).replaced;
}

const char *address_urls(const char *address, char out[static URLS_MAX])
{
        size_t len = split(address).urls;

        snprintf(out, URLS_MAX, "%.*s", (int) min_of(len, (size_t) URLS_MAX), address);
        return out;
}

struct member_address address_split(const char *address)
{
        struct parts p = split(address);
        struct member_address a = {
                .replaced = p.replaced, .directory = p.directory, .will_vote = p.will_vote};

        (void) address_urls(address, a.urls);
        return a;
}

const char *address_join(const struct member_address *a, char out[static ADDRESS_MAX])
{
        int n = snprintf(out, ADDRESS_MAX, "%s", a->urls);

        if (a->replaced != 0)
                n += snprintf(out + n, ADDRESS_MAX - (size_t) n, "!%016" PRIx64, a->replaced);
        if (a->directory != 0 || a->will_vote)
                snprintf(out + n, ADDRESS_MAX - (size_t) n, "%c%016" PRIx64,
                         a->will_vote ? '+' : '#', a->directory);
        return out;
}
