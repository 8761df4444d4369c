/* tenurectl work GROUP, without a command: prints who is in the group, and who has which task.
 */
#include <inttypes.h>
#include <stdio.h>

#include "member/work_record.h"
#include "table.h"
#include "text.h"
#include "work.h"

#define ANSWER_MS 10000

struct row {
        char *task;         /* owned */
        const char *member; /* borrowed from an answer */
        int64_t token;      /* 0: no member has it, or another row shows which one does */
};

struct rows {
        struct row *all;
        size_t n, cap;
};

static void rows_fini(struct rows *r)
{
        for (size_t i = 0; i < r->n; i++)
                free(r->all[i].task);
        free(r->all);
}

static int add(struct rows *r, const char *task, const char *member, int64_t token)
{
        char *copy = strdup(task);

        if (!copy || array_reserve(&r->all, &r->cap, r->n + 1, sizeof(*r->all)) < 0) {
                free(copy);
                return -ENOMEM;
        }
        r->all[r->n++] = (struct row){.task = copy, .member = member, .token = token};
        return 0;
}

/* Orders by number if both names are numbers; for the same task, the row that has a holder
 * comes first. */
static int by_task(const void *a, const void *b)
{
        const struct row *p = a, *q = b;
        size_t n = strlen(p->task), m = strlen(q->task);
        bool numbers = strspn(p->task, "0123456789") == n && strspn(q->task, "0123456789") == m;
        int r = strcmp(p->task, q->task);

        if (numbers && n != m)
                return n < m ? -1 : 1;
        return r != 0 ? r : (p->token < q->token) - (p->token > q->token);
}

/* Sorts the rows, and keeps one for each task. */
static void sort(struct rows *r)
{
        size_t kept = 0;

        if (r->n > 0)
                qsort(r->all, r->n, sizeof(*r->all), by_task);
        for (size_t i = 0; i < r->n; i++)
                if (kept > 0 && strcmp(r->all[kept - 1].task, r->all[i].task) == 0)
                        free(r->all[i].task);
                else
                        r->all[kept++] = r->all[i];
        r->n = kept;
}

static void print_rows(const struct ctl *c, const struct rows *rows)
{
        static const struct column columns[] = {{"TASK", "task", COLUMN_TEXT},
                                                {"MEMBER", "member", COLUMN_TEXT},
                                                {"TOKEN", "token", COLUMN_TEXT}};
        struct json_object *all = json_object_new_array();
        size_t free_ones = 0;

        for (size_t i = 0; i < rows->n; i++) {
                const struct row *r = &rows->all[i];
                struct json_object *o = json_object_new_object();

                free_ones += r->token == 0;
                json_put_text(o, "task", r->task);
                if (r->token > 0) {
                        json_put_text(o, "member", r->member);
                        json_put_number(o, "token", r->token);
                }
                json_object_array_add(all, o);
        }
        table_print(c, all, columns, ARRAY_SIZE(columns));
        if (c->json == JSON_OFF && c->legend)
                printf("\n%zu task(s), %zu of them unassigned.\n", rows->n, free_ones);
        json_object_put(all);
}

/* Reads what is under members/ or tasks/ of the group. */
static int get(struct tenure *t, const char *cluster, const char *group, const char *folder,
               struct tenure_call **ret)
{
        char prefix[1024];
        int n = snprintf(prefix, sizeof(prefix), "/tenure/%s/work/%s/%s/", cluster, group,
                         folder);
        struct tenure_range q = {.key = prefix, .key_len = (size_t) n, .prefix = true};
        int r = tenure_get(t, &q, ret);

        if (r == 0)
                r = tenure_call_wait(*ret, ANSWER_MS);
        if (r < 0)
                say("%s", *ret && *tenure_call_error(*ret) ? tenure_call_error(*ret)
                                                           : tenure_error(t));
        return r;
}

static const char *last_part(const struct tenure_kv *kv)
{
        const char *key = kv->key;

        return strrchr(key, '/') + 1;
}

/* Adds the tasks that a member names, whoever has them. */
static int add_record(struct rows *rows, const struct tenure_kv *kv)
{
        char room[WORK_NUMBER_MAX];
        struct work_record record;
        int r = work_record_read(&record, kv->value, kv->value_len);

        if (r < 0)
                return r == -ENOMEM ? r : 0;
        for (size_t i = 0; r == 0 && i < record.n; i++)
                r = add(rows, work_record_name(&record, i, room), NULL, 0);
        work_record_fini(&record);
        return r;
}

int work_list(const struct ctl *c, struct tenure *t, const char *cluster, const char *group)
{
        struct tenure_call *members = NULL, *tasks = NULL;
        struct rows rows = {0};
        int r = get(t, cluster, group, "members", &members);

        if (r == 0)
                r = get(t, cluster, group, "tasks", &tasks);
        for (size_t i = 0; r == 0 && i < tenure_call_n_kvs(tasks, 0); i++) {
                const struct tenure_kv *kv = tenure_call_kv(tasks, 0, i);

                r = add(&rows, last_part(kv), kv->value, kv->create_revision);
        }
        for (size_t i = 0; r == 0 && i < tenure_call_n_kvs(members, 0); i++)
                r = add_record(&rows, tenure_call_kv(members, 0, i));
        if (r == 0) {
                sort(&rows);
                print_rows(c, &rows);
        } else if (r == -ENOMEM) {
                (void) ctl_fail("cannot list the tasks", r, NULL);
        }
        rows_fini(&rows);
        tenure_call_free(members);
        tenure_call_free(tasks);
        return r < 0 ? -1 : 0;
}
