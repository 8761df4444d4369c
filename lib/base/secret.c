#include "base/secret.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

const char *secret_path(const char *path, char out[static SECRET_PATH_MAX])
{
        const char *credentials = getenv("CREDENTIALS_DIRECTORY");

        if (*path != '/' && credentials)
                snprintf(out, SECRET_PATH_MAX, "%s/%s", credentials, path);
        else
                snprintf(out, SECRET_PATH_MAX, "%s", path);
        return out;
}

int secret_read(const char *path, char *out, size_t size)
{
        char full[SECRET_PATH_MAX];
        size_t n = 0;
        ssize_t k = 1;
        int fd;

        fd = open(secret_path(path, full), O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        while (k > 0 && n < size) {
                k = read(fd, out + n, size - n);
                if (k < 0 && errno == EINTR)
                        k = 1;
                else if (k > 0)
                        n += (size_t) k;
        }
        if (k < 0) {
                int r = -errno;

                close(fd);
                return r;
        }
        close(fd);
        for (size_t i = 0; i < n; i++)
                if (out[i] == '\n' || out[i] == '\0')
                        n = i;
        if (n == size)
                return -E2BIG;
        out[n] = '\0';
        return n > 0 ? 0 : -ENODATA;
}

char *secret_free(char *secret)
{
        if (secret)
                explicit_bzero(secret, strlen(secret));
        free(secret);
        return NULL;
}
