/* lib/tenure/work.c: what is refused before a core is asked, and memory that runs out. */
#include <sys/wait.h>
#include <unistd.h>

#include "nomem.h"
#include "tenure/work_internal.h"
#include "test.h"

static struct tenure *begin(uint64_t ttl_ms)
{
        struct tenure *t;

        setenv("TENURE_ENDPOINTS", "http://127.0.0.1:1", 1);
        CHECK_EQ(tenure_new(&t), 0);
        if (ttl_ms > 0)
                CHECK_EQ(tenure_hold_own(t, ttl_ms, "m1"), 0);
        return t;
}

static void end(struct tenure *t)
{
        tenure_free(t);
        unsetenv("TENURE_ENDPOINTS");
}

TEST(shared_work_wants_a_lease_that_ends_with_its_program)
{
        struct tenure_work_options o = {.n_tasks = 3};
        struct tenure_work *w = NULL;
        struct tenure *t = begin(0);

        CHECK_EQ(tenure_work_join(t, "g", &o, &w), -EINVAL);
        CHECK(strstr(tenure_error(t), "call tenure_hold_own() first") != NULL);
        CHECK_EQ(tenure_hold_with_agent(t), 0);
        CHECK_EQ(tenure_work_join(t, "g", &o, &w), -EINVAL);
        CHECK(w == NULL);
        end(t);
}

TEST(shared_work_is_checked_before_anybody_is_asked)
{
        static const char *const twice[] = {"b", "a", "b"}, *const bad[] = {"a b"};
        struct tenure_work_options o = {.n_tasks = 3}, wrong;
        struct tenure *t = begin(1000);
        struct tenure_work *w = NULL;

        CHECK_EQ(tenure_work_join(t, "g/h", &o, &w), -EINVAL);
        CHECK_EQ(tenure_work_join(t, "", &o, &w), -EINVAL);
        CHECK_EQ(tenure_work_join(t, NULL, &o, &w), -EINVAL);
        wrong = (struct tenure_work_options){.n_tasks = 3, .weight = 10001};
        CHECK_EQ(tenure_work_join(t, "g", &wrong, &w), -EINVAL);
        CHECK_STR(tenure_error(t), "a weight is from 1 to 10000, not 10001");
        wrong = (struct tenure_work_options){.n_tasks = 3, .settle_ms = 60001};
        CHECK_EQ(tenure_work_join(t, "g", &wrong, &w), -EINVAL);
        wrong = (struct tenure_work_options){.n_tasks = 10001};
        CHECK_EQ(tenure_work_join(t, "g", &wrong, &w), -EMSGSIZE);
        wrong = (struct tenure_work_options){.tasks = twice, .n_tasks = 3};
        CHECK_EQ(tenure_work_join(t, "g", &wrong, &w), -EINVAL);
        CHECK_STR(tenure_error(t), "the task 'b' is named twice");
        wrong = (struct tenure_work_options){.tasks = bad, .n_tasks = 1};
        CHECK_EQ(tenure_work_join(t, "g", &wrong, &w), -EINVAL);
        CHECK(w == NULL);

        CHECK_EQ(tenure_work_join(t, "g", &o, &w), 0);
        CHECK_EQ(tenure_work_join(t, "g", &o, &w), -EALREADY);
        CHECK(!tenure_task_is_held(w, "1") && !tenure_task_is_held(w, "no such"));
        CHECK_EQ(tenure_task_token(w, "1"), 0);
        CHECK_EQ(tenure_task_ended(w, "1"), -EINVAL);
        CHECK_EQ(tenure_task_ended(w, "4"), -EINVAL);
        end(t);
}

/* Nothing was begun: it ends at once, and another one of that name may follow. */
TEST(shared_work_that_never_had_a_core_is_left_at_once)
{
        struct tenure_work_options o = {.n_tasks = 3};
        struct tenure *t = begin(1000);
        const struct tenure_event *e;
        struct tenure_work *w, *was;

        CHECK(tenure_work_leave(NULL) == NULL);
        CHECK_EQ(tenure_work_join(t, "g", &o, &w), 0);
        was = w;
        CHECK_EQ(tenure_start(t), 0);
        CHECK(tenure_work_leave(w) == NULL);
        CHECK_EQ(tenure_work_join(t, "g", &o, &w), -EALREADY);
        CHECK_EQ(tenure_dispatch(t), 0);
        e = tenure_pop_event(t);
        CHECK(e && e->type == TENURE_WORK_LEFT && e->work == was && e->error == 0);
        CHECK_EQ(tenure_work_join(t, "g", &o, &w), 0);
        end(t);
}

/* The program has not learned yet that it has ended: it may still call functions with the
 * handle, whose address is not reused. */
TEST(a_group_that_is_left_is_known_until_the_event_is_taken)
{
        struct tenure_work_options o = {.n_tasks = 3};
        struct tenure *t = begin(1000);
        const struct tenure_event *e;
        struct tenure_work *was, *next;

        CHECK_EQ(tenure_work_join(t, "g", &o, &was), 0);
        CHECK_EQ(tenure_start(t), 0);
        tenure_work_leave(was);
        CHECK_EQ(tenure_dispatch(t), 0);
        CHECK(!tenure_task_is_held(was, "1") && tenure_task_token(was, "1") == 0);
        CHECK_EQ(tenure_task_ended(was, "1"), -EINVAL);
        CHECK(tenure_work_leave(was) == NULL);
        CHECK_EQ(tenure_work_join(t, "g", &o, &next), 0);
        CHECK(next != was);
        e = tenure_pop_event(t);
        CHECK(e && e->type == TENURE_WORK_LEFT && e->work == was);
        CHECK(!tenure_pop_event(t));
        end(t);
}

TEST(shared_work_is_joined_as_a_whole_or_not)
{
        static const char *const names[] = {"b", "a"};
        struct tenure_work_options o = {.tasks = names, .n_tasks = 2};
        struct tenure *t = begin(1000);
        struct tenure_work *w = NULL;
        size_t n = 0;
        int r;

        do {
                nomem_after(n++);
                r = tenure_work_join(t, "g", &o, &w);
                CHECK(nomem_end() == (r < 0) || r == 0);
                CHECK(r == 0 || r == -ENOMEM);
        } while (r < 0);
        CHECK(n > 5);
        end(t);
}

TEST(a_child_of_the_program_has_no_task)
{
        struct tenure_work_options o = {.n_tasks = 1};
        struct tenure *t = begin(1000);
        struct tenure_work *w = NULL;
        int status;
        pid_t pid;

        CHECK_EQ(tenure_work_join(t, "g", &o, &w), 0);
        w->work.tasks[0].created = 7;
        work_began(&w->work.tasks[0]);
        CHECK_EQ(tenure_task_token(w, "1"), 7);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                _exit(tenure_task_token(w, "1") != 0);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        end(t);
}
