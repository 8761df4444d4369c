/*
 * A witness of shared work: writes down, on the clock that all processes of a machine share,
 * from when until when it had each task. Records survive whatever becomes of it: they are in a
 * mapped file, test_shared_work.py reads them.
 *
 * usage: work_member GROUP NAME TTL_MS TASKS WEIGHT RECORDS, until SIGTERM, which lets it leave
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tenure.h>
#include <time.h>
#include <unistd.h>

#define RECORDS 100000

struct record {
        char task[40];
        int64_t token, begin, last; /* microseconds */
};

static struct record *records, *running[10001];
static size_t n_records;
static volatile sig_atomic_t told;

static int64_t now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000;
}

static void on_term(int signo)
{
        (void) signo;
        told = 1;
}

static void open_records(const char *path, size_t n)
{
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        if (fd >= 0 && ftruncate(fd, (off_t) (n * sizeof(*records))) == 0)
                records = mmap(NULL, n * sizeof(*records), PROT_READ | PROT_WRITE, MAP_SHARED,
                               fd, 0);
        if (!records || records == MAP_FAILED) {
                fprintf(stderr, "work_member: %s: %s.\n", path, strerror(errno));
                exit(2);
        }
        close(fd);
}

static struct record *record_new(const char *task, int64_t token)
{
        struct record *r = &records[n_records++];

        if (n_records > RECORDS)
                abort();
        snprintf(r->task, sizeof(r->task), "%s", task);
        r->token = token;
        r->begin = r->last = now();
        return r;
}

static void on_event(struct tenure *t, struct tenure_work *w, const struct tenure_event *e)
{
        size_t i = e->task ? strtoul(e->task, NULL, 10) : 0;

        switch (e->type) {
        case TENURE_TASK_BEGIN:
                if (running[i])
                        abort();
                /* As any act: only while it is held. */
                if (tenure_task_is_held(w, e->task))
                        running[i] = record_new(e->task, e->revision);
                break;
        case TENURE_TASK_END:
                if (running[i] && tenure_may_act(t)) /* it ran until now */
                        running[i]->last = now();
                running[i] = NULL;
                if (tenure_task_ended(w, e->task) < 0)
                        abort();
                break;
        default:
                break;
        }
}

static int fail(struct tenure *t)
{
        fprintf(stderr, "work_member: %s.\n", tenure_error(t));
        return 1;
}

static int be_member(char **argv)
{
        struct tenure_work_options o = {.n_tasks = strtoul(argv[3], NULL, 10),
                                        .weight = (unsigned) atoi(argv[4])};
        struct pollfd p = {.events = POLLIN};
        const struct tenure_event *e;
        struct tenure_work *w = NULL;
        bool leaves = false, left = false;
        struct tenure *t;

        open_records(argv[5], RECORDS);
        if (tenure_new(&t) < 0)
                return 1;
        if (tenure_hold_own(t, strtoull(argv[2], NULL, 10), argv[1]) < 0 ||
            tenure_work_join(t, argv[0], &o, &w) < 0 || tenure_start(t) < 0)
                return fail(t);
        p.fd = tenure_get_fd(t);
        while (!left) {
                if (poll(&p, 1, tenure_get_timeout(t) == 0 ? 0 : 5) < 0 && errno != EINTR)
                        return 1;
                if (tenure_dispatch(t) < 0)
                        return fail(t);
                while ((e = tenure_pop_event(t))) {
                        left |= e->type == TENURE_WORK_LEFT && e->error == 0;
                        on_event(t, w, e);
                }
                if (told && !leaves) {
                        leaves = true;
                        tenure_work_leave(w);
                }
                for (size_t i = 0; i <= o.n_tasks && !left; i++) {
                        int64_t at = now();

                        if (running[i] && tenure_task_is_held(w, running[i]->task))
                                running[i]->last = at;
                }
        }
        tenure_leave(t);
        while (tenure_lease(t) != 0 && tenure_wait(t, 1000) > 0)
                ;
        while ((e = tenure_pop_event(t)) || tenure_wait(t, 500) > 0)
                ;
        tenure_free(t);
        return 0;
}

int main(int argc, char **argv)
{
        signal(SIGTERM, on_term);
        return argc == 7 ? be_member(argv + 1) : 2;
}
