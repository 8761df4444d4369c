#include "bus/journal.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"

#define SOCKET "/run/systemd/journal/socket"

/* "KEY=value" and a newline; a value of several lines is preceded by its length instead. */
static void add_field(struct buf *b, const char *field)
{
        const char *value = strchr(field, '=');
        uint8_t len[8];

        if (!value)
                return;
        if (!strchr(value, '\n')) {
                buf_printf(b, "%s\n", field);
                return;
        }
        buf_printf(b, "%.*s\n", (int) (value - field), field);
        le64_put(len, strlen(++value));
        buf_add(b, len, sizeof(len));
        buf_printf(b, "%s\n", value);
}

int journal_send(const char *path, const char *identifier, int level,
                 const char *const fields[], const char *text)
{
        static int fd = -1;
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        cleanup_(buf_fini) struct buf b = {0};
        ssize_t n;

        if (fd < 0)
                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        buf_printf(&b, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%s\nMESSAGE=%s\n", level, identifier,
                   text);
        for (size_t i = 0; fields && fields[i]; i++)
                add_field(&b, fields[i]);
        if (buf_error(&b) < 0)
                return -ENOMEM;
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        n = sendto(fd, b.data, buf_len(&b), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *) &a,
                   sizeof(a));
        return n < 0 ? -errno : 0;
}

static const char *own_identifier;

static int sink(int level, const char *const fields[], const char *text)
{
        return journal_send(SOCKET, own_identifier, level, fields, text);
}

void journal_use(const char *identifier)
{
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long dev, ino;
        struct stat st;

        own_identifier = identifier;
        /* JOURNAL_STREAM names the device and inode (systemd.exec(5)); a shell in between may
         * have redirected us. */
        if (stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
            fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino)
                log_set_sink(sink);
}
