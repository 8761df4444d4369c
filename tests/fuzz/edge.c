#include "edge.h"

#include <crypt.h>
#include <resolv.h>
#include <stdio.h>
#include <sys/random.h>

#include "fuzz.h"

/* ---- passwords: the hash of one is the setting and the password ---- */

char *crypt_gensalt_rn(const char *prefix, unsigned long count, const char *bytes, int n_bytes,
                       char *out, int size)
{
        (void) count;
        (void) bytes;
        (void) n_bytes;
        snprintf(out, (size_t) size, "%s.", prefix);
        return out;
}

char *crypt_rn(const char *phrase, const char *setting, void *data, int size)
{
        char *out = data;
        size_t n = strcspn(setting, ".");

        if (size < CRYPT_OUTPUT_SIZE || setting[n] != '.')
                return NULL;
        snprintf(out, CRYPT_OUTPUT_SIZE, "%.*s.%.64s", (int) min_of(n, (size_t) 64), setting,
                 phrase);
        return out;
}

/* ---- ---- */

ssize_t getrandom(void *p, size_t n, unsigned flags)
{
        (void) flags;
        memset(p, 42, n);
        return (ssize_t) n;
}

static struct view dns;

void fuzz_dns_answer(struct view answer)
{
        dns = answer;
}

int res_ninit(res_state s)
{
        (void) s;
        return 0;
}

void res_nclose(res_state s)
{
        (void) s;
}

int res_nquery(res_state s, const char *name, int class, int type, unsigned char *answer,
               int size)
{
        (void) s;
        (void) name;
        (void) class;
        (void) type;
        if (dns.len == 0)
                return -1;
        memcpy(answer, dns.p, min_of(dns.len, (size_t) size));
        return (int) dns.len; /* as the library does: what there was, not what was copied */
}
