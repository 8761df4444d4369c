/*
 * A terminal as a page of lines: raw input, the alternate screen, and its restoration, however
 * the program ends.
 *
 * ANSI's own few sequences (ECMA-48), which every terminal of today knows; see DECISIONS.md.
 * One at a time, since signal handlers restore it. Written to through a description of its own,
 * without waiting: a terminal that takes nothing (^S, a slow line) holds nobody up, and gets
 * the next frame once it has taken this one.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"

struct terminal {
        int fd;            /* -1: not open */
        struct buf out;    /* what it has not taken yet */
        struct buf *shown; /* owned: what is on its lines */
        size_t n_shown, cap;
        size_t width, height;
};

/* Whether standard input and output are one that can do more than print. */
bool terminal_is_there(void);

/* Takes it over. Returns 0 or a negative errno. */
must_check_ int terminal_open(struct terminal *t);
/* As it was before. May be closed already. */
void terminal_close(struct terminal *t);

/* ^Z: as it was before, until fg; then taken over again. */
void terminal_suspend(struct terminal *t);

/* SIGCONT: somebody else may have had it since. */
void terminal_resume(struct terminal *t);

/* Asks how large it is; true if that has changed, and then everything is drawn anew. */
bool terminal_measure(struct terminal *t);
/* What is on it is not known any more. */
void terminal_forget(struct terminal *t);

/* Has these lines on it: those that differ are written. Nothing, while the last ones wait.
 * Returns 0 or a negative errno. */
must_check_ int terminal_show(struct terminal *t, const struct buf *lines, size_t n);
/* Writes what it takes. Returns how much waits, or a negative errno. */
must_check_ ssize_t terminal_flush(struct terminal *t);

/* What was typed. Others are the characters themselves. */
enum terminal_key {
        KEY_NONE = 0,
        KEY_ENTER = '\r',
        KEY_ESCAPE = 27,
        KEY_BACKSPACE = 127,
        KEY_UP = 256,
        KEY_DOWN,
        KEY_LEFT,
        KEY_RIGHT,
        KEY_PAGE_UP,
        KEY_PAGE_DOWN,
        KEY_HOME,
        KEY_END,
        KEY_OTHER, /* a sequence of no meaning here */
};

/* The first key of @n bytes at @p, and in *@ret_len how many are its own. KEY_NONE: it is not
 * there as a whole. An escape by itself is one if @all that was typed is there. */
must_check_ int terminal_key(const uint8_t *p, size_t n, bool all, size_t *ret_len);

/* Edits a line that is typed, in place: @key is one of its bytes, Backspace or ^U. Returns
 * whether it was, and there was room. */
bool terminal_edit(char *text, size_t size, int key);
