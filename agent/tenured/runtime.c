#include "runtime.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

bool runtime_path(const char *name, char path[static RUNTIME_PATH_MAX])
{
        const char *dir = getenv("RUNTIME_DIRECTORY");

        path[0] = '\0';
        /* With several directories we cannot tell which one is ours. */
        if (!dir || !*dir || strchr(dir, ':'))
                return false;
        snprintf(path, RUNTIME_PATH_MAX, "%s/%s", dir, name);
        return true;
}

bool runtime_is_there(const char *path, int fd)
{
        struct stat ours, there;

        if (fstat(fd, &ours) < 0 || lstat(path, &there) < 0 || ours.st_ino != there.st_ino ||
            ours.st_dev != there.st_dev || there.st_uid != geteuid())
                return false;
        return (there.st_mode & 07777) == 0600 || fchmod(fd, 0600) == 0;
}

void runtime_write(const char *path, void (*fn)(const void *userdata, FILE *f),
                   const void *userdata, const char *loss)
{
        char fresh[RUNTIME_PATH_MAX + 8];
        bool failed;
        FILE *f;

        if (!*path)
                return;
        snprintf(fresh, sizeof(fresh), "%s.new", path);
        f = fopen(fresh, "we");
        if (f) {
                fn(userdata, f);
                failed = ferror(f) != 0; /* fclose() reports only what it writes itself */
                if (fclose(f) == 0 && !failed && rename(fresh, path) == 0)
                        return;
        }
        log_warning("%s: cannot write it: %s. A restart will %s.", fresh, strerror(errno),
                    loss);
}

int runtime_open_again(int fd, int flags)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, flags | O_CLOEXEC);
}
