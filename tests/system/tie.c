/*
 * A tie of libtenure that a test script drives: it prints what comes, a line each, and does
 * what it reads from standard input, a line each. Built as any user's program would be. usage:
 * tie agent|none|own:TTL_MS[:NAME]; with TIE_USER and TIE_PASSWORD it logs in
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenure.h>
#include <time.h>
#include <unistd.h>

static struct tenure *t;
static struct tenure_lock *lock;

static void say(const char *what, int r)
{
        if (r < 0)
                printf("%s: %s (%s)\n", what, strerror(-r), tenure_error(t));
        else
                printf("%s: ok\n", what);
}

/* -1: there is no deadline. */
static long long ms_until(uint64_t deadline_us)
{
        struct timespec now;

        clock_gettime(CLOCK_BOOTTIME, &now);
        return deadline_us > 0 ? (long long) (deadline_us / 1000) - now.tv_sec * 1000LL -
                                         now.tv_nsec / 1000000
                               : -1;
}

static const char *type_name(enum tenure_event_type type)
{
        switch (type) {
        case TENURE_HELD:
                return "held";
        case TENURE_JEOPARDY:
                return "jeopardy";
        case TENURE_LOST:
                return "lost";
        case TENURE_LOCKED:
                return "locked";
        case TENURE_UNLOCKED:
                return "unlocked";
        case TENURE_ASKED:
                return "asked";
        case TENURE_SYNCED:
                return "synced";
        default:
                return "event";
        }
}

static void do_line(char *line)
{
        char *word[4] = {"", "", "", ""}, *save;
        size_t n = 0;

        for (char *w = strtok_r(line, " \n", &save); w && n < 4;
             w = strtok_r(NULL, " \n", &save))
                word[n++] = w;
        if (strcmp(word[0], "act") == 0) {
                printf("act: %s\n", tenure_may_act(t) ? "yes" : "no");
        } else if (strcmp(word[0], "lease") == 0) {
                printf("lease: %llx\n", (unsigned long long) tenure_lease(t));
        } else if (strcmp(word[0], "error") == 0) {
                printf("error: %s\n", tenure_error(t));
        } else if (strcmp(word[0], "leave") == 0) {
                say("leave", tenure_leave(t));
        } else if (strcmp(word[0], "register") == 0) {
                struct tenure_service s = {
                        .name = word[1], .port = (uint16_t) atoi(word[2]), .tags = word[3]};

                say("register", tenure_register(t, &s));
        } else if (strcmp(word[0], "unregister") == 0) {
                say("unregister", tenure_unregister(t, word[1], NULL));
        } else if (strcmp(word[0], "lock") == 0) {
                say("lock", tenure_lock(t, word[1], word[2], &lock));
        } else if (strcmp(word[0], "unlock") == 0) {
                lock = tenure_unlock(lock);
        } else if (strcmp(word[0], "hand") == 0) {
                say("hand", lock ? tenure_hand_over(lock) : -ENOENT);
        } else if (strcmp(word[0], "switch") == 0) {
                struct tenure_call *c;

                say("switch", tenure_switchover(t, word[1], *word[2] ? word[2] : NULL,
                                                atoi(word[3]), &c));
        } else if (strcmp(word[0], "left") == 0) {
                printf("left: %lld\n", ms_until(lock ? tenure_lock_deadline(lock) : 0));
        } else if (strcmp(word[0], "holds") == 0) {
                printf("holds: %lld\n", ms_until(tenure_deadline(t)));
        } else if (strcmp(word[0], "has") == 0) {
                printf("has: %s %lld\n", lock && tenure_lock_is_held(lock) ? "yes" : "no",
                       lock ? (long long) tenure_lock_token(lock) : 0);
        } else if (strcmp(word[0], "put") == 0) {
                struct tenure_call *c;
                int r = tenure_put_held(t, word[1], strlen(word[1]), word[2], strlen(word[2]),
                                        &c);

                if (r < 0)
                        say("put", r);
        } else if (strcmp(word[0], "pause") == 0) {
                struct tenure_call *c;
                int r = tenure_put_held(t, word[1], strlen(word[1]), word[2], strlen(word[2]),
                                        &c);

                /* Decided on, with the lease of now, and not sent. */
                say("pause", r);
                if (r == 0)
                        raise(SIGSTOP);
        } else if (strcmp(word[0], "child") == 0) { /* what a child of ours may act by */
                fflush(stdout);
                if (fork() == 0) {
                        printf("child: %s %s\n", tenure_may_act(t) ? "yes" : "no",
                               lock && tenure_lock_is_held(lock) ? "yes" : "no");
                        tenure_free(t);
                        fflush(stdout);
                        _exit(0);
                }
        } else if (strcmp(word[0], "quit") == 0) {
                tenure_free(t);
                exit(0);
        } else {
                printf("what is '%s'?\n", word[0]);
        }
}

int main(int argc, char **argv)
{
        struct pollfd p[] = {{.fd = -1, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        const struct tenure_event *e;
        char line[512];
        int r;

        setvbuf(stdout, NULL, _IOLBF, 0);
        setvbuf(stdin, NULL, _IONBF, 0);
        if (argc < 2 || tenure_new(&t) < 0)
                return 2;
        if (strcmp(argv[1], "agent") == 0) {
                r = tenure_hold_with_agent(t);
        } else if (strncmp(argv[1], "own:", 4) == 0) {
                char *name = strchr(argv[1] + 4, ':');

                r = tenure_hold_own(t, strtoull(argv[1] + 4, NULL, 10), name ? name + 1 : NULL);
        } else {
                r = tenure_follow(t, TENURE_NODES);
        }
        if (r == 0)
                r = tenure_set_user(t, getenv("TIE_USER"), getenv("TIE_PASSWORD"));
        if (r == 0)
                r = tenure_start(t);
        if (r < 0) {
                fprintf(stderr, "tie: %s.\n", tenure_error(t));
                return 1;
        }
        p[0].fd = tenure_get_fd(t);
        for (;;) {
                if (poll(p, 2, tenure_get_timeout(t)) < 0 && errno != EINTR)
                        return 2;
                /* First what is asked: it may be asked of one who was stopped. */
                if (p[1].revents & (POLLIN | POLLHUP)) {
                        if (!fgets(line, sizeof(line), stdin))
                                p[1].fd = -1;
                        else
                                do_line(line);
                }
                if (tenure_dispatch(t) < 0) {
                        fprintf(stderr, "tie: %s.\n", tenure_error(t));
                        return 1;
                }
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_REPLY) {
                                const struct tenure_switched *s = tenure_call_switched(e->call);

                                if (s)
                                        printf("switched: from %s to %s token %lld\n", s->from,
                                               s->to, (long long) s->token);
                                printf("put: %s %s\n", strerror(-e->error), e->reason);
                                tenure_call_free(e->call);
                        } else {
                                printf("%s %llx %s %lld\n", type_name(e->type),
                                       (unsigned long long) e->lease, e->reason,
                                       (long long) e->revision);
                        }
        }
}
