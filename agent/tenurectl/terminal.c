#include "terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "deadly.h"

#define ENTER "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
#define LEAVE "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
#define SIZE_LIMIT 1000
#define PATIENCE_MS 500

/* For signal handlers and exit(). */
static struct {
        volatile sig_atomic_t taken;
        int fd;
        struct termios was;
} saved = {.fd = -1};

bool terminal_is_there(void)
{
        const char *term = getenv("TERM");

        return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
               strcmp(term, "dumb") != 0;
}

/* Restores the terminal. Async-signal-safe. Waits a moment for a terminal that accepts no
 * output. */
static void restore(void)
{
        struct pollfd p = {.fd = saved.fd, .events = POLLOUT};

        if (!saved.taken)
                return;
        saved.taken = 0;
        (void) !poll(&p, 1, PATIENCE_MS);
        tcsetattr(saved.fd, TCSANOW, &saved.was);
        (void) !write(saved.fd, LEAVE, sizeof(LEAVE) - 1);
}

static void on_deadly(int signo)
{
        restore();
        raise(signo); /* takes the default action, because of SA_RESETHAND */
}

/* Crashes, and other signals whose default action ends us: SIGXCPU is that of `ulimit -t`. */
static void catch_deadly(void)
{
        static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
        struct sigaction sa = {.sa_handler = on_deadly,
                               .sa_flags = (int) (SA_RESETHAND | SA_NODEFER)};

        for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
                sigaction(faults[i], &sa, NULL);
        for (size_t i = 0; i < ARRAY_SIZE(deadly_signals); i++)
                sigaction(deadly_signals[i], &sa, NULL);
}

static int take(struct terminal *t)
{
        struct termios raw = saved.was;

        /* ^C, ^\ and ^Z remain signals. */
        raw.c_iflag &= (tcflag_t) ~(ICRNL | INLCR | IGNCR | ISTRIP | IXON);
        raw.c_lflag &= (tcflag_t) ~(ECHO | ICANON | IEXTEN);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        saved.taken = 1;
        if (tcsetattr(t->fd, TCSADRAIN, &raw) < 0)
                return -errno;
        buf_clear(&t->out);
        buf_add(&t->out, ENTER, sizeof(ENTER) - 1);
        terminal_forget(t);
        return 0;
}

int terminal_open(struct terminal *t)
{
        static bool registered;
        const char *name = ttyname(STDOUT_FILENO);
        int r;

        *t = (struct terminal){.fd = -1};
        /* Open the terminal anew: the shell shares the old file description, and O_NONBLOCK
         * would stay set for it. */
        t->fd = open(name ? name : "/dev/tty", O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (t->fd < 0)
                return -errno;
        if (tcgetattr(t->fd, &saved.was) < 0) {
                r = -errno;
                close(t->fd);
                t->fd = -1;
                return r;
        }
        saved.fd = t->fd;
        if (!registered)
                atexit(restore);
        registered = true;
        catch_deadly();
        terminal_measure(t);
        r = take(t);
        if (r < 0)
                terminal_close(t);
        return r;
}

void terminal_close(struct terminal *t)
{
        if (t->fd < 0)
                return;
        restore();
        close(t->fd);
        for (size_t i = 0; i < t->cap; i++)
                buf_fini(&t->shown[i]);
        free(t->shown);
        buf_fini(&t->out);
        *t = (struct terminal){.fd = -1};
        saved.fd = -1;
}

void terminal_suspend(struct terminal *t)
{
        struct sigaction stop = {.sa_handler = SIG_DFL}, was;

        restore();
        sigaction(SIGTSTP, &stop, &was);
        raise(SIGTSTP);
        /* After fg: the shell may have changed the settings. */
        sigaction(SIGTSTP, &was, NULL);
        (void) !tcgetattr(t->fd, &saved.was);
        terminal_measure(t);
        (void) !take(t);
}

void terminal_resume(struct terminal *t)
{
        terminal_measure(t);
        (void) !take(t);
}

bool terminal_measure(struct terminal *t)
{
        struct winsize w = {0};
        size_t width = 80, height = 24;

        if (ioctl(t->fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0) {
                width = min_of((size_t) w.ws_col, (size_t) SIZE_LIMIT);
                height = min_of((size_t) w.ws_row, (size_t) SIZE_LIMIT);
        }
        if (width == t->width && height == t->height)
                return false;
        t->width = width;
        t->height = height;
        terminal_forget(t);
        return true;
}

void terminal_forget(struct terminal *t)
{
        t->n_shown = 0;
}

static bool same(const struct buf *a, const struct buf *b)
{
        return bytes_cmp(buf_head(a), buf_len(a), buf_head(b), buf_len(b)) == 0;
}

int terminal_show(struct terminal *t, const struct buf *lines, size_t n)
{
        size_t had = t->cap;

        if (buf_len(&t->out) > 0 && t->n_shown > 0)
                return 0;
        if (array_reserve(&t->shown, &t->cap, n, sizeof(*t->shown)) < 0)
                return -ENOMEM;
        if (t->cap > had)
                memset(t->shown + had, 0, (t->cap - had) * sizeof(*t->shown));
        if (t->n_shown == 0)
                buf_printf(&t->out, "\x1b[0m\x1b[2J");
        for (size_t i = 0; i < n; i++) {
                if (i < t->n_shown && same(&t->shown[i], &lines[i]))
                        continue;
                /* Clear before writing: after a line that fills the width, [K would delete its
                 * last character. */
                buf_printf(&t->out, "\x1b[%zu;1H\x1b[K", i + 1);
                if (buf_len(&lines[i]) > 0)
                        buf_add(&t->out, buf_head(&lines[i]), buf_len(&lines[i]));
                buf_clear(&t->shown[i]);
                if (buf_len(&lines[i]) > 0)
                        buf_add(&t->shown[i], buf_head(&lines[i]), buf_len(&lines[i]));
                if (buf_error(&t->shown[i]) < 0)
                        return -ENOMEM;
        }
        t->n_shown = n;
        return buf_error(&t->out);
}

ssize_t terminal_flush(struct terminal *t)
{
        while (buf_len(&t->out) > 0) {
                ssize_t n = write(t->fd, buf_head(&t->out), buf_len(&t->out));

                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0 && errno != EINTR)
                        return -errno;
                buf_consume(&t->out, (size_t) max_of(n, (ssize_t) 0));
        }
        return (ssize_t) buf_len(&t->out);
}

int terminal_key(const uint8_t *p, size_t n, bool all, size_t *ret_len)
{
        static const struct {
                const char *text;
                int key;
        } keys[] = {
                {"[A", KEY_UP},    {"[B", KEY_DOWN},     {"[C", KEY_RIGHT},
                {"[D", KEY_LEFT},  {"OA", KEY_UP},       {"OB", KEY_DOWN},
                {"OC", KEY_RIGHT}, {"OD", KEY_LEFT},     {"[H", KEY_HOME},
                {"[F", KEY_END},   {"OH", KEY_HOME},     {"OF", KEY_END},
                {"[1~", KEY_HOME}, {"[4~", KEY_END},     {"[7~", KEY_HOME},
                {"[8~", KEY_END},  {"[5~", KEY_PAGE_UP}, {"[6~", KEY_PAGE_DOWN},
        };
        size_t end;

        *ret_len = n > 0;
        if (n == 0)
                return KEY_NONE;
        if (p[0] == '\n')
                return KEY_ENTER;
        if (p[0] == '\b')
                return KEY_BACKSPACE;
        if (p[0] != KEY_ESCAPE)
                return p[0];
        if (n == 1) {
                *ret_len = all;
                return all ? KEY_ESCAPE : KEY_NONE;
        }
        if (p[1] != '[' && p[1] != 'O') /* with Alt */
                return KEY_ESCAPE;
        /* Parameters, then one byte from @ to ~ (ECMA-48, 5.4). */
        for (end = 2; end < n && (p[end] < '@' || p[end] > '~'); end++)
                ;
        if (end == n) {
                *ret_len = all ? n : 0;
                return all ? KEY_OTHER : KEY_NONE;
        }
        *ret_len = end + 1;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (bytes_cmp(keys[i].text, strlen(keys[i].text), p + 1, end) == 0)
                        return keys[i].key;
        return KEY_OTHER;
}

bool terminal_edit(char *text, size_t size, int key)
{
        size_t len = strlen(text);

        if (key == 'U' - '@') { /* ^U */
                len = 0;
        } else if (key == KEY_BACKSPACE) { /* one character, which may have several bytes */
                while (len > 0 && ((uint8_t) text[len - 1] & 0xc0) == 0x80)
                        len--;
                len -= len > 0;
        } else if (key >= ' ' && key <= 0xff && len + 1 < size) {
                text[len++] = (char) key;
        } else {
                return false;
        }
        text[len] = '\0';
        return true;
}
