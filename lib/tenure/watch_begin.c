/*
 * Where a watch without a start revision begins: as its program sees it, before every call that
 * the program has begun after it. The core may receive the watch later than those calls: on
 * another connection, when it is lost and requested again, or because the core, as etcd does,
 * serves the streams of one connection side by side. Then the answers to the calls show from
 * which revision on the watch has to report, and it is requested again from there. That ends
 * with the first change that it has reported, because changes are reported in order.
 */
#include "tenure/watch.h"

void watch_begins_open(struct tenure_watch *w)
{
        w->open = true;
        w->asked = w->watches->tenure->calls->number;
        TAILQ_INSERT_TAIL(&w->watches->open, w, of_open);
}

void watch_settle(struct tenure_watch *w)
{
        if (!w->open)
                return;
        TAILQ_REMOVE(&w->watches->open, w, of_open);
        w->open = false;
}

/* Whether a call other than @c, which was begun after the watch and before the watch was
 * confirmed, may still be answered. */
static bool may_go_back(const struct tenure_watch *w, const struct tenure_call *c)
{
        const struct tenure_call *other;

        TAILQ_FOREACH (other, &w->watches->tenure->calls->sent, entry)
                if (other != c && other->number > w->asked && other->number <= w->until)
                        return true;
        return false;
}

static void go_back(struct tenure_watch *w)
{
        struct watches *v = w->watches;

        w->whole = w->began = w->first - 1;
        w->made = false;
        if (w->id != 0)
                watch_take_back(w);
        watch_set_id(w, 0);
        watch_set_fresh(w, true);
        calls_soon(v->tenure);
}

/* After the answer to @c, or NULL. */
static void review(struct tenure_watch *w, const struct tenure_call *c)
{
        bool has_reported = w->part > 0;

        if (!w->over && !has_reported && w->first > 0 && w->first <= w->began)
                go_back(w);
        if (w->over || has_reported || !may_go_back(w, c))
                watch_settle(w);
}

static void begin_at(struct tenure_watch *w, int64_t revision)
{
        w->anchored = true;
        w->whole = w->began = revision;
        w->until = w->watches->tenure->calls->number;
}

void watch_is_there(struct tenure_watch *w, int64_t revision)
{
        begin_at(w, revision);
        w->last = revision;
        review(w, NULL);
}

void watch_make_where_known(struct tenure_watch *w)
{
        if (!w->anchored && w->first > 0)
                begin_at(w, w->first - 1);
}

/* ---- what the answers say ---- */

static bool has_changed(const Pb__TxnResponse *p)
{
        for (size_t i = 0; i < p->n_responses; i++) {
                const Pb__ResponseOp *op = p->responses[i];

                if (op->response_case == PB__RESPONSE_OP__RESPONSE_RESPONSE_PUT ||
                    (op->response_case == PB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE &&
                     op->response_delete_range->deleted > 0) ||
                    (op->response_case == PB__RESPONSE_OP__RESPONSE_RESPONSE_TXN &&
                     has_changed(op->response_txn)))
                        return true;
        }
        return false;
}

/* The first revision that a watch requested before the call has to report: that of the call's
 * change, or the one after its read. 0: the answer does not show it, since it may be from a
 * replica that lags behind. */
static int64_t first_after(const struct tenure_call *c)
{
        const ProtobufCMessageDescriptor *type = c->kind->type;
        bool changed;

        if (type == &pb__put_response__descriptor)
                changed = true;
        else if (type == &pb__delete_range_response__descriptor)
                changed = ((const Pb__DeleteRangeResponse *) c->answer)->deleted > 0;
        else if (type == &pb__txn_response__descriptor)
                changed = has_changed(c->answer);
        else if (type == &pb__range_response__descriptor && !c->local)
                changed = false;
        else
                return 0;
        return changed ? c->revision : c->revision + 1;
}

void watches_answered(const struct tenure_call *c)
{
        struct watches *v = c->calls->tenure->watches;
        struct tenure_watch *w, *next;
        int64_t first = TAILQ_EMPTY(&v->open) ? 0 : first_after(c);

        TAILQ_FOREACH_SAFE (w, &v->open, of_open, next) {
                if (first > 0 && c->number > w->asked)
                        w->first = w->first > 0 ? min_of(w->first, first) : first;
                if (w->anchored || w->over)
                        review(w, c);
        }
}
