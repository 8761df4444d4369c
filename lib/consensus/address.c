#include "consensus/address.h"

#include <inttypes.h>
#include <stdio.h>

#define DIGITS 16

/* The length of the URLs, and in *@ret the id after them, 0 if there is none. */
static size_t split(const char *address, uint64_t *ret)
{
        size_t len = strlen(address);
        const char *id = len > DIGITS ? address + len - DIGITS : NULL;

        *ret = 0;
        if (!id || !strchr("#+", id[-1]) || strspn(id, "0123456789abcdef") != DIGITS)
                return len;
        *ret = strtoull(id, NULL, 16);
        return len - DIGITS - 1;
}

uint64_t address_directory(const char *address)
{
        uint64_t directory;

        (void) split(address, &directory);
        return directory;
}

bool address_will_vote(const char *address)
{
        uint64_t directory;

        return address[split(address, &directory)] == '+';
}

const char *address_urls(const char *address, char out[static URLS_MAX])
{
        uint64_t directory;

        snprintf(out, URLS_MAX, "%.*s",
                 (int) min_of(split(address, &directory), (size_t) URLS_MAX), address);
        return out;
}

const char *address_join(const char *urls, uint64_t directory, bool will_vote,
                         char out[static ADDRESS_MAX])
{
        if (directory == 0 && !will_vote)
                snprintf(out, ADDRESS_MAX, "%s", urls);
        else
                snprintf(out, ADDRESS_MAX, "%s%c%016" PRIx64, urls, will_vote ? '+' : '#',
                         directory);
        return out;
}
