#include "member/work_record.h"

#include <stdio.h>

#include "member/json.h"
#include "member/node_record.h"
#include "member/rendezvous.h"

static_assert(WORK_RECORD_MAX <= RECORD_MAX, "a record that is written can be read");

void work_record_fini(struct work_record *r)
{
        for (size_t i = 0; r->names && i < r->n; i++)
                free(r->names[i]);
        free(r->names);
        *r = (struct work_record){0};
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Sorts the names and rejects duplicates. Returns the name that occurs twice, or NULL. */
static const char *sort(struct work_record *r, const char *const *names)
{
        const char *twice = NULL;

        qsort(r->names, r->n, sizeof(*r->names), by_name);
        for (size_t i = 1; i < r->n && !twice; i++)
                if (strcmp(r->names[i - 1], r->names[i]) == 0)
                        twice = r->names[i];
        for (size_t i = 0; twice && i < r->n; i++)
                if (strcmp(names[i], twice) == 0)
                        return names[i];
        return NULL;
}

static int copy_names(struct work_record *r, const char *const *names, size_t n,
                      const char **ret_bad)
{
        size_t bytes = 64;

        r->names = calloc(max_of(n, (size_t) 1), sizeof(*r->names));
        if (!r->names)
                return -ENOMEM;
        for (; r->n < n; r->n++) {
                *ret_bad = names[r->n];
                if (!node_name_is_valid(names[r->n]))
                        return -EINVAL;
                bytes += strlen(names[r->n]) + 3; /* two quotes and a comma */
                if (bytes > WORK_RECORD_MAX)
                        return -EMSGSIZE;
                r->names[r->n] = strdup(names[r->n]);
                if (!r->names[r->n])
                        return -ENOMEM;
        }
        *ret_bad = sort(r, names);
        return *ret_bad ? -EINVAL : 0;
}

int work_record_make(struct work_record *ret, unsigned weight, const char *const *names,
                     size_t n, const char **ret_bad)
{
        struct work_record r = {.weight = weight};
        int e = 0;

        if (n > WORK_TASKS_MAX)
                return -EMSGSIZE;
        if (names)
                e = copy_names(&r, names, n, ret_bad);
        else
                r.n = n;
        if (e == 0)
                *ret = r;
        else
                work_record_fini(&r);
        return e;
}

const char *work_record_name(const struct work_record *r, size_t i,
                             char room[static WORK_NUMBER_MAX])
{
        if (r->names)
                return r->names[i];
        snprintf(room, WORK_NUMBER_MAX, "%zu", i + 1);
        return room;
}

static bool has_number(const struct work_record *r, const char *task)
{
        char room[WORK_NUMBER_MAX];
        size_t n = 0;

        for (const char *p = task; *p; p++) {
                if (*p < '0' || *p > '9' || n > WORK_TASKS_MAX)
                        return false;
                n = 10 * n + (size_t) (*p - '0');
        }
        if (n == 0 || n > r->n)
                return false;
        snprintf(room, sizeof(room), "%zu", n); /* 07 is a name, not a number */
        return strcmp(room, task) == 0;
}

bool work_record_has(const struct work_record *r, const char *task)
{
        if (!r->names)
                return has_number(r, task);
        return bsearch(&task, r->names, r->n, sizeof(*r->names), by_name) != NULL;
}

/* ---- as JSON ---- */

void work_record_write(const struct work_record *r, struct buf *out)
{
        struct json_object *o = json_object_new_object(), *names;

        if (o) {
                json_object_object_add(o, "weight", json_object_new_int64(r->weight));
                names = r->names ? json_object_new_array()
                                 : json_object_new_int64((int64_t) r->n);
                for (size_t i = 0; r->names && i < r->n; i++)
                        json_object_array_add(names, json_object_new_string(r->names[i]));
                json_object_object_add(o, "tasks", names);
        }
        json_finish(o, out);
}

static int read_names(struct work_record *ret, unsigned weight, struct json_object *a)
{
        size_t n = json_object_array_length(a);
        cleanup_(freep) const char **names = NULL;
        const char *bad;

        if (n > WORK_TASKS_MAX)
                return -EBADMSG;
        names = calloc(n + 1, sizeof(*names));
        if (!names)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                struct json_object *item = json_object_array_get_idx(a, i);

                if (!json_object_is_type(item, json_type_string))
                        return -EBADMSG;
                names[i] = json_object_get_string(item);
        }
        switch (work_record_make(ret, weight, names, n, &bad)) {
        case 0:
                return 0;
        case -ENOMEM:
                return -ENOMEM;
        default:
                return -EBADMSG;
        }
}

static int read(struct work_record *ret, struct json_object *o)
{
        struct json_object *weight, *tasks;
        int64_t w, n;

        if (!json_object_object_get_ex(o, "weight", &weight) ||
            !json_object_is_type(weight, json_type_int) ||
            !json_object_object_get_ex(o, "tasks", &tasks))
                return -EBADMSG;
        w = json_object_get_int64(weight);
        if (w < 1 || w > RENDEZVOUS_WEIGHT_MAX)
                return -EBADMSG;
        if (json_object_is_type(tasks, json_type_array))
                return read_names(ret, (unsigned) w, tasks);
        n = json_object_get_int64(tasks);
        if (!json_object_is_type(tasks, json_type_int) || n < 0 || n > WORK_TASKS_MAX)
                return -EBADMSG;
        *ret = (struct work_record){.weight = (unsigned) w, .n = (size_t) n};
        return 0;
}

int work_record_read(struct work_record *ret, const void *p, size_t len)
{
        struct json_object *o;
        int r = json_begin(p, len, &o);

        if (r < 0)
                return r;
        r = read(ret, o);
        json_object_put(o);
        return r;
}
