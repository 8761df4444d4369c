#include "table.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>

#include "top_view.h"

#define COLUMNS_MAX 8

static const char *list_cell(struct json_object *list, char out[static TEXT_CELL])
{
        cleanup_(buf_fini) struct buf b = {0};

        for (size_t i = 0; i < json_object_array_length(list); i++)
                buf_printf(&b, "%s%s", i > 0 ? "," : "",
                           json_object_get_string(json_object_array_get_idx(list, i)));
        buf_add(&b, "", 1);
        return text_cell(buf_error(&b) < 0 ? "" : (const char *) buf_head(&b), out);
}

static const char *pairs_cell(struct json_object *pairs, char out[static TEXT_CELL])
{
        cleanup_(buf_fini) struct buf b = {0};

        json_object_object_foreach (pairs, key, value) {
                buf_printf(&b, "%s%s=%s", buf_len(&b) > 0 ? "," : "", key,
                           json_object_get_string(value));
        }
        buf_add(&b, "", 1);
        return text_cell(buf_error(&b) < 0 ? "" : (const char *) buf_head(&b), out);
}

static const char *cell(struct json_object *o, const struct column *c,
                        char out[static TEXT_CELL])
{
        struct json_object *v = json_object_object_get(o, c->field);
        int64_t n = json_object_get_int64(v);

        if (c->kind == COLUMN_UP)
                return json_object_get_boolean(v) ? "up" : "down";
        if (!v || (c->kind == COLUMN_SOME && n == 0))
                return "-";
        if (c->kind == COLUMN_SECONDS)
                snprintf(out, TEXT_CELL, "%g", (double) n / 1e6);
        else if (c->kind == COLUMN_MS)
                snprintf(out, TEXT_CELL, "%.3fs", (double) n / 1e3);
        else if (json_object_is_type(v, json_type_array))
                return list_cell(v, out);
        else if (json_object_is_type(v, json_type_object))
                return pairs_cell(v, out);
        else if (c->kind == COLUMN_REST && json_object_get_string_len(v) > 0)
                return text_shown(json_object_get_string(v), out);
        else
                return text_cell(json_object_get_string(v), out);
        return out;
}

static int width_of(const char *text)
{
        return (int) top_width(text, true);
}

static void print_cell(const char *text, int width, bool right, bool last)
{
        int pad = max_of(width - width_of(text), 0);

        printf("%*s%s%*s%s", right ? pad : 0, "", text, right || last ? 0 : pad, "",
               last ? "\n" : "  ");
}

void table_print(const struct ctl *c, struct json_object *list, const struct column *columns,
                 size_t n)
{
        size_t n_rows = json_object_array_length(list);
        int width[COLUMNS_MAX] = {0};
        char out[TEXT_CELL];

        assert(n <= COLUMNS_MAX);
        setlocale(LC_CTYPE, "C.UTF-8"); /* the names are UTF-8, whatever the user's locale is */
        if (c->json != JSON_OFF)
                return ctl_print(c, json_object_get(list));
        for (size_t k = 0; k < n; k++) {
                width[k] = c->legend ? width_of(columns[k].head) : 0;
                for (size_t i = 0; i < n_rows; i++)
                        width[k] = max_of(width[k],
                                          width_of(cell(json_object_array_get_idx(list, i),
                                                        &columns[k], out)));
        }
        for (size_t k = 0; c->legend && k < n; k++)
                print_cell(columns[k].head, width[k], columns[k].kind == COLUMN_MS, k + 1 == n);
        for (size_t i = 0; i < n_rows; i++)
                for (size_t k = 0; k < n; k++)
                        print_cell(cell(json_object_array_get_idx(list, i), &columns[k], out),
                                   width[k], columns[k].kind == COLUMN_MS, k + 1 == n);
}
