/* Files that are replaced as a whole (agent/tenured/runtime.h). */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../agent/tenured/runtime.h"
#include "test.h"

#define SMALL 4096

static void limit_files(rlim_t bytes)
{
        struct rlimit l;

        CHECK_EQ(getrlimit(RLIMIT_FSIZE, &l), 0);
        l.rlim_cur = min_of(bytes, l.rlim_max);
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &l), 0);
}

static void write_text(const void *userdata, FILE *f)
{
        fputs(userdata, f);
}

/* There is no room for the middle, and again for the end. */
static void write_with_a_gap(const void *userdata, FILE *f)
{
        limit_files(SMALL);
        for (int i = 0; i < 3 * SMALL; i++)
                fputc('x', f);
        limit_files(RLIM_INFINITY);
        fputs(userdata, f);
}

TEST(a_file_is_not_replaced_by_one_that_could_not_be_written)
{
        char path[] = "/tmp/tenure-runtime-XXXXXX", text[64], fresh[64];
        int fd = mkstemp(path), now;

        CHECK(fd >= 0);
        close(fd);
        signal(SIGXFSZ, SIG_IGN);
        runtime_write(path, write_text, "whole", "forget it");
        runtime_write(path, write_with_a_gap, "end", "forget it");
        now = open(path, O_RDONLY | O_CLOEXEC);
        CHECK_EQ(read(now, text, sizeof(text)), 5);
        CHECK(memcmp(text, "whole", 5) == 0);
        close(now);
        unlink(path);
        snprintf(fresh, sizeof(fresh), "%s.new", path);
        unlink(fresh);
        signal(SIGXFSZ, SIG_DFL);
}
