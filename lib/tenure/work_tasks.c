/* Shared work: takes tasks and gives them back, many in one transaction. */
#include "tenure/work_internal.h"

#define TELLS_WITHIN (5 * NSEC_PER_SEC)

static void if_created(Pb__Compare *c, ProtobufCBinaryData key, int64_t created)
{
        pb__compare__init(c);
        c->key = key;
        c->target = PB__COMPARE__COMPARE_TARGET__CREATE;
        c->target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        c->create_revision = created;
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

/* One operation of the transaction, which is a transaction itself: if the key has the expected
 * create_revision (0: it does not exist), creates or deletes the key. */
struct op {
        struct buf key;
        Pb__Compare compare, *compares[1];
        Pb__PutRequest put;
        Pb__DeleteRangeRequest delete;
        Pb__RequestOp does, *all[1];
        Pb__TxnRequest txn;
        Pb__RequestOp op;
};

static void op_init(struct op *o, const struct tenure_work *w, const struct work_task *task,
                    bool takes)
{
        buf_add(&o->key, buf_head(&w->prefix), buf_len(&w->prefix));
        buf_printf(&o->key, "tasks/%s", task->name);
        if_created(&o->compare, work_bytes(&o->key), takes ? 0 : task->given);
        o->compares[0] = &o->compare;
        pb__request_op__init(&o->does);
        if (takes) {
                pb__put_request__init(&o->put);
                o->put.key = work_bytes(&o->key);
                o->put.value = pb_bytes(w->work.self.name, strlen(w->work.self.name));
                o->put.lease = w->work.lease;
                o->does.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                o->does.request_put = &o->put;
        } else {
                pb__delete_range_request__init(&o->delete);
                o->delete.key = work_bytes(&o->key);
                o->does.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
                o->does.request_delete_range = &o->delete;
        }
        o->all[0] = &o->does;
        pb__txn_request__init(&o->txn);
        o->txn.compare = o->compares;
        o->txn.success = o->all;
        o->txn.n_compare = o->txn.n_success = 1;
        pb__request_op__init(&o->op);
        o->op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
        o->op.request_txn = &o->txn;
}

/* Notes which of the operations were done. */
static int read_batch(struct batch *b, const Pb__TxnResponse *p)
{
        if (!p->succeeded)
                return -ESTALE;
        if (p->n_responses != b->n)
                return -EBADMSG;
        for (size_t i = 0; i < b->n; i++) {
                const Pb__ResponseOp *op = p->responses[i];

                if (op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_TXN)
                        return -EBADMSG;
                b->done[i] = op->response_txn->succeeded;
        }
        return 0;
}

static int read_takes(struct tenure_call *c, const void *answer)
{
        struct tenure_work *w = c->arg;

        return read_batch(&w->takes, answer);
}

static int read_gives(struct tenure_call *c, const void *answer)
{
        struct tenure_work *w = c->arg;

        return read_batch(&w->gives, answer);
}

static const struct call_kind kind_takes = {"/etcdserverpb.KV/Txn",
                                            &pb__txn_response__descriptor, read_takes};
static const struct call_kind kind_gives = {"/etcdserverpb.KV/Txn",
                                            &pb__txn_response__descriptor, read_gives};

/* Gives the watch some time to report what it owes. If it does not, the group is read again. */
static void wait_for_watch(struct tenure_work *w, struct work_owed *o, struct boot_time now)
{
        if (!o->is) {
                o->is = true;
                o->by = boot_add(now, TELLS_WITHIN);
        } else if (!boot_before(now, o->by)) {
                o->is = false;
                w->look_again = true;
        }
}

/* The watch reports the keys that were taken. If another member was first, the watch reports
 * that, too, or has done so; so do not try again at once. */
static void on_taken(struct tenure_call *c, void *arg)
{
        struct tenure_work *w = arg;
        struct batch *b = &w->takes;
        bool ok = work_has_answer(w, c, &b->call), all = true;

        for (size_t i = 0; i < b->n; i++) {
                if (ok && b->done[i])
                        continue;
                work_refused(b->tasks[i], WORK_TAKE);
                all = false;
        }
        if (ok && !all) { /* if no other member has them, they may even be ours */
                wait_for_watch(w, &w->contested, loop_now(w->tenure->loop));
                work_again(w);
        } else if (ok) {
                w->contested.is = false;
        }
        tenure_call_free(c);
}

/* If a key has changed, the watch reports how. */
static void on_given(struct tenure_call *c, void *arg)
{
        struct tenure_work *w = arg;
        struct batch *b = &w->gives;

        if (!work_has_answer(w, c, &b->call))
                for (size_t i = 0; i < b->n; i++)
                        work_refused(b->tasks[i], WORK_GIVE);
        tenure_call_free(c);
}

static void send_batch(struct tenure_work *w, struct batch *b, enum work_step what)
{
        bool takes = what == WORK_TAKE, failed = false;
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare held, *cs[] = {&held};
        cleanup_(freep) struct op *ops = calloc(b->n, sizeof(*ops));
        cleanup_(freep) Pb__RequestOp **all = calloc(b->n, sizeof(*all));
        int r = -ENOMEM;

        for (size_t i = 0; i < b->n; i++)
                work_asked(b->tasks[i], what);
        for (size_t i = 0; ops && all && i < b->n; i++) {
                op_init(&ops[i], w, b->tasks[i], takes);
                all[i] = &ops[i].op;
                failed |= buf_error(&ops[i].key) < 0;
        }
        work_if_lease(&held, work_bytes(&w->self), w->work.lease);
        q.compare = cs;
        q.n_compare = takes;
        q.success = all;
        q.n_success = b->n;
        if (ops && all && !failed)
                r = work_ask(w, takes ? &kind_takes : &kind_gives, &q.base,
                             takes ? on_taken : on_given, &b->call);
        else
                work_again(w);
        for (size_t i = 0; ops && i < b->n; i++)
                buf_fini(&ops[i].key);
        for (size_t i = 0; r < 0 && i < b->n; i++)
                work_refused(b->tasks[i], what);
}

static void put_into(struct batch *b, struct work_task *task)
{
        if (!b->call && b->n < WORK_BATCH)
                b->tasks[b->n++] = task;
}

void work_do_tasks(struct tenure_work *w, struct boot_time now)
{
        bool may_act = tenure_may_act(w->tenure), untold = false;

        if (!w->takes.call)
                w->takes.n = 0;
        if (!w->gives.call)
                w->gives.n = 0;
        work_assign(&w->work);
        for (size_t i = 0; i < w->work.n; i++) {
                struct work_task *task = &w->work.tasks[i];

                switch (work_next_step(&w->work, task, now)) {
                case WORK_BEGIN:
                        /* The request may have taken longer than the deadline allows. */
                        if (may_act)
                                work_report_begin(w, task);
                        else
                                work_again(w);
                        break;
                case WORK_END:
                        work_report_end(w, task);
                        /* If the program had not taken its beginning, the task has ended
                         * already. */
                        if (work_next_step(&w->work, task, now) == WORK_GIVE)
                                put_into(&w->gives, task);
                        break;
                case WORK_TAKE:
                        put_into(&w->takes, task);
                        break;
                case WORK_GIVE:
                        put_into(&w->gives, task);
                        break;
                case WORK_NOTHING:
                        untold |= task->asked != WORK_NOTHING;
                        break;
                }
        }
        if (!w->takes.call && w->takes.n == 0)
                w->contested.is = false;
        if (untold && !w->takes.call && !w->gives.call)
                wait_for_watch(w, &w->untold, now);
        else
                w->untold.is = false;
        if (boot_before(now, w->retry_at))
                return;
        if (!w->gives.call && w->gives.n > 0)
                send_batch(w, &w->gives, WORK_GIVE);
        if (!w->takes.call && w->takes.n > 0)
                send_batch(w, &w->takes, WORK_TAKE);
}
