/*
 * A file that refuses former holders of a lock. Each line begins with the token that it was
 * written with, so one write stores both the token and the line, and the last complete line has
 * the largest token. If a crash leaves an incomplete line, the next writer cuts it off. The
 * file is locked from the comparison to the end of the write.
 *
 * cc -o append append.c
 * usage: tenurectl lock NAME -- sh -c 'append FILE "$TENURE_TOKEN" TEXT'
 * Exit status: 0: the line is on disk; 1: error; 3: refused, the file has a larger token.
 *
 * The file must be on a local file system: on a network file system, flock(2) may not exclude
 * other hosts. Do not rotate, truncate or replace it: an empty file has seen no token, and an
 * old holder may write to it. After it was restored from a backup, let no program write until
 * all former holders are stopped, or the present one has written.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LINE_MOST 4096

static int fail(const char *what)
{
        fprintf(stderr, "append: %s: %s.\n", what, strerror(errno));
        return 1;
}

/* Reads the token at the beginning of a text, which `end` follows. Returns 0 if there is none:
 * what is not wholly understood must not be taken for another token, least of all for the
 * largest one, which would lock everybody out. */
static long long read_token(const char *text, char end)
{
        size_t n = strspn(text, "0123456789");
        long long token;

        if (n == 0 || text[n] != end)
                return 0;
        errno = 0;
        token = strtoll(text, NULL, 10);
        return errno == 0 ? token : 0;
}

/* Finds the end of the last complete line, and its token; both are 0 if there is none. Returns
 * 0; or -1 with errno set, also if this program has not written the file, since it would cut a
 * part of that file off. */
static int read_last(int fd, off_t *ret_end, long long *ret_token)
{
        char tail[2 * LINE_MOST + 1];
        off_t size = lseek(fd, 0, SEEK_END);
        off_t from = size > 2 * LINE_MOST ? size - 2 * LINE_MOST : 0;
        char *end, *begin;
        ssize_t n;

        *ret_end = *ret_token = 0;
        if (size < 0)
                return -1;
        n = pread(fd, tail, 2 * LINE_MOST, from);
        if (n < 0)
                return -1;
        tail[n] = '\0';
        end = memrchr(tail, '\n', (size_t) n);
        errno = EBADMSG;
        if (n - (end ? end + 1 - tail : 0) >= LINE_MOST)
                return -1; /* an incomplete line of ours is shorter */
        if (!end)
                return 0;
        *end = '\0';
        begin = memrchr(tail, '\n', (size_t) (end - tail));
        *ret_end = from + (end + 1 - tail);
        *ret_token = read_token(begin ? begin + 1 : tail, ' ');
        errno = EBADMSG;
        return *ret_token > 0 ? 0 : -1;
}

/* Makes the file's entry in its directory durable: each time, since the program that created
 * the file may have been killed before it did. */
static int sync_directory(const char *file)
{
        char *copy = strdup(file);
        int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

        free(copy);
        return fd < 0 ? -1 : fsync(fd);
}

int main(int argc, char **argv)
{
        long long token = argc > 2 ? read_token(argv[2], '\0') : 0, seen;
        char line[LINE_MOST];
        off_t end;
        int fd, n;

        if (argc != 4 || token <= 0 || strchr(argv[3], '\n')) {
                fprintf(stderr, "usage: append FILE TOKEN TEXT\n");
                return 1;
        }
        n = snprintf(line, sizeof(line), "%lld %s\n", token, argv[3]);
        if (n < 0 || n >= (int) sizeof(line)) {
                errno = EMSGSIZE;
                return fail("the text");
        }
        fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || flock(fd, LOCK_EX) < 0 || read_last(fd, &end, &seen) < 0)
                return fail(argv[1]);
        if (token < seen) {
                fprintf(stderr, "append: the token %lld is refused: %s has seen %lld.\n", token,
                        argv[1], seen);
                return 3;
        }
        if (ftruncate(fd, end) < 0 || pwrite(fd, line, (size_t) n, end) != n || fsync(fd) < 0 ||
            sync_directory(argv[1]) < 0)
                return fail(argv[1]);
        return 0;
}
