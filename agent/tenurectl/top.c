/* tenurectl top: the fleet, live on a terminal, or as tables. */
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "terminal.h"
#include "tie.h"
#include "top_core.h"
#include "top_feed.h"
#include "top_host.h"
#include "top_view.h"
#include "verbs.h"

/* The screen is not drawn more often than this. */
#define DRAW_EACH (200 * NSEC_PER_MSEC)
/* When a table is printed, a core that has not answered by then is an error. */
#define ANSWER_WITHIN (5 * NSEC_PER_SEC)
/* A byte that comes later than this after an Esc does not belong to it. */
#define ESCAPE_TIME (50 * NSEC_PER_MSEC)
/* After one round the locks are known, after two also who waits for them. */
#define ROUNDS_FIRST 2
#define EVENTS_PRINTED 50

struct top;

struct ending {
        struct loop_signal signal;
        struct top *top;
};

struct top {
        struct ctl *ctl;
        struct loop *loop;
        struct tenure *tie;
        struct top_feed *feed;
        struct top_core *replicas;
        struct top_host_bus *host;
        struct top_model model;
        struct top_look look;
        struct top_screen screen;
        nsec_t interval;
        struct loop_timer tick;
        struct loop_hook hook;
        int result; /* 0, or -1 after an error, which was reported */

        /* With a terminal. */
        struct terminal terminal;
        struct loop_io io;
        struct loop_timer escape;
        struct ending ends[4];
        struct loop_signal resized, suspended, continued;
        int ended_by; /* the signal that ends us; 0: none */
        struct boot_time drawn;
        bool draw_now;
        uint8_t typed[64];
        size_t n_typed;

        /* Without one. */
        uint64_t left; /* tables to print; 0: until interrupted */
        bool wanted;   /* print a table as soon as everything has been answered, or at: */
        struct boot_time print_by;
        unsigned rounds;
        size_t events_printed;
};

static void stop(struct top *t, int result)
{
        t->result = result;
        loop_stop(t->loop);
}

/* ---- to ask ---- */

static void ask(struct top *t, struct boot_time now)
{
        const struct top_agent *a = top_host_agent(t->host);
        char why[TOP_REASON];

        /* An agent that had no core at the start may have one now. */
        if (!top_core_has_any(t->replicas) && *a->endpoint &&
            top_core_add(t->replicas, a->endpoint, why) < 0)
                utf8_print(t->model.down, sizeof(t->model.down), "%s", why);
        top_host_ask(t->host, time(NULL));
        top_core_ask(t->replicas, now, time(NULL));
        top_feed_ask(t->feed, t->screen.first, t->screen.n_rows, now, time(NULL));
}

static int draw(struct top *t, struct boot_time now)
{
        int r = top_arrange(&t->model, now);

        if (r == 0)
                r = top_draw(&t->model, &t->look, now, time(NULL), &t->screen);
        if (r < 0)
                ctl_fail("cannot show it", r, NULL);
        return r;
}

/* ---- as tables ---- */

static void print(struct top *t, struct boot_time now)
{
        size_t news = t->model.n_events - t->events_printed;

        if (!t->model.followed && !t->model.ever) {
                say("no lease core answers%s%s", *t->model.down ? ": " : "", t->model.down);
                return stop(t, -1);
        }
        t->wanted = false;
        t->look.n_events = min_of(news, (size_t) EVENTS_PRINTED);
        t->events_printed = t->model.n_events;
        if (draw(t, now) < 0)
                return stop(t, -1);
        for (size_t i = 0; i < t->screen.n; i++) {
                const struct buf *b = &t->screen.lines[i];

                if (buf_len(b) > 0)
                        fwrite(buf_head(b), 1, buf_len(b), stdout);
                putchar('\n');
        }
        if (t->left == 1)
                return stop(t, 0);
        t->left -= t->left > 0;
        if (t->ctl->legend)
                putchar('\n');
        if (ctl_flush(t->ctl) < 0)
                return stop(t, -1);
}

/* The first table needs some rounds of questions, each after the answers to the last. */
static struct boot_time run_tables(struct top *t, struct boot_time now)
{
        bool settled = t->model.followed && top_feed_is_settled(t->feed);

        if (!t->wanted)
                return BOOT_TIME_NEVER;
        if (settled && t->rounds < ROUNDS_FIRST) {
                t->rounds++;
                if (top_arrange(&t->model, now) < 0) {
                        ctl_fail("cannot show it", -ENOMEM, NULL);
                        stop(t, -1);
                        return BOOT_TIME_NEVER;
                }
                t->screen.n_rows = t->model.n_shown;
                ask(t, now);
                settled = top_feed_is_settled(t->feed);
                if (!settled)
                        return t->print_by;
        }
        if ((settled && t->rounds == ROUNDS_FIRST && top_core_is_settled(t->replicas, now)) ||
            (!t->model.ever && top_feed_is_refused(t->feed)) ||
            !boot_before(now, t->print_by)) {
                print(t, now);
                return BOOT_TIME_NEVER;
        }
        return t->print_by;
}

/* ---- on a terminal ---- */

static void flush(struct top *t)
{
        ssize_t waits = terminal_flush(&t->terminal);

        if (waits < 0)
                return stop(t, -1); /* the terminal is gone: nobody would read why */
        loop_io_change(&t->io, EV_READ | (waits > 0 ? EV_WRITE : 0));
}

static struct boot_time run_terminal(struct top *t, struct boot_time now)
{
        struct boot_time next = boot_add(t->drawn, DRAW_EACH);
        bool answered = t->wanted && top_feed_is_settled(t->feed);

        if (!t->draw_now && !answered && boot_before(now, next))
                return next;
        t->draw_now = t->wanted = false;
        t->drawn = now;
        t->look.width = t->terminal.width;
        t->look.height = t->terminal.height;
        if (draw(t, now) < 0 || terminal_show(&t->terminal, t->screen.lines, t->screen.n) < 0) {
                stop(t, -1);
                return BOOT_TIME_NEVER;
        }
        t->look.scroll = t->screen.first; /* not beyond the last row */
        t->look.cursor = t->screen.cursor;
        flush(t);
        return BOOT_TIME_NEVER;
}

static void move(struct top *t, int64_t by)
{
        int64_t to = (int64_t) t->look.cursor + by;

        t->look.cursor = (size_t) max_of(to, INT64_C(0));
}

static void show_detail(struct top *t)
{
        if (t->look.cursor < t->model.n_shown)
                snprintf(t->look.detail, sizeof(t->look.detail), "%s",
                         t->model.shown[t->look.cursor]->name);
}

static void sort_by(struct top *t, int column)
{
        t->model.sort = (enum top_sort)((column + TOP_SORTS) % TOP_SORTS);
        t->look.cursor = 0;
}

/* Handles a key while the filter is being typed. */
static void on_filter_key(struct top *t, int key)
{
        t->look.asks = key != KEY_ENTER && key != KEY_ESCAPE;
        if (key == KEY_ESCAPE)
                *t->model.filter = '\0';
        else if (terminal_edit(t->model.filter, sizeof(t->model.filter), key))
                t->look.cursor = 0;
}

static void on_key(struct top *t, int key, struct boot_time now)
{
        static const struct {
                int key;
                enum top_sort by;
        } sorts[] = {{'n', TOP_BY_NAME},
                     {'s', TOP_BY_STATE},
                     {'l', TOP_BY_LEFT},
                     {'a', TOP_BY_AGE},
                     {'v', TOP_BY_SERVICES}};
        int64_t page = max_of((int64_t) t->screen.n_rows - 1, INT64_C(1));

        t->draw_now = true;
        if (t->look.asks)
                return on_filter_key(t, key);
        if (t->look.help || *t->look.detail) {
                t->look.help = false;
                *t->look.detail = '\0';
                if (key == 'q')
                        stop(t, 0);
                return;
        }
        switch (key) {
        case 'q':
                return stop(t, 0);
        case '?':
        case 'h':
                t->look.help = true;
                break;
        case KEY_ENTER:
                return show_detail(t);
        case '/':
                t->look.asks = true;
                break;
        case KEY_ESCAPE:
                *t->model.filter = '\0';
                break;
        case '<':
        case KEY_LEFT:
                return sort_by(t, (int) t->model.sort - 1);
        case '>':
        case KEY_RIGHT:
                return sort_by(t, (int) t->model.sort + 1);
        case 'r':
                t->model.reverse = !t->model.reverse;
                break;
        case 'j':
        case KEY_DOWN:
                return move(t, 1);
        case 'k':
        case KEY_UP:
                return move(t, -1);
        case KEY_PAGE_DOWN:
                return move(t, page);
        case KEY_PAGE_UP:
                return move(t, -page);
        case KEY_HOME:
                return move(t, -(int64_t) t->look.cursor);
        case KEY_END:
                return move(t, (int64_t) t->model.n_shown);
        case 'c':
                t->look.no_core = !t->look.no_core;
                break;
        case 'o':
                t->look.no_locks = !t->look.no_locks;
                break;
        case 'e':
                t->look.no_events = !t->look.no_events;
                break;
        case ' ':
                return ask(t, now);
        case 'L' - '@': /* ^L */
                return terminal_forget(&t->terminal);
        default:
                for (size_t i = 0; i < ARRAY_SIZE(sorts); i++)
                        if (key == sorts[i].key)
                                sort_by(t, (int) sorts[i].by);
        }
}

static void take_keys(struct top *t, bool all)
{
        size_t done = 0, len;

        while (done < t->n_typed) {
                int key = terminal_key(t->typed + done, t->n_typed - done, all, &len);

                if (key == KEY_NONE && len == 0)
                        break;
                on_key(t, key, boot_now());
                done += len;
        }
        memmove(t->typed, t->typed + done, t->n_typed - done);
        t->n_typed -= done;
        if (t->n_typed > 0)
                loop_timer_in(&t->escape, ESCAPE_TIME);
        loop_hook_again(&t->hook);
}

static void on_escape(struct loop_timer *timer)
{
        take_keys(container_of(timer, struct top, escape), true);
}

static void on_terminal(struct loop_io *io, int events)
{
        struct top *t = container_of(io, struct top, io);
        ssize_t n;

        if (events & EV_WRITE)
                flush(t);
        if (!(events & EV_READ))
                return;
        n = read(t->terminal.fd, t->typed + t->n_typed, sizeof(t->typed) - t->n_typed);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0)
                return stop(t, -1);
        loop_timer_disarm(&t->escape);
        t->n_typed += (size_t) n;
        take_keys(t, t->n_typed == sizeof(t->typed));
}

static void on_end(struct loop_signal *s)
{
        struct top *t = container_of(s, struct ending, signal)->top;

        t->ended_by = s->ev.signum == SIGINT ? 0 : s->ev.signum;
        stop(t, 0);
}

static void on_resize(struct loop_signal *s)
{
        struct top *t = container_of(s, struct top, resized);

        t->draw_now = terminal_measure(&t->terminal) || t->draw_now;
        loop_hook_again(&t->hook);
}

static void on_suspend(struct loop_signal *s)
{
        struct top *t = container_of(s, struct top, suspended);

        terminal_suspend(&t->terminal);
        t->draw_now = true;
        loop_hook_again(&t->hook);
}

/* After a SIGSTOP, which cannot be caught. */
static void on_continue(struct loop_signal *s)
{
        struct top *t = container_of(s, struct top, continued);

        terminal_resume(&t->terminal);
        t->draw_now = true;
        loop_hook_again(&t->hook);
}

static int take_terminal(struct top *t)
{
        static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
        const char *plain = getenv("NO_COLOR");
        int r = terminal_open(&t->terminal);

        if (r < 0)
                return ctl_fail("cannot use the terminal", r, NULL);
        t->look.color = !plain || !*plain;
        t->io.what = "the terminal";
        loop_io_start(&t->io, t->loop, t->terminal.fd, EV_READ, on_terminal);
        loop_timer_init(&t->escape, t->loop, on_escape);
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
                t->ends[i].top = t;
                loop_signal_start(&t->ends[i].signal, t->loop, ends[i], on_end);
        }
        loop_signal_start(&t->resized, t->loop, SIGWINCH, on_resize);
        loop_signal_start(&t->suspended, t->loop, SIGTSTP, on_suspend);
        loop_signal_start(&t->continued, t->loop, SIGCONT, on_continue);
        return 0;
}

/* ---- both ---- */

static struct boot_time run(struct loop_hook *h, struct boot_time now)
{
        struct top *t = container_of(h, struct top, hook);
        int r = top_feed_error(t->feed);

        top_core_run(t->replicas, now);
        /* A replica may explain what libtenure does not, such as a failed login. */
        if (!t->model.followed && !*t->model.down)
                utf8_print(t->model.down, sizeof(t->model.down), "%s",
                           top_core_why(t->replicas));

        if (r < 0) {
                terminal_close(&t->terminal);
                (void) !tie_fail(t->tie);
                stop(t, -1);
                return BOOT_TIME_NEVER;
        }
        /* Ask how long the leases have left as soon as their owners are known. */
        if (t->terminal.fd >= 0 && t->model.ever && t->rounds == 0) {
                t->rounds++;
                t->screen.n_rows = t->terminal.height;
                if (top_arrange(&t->model, now) == 0)
                        ask(t, now);
        }
        return t->terminal.fd >= 0 ? run_terminal(t, now) : run_tables(t, now);
}

static void on_tick(struct loop_timer *timer)
{
        struct top *t = container_of(timer, struct top, tick);
        struct boot_time now = boot_now();

        ask(t, now);
        if (!t->wanted) /* otherwise a table is due, perhaps just now */
                t->print_by = boot_add(now, min_of(t->interval, 2 * NSEC_PER_SEC));
        t->wanted = true;
        t->drawn = now; /* on a terminal, draw the answers of the next DRAW_EACH together */
        loop_timer_in(timer, t->interval);
        loop_hook_again(&t->hook);
}

/* Takes the endpoints from the agent unless the user gave some; without an agent, uses the
 * default. */
static int begin(struct top *t)
{
        const struct top_agent *a = top_host_agent(t->host);
        const char *cluster = t->ctl->o.cluster;
        bool by_agent = !t->ctl->core.given && t->model.host.known;
        const char *first = by_agent ? a->endpoint : t->ctl->core.endpoints;
        struct core_options core = t->ctl->core;
        char why[TOP_REASON];
        int r;

        core.given = !by_agent;
        snprintf(t->model.cluster, sizeof(t->model.cluster), "%s",
                 cluster    ? cluster
                 : by_agent ? a->cluster
                            : "default");
        if (tie_set_bus(t->ctl->address) < 0)
                return -1;
        r = tenure_new(&t->tie);
        if (r < 0)
                return ctl_fail("cannot ask the core", r, NULL);
        if (tie_set(t->tie, &core) < 0)
                return -1;
        if (cluster && tenure_set_cluster(t->tie, cluster) < 0)
                return tie_fail(t->tie);
        if (top_core_new(&t->replicas, t->loop, &t->model, &t->ctl->core) < 0)
                return -1;
        if (*first && top_core_add(t->replicas, first, why) < 0)
                return say("%s", why);
        r = top_feed_new(&t->feed, t->loop, &t->model, t->tie);
        return r < 0 ? tie_fail(t->tie) : 0;
}

static int parse(struct top *t, const struct options *o)
{
        const char *sort = o->sort ? o->sort : "node";

        t->interval = o->interval;
        t->model.reverse = *sort == '-';
        if (!top_sort_parse(sort + t->model.reverse, &t->model.sort))
                return say("--sort must be node, state, left, ttl, age, address, zone or "
                           "services, not '%s'",
                           o->sort);
        if (o->filter && strlen(o->filter) >= sizeof(t->model.filter))
                return say("--filter must be shorter than 128 bytes");
        if (o->once && o->iterations != UINT64_MAX)
                return say("top takes --once or --iterations, not both");
        snprintf(t->model.filter, sizeof(t->model.filter), "%s", o->filter ? o->filter : "");
        if (o->iterations != UINT64_MAX)
                t->left = o->iterations;
        else
                t->left = o->once || !isatty(STDOUT_FILENO);
        return 0;
}

static int run_all(struct top *t, const struct options *o)
{
        bool tables = o->once || o->iterations != UINT64_MAX || !terminal_is_there();
        int r = loop_new(&t->loop);

        if (r == 0)
                r = top_host_new(&t->host, t->loop, &t->model, t->ctl);
        if (r < 0)
                return ctl_fail("cannot begin", r, NULL);
        r = begin(t);
        if (r == 0 && !tables)
                r = take_terminal(t);
        if (r < 0)
                return -1;
        t->print_by = boot_add(boot_now(), ANSWER_WITHIN);
        t->wanted = true;
        t->look.legend = !tables || t->ctl->legend;
        t->hook.what = "the table";
        loop_hook_start(&t->hook, t->loop, LOOP_BEHIND, run);
        loop_timer_init(&t->tick, t->loop, on_tick);
        loop_timer_in(&t->tick, tables ? max_of(t->interval, ANSWER_WITHIN) : t->interval);
        loop_run(t->loop);
        return t->result;
}

int verb_top(struct ctl *c, int argc unused_, char **argv unused_)
{
        struct top *t = calloc(1, sizeof(*t));
        int r, ended_by;

        if (!t)
                return ctl_fail("cannot begin", -ENOMEM, NULL);
        t->ctl = c;
        t->terminal.fd = -1;
        t->model.host.deadline = BOOT_TIME_NEVER;
        setlocale(LC_CTYPE, "");
        t->look.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
        r = parse(t, &c->o);
        if (r == 0)
                r = run_all(t, &c->o);
        terminal_close(&t->terminal);
        top_feed_free(t->feed);
        top_core_free(t->replicas);
        top_host_free(t->host);
        if (t->tie)
                tenure_free(t->tie);
        loop_free(t->loop);
        top_screen_fini(&t->screen);
        top_model_fini(&t->model);
        ended_by = t->ended_by;
        free(t);
        if (ended_by != 0) { /* so that our parent sees the signal */
                signal(ended_by, SIG_DFL);
                raise(ended_by);
        }
        return r;
}
