#include "memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/log.h"

void memory_lock(void)
{
        struct rlimit most;

        if (getrlimit(RLIMIT_MEMLOCK, &most) < 0 || most.rlim_cur != RLIM_INFINITY)
                return;
        if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
                log_warning("Cannot lock memory: %s.", strerror(errno));
}
