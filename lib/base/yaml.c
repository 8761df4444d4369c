#include "base/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <yaml.h>

#define FILE_MAX ((size_t) 1 << 20)
#define KEYS_MAX 1000

struct reading {
        yaml_parser_t parser;
        yaml_event_t event; /* the current one */
        const char *path;
        yaml_fn fn;
        void *arg;
        struct conf_error *err;
        struct arena seen; /* holds the names seen so far */
        char *names[KEYS_MAX];
        size_t n_names;
        char *section; /* NULL at the top level; owned */
};

static int complain(struct reading *rd, size_t line, const char *fmt, ...) printf_(3, 4);
static int complain(struct reading *rd, size_t line, const char *fmt, ...)
{
        size_t most = sizeof(rd->err->text) / 2, len = strlen(rd->path);
        /* A long path is cut at its beginning, to leave room for the reason. */
        int n = snprintf(rd->err->text, sizeof(rd->err->text),
                         "%s:%zu: ", rd->path + (len > most ? len - most : 0), line + 1);
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(rd->err->text + n, sizeof(rd->err->text) - (size_t) n, fmt, ap);
        va_end(ap);
        return -EINVAL;
}

static int next(struct reading *rd)
{
        yaml_event_delete(&rd->event);
        if (yaml_parser_parse(&rd->parser, &rd->event) == 1)
                return 0;
        if (rd->parser.error == YAML_MEMORY_ERROR)
                return -ENOMEM;
        return complain(rd, rd->parser.problem_mark.line, "%s",
                        rd->parser.problem ? rd->parser.problem : "this is not YAML");
}

static size_t line_of(const struct reading *rd)
{
        return rd->event.start_mark.line;
}

/* Copies the current scalar; the caller frees it. */
static int take_scalar(struct reading *rd, const char *what, char **ret)
{
        const char *text = (const char *) rd->event.data.scalar.value;
        size_t n = rd->event.data.scalar.length;

        if (rd->event.type != YAML_SCALAR_EVENT)
                return complain(rd, line_of(rd), "%s is neither a word nor a number", what);
        if (n > 0 && text[n - 1] == '\n' &&
            (rd->event.data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
             rd->event.data.scalar.style == YAML_FOLDED_SCALAR_STYLE))
                n--;
        for (size_t i = 0; i < n; i++)
                if ((unsigned char) text[i] < ' ' || text[i] == 0x7f)
                        return complain(rd, line_of(rd), "%s has a control character (0x%02x)",
                                        what, (unsigned char) text[i]);
        *ret = strndup(text, n);
        return *ret ? 0 : -ENOMEM;
}

/* Whether the current event is one of YAML's ways to write null. */
static bool is_null(const struct reading *rd)
{
        static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};

        if (rd->event.type != YAML_SCALAR_EVENT ||
            rd->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(nulls); i++)
                if (strcmp((const char *) rd->event.data.scalar.value, nulls[i]) == 0)
                        return true;
        return false;
}

/* Reports a key that is given twice. */
static int remember(struct reading *rd, const char *key, size_t line)
{
        size_t size = strlen(key) + (rd->section ? strlen(rd->section) : 0) + 2;
        char *name;

        if (rd->n_names == KEYS_MAX)
                return complain(rd, line, "more than %d settings", KEYS_MAX);
        name = arena_alloc(&rd->seen, size);
        if (!name)
                return -ENOMEM;
        snprintf(name, size, "%s.%s", rd->section ? rd->section : "", key);
        for (size_t i = 0; i < rd->n_names; i++)
                if (strcmp(rd->names[i], name) == 0)
                        return complain(rd, line, "'%s' is given a second time", key);
        rd->names[rd->n_names++] = name;
        return 0;
}

static int tell(struct reading *rd, const char *key, const char *value, size_t line)
{
        struct conf_error why = {""};
        int r = rd->fn(rd->section ? rd->section : "", key, value, rd->arg, &why);

        return r == -EINVAL ? complain(rd, line, "%s", why.text) : r;
}

/* Reads the items of a list whose start event has been read. */
static int read_list(struct reading *rd, const char *key, size_t line)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = next(rd);

        while (r == 0 && rd->event.type != YAML_SEQUENCE_END_EVENT) {
                cleanup_(freep) char *item = NULL;

                r = take_scalar(rd, key, &item);
                if (r < 0)
                        return r;
                buf_printf(&b, "%s%s", buf_len(&b) > 0 ? "," : "", item);
                r = next(rd);
        }
        buf_add_u8(&b, 0);
        if (r == 0)
                r = buf_error(&b);
        return r < 0 ? r : tell(rd, key, (const char *) buf_head(&b), line);
}

static int read_mapping(struct reading *rd);

/* Reads the value of @key, whose first event has been read. */
static int read_value(struct reading *rd, const char *key)
{
        cleanup_(freep) char *value = NULL;
        size_t line = line_of(rd);
        int r;

        switch (rd->event.type) {
        case YAML_SEQUENCE_START_EVENT:
                return read_list(rd, key, line);
        case YAML_MAPPING_START_EVENT:
                if (rd->section)
                        return complain(rd, line, "'%s' has sections of its own", key);
                rd->section = strdup(key);
                r = rd->section ? read_mapping(rd) : -ENOMEM;
                free(rd->section);
                rd->section = NULL;
                return r;
        case YAML_SCALAR_EVENT:
                if (is_null(rd))
                        return 0;
                r = take_scalar(rd, key, &value);
                return r < 0 ? r : tell(rd, key, value, line);
        default:
                return complain(rd, line, "'%s' is an alias, which is not supported", key);
        }
}

/* Reads keys and values, up to and including the end event. The start event has been read. */
static int read_mapping(struct reading *rd)
{
        int r = next(rd);

        while (r == 0 && rd->event.type != YAML_MAPPING_END_EVENT) {
                cleanup_(freep) char *key = NULL;

                r = take_scalar(rd, "a key", &key);
                if (r == 0)
                        r = remember(rd, key, line_of(rd));
                if (r == 0)
                        r = next(rd);
                if (r == 0)
                        r = read_value(rd, key);
                if (r == 0)
                        r = next(rd);
        }
        return r;
}

static int read_stream(struct reading *rd)
{
        int r = next(rd); /* the start of the stream */

        if (r == 0)
                r = next(rd);
        if (r < 0 || rd->event.type == YAML_STREAM_END_EVENT)
                return r; /* nothing but comments */
        r = next(rd);     /* past the start of the document */
        if (r == 0 && is_null(rd))
                return 0;
        if (r == 0 && rd->event.type != YAML_MAPPING_START_EVENT)
                r = complain(rd, line_of(rd), "neither a setting, KEY: VALUE, nor a comment");
        if (r == 0)
                r = read_mapping(rd);
        if (r == 0)
                r = next(rd); /* the end of the document */
        if (r == 0)
                r = next(rd);
        if (r == 0 && rd->event.type != YAML_STREAM_END_EVENT)
                r = complain(rd, line_of(rd), "a second document begins here");
        return r;
}

int yaml_read(struct view text, const char *path, yaml_fn fn, void *arg, struct conf_error *err)
{
        cleanup_(freep) struct reading *rd = calloc(1, sizeof(*rd));
        int r;

        if (!rd || yaml_parser_initialize(&rd->parser) != 1)
                return -ENOMEM;
        rd->path = path;
        rd->fn = fn;
        rd->arg = arg;
        rd->err = err;
        yaml_parser_set_input_string(&rd->parser, text.p, text.len);
        r = read_stream(rd);
        yaml_event_delete(&rd->event);
        yaml_parser_delete(&rd->parser);
        arena_fini(&rd->seen);
        return r;
}

int yaml_read_file(const char *path, yaml_fn fn, void *arg, struct conf_error *err)
{
        cleanup_(freep) uint8_t *bytes = malloc(FILE_MAX + 1);
        FILE *f;
        size_t n;
        int r = 0;

        if (!bytes)
                return -ENOMEM;
        errno = 0;
        f = fopen(path, "re");
        n = f ? fread(bytes, 1, FILE_MAX + 1, f) : 0;
        if (!f || ferror(f)) {
                r = errno > 0 ? -errno : -EIO;
                snprintf(err->text, sizeof(err->text), "%s: cannot read: %s", path,
                         strerror(-r));
        }
        if (f)
                fclose(f);
        if (r == 0 && n > FILE_MAX) {
                r = -EFBIG;
                snprintf(err->text, sizeof(err->text),
                         "%s: has more than %zu bytes; this is not a file of settings", path,
                         FILE_MAX);
        }
        return r < 0 ? r : yaml_read((struct view){bytes, n}, path, fn, arg, err);
}
