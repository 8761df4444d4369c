#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/base.h"
#include "base/log.h"

/* Under a limit, allocations would fail once it is reached. */
static bool is_unlimited(void)
{
        struct rlimit most;

        return getrlimit(RLIMIT_MEMLOCK, &most) == 0 && most.rlim_cur == RLIM_INFINITY;
}

static void lock(int flags)
{
        if (mlockall(flags) < 0)
                log_warning("Cannot lock memory: %s.", strerror(errno));
}

void memory_lock(void)
{
        if (is_unlimited())
                lock(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

void memory_lock_whole(void)
{
        lock(is_unlimited() ? MCL_CURRENT | MCL_FUTURE : MCL_CURRENT);
}
