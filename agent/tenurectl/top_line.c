#include "top_line.h"

#include <stdio.h>
#include <time.h>
#include <wchar.h>

#include "base/utf8.h"

void top_clock(int64_t wall, char out[static TOP_CLOCK])
{
        time_t t = (time_t) wall;
        struct tm tm;

        strftime(out, TOP_CLOCK, "%H:%M:%S", localtime_r(&t, &tm));
}

/* ---- lines ---- */

void top_screen_fini(struct top_screen *s)
{
        for (size_t i = 0; i < s->cap; i++)
                buf_fini(&s->lines[i]);
        free(s->lines);
        *s = (struct top_screen){0};
}

int top_line_begin(struct top_screen *s, const struct top_look *k, struct top_line *ret)
{
        size_t had = s->cap;

        if (array_reserve(&s->lines, &s->cap, s->n + 1, sizeof(*s->lines)) < 0)
                return -ENOMEM;
        memset(s->lines + had, 0, (s->cap - had) * sizeof(*s->lines));
        *ret = (struct top_line){.b = &s->lines[s->n++], .look = k};
        buf_clear(ret->b);
        return 0;
}

static const char *style_text(const struct top_look *k, enum top_style s)
{
        static const char *const colored[] = {
                [TOP_PLAIN] = "",          [TOP_BOLD] = "\x1b[1m",
                [TOP_DIM] = "\x1b[2m",     [TOP_HEADING] = "\x1b[7m",
                [TOP_NOTICE] = "\x1b[33m", [TOP_ALARM] = "\x1b[1;31m"};
        static const char *const plain[] = {
                [TOP_PLAIN] = "",          [TOP_BOLD] = "\x1b[1m",   [TOP_DIM] = "",
                [TOP_HEADING] = "\x1b[7m", [TOP_NOTICE] = "\x1b[1m", [TOP_ALARM] = "\x1b[1m"};

        return k->height == 0 ? "" : k->color ? colored[s] : plain[s];
}

/* Characters that turn the text behind them around (UAX #9, 2): they have no width, and could
 * have "left" read as something else. */
static bool is_override(wchar_t w)
{
        return (w >= 0x202a && w <= 0x202e) || (w >= 0x2066 && w <= 0x2069);
}

/* Takes the next character of *@p in a form that may be shown: moves *@p behind it, writes the
 * text to @out, and returns its width. */
static size_t take(const char **p, bool utf8, char out[8])
{
        const uint8_t *c = (const uint8_t *) *p;
        size_t len = utf8_printable(c, strlen(*p));
        wchar_t w = 0;
        int width = 1;

        if (len == 1 || (len > 1 && utf8)) {
                w = len == 1   ? c[0]
                    : len == 2 ? (wchar_t) ((c[0] & 0x1f) << 6 | (c[1] & 0x3f))
                    : len == 3 ? (wchar_t) ((c[0] & 0xf) << 12 | (c[1] & 0x3f) << 6 |
                                            (c[2] & 0x3f))
                               : (wchar_t) ((c[0] & 7) << 18 | (c[1] & 0x3f) << 12 |
                                            (c[2] & 0x3f) << 6 | (c[3] & 0x3f));
                width = len == 1 ? 1 : wcwidth(w);
        }
        if (w == 0 || width < 0 || is_override(w)) { /* anybody may have written the text */
                snprintf(out, 8, "\\x%02x", c[0]);
                *p += 1;
                return 4;
        }
        memcpy(out, c, len);
        out[len] = '\0';
        *p += len;
        return (size_t) width;
}

size_t top_width(const char *text, bool utf8)
{
        size_t width = 0;
        char one[8];

        while (*text)
                width += take(&text, utf8, one);
        return width;
}

static void pad(struct top_line *l, size_t n)
{
        l->used += n;
        while (n-- > 0)
                buf_add(l->b, " ", 1);
}

/* Adds @text in @width columns, cut with a mark if it does not fit. @fill: pads with blanks. */
void top_line_put(struct top_line *l, enum top_style s, const char *text, size_t width,
                  bool right, bool fill)
{
        bool utf8 = l->look->utf8;
        size_t needs = top_width(text, utf8), room, used = 0, w;
        const char *mark = utf8 ? "\xe2\x80\xa6" : "+", *style = style_text(l->look, s);
        char one[8];

        if (width == 0)
                return;
        room = needs > width ? width - 1 : width;
        if (*style)
                buf_add(l->b, style, strlen(style));
        if (right && needs < width)
                pad(l, width - needs);
        while (*text) {
                w = take(&text, utf8, one);
                if (used + w > room)
                        break;
                buf_add(l->b, one, strlen(one));
                used += w;
        }
        if (needs > width) {
                buf_add(l->b, mark, strlen(mark));
                used++;
        }
        l->used += used;
        if (fill && used < width && !right)
                pad(l, width - used);
        if (*style)
                buf_add(l->b, "\x1b[0m", 4);
}

/* Adds @text at its own width, as far as there is room. */
void top_line_say(struct top_line *l, enum top_style s, const char *text)
{
        if (l->used < l->look->width)
                top_line_put(l, s, text,
                             min_of(top_width(text, l->look->utf8), l->look->width - l->used),
                             false, false);
}

/* Adds the last text of a line; with @fill, blanks to the end, for a heading. */
void top_line_rest(struct top_line *l, enum top_style s, const char *text, bool fill)
{
        if (l->used < l->look->width)
                top_line_put(l, s, text, l->look->width - l->used, false, fill);
}

/* ---- tables ---- */

/* Chooses the columns that there is room for; the last one gets the rest. Without a terminal
 * all are chosen. */
void top_columns_choose(struct top_column *c, size_t n, const struct top_look *k)
{
        size_t used = 0;

        for (unsigned rank = 0; rank < n; rank++)
                for (size_t i = 0; i < n; i++)
                        if (c[i].rank == rank) {
                                size_t needs = c[i].width + (used > 0);

                                c[i].on = c[i].width > 0 &&
                                          (k->height == 0 || used + needs <= k->width);
                                used += c[i].on ? needs : 0;
                        }
}

void top_columns_widen(struct top_column *c, size_t n, const struct top_look *k, top_cell_fn fn,
                       const void *thing, void *arg)
{
        char text[TOP_CELL];

        for (size_t i = 0; k->height == 0 && i < n; i++) {
                *text = '\0';
                (void) fn(thing, i, text, arg);
                if (c[i].on)
                        c[i].width = max_of(c[i].width, top_width(text, k->utf8));
        }
}

void top_line_row(struct top_line *l, const struct top_column *c, size_t n, top_cell_fn fn,
                  const void *thing, void *arg)
{
        char text[TOP_CELL];

        for (size_t i = 0; i < n; i++) {
                enum top_style s;
                bool last = i + 1 == n;

                if (!c[i].on)
                        continue;
                *text = '\0';
                s = fn(thing, i, text, arg);
                /* Without a terminal no cell is empty, so that scripts can split lines. */
                if (!*text && l->look->height == 0)
                        strcpy(text, "-");
                if (l->used > 0)
                        pad(l, 1);
                if (last)
                        top_line_rest(l, s, text, false);
                else
                        top_line_put(l, s, text, c[i].width, c[i].right, true);
        }
}

int top_line_heading(struct top_screen *s, const struct top_look *k, const struct top_column *c,
                     size_t n, int sort, bool reverse)
{
        struct top_line l;

        if (top_line_begin(s, k, &l) < 0)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                char title[32];
                bool sorts = k->height > 0 && c[i].sort >= 0 && c[i].sort == sort;

                if (!c[i].on)
                        continue;
                snprintf(title, sizeof(title), "%s%s", c[i].title,
                         !sorts    ? ""
                         : reverse ? (k->utf8 ? "\xe2\x96\xb2" : "^")
                                   : (k->utf8 ? "\xe2\x96\xbc" : "v"));
                if (l.used > 0)
                        top_line_put(&l, TOP_HEADING, "", 1, false, true);
                if (i + 1 == n)
                        top_line_rest(&l, TOP_HEADING, title, k->height > 0);
                else
                        top_line_put(&l, TOP_HEADING, title, c[i].width, c[i].right, true);
        }
        top_line_rest(&l, TOP_HEADING, "", k->height > 0);
        return 0;
}
