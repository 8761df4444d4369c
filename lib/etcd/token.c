#include "etcd/token.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>

#define MAC_LEN 32

static void add_hex(struct buf *out, const void *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                buf_printf(out, "%02x", ((const uint8_t *) p)[i]);
}

static int mac_of(const struct auth *a, const void *p, size_t n, uint8_t ret[static MAC_LEN])
{
        unsigned len = MAC_LEN;

        return HMAC(EVP_sha256(), a->secret, AUTH_SECRET_LEN, p, n, ret, &len) ? 0 : -ENOMEM;
}

void token_make(const struct auth *a, const struct auth_user *u, struct lease_time end,
                struct buf *out)
{
        size_t from = buf_len(out);
        uint8_t mac[MAC_LEN];

        add_hex(out, u->name, strlen(u->name));
        buf_printf(out, ".%" PRIx64 ".%" PRIx64, u->login, (uint64_t) end.ns);
        if (buf_error(out) < 0 ||
            mac_of(a, buf_head(out) + from, buf_len(out) - from, mac) < 0) {
                out->failed = true;
                return;
        }
        buf_add_u8(out, '.');
        add_hex(out, mac, sizeof(mac));
}

static int digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a number and the dot behind it. */
static int take_number(const char **at, uint64_t *ret)
{
        uint64_t v = 0;
        unsigned n = 0;

        for (; digit(**at) >= 0; (*at)++) {
                if (++n > 16)
                        return -EKEYREJECTED;
                v = v << 4 | (unsigned) digit(**at);
        }
        if (n == 0 || *(*at)++ != '.')
                return -EKEYREJECTED;
        *ret = v;
        return 0;
}

int token_read(const struct auth *a, const char *token, struct lease_time now, struct buf *name,
               uint64_t *ret_login)
{
        const char *dot = strrchr(token, '.'), *at = token;
        uint8_t mac[MAC_LEN], shown[MAC_LEN];
        uint64_t end;

        if (!dot || strlen(dot + 1) != 2 * MAC_LEN)
                return -EKEYREJECTED;
        for (size_t i = 0; i < MAC_LEN; i++) {
                int high = digit(dot[1 + 2 * i]), low = digit(dot[2 + 2 * i]);

                if (high < 0 || low < 0)
                        return -EKEYREJECTED;
                shown[i] = (uint8_t) (high << 4 | low);
        }
        if (mac_of(a, token, (size_t) (dot - token), mac) < 0)
                return -ENOMEM;
        if (CRYPTO_memcmp(mac, shown, MAC_LEN) != 0)
                return -EKEYREJECTED;
        /* The token is one of ours, so it has the form that we wrote. */
        for (; digit(at[0]) >= 0 && digit(at[1]) >= 0; at += 2)
                buf_add_u8(name, (uint8_t) (digit(at[0]) << 4 | digit(at[1])));
        if (*at++ != '.' || take_number(&at, ret_login) < 0 || take_number(&at, &end) < 0)
                return -EKEYREJECTED;
        if ((nsec_t) end <= now.ns)
                return -EKEYREJECTED;
        return buf_error(name);
}
