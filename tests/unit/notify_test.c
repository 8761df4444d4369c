#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bus/journal.h"
#include "bus/notify.h"
#include "test.h"

static int reader(char path[static 108])
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        snprintf(path, 108, "/tmp/tenure-notify-%d-%" PRIx64, (int) getpid(),
                 rnd(0, UINT64_MAX));
        memcpy(a.sun_path, path, 108);
        CHECK_EQ(bind(fd, (struct sockaddr *) &a, sizeof(a)), 0);
        return fd;
}

static const char *next(int fd)
{
        static char text[2048];
        ssize_t n = read(fd, text, sizeof(text) - 1);

        text[max_of(n, (ssize_t) 0)] = '\0';
        return text;
}

/* A service manager that does not read is not waited for; once it reads, it gets what is still
 * true, in order, and no more than that. */
TEST(a_service_manager_that_does_not_read_is_notified_later)
{
        char path[108];
        int fd = reader(path), kept = open("/dev/null", O_RDONLY | O_CLOEXEC), n = 0;
        const char *const after[] = {"FDSTORE=1\nFDNAME=place", "FDSTORE=1\nFDNAME=tenancy",
                                     "READY=1", "STATUS=three", "WATCHDOG=1"};

        setenv("NOTIFY_SOCKET", path, 1);
        for (int i = 0; i < 1000; i++)
                notify_status("%d", i);
        notify_keep_fd("place", kept);
        notify_keep_fd("tenancy", kept);
        notify_watchdog();
        notify_status("one");
        notify_ready();
        notify_status("three");
        notify_watchdog();
        notify_flush();
        while (strncmp(next(fd), "STATUS=", 7) == 0)
                n++;
        CHECK(n > 0 && n < 1000);
        for (size_t i = 0; i < ARRAY_SIZE(after); i++) {
                notify_flush();
                CHECK_STR(next(fd), after[i]);
        }
        notify_flush();
        CHECK_STR(next(fd), "");
        notify_ready();
        CHECK_STR(next(fd), "READY=1");
        unsetenv("NOTIFY_SOCKET");
        notify_ready();
        CHECK_STR(next(fd), "");
        close(fd);
        close(kept);
        unlink(path);
}

/* The descriptor that comes with the next message of a kept one; -1: it has none. */
static int next_kept(int fd)
{
        char text[2048], control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {text, sizeof(text)};
        int kept = -1;

        do {
                struct msghdr m = {.msg_iov = &iov,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof(control)};

                notify_flush();
                CHECK(recvmsg(fd, &m, MSG_CMSG_CLOEXEC) > 0);
                if (CMSG_FIRSTHDR(&m))
                        memcpy(&kept, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(kept));
        } while (strncmp(text, "FDSTORE=1", 9) != 0);
        return kept;
}

/* The agent creates the file of its place anew if somebody has removed it, and closes the one
 * before; the service manager would otherwise keep whichever file has got its number. */
TEST(a_descriptor_that_is_closed_while_it_waits_is_kept_all_the_same)
{
        char path[108];
        int fd = reader(path), kept = open("/dev/null", O_RDONLY | O_CLOEXEC), got;
        struct stat a, b;

        setenv("NOTIFY_SOCKET", path, 1);
        for (int i = 0; i < 1000; i++)
                notify_status("%d", i);
        notify_keep_fd("place", kept);
        CHECK_EQ(fstat(kept, &a), 0);
        close(kept);
        CHECK_EQ(open("/dev/zero", O_RDONLY | O_CLOEXEC), kept);
        got = next_kept(fd);
        CHECK(got >= 0 && fstat(got, &b) == 0 && a.st_rdev == b.st_rdev);
        unsetenv("NOTIFY_SOCKET");
        close(kept);
        close(got);
        close(fd);
        unlink(path);
}

/* A record of another host may have any text, and the status says what is in it. */
TEST(a_status_is_one_line_whatever_is_in_it)
{
        char path[108];
        int fd = reader(path);

        setenv("NOTIFY_SOCKET", path, 1);
        notify_status("Joining: the place is held by %s.", "x\nMAINPID=1\ny\xff");
        CHECK_STR(next(fd), "STATUS=Joining: the place is held by x\\x0aMAINPID=1\\x0ay\\xff.");
        unsetenv("NOTIFY_SOCKET");
        close(fd);
        unlink(path);
}

/* The journal's own protocol; and no waiting for a journal that does not read. */
TEST(the_journal_is_written_and_not_waited_for)
{
        const char *fields[] = {"A=b", "TWO=x\ny", NULL};
        char path[108];
        int fd = reader(path), n = 0, r;

        CHECK_EQ(journal_send(path, "me", 4, fields, "It is so."), 0);
        /* As a string it ends within the length. */
        CHECK_STR(next(fd),
                  "PRIORITY=4\nSYSLOG_IDENTIFIER=me\nMESSAGE=It is so.\nA=b\nTWO\n\x03");
        while ((r = journal_send(path, "me", 6, NULL, "more")) == 0 && n < 100000)
                n++;
        CHECK_EQ(r, -EAGAIN);
        CHECK(n > 0);
        next(fd);
        CHECK_EQ(journal_send(path, "me", 6, NULL, "more"), 0);
        unlink(path);
        CHECK_EQ(journal_send(path, "me", 6, NULL, "more"), -ENOENT);
        close(fd);
}
