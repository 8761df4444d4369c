/* agent/tenured/fence.c, with control groups whose processes do not die, as those do not that
 * wait for a disk or a server. */
#include "../../agent/tenured/counters.h"
#include "../../agent/tenured/fence_known.h"
#include "../../agent/tenured/gate.h"
#include "../../agent/tenured/reboot.h"
#include "base/log.h"
#include "bus/bound.h"
#include "cgroup/cgroup.h"
#include "test.h"

#define GROUP "/system.slice/a.service"

static int populated(const char *group)
{
        return strcmp(group, GROUP) == 0;
}

static int succeeds(const char *group unused_)
{
        return 0;
}

static bool unmarked(const char *group unused_)
{
        return false;
}

static const struct bound_unit *one_unit(const struct bound *b unused_, size_t *ret_n)
{
        static char name[] = "a.service", group[] = GROUP;
        static const struct bound_unit u = {.name = name, .control_group = group};

        *ret_n = 1;
        return &u;
}

static const struct bound_stray *no_strays(const struct bound *b unused_, size_t *ret_n)
{
        *ret_n = 0;
        return NULL;
}

/* guard_test.c has others of these names. */
#define fence_fini real_fence_fini
#define fence_freeze real_fence_freeze
#define fence_init real_fence_init
#define fence_is_down real_fence_is_down
#define fence_release real_fence_release
#define fence_run real_fence_run
#define fence_thaw real_fence_thaw
/* What it asks the kernel and systemd for. */
#define bound_root(b) ((void) (b), "a.target")
#define bound_strays no_strays
#define bound_units one_unit
#define cgroup_freeze succeeds
#define cgroup_is_marked unmarked
#define cgroup_is_populated populated
#define cgroup_kill succeeds
#define cgroup_thaw succeeds
/* What is not reached. */
#define counters_long histogram_way
#define fence_known_load(b) ((void) (b))
#define fence_known_save(b) ((void) (b))
#define gate_close() ((void) 0)
#define gate_forget(g) ((void) (g))
#define gate_is_guarded() false
#define gate_keep_open() 0
#define gate_open(g) ((void) (g), 0)
#define gate_take(g) ((void) (g))
#define reboot_now(p) ((void) (p))
#include "../../agent/tenured/fence.c"

static unsigned n_said;

static int count_warnings(int level, const char *const fields[] unused_, const char *text)
{
        n_said += level <= LOG_WARNING && strstr(text, GROUP);
        return 0;
}

/* It is killed again every 20 ms for as long as it is there, which may be hours. */
TEST(a_process_that_does_not_die_fills_no_journal)
{
        struct fence f = {.bound = (struct bound *) &n_said};
        struct boot_time now = {1};

        log_set_sink(count_warnings);
        for (int i = 0; i < 100; i++)
                act(&f, FENCING_FREEZE | FENCING_KILL, now);
        CHECK_EQ(n_said, 1);

        act(&f, FENCING_FORGET, now); /* all is down; later it is fenced again */
        act(&f, FENCING_KILL, now);
        CHECK_EQ(n_said, 2);
        log_set_sink(NULL);
        f.bound = NULL;
        real_fence_fini(&f);
}
