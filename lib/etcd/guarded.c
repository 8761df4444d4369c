/* Transactions with guards, for claims and for those who hold. */
#include "etcd/claim.h"

static void write_guarded(struct request *q, const struct guard *guards, size_t n,
                          Pb__RequestOp *op)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__Compare compare[GUARDS_MAX], *compares[GUARDS_MAX];

        assert(n <= GUARDS_MAX);
        for (size_t i = 0; i < n; i++) {
                Pb__Compare *c = compares[i] = &compare[i];

                pb__compare__init(c);
                c->key = guards[i].key;
                if (guards[i].modified) {
                        c->target = PB__COMPARE__COMPARE_TARGET__MOD;
                        c->target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
                        c->mod_revision = guards[i].rev;
                } else {
                        c->target = PB__COMPARE__COMPARE_TARGET__CREATE;
                        c->target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
                        c->create_revision = guards[i].rev;
                }
        }
        txn.compare = compares;
        txn.n_compare = n;
        txn.success = &op;
        txn.n_success = 1;
        request_write(q, CMD_TXN, &txn.base);
}

void guarded_put(struct request *q, ProtobufCBinaryData key, int64_t created,
                 ProtobufCBinaryData value, int64_t lease)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;

        put.key = key;
        put.value = value;
        put.lease = lease;
        put.ignore_lease = lease == 0;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        write_guarded(q, &(struct guard){.key = key, .rev = created}, 1, &op);
}

void guarded_delete(struct request *q, const struct guard *guards, size_t n)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT;

        del.key = guards[0].key;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op.request_delete_range = &del;
        write_guarded(q, guards, n, &op);
}

/* TxnResponse: the header, field 1, comes first, then `succeeded`, field 2, unless false. */
bool guarded_did(struct view reply)
{
        struct view header;
        uint8_t tag;

        return view_u8(&reply, &tag) == 0 && tag == (1 << 3 | 2) &&
               view_bytes(&reply, &header) == 0 && view_u8(&reply, &tag) == 0 && tag == 2 << 3;
}
