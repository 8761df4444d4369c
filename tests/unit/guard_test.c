/* The guard (agent/tenured/guard.c) with its real loop. What it calls to fence, and the files
 * that it reads, are those of a host whose place ended a minute ago, while the agent, which
 * lives but hangs, has left the gate open. */
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../agent/tenured/fence.h"
#include "../../agent/tenured/guard.h"
#include "../../agent/tenured/memory.h"
#include "../../agent/tenured/names.h"
#include "base/log.h"
#include "loop/loop.h"
#include "test.h"

#define TTL (4 * NSEC_PER_SEC)
#define LEAD (NSEC_PER_SEC / 2) /* given to the agent alone, on its command line */

static unsigned n_frozen, n_run, n_read;

/* ---- the fence ---- */

int fence_init(struct fence *f, struct loop *l, struct pid1 *pid1, const char *target,
               const struct fencing_config *cfg, void (*changed)(struct fence *f))
{
        (void) f;
        (void) l;
        (void) pid1;
        (void) target;
        (void) changed;
        CHECK_EQ(cfg->lead, LEAD);
        CHECK(cfg->reboot);
        return 0;
}

void fence_fini(struct fence *f)
{
        (void) f;
}

void fence_freeze(struct fence *f)
{
        (void) f;
        n_frozen++;
}

/* Closes the gate, since the place is not held, and stops the target. */
void fence_run(struct fence *f, const struct session *s, bool leave, struct boot_time now)
{
        (void) f;
        (void) leave;
        CHECK(!session_holds(s, now));
        n_run++;
}

bool fence_is_down(const struct fence *f)
{
        (void) f;
        return false;
}

void fence_release(struct fence *f)
{
        (void) f;
}

void fence_thaw(struct fence *f)
{
        (void) f;
        test_fail(__FILE__, __LINE__, "the place is gone, and all is thawed");
}

/* ---- the files ---- */

bool gate_is_open(void)
{
        return true;
}

bool gate_is_stopping(void)
{
        return false;
}

pid_t gate_keeper(void)
{
        return getpid();
}

int gate_listen(void)
{
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

bool keep_peek(struct place *ret)
{
        *ret = (struct place){
                .session = {.lease = 1,
                            .ttl = TTL,
                            .renewed_at = boot_add(boot_now(), -60 * NSEC_PER_SEC)}};
        return true;
}

const struct conf_option options_table[1];
const size_t n_options;

int options_read(struct options *o, const char *file, struct conf_error *err)
{
        (void) file;
        (void) err;
        n_read++;
        *o = (struct options){.held_target = (char *) "tenure-held.target",
                              .ttl = TTL,
                              .log_level = log_get_level()};
        return 0;
}

struct fencing_config options_fencing(const struct options *o)
{
        (void) o;
        return (struct fencing_config){.lead = NSEC_PER_SEC};
}

bool names_target(const char *file, char out[static 256], struct fencing_config *cfg)
{
        (void) file;
        snprintf(out, 256, "tenure-held.target");
        *cfg = (struct fencing_config){.lead = LEAD, .reboot = true};
        return true;
}

/* ---- what is of no interest here ---- */

int pid1_new(struct pid1 **ret, struct loop *l)
{
        *ret = (struct pid1 *) l; /* not NULL; nobody looks inside */
        return 0;
}

struct pid1 *pid1_free(struct pid1 *p)
{
        (void) p;
        return NULL;
}

void memory_lock_whole(void)
{
}

/* ---- ---- */

/* After the guard, in the same turn. */
static struct boot_time end_turn(struct loop_hook *h, struct boot_time now)
{
        (void) now;
        loop_stop(h->loop);
        return BOOT_TIME_NEVER;
}

/* If it froze what there is, and closed the gate only at its next look, a service manager that
 * hung as well could start the target in between. */
TEST(a_guard_that_finds_a_place_long_gone_takes_over_in_its_first_turn)
{
        struct loop_hook end = {0};
        struct guard *g;
        struct loop *l;

        CHECK_EQ(loop_new(&l), 0);
        CHECK_EQ(guard_new(&g, l), 0);
        loop_hook_start(&end, l, LOOP_BEHIND, end_turn);
        loop_run(l);
        CHECK_EQ(n_frozen, 1);
        CHECK_EQ(n_run, 1);
        CHECK_EQ(n_read, 1); /* when it was made: the disk may hang by now */
        guard_free(g);
        loop_hook_stop(&end);
        loop_free(l);
}
