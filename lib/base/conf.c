#include "base/conf.h"

#include <ctype.h>
#include <dirent.h>
#include <ini.h>
#include <inttypes.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <syslog.h>

static const struct {
        const char *name;
        nsec_t ns;
} units[] = {
        {"min", 60 * NSEC_PER_SEC},
        {"m", 60 * NSEC_PER_SEC},
        {"ms", NSEC_PER_MSEC},
        {"us", NSEC_PER_USEC},
        {"\u00b5s", NSEC_PER_USEC},
        {"\u03bcs", NSEC_PER_USEC},
        {"ns", 1},
        {"s", NSEC_PER_SEC},
        {"h", 3600 * NSEC_PER_SEC},
};

/* Parses a unit, if there is one; otherwise uses @bare. Returns 0 or -EINVAL. */
static int unit_parse(const char **s, nsec_t bare, nsec_t *ret)
{
        size_t n = 0;

        /* A byte beyond ASCII is part of a micro sign, of which Unicode has two. */
        while (((*s)[n] >= 'a' && (*s)[n] <= 'z') || (unsigned char) (*s)[n] >= 0x80)
                n++;
        *ret = bare;
        if (n == 0)
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
                if (strlen(units[i].name) == n && strncmp(*s, units[i].name, n) == 0) {
                        *ret = units[i].ns;
                        *s += n;
                        return 0;
                }
        return -EINVAL;
}

/* The value of the digits after the point, in @unit; fractions of a nanosecond are dropped. */
static nsec_t fraction(const char *digits, size_t n, nsec_t unit)
{
        nsec_t t = 0;

        for (size_t i = 0; i < n; i++) {
                unit /= 10;
                t += unit * (digits[i] - '0');
        }
        return t;
}

/* Parses one number with its unit. Returns 0 or -EINVAL. */
static int part_parse(const char **s, nsec_t bare, nsec_t *ret)
{
        size_t whole = strspn(*s, "0123456789"), less = 0;
        const char *number = *s, *point = *s + whole;
        unsigned long long v;
        nsec_t unit;

        if (*point == '.')
                less = strspn(point + 1, "0123456789");
        if (whole + less == 0)
                return -EINVAL;
        *s = point + (*point == '.' ? 1 + less : 0);
        if (**s == '.') /* "1.5.5s" */
                return -EINVAL;
        *s += strspn(*s, " \t");
        if (unit_parse(s, bare, &unit) < 0)
                return -EINVAL;
        errno = 0;
        v = whole > 0 ? strtoull(number, NULL, 10) : 0;
        if (errno != 0 || v > INT64_MAX || __builtin_mul_overflow((nsec_t) v, unit, ret) ||
            __builtin_add_overflow(*ret, fraction(point + 1, less, unit), ret))
                return -EINVAL;
        return 0;
}

/* A number without a unit is in units of @bare. */
static int nsec_parse_bare(const char *s, nsec_t bare, nsec_t *ret)
{
        nsec_t total = 0, part;

        s += strspn(s, " \t");
        s += *s == '+';
        do {
                if (part_parse(&s, bare, &part) < 0 ||
                    __builtin_add_overflow(total, part, &total))
                        return -EINVAL;
                s += strspn(s, " \t");
        } while (*s);
        *ret = total;
        return 0;
}

int nsec_parse(const char *s, nsec_t *ret)
{
        return nsec_parse_bare(s, NSEC_PER_SEC, ret);
}

/* A time of a setting, which may be infinite. */
static int time_parse(const struct conf_option *o, const char *s, nsec_t *ret)
{
        int r = 0;

        if (o->max == INT64_MAX && strcmp(s, "infinity") == 0)
                *ret = INT64_MAX;
        else
                r = nsec_parse_bare(s, o->type == CONF_MSEC ? NSEC_PER_MSEC : NSEC_PER_SEC,
                                    ret);
        return r < 0 || *ret < o->min || *ret > o->max ? -EINVAL : 0;
}

void nsec_format(nsec_t t, char out[static 32])
{
        static const char *const order[] = {"h", "min", "s", "ms", "us", "ns"};

        if (t == 0) {
                strcpy(out, "0s");
                return;
        }
        for (size_t k = 0; k < ARRAY_SIZE(order); k++)
                for (size_t i = 0; i < ARRAY_SIZE(units); i++)
                        if (strcmp(units[i].name, order[k]) == 0 && t % units[i].ns == 0) {
                                snprintf(out, 32, "%" PRId64 "%s", t / units[i].ns, order[k]);
                                return;
                        }
}

void conf_time_format(nsec_t t, char out[static 32])
{
        if (t == INT64_MAX)
                strcpy(out, "infinity");
        else
                nsec_format(t, out);
}

bool list_next(const char **cursor, char *out, size_t size)
{
        const char *s = *cursor;
        size_t n;

        if (!s || *s == '\0')
                return false;
        n = strcspn(s, ",");
        if (n >= size)
                return false;
        memcpy(out, s, n);
        out[n] = '\0';
        *cursor = s + n + (s[n] == ',');
        return true;
}

const char *list_too_long(const char *list, size_t size)
{
        for (const char *s = list; s && *s; s += *s == ',') {
                const char *item = s;

                s += strcspn(s, ",");
                if ((size_t) (s - item) >= size)
                        return item;
        }
        return NULL;
}

int list_split(const char *list, struct arena *a, char ***ret, size_t *ret_n)
{
        size_t n = 1, k = 0;
        char **items, *copy;

        for (const char *p = list; *p; p++)
                n += *p == ',';
        items = arena_alloc(a, n * sizeof(*items));
        copy = arena_alloc(a, strlen(list) + 1);
        if (!items || !copy)
                return -ENOMEM;
        strcpy(copy, list);
        for (char *next = *list ? copy : NULL; next;)
                items[k++] = strsep(&next, ",");
        *ret = items;
        *ret_n = k;
        return 0;
}

const struct conf_word conf_log_levels[] = {
        {"err", LOG_ERR},   {"warning", LOG_WARNING}, {"notice", LOG_NOTICE},
        {"info", LOG_INFO}, {"debug", LOG_DEBUG},     {NULL, 0},
};

int conf_word_parse(const struct conf_word *words, const char *s, int *ret)
{
        for (; words->word; words++)
                if (strcmp(words->word, s) == 0) {
                        *ret = words->value;
                        return 0;
                }
        return -EINVAL;
}

const char *conf_word_of(const struct conf_word *words, int value)
{
        while (words->word && words->value != value)
                words++;
        return words->word;
}

const char *conf_words(const struct conf_word *words, char *out, size_t size)
{
        size_t n = 0;

        *out = '\0';
        for (size_t i = 0; words[i].word && n < size; i++)
                n += (size_t) snprintf(out + n, size - n, "%s%s",
                                       i == 0              ? ""
                                       : words[i + 1].word ? ", "
                                                           : " or ",
                                       words[i].word);
        return out;
}

static int set_string(char **field, const char *value)
{
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*field);
        *field = copy;
        return 0;
}

/* Joins "a, b c" as "a,b,c"; with @append, after what the field holds, as in systemd's list
 * settings. */
static int set_list(char **field, const char *value, bool append)
{
        cleanup_(buf_fini) struct buf b = {0};
        size_t len;

        if (append && *field && **field != '\0' && *value != '\0')
                buf_add(&b, *field, strlen(*field));
        for (const char *s = value;;) {
                size_t n;

                s += strspn(s, ", \t");
                n = strcspn(s, ", \t");
                if (n == 0)
                        break;
                if (buf_len(&b) > 0)
                        buf_add_u8(&b, ',');
                buf_add(&b, s, n);
                s += n;
        }
        buf_add_u8(&b, 0);
        if (buf_error(&b) < 0)
                return -ENOMEM;
        free(*field);
        *field = (char *) buf_take(&b, &len);
        return 0;
}

int bool_parse(const char *s, bool *ret)
{
        static const char *const yes[] = {"yes", "true", "on", "1", "t", "y"};
        static const char *const no[] = {"no", "false", "off", "0", "f", "n"};

        for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
                if (strcasecmp(s, yes[i]) == 0) {
                        *ret = true;
                        return 0;
                }
                if (strcasecmp(s, no[i]) == 0) {
                        *ret = false;
                        return 0;
                }
        }
        return -EINVAL;
}

/* Where the first control character is, other than a tab; @n: there is none. */
static size_t control_at(const char *text, size_t n)
{
        size_t i = 0;

        while (i < n && ((unsigned char) text[i] >= ' ' || text[i] == '\t') && text[i] != 0x7f)
                i++;
        return i;
}

/* Returns 0, -ENOMEM, or -EINVAL with the reason in @why. */
static int set_option(const struct conf_option *o, void *target, const char *value, bool append,
                      char *why, size_t why_size)
{
        void *field = (char *) target + o->offset;
        char lo[32], hi[32], words[128], *end;
        uint64_t u;
        nsec_t t;

        switch (o->type) {
        case CONF_STRING:
                return set_string(field, value);
        case CONF_LIST:
                return set_list(field, value, append);
        case CONF_BOOL:
                if (bool_parse(value, field) == 0)
                        return 0;
                snprintf(why, why_size, "must be yes or no, not '%s'", value);
                return -EINVAL;
        case CONF_UINT:
                errno = 0;
                u = strtoull(value, &end, 10);
                if (!isdigit((unsigned char) *value) || *end != '\0' || errno != 0 ||
                    u < (uint64_t) o->min || u > (uint64_t) o->max) {
                        snprintf(why, why_size,
                                 "must be a whole number from %" PRId64 " to %" PRId64
                                 ", not '%s'",
                                 o->min, o->max, value);
                        return -EINVAL;
                }
                *(uint64_t *) field = u;
                return 0;
        case CONF_NSEC:
        case CONF_MSEC:
                if (time_parse(o, value, &t) < 0) {
                        conf_time_format(o->min, lo);
                        conf_time_format(o->max, hi);
                        snprintf(why, why_size,
                                 "must be a time from %s to %s such as 500ms or 10s, not '%s'",
                                 lo, hi, value);
                        return -EINVAL;
                }
                *(nsec_t *) field = t;
                return 0;
        case CONF_ENUM:
                if (conf_word_parse(o->words, value, field) == 0)
                        return 0;
                snprintf(why, why_size, "must be %s, not '%s'",
                         conf_words(o->words, words, sizeof(words)), value);
                return -EINVAL;
        }
        return -EINVAL;
}

int conf_defaults(const struct conf_option *o, size_t n_o, void *target)
{
        char why[256];

        for (size_t i = 0; i < n_o; i++) {
                int r = o[i].def ? set_option(&o[i], target, o[i].def, false, why, sizeof(why))
                                 : 0;

                assert(r != -EINVAL);
                if (r < 0)
                        return r;
        }
        return 0;
}

void conf_clear(const struct conf_option *o, size_t n_o, void *target)
{
        for (size_t i = 0; i < n_o; i++)
                if (o[i].type == CONF_STRING || o[i].type == CONF_LIST) {
                        char **field = (char **) (void *) ((char *) target + o[i].offset);

                        free(*field);
                        *field = NULL;
                }
}

/* A file is read in one turn of the loop, and a line is kept whole. */
#define FILE_MOST (1 << 20)

/* inih's INI_MAX_LINE, minus the end of the line. */
#define LINE_MOST 198

struct reading {
        const struct conf_option *o;
        size_t n_o;
        void *target;
        const char *path;
        struct conf_error *err;
        bool *seen; /* per option: whether this file has assigned it yet. The first assignment
                       replaces a list */
        int line;
        bool is_part; /* the line is part of one that is too long for inih */
        int r;
};

static void complain(struct reading *rd, const char *fmt, ...) printf_(2, 3);
static void complain(struct reading *rd, const char *fmt, ...)
{
        size_t most = sizeof(rd->err->text) / 2, len = strlen(rd->path);
        /* A long path is cut at its beginning, to leave room for the reason. */
        int n = snprintf(rd->err->text, sizeof(rd->err->text),
                         "%s:%d: ", rd->path + (len > most ? len - most : 0), rd->line);
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(rd->err->text + n, sizeof(rd->err->text) - (size_t) n, fmt, ap);
        va_end(ap);
        rd->r = -EINVAL;
}

static int on_setting(void *userdata, const char *section, const char *name, const char *value)
{
        struct reading *rd = userdata;
        bool known_section = false;
        char why[256];

        for (size_t i = 0; i < rd->n_o; i++) {
                int r;

                if (strcmp(rd->o[i].section, section) != 0)
                        continue;
                known_section = true;
                if (strcmp(rd->o[i].key, name) != 0)
                        continue;
                if (rd->is_part && rd->o[i].type != CONF_LIST) {
                        complain(rd, "%s= stands in a line of more than %d characters", name,
                                 LINE_MOST);
                        return 0;
                }
                r = set_option(&rd->o[i], rd->target, value, rd->seen[i], why, sizeof(why));
                rd->seen[i] = true;
                if (r == -EINVAL)
                        complain(rd, "%s= %s", name, why);
                else if (r < 0)
                        rd->r = r;
                return r == 0;
        }
        if (known_section)
                complain(rd, "unknown key '%s' in [%s]", name, section);
        else if (*section)
                complain(rd, "unknown section [%s]", section);
        else
                complain(rd, "'%s' stands before any [Section]", name);
        return 0;
}

/* Passes one line to inih, under the last section seen. inih's own reader reports the line
 * number of the first error only after the callback, and the message needs it. */
static void read_line(struct reading *rd, const struct buf *section, const char *line, size_t n)
{
        cleanup_(buf_fini) struct buf piece = {0};

        buf_add(&piece, section->data, buf_len(section));
        buf_add_u8(&piece, '\n');
        buf_add(&piece, line, n);
        buf_add_u8(&piece, 0);
        if (buf_error(&piece) < 0)
                rd->r = -ENOMEM;
        else if (ini_parse_string((char *) piece.data, on_setting, rd) != 0 && rd->r == 0)
                complain(rd, "neither a [Section], nor Key=value, nor a comment");
}

/* How many of the list's @n characters, in whole words, fit into @most. */
static size_t words(const char *list, size_t n, size_t most)
{
        if (n <= most)
                return n;
        while (most > 0 && !strchr(", \t", list[most]))
                most--;
        return most;
}

/* A list may have any length: a long line is read as if its words were in several lines. */
static void read_long_line(struct reading *rd, const struct buf *section, const char *line,
                           size_t n)
{
        size_t key = 0;

        while (key < n && line[key] != '=' && line[key] != ':')
                key++;
        key = key < n ? key + 1 : 0;
        rd->is_part = true;
        if (key == 0 || key > LINE_MOST / 2)
                complain(rd, "the line has %zu characters, more than %d", n, LINE_MOST);
        for (size_t at = key, k; rd->r == 0 && at < n; at += k) {
                cleanup_(buf_fini) struct buf part = {0};

                k = words(line + at, n - at, LINE_MOST - key);
                if (k == 0) {
                        complain(rd, "a word has more than %zu characters", LINE_MOST - key);
                        break;
                }
                buf_add(&part, line, key);
                buf_add(&part, line + at, k);
                if (buf_error(&part) < 0)
                        rd->r = -ENOMEM;
                else
                        read_line(rd, section, (char *) buf_head(&part), buf_len(&part));
                at += at + k < n; /* skip the separator */
        }
        rd->is_part = false;
}

/* The length of the line without its end and without a comment, which begins with a semicolon
 * after a blank. */
static size_t line_len(const char *line, size_t n)
{
        if (n > 0 && line[n - 1] == '\n')
                n--;
        while (n > 0 && line[n - 1] == '\r')
                n--;
        for (size_t i = 1; i < n; i++)
                if (line[i] == ';' && (line[i - 1] == ' ' || line[i - 1] == '\t'))
                        return i;
        return n;
}

/* Refuses control characters: inih treats some as blanks, but only at the ends of its input,
 * and stops at a zero byte. So a line would mean one thing as a whole and another in pieces, or
 * be cut off. */
static bool has_control(struct reading *rd, const char *line, size_t n)
{
        size_t at = control_at(line, n);

        if (at < n)
                complain(rd, "the line has a control character (0x%02x)",
                         (unsigned char) line[at]);
        return at < n;
}

/* Keeps the line of a section, which read_line() passes to inih with each later line. */
static void begin_section(struct reading *rd, struct buf *section, const char *line, size_t n)
{
        const char *end = memchr(line, ']', n);
        size_t rest = end ? (size_t) (line + n - end) : 0;

        /* inih ignores what follows. */
        if (rest > 1 + strspn(end + 1, " \t"))
                return complain(rd, "a [Section] is followed by something else");
        buf_clear(section);
        buf_add(section, line, n);
        if (buf_error(section) < 0)
                rd->r = -ENOMEM;
}

/* Reports that @path cannot be read, and returns @r. */
static int unreadable(const char *path, int r, struct conf_error *err)
{
        snprintf(err->text, sizeof(err->text), "%s: cannot read: %s", path, strerror(-r));
        return r;
}

int conf_read_file(const struct conf_option *o, size_t n_o, void *target, const char *path,
                   struct conf_error *err)
{
        cleanup_(freep) bool *seen = calloc(n_o, sizeof(*seen));
        struct reading rd = {o, n_o, target, path, err, seen, 0, false, 0};
        cleanup_(freep) char *line = NULL;
        cleanup_(buf_fini) struct buf section = {0};
        size_t cap = 0;
        struct stat st;
        ssize_t got;
        FILE *f;

        if (!seen)
                return -ENOMEM;
        f = fopen(path, "re");
        if (!f)
                return unreadable(path, -errno, err);
        if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > FILE_MOST)
                rd.r = unreadable(path, -EFBIG, err);
        while (rd.r == 0 && (errno = 0, got = getline(&line, &cap, f)) > 0) {
                const char *text = line + strspn(line, " \t");
                size_t n = line_len(text, (size_t) (line + got - text));

                rd.line++;
                if (*text == '#' || *text == ';' || has_control(&rd, text, n))
                        continue;
                if (n > LINE_MOST) {
                        read_long_line(&rd, &section, text, n);
                        continue;
                }
                if (*text == '[') {
                        begin_section(&rd, &section, text, n);
                        n = 0;
                }
                if (rd.r == 0)
                        read_line(&rd, &section, text, n);
        }
        if (rd.r == 0 && !feof(f)) /* not the end: lines are missing */
                rd.r = unreadable(path, errno > 0 ? -errno : -EIO, err);
        fclose(f);
        return rd.r;
}

/* ---- drop-ins ---- */

struct drop_in {
        char *name;
        char *path;
        size_t rank; /* of its folder: the lowest overrides the others */
};

static int by_name(const void *a, const void *b)
{
        const struct drop_in *x = a, *y = b;
        int c = strcmp(x->name, y->name);

        return c != 0 ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

static int find_drop_ins(const char *folder, size_t rank, struct arena *a,
                         struct drop_in **list, size_t *n, size_t *cap, struct conf_error *err)
{
        DIR *d = opendir(folder);
        struct dirent *e;
        int r = 0;

        if (!d)
                return errno == ENOENT || errno == ENOTDIR ? 0
                                                           : unreadable(folder, -errno, err);
        while (r == 0 && (errno = 0, e = readdir(d))) {
                size_t len = strlen(e->d_name);
                struct drop_in in = {.rank = rank};

                if (e->d_name[0] == '.' || len <= 5 ||
                    strcmp(e->d_name + len - 5, ".conf") != 0)
                        continue;
                in.name = arena_alloc(a, len + 1);
                in.path = arena_alloc(a, strlen(folder) + len + 2);
                r = !in.name || !in.path
                            ? -ENOMEM
                            : array_reserve(list, cap, *n + 1, sizeof(struct drop_in));
                if (r < 0)
                        break;
                strcpy(in.name, e->d_name);
                sprintf(in.path, "%s/%s", folder, e->d_name);
                (*list)[(*n)++] = in;
        }
        if (r == 0 && errno > 0) /* not the end: names are missing */
                r = unreadable(folder, -errno, err);
        closedir(d);
        return r;
}

int conf_read_folders(const struct conf_option *o, size_t n_o, void *target,
                      const char *const folders[], struct conf_error *err)
{
        struct drop_in *list = NULL;
        struct arena a = {0};
        size_t n = 0, cap = 0;
        struct stat st;
        int r = 0;

        for (size_t i = 0; folders[i] && r == 0; i++)
                r = find_drop_ins(folders[i], i, &a, &list, &n, &cap, err);
        if (n > 0)
                qsort(list, n, sizeof(*list), by_name);
        for (size_t i = 0; i < n && r == 0; i++) {
                if (i > 0 && strcmp(list[i].name, list[i - 1].name) == 0)
                        continue;
                if (stat(list[i].path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size == 0))
                        continue;
                r = conf_read_file(o, n_o, target, list[i].path, err);
        }
        free(list);
        arena_fini(&a);
        return r;
}

/* ---- the command line ---- */

const struct conf_option *conf_find_flag(const struct conf_option *o, size_t n_o,
                                         const char *flag, size_t len)
{
        for (size_t i = 0; i < n_o; i++)
                if (o[i].flag && strlen(o[i].flag) == len && strncmp(o[i].flag, flag, len) == 0)
                        return &o[i];
        return NULL;
}

/* A value is printed as a file has it, so it has to be one that a file can have. Returns NULL,
 * or why it is not. */
static const char *why_in_no_file(const struct conf_option *o, const char *value)
{
        size_t n = strlen(value);

        if (control_at(value, n) < n)
                return "must not contain control characters";
        if (o->type != CONF_STRING || n == 0)
                return NULL;
        if (strchr(" \t", value[0]) || strchr(" \t", value[n - 1]))
                return "must not begin or end with a blank";
        if (line_len(value, n) < n)
                return "must not contain a ';' behind a blank, where a comment begins";
        return NULL;
}

int conf_set(const struct conf_option *o, void *target, const char *value, const char *name,
             struct conf_error *err)
{
        const char *wrong = why_in_no_file(o, value);
        char why[256];
        int r = wrong ? -EINVAL : set_option(o, target, value, false, why, sizeof(why));

        if (r == -EINVAL)
                snprintf(err->text, sizeof(err->text), "%s %s", name, wrong ? wrong : why);
        return r;
}

int conf_set_flag(const struct conf_option *o, void *target, const char *value,
                  struct conf_error *err)
{
        char name[80];

        snprintf(name, sizeof(name), "--%s", o->flag);
        return conf_set(o, target, value, name, err);
}

static size_t field_size(const struct conf_option *o)
{
        static const size_t sizes[] = {
                [CONF_STRING] = sizeof(char *), [CONF_LIST] = sizeof(char *),
                [CONF_BOOL] = sizeof(bool),     [CONF_UINT] = sizeof(uint64_t),
                [CONF_NSEC] = sizeof(nsec_t),   [CONF_MSEC] = sizeof(nsec_t),
                [CONF_ENUM] = sizeof(int),
        };

        return sizes[o->type];
}

bool conf_differs(const struct conf_option *o, const void *a, const void *b)
{
        const char *x = (const char *) a + o->offset, *y = (const char *) b + o->offset;

        if (o->type == CONF_STRING || o->type == CONF_LIST) {
                const char *s = *(char *const *) (const void *) x;
                const char *t = *(char *const *) (const void *) y;

                return s && t ? strcmp(s, t) != 0 : s != t;
        }
        return memcmp(x, y, field_size(o)) != 0;
}

void conf_swap(const struct conf_option *o, void *a, void *b)
{
        char *x = (char *) a + o->offset, *y = (char *) b + o->offset;

        for (size_t i = 0; i < field_size(o); i++) {
                char c = x[i];

                x[i] = y[i];
                y[i] = c;
        }
}
