/* Writes that take effect only if the place or the lease is held when the core applies them.
 * The core checks that the key of the place or the session is still on its lease. */
#include "tenure/calls.h"

void tenure_txn_if_held(struct tenure_txn *x)
{
        cleanup_(buf_fini) struct buf key = {0};
        struct tenure *t = txn_tenure(x);
        int64_t lease;

        if (txn_is_guarded(x))
                return;
        lease = hold_key(t, &key);
        if (lease == 0)
                return txn_fail(x, tenure_fail(t, -ESTALE,
                                               "this tie holds no place and no lease now, so "
                                               "nothing is written"));
        if (buf_error(&key) < 0)
                return txn_fail(x, tenure_fail(t, -ENOMEM, "out of memory"));
        txn_guard(x, buf_head(&key), buf_len(&key), lease);
}

int tenure_put_held(struct tenure *t, const void *key, size_t key_len, const void *value,
                    size_t value_len, struct tenure_call **ret)
{
        struct tenure_txn *x;
        int r = tenure_txn_new(t, &x);

        if (r < 0)
                return r;
        tenure_txn_if_held(x);
        tenure_txn_put(x, key, key_len, value, value_len, 0);
        return tenure_txn_commit(x, ret);
}
