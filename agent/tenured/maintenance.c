#include "maintenance.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

#define FILE_NAME "maintenance"

static const char *const names[] = {"", "boot", "persistent"};

const char *maintenance_name(enum maintenance m)
{
        return names[m];
}

/* Like runtime_path(), for the directory that outlives a boot. */
static bool state_path(char path[static RUNTIME_PATH_MAX])
{
        const char *dir = getenv("STATE_DIRECTORY");

        path[0] = '\0';
        if (!dir || !*dir || strchr(dir, ':'))
                return false;
        snprintf(path, RUNTIME_PATH_MAX, "%s/%s", dir, FILE_NAME);
        return true;
}

/* Syncs the directory, because a power failure may follow at once. Only the existence of the
 * file counts, not its content. */
static int settle(void)
{
        const char *dir = getenv("STATE_DIRECTORY");
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

        if (fd < 0 || fsync(fd) < 0) {
                r = -errno;
                log_error("%s: cannot sync it: %s.", dir, strerror(-r));
        }
        if (fd >= 0)
                close(fd);
        return r;
}

static void write_text(const void *userdata unused_, FILE *f)
{
        fputs("# This host stays out of the cluster until `tenurectl join`.\n", f);
}

static int forget(const char *path)
{
        int r = unlink(path) < 0 && errno != ENOENT ? -errno : 0;

        if (r < 0)
                log_error(
                        "%s: cannot remove it: %s. This host will stay out at the next start.",
                        path, strerror(-r));
        return r;
}

enum maintenance maintenance_load(void)
{
        char path[RUNTIME_PATH_MAX];

        if (state_path(path) && access(path, F_OK) == 0)
                return MAINTENANCE_PERSISTENT;
        if (runtime_path(FILE_NAME, path) && access(path, F_OK) == 0)
                return MAINTENANCE_BOOT;
        return MAINTENANCE_NONE;
}

void maintenance_set(enum maintenance m)
{
        char path[RUNTIME_PATH_MAX];

        if (!runtime_path(FILE_NAME, path))
                return;
        if (m == MAINTENANCE_NONE)
                (void) !forget(path);
        else
                runtime_write(path, write_text, NULL, "join again");
}

int maintenance_persist(enum maintenance m)
{
        char path[RUNTIME_PATH_MAX];
        bool known = state_path(path), wanted = m == MAINTENANCE_PERSISTENT;
        int r = 0;

        if (!known) {
                if (wanted)
                        log_error("$STATE_DIRECTORY is not set: this host will join again "
                                  "after the next boot.");
                return wanted ? -ENOENT : 0;
        }
        if (wanted)
                runtime_write(path, write_text, NULL, "join again");
        if (access(path, F_OK) < 0)
                return wanted ? -errno : 0;
        if (!wanted)
                r = forget(path);
        return r < 0 ? r : settle();
}
