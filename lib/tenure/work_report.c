/* Shared work: what is reported to the program. */
#include "tenure/work_internal.h"

static struct queued *event_of(struct tenure_work *w, enum tenure_event_type type,
                               const struct work_task *task, const char *why)
{
        const char *name = task ? task->name : "";
        struct queued *q = queue_new(w->tenure, type, strlen(name) + strlen(why) + 2);

        if (!q)
                return NULL;
        q->event.work = w;
        q->event.lease = w->work.lease;
        q->event.reason = queue_text(q, why);
        if (task) {
                q->event.task = queue_text(q, name);
                q->event.revision = task->token;
        }
        return q;
}

static void begin_is_taken(struct queued *q)
{
        struct work_task *task = q->owner;

        task->arg = NULL;
}

void work_report_begin(struct tenure_work *w, struct work_task *task)
{
        struct queued *q;

        work_began(task);
        q = event_of(w, TENURE_TASK_BEGIN, task, "");
        if (!q)
                return;
        q->owner = task;
        q->left = begin_is_taken;
        task->arg = q;
        queue_event(w->tenure, q);
}

void work_take_back(struct tenure_work *w, struct work_task *task)
{
        if (task->arg)
                queue_take_back(w->tenure, task->arg);
        task->arg = NULL;
}

/* If the program has not taken the beginning of a task, drops that event instead of reporting
 * an end. */
void work_report_end(struct tenure_work *w, struct work_task *task)
{
        char why[NODE_NAME_MAX + 64];
        struct queued *q;

        if (task->arg) {
                work_take_back(w, task);
                work_ended(task);
                return;
        }
        work_why(&w->work, task, why, sizeof(why));
        work_stops(task);
        q = event_of(w, TENURE_TASK_END, task, why);
        if (q)
                queue_event(w->tenure, q);
}

struct queued *work_event_left(struct tenure_work *w, int error, const char *why)
{
        struct queued *q = event_of(w, TENURE_WORK_LEFT, NULL, why);

        if (q)
                q->event.error = error;
        return q;
}

void work_report_ends(struct tenure_work *w)
{
        for (size_t i = 0; i < w->work.n; i++)
                if (w->work.tasks[i].run == WORK_RUNS)
                        work_report_end(w, &w->work.tasks[i]);
}
