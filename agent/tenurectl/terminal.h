/*
 * A terminal as a page of lines: raw input, the alternate screen, and its restoration, however
 * the program ends.
 *
 * Uses a few sequences of ECMA-48, which every terminal of today knows; see DECISIONS.md. There
 * is one at a time, since signal handlers restore it. It is opened anew, for writing without
 * waiting: a terminal that accepts no output (^S, a slow line) delays nothing, and gets the
 * next frame once it has taken the last one.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"

struct terminal {
        int fd;            /* -1: not open */
        struct buf out;    /* output that the terminal has not taken yet */
        struct buf *shown; /* owned: what its lines show */
        size_t n_shown, cap;
        size_t width, height;
};

/* Whether standard input and output are a terminal that can do more than print. */
bool terminal_is_there(void);

/* Takes the terminal over. Returns 0 or a negative errno. */
must_check_ int terminal_open(struct terminal *t);
/* Restores the terminal. It may have been closed before. */
void terminal_close(struct terminal *t);

/* For ^Z: restores the terminal, stops, and takes the terminal over again after fg. */
void terminal_suspend(struct terminal *t);

/* For SIGCONT: takes the terminal over again, since another program may have used it. */
void terminal_resume(struct terminal *t);

/* Reads the size. Returns true if that has changed; then the next frame is drawn as a whole. */
bool terminal_measure(struct terminal *t);
/* Forgets what the terminal shows, so that the next frame is drawn as a whole. */
void terminal_forget(struct terminal *t);

/* Shows these lines: writes those that differ, or nothing while earlier output waits. Returns 0
 * or a negative errno. */
must_check_ int terminal_show(struct terminal *t, const struct buf *lines, size_t n);
/* Writes as much as the terminal takes. Returns how many bytes wait, or a negative errno. */
must_check_ ssize_t terminal_flush(struct terminal *t);

/* Keys; others are the bytes themselves. */
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

/* Returns the first key in the @n bytes at @p, and in *@ret_len its length; KEY_NONE if it is
 * incomplete. An escape alone is a key only if @all that was typed has arrived. */
must_check_ int terminal_key(const uint8_t *p, size_t n, bool all, size_t *ret_len);

/* Edits a line in place: @key is a byte to append, Backspace or ^U. Returns false if it is
 * another key, or if there is no room. */
bool terminal_edit(char *text, size_t size, int key);
