#include "openings.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authorize.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"
#include "member/lock_name.h"
#include "objects.h"
#include "runtime.h"

#define LOCK NAME ".lock"

/* Whoever has a descriptor can keep the turns of all locks that share its file, and a command
 * that runs with a lock inherits one. So locks share a file by chance only, and yet there are
 * not ever more files. */
#define TURN_FILES 4096

static int open_directory(const char *path)
{
        return mkdir(path, 0700) < 0 && errno != EEXIST
                       ? -1
                       : open(path, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int openings_turns(void)
{
        char path[RUNTIME_PATH_MAX];
        int fd = runtime_path("turns", path) ? open_directory(path)
                                             : memfd_create("turns", MFD_CLOEXEC);

        if (fd < 0)
                log_warning("Cannot let programs take turns with the place: %s. Their requests "
                            "for locks are refused.",
                            strerror(errno));
        return fd;
}

/* ---- descriptors ---- */

static int open_tenancy(const struct agent *a, sd_bus_message *m unused_)
{
        return holders_reader(&a->holders);
}

/* Reads the name of the lock, which may be any bytes but NUL. Returns 0 or a negative errno. */
static int read_lock(sd_bus_message *m, char name[static LOCK_NAME_MOST + 1])
{
        const void *p;
        size_t n;
        int r = sd_bus_message_rewind(m, 1);

        if (r >= 0)
                r = sd_bus_message_read_array(m, 'y', &p, &n);
        if (r < 0)
                return r;
        if (n == 0 || n > LOCK_NAME_MOST || memchr(p, 0, n))
                return -EINVAL;
        memcpy(name, p, n);
        name[n] = '\0';
        return lock_name_problem(name) ? -EINVAL : 0;
}

/* Each has a description of its own, because the locks belong to it. */
static int open_turn(const struct agent *a, sd_bus_message *m)
{
        char name[LOCK_NAME_MOST + 1], file[16];
        struct stat st;
        int fd = -1, r = a->turns < 0 ? -ENOENT : read_lock(m, name);

        if (r < 0)
                return r;
        snprintf(file, sizeof(file), "%03x",
                 (unsigned) (hash_end(hash_add(HASH_START, name, strlen(name))) % TURN_FILES));
        if (fstat(a->turns, &st) == 0)
                fd = S_ISDIR(st.st_mode)
                             ? openat(a->turns, file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                      0600)
                             : runtime_open_again(a->turns, O_RDWR);
        return fd < 0 ? -errno : fd;
}

/* An answer with a descriptor that somebody does not read keeps the bus from taking more of
 * ours: dbus-daemon allows 64 of a sender. So each is counted for its user until the caller
 * has answered a Ping behind it, or is gone. */
struct opening {
        struct kept_call call;
        struct agent *agent;
        int (*open)(const struct agent *a, sd_bus_message *m);
        sd_bus_slot *ping;
};

static void opening_end(struct kept_call *k)
{
        struct opening *o = container_of(k, struct opening, call);

        sd_bus_slot_unref(o->ping);
        callers_drop(k);
        free(o);
}

static int opening_read(sd_bus_message *m unused_, void *userdata, sd_bus_error *error unused_)
{
        struct opening *o = userdata;

        opening_end(&o->call); /* an error is an answer, too */
        return 0;
}

static int opening_answer(struct opening *o)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *ping = NULL;
        int r, fd = o->open(o->agent, o->call.m);

        if (fd < 0)
                return sd_bus_reply_method_errorf(o->call.m, SD_BUS_ERROR_FAILED,
                                                  "The agent cannot open the file for it: %s.",
                                                  strerror(-fd));
        if (o->open == open_tenancy)
                holders_opened(&o->agent->holders, callers_name(&o->call),
                               callers_uid(&o->call));
        r = sd_bus_reply_method_return(o->call.m, "h", fd); /* sd-bus duplicates it */
        close(fd);
        if (r >= 0)
                r = sd_bus_message_new_method_call(bus_sd(o->agent->bus), &ping,
                                                   callers_name(&o->call), "/",
                                                   "org.freedesktop.DBus.Peer", "Ping");
        if (r >= 0)
                r = sd_bus_call_async(bus_sd(o->agent->bus), &o->ping, ping, opening_read, o,
                                      UINT64_MAX);
        return r;
}

static void opening_go(struct kept_call *k)
{
        struct opening *o = container_of(k, struct opening, call);

        if (opening_answer(o) < 0 || !o->ping)
                opening_end(k);
}

static int begin(struct agent *a, sd_bus_message *m,
                 int (*open)(const struct agent *a, sd_bus_message *m))
{
        struct opening *o = calloc(1, sizeof(*o));
        int r;

        if (!o)
                return -ENOMEM;
        o->agent = a;
        o->open = open;
        r = callers_keep(&a->callers, &o->call, m, CALL_TENANCY, opening_go, opening_end);
        if (r < 0)
                free(o);
        return r;
}

int method_open_tenancy(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        return begin(userdata, m, open_tenancy);
}

static int do_open_turn(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        return begin(userdata, m, open_turn);
}

/* A rule of polkit sees the name if that is text, and whole. */
static bool is_for_rules(const char *name)
{
        size_t n = strlen(name), len;

        for (size_t at = 0; at < n; at += len) {
                len = utf8_printable((const uint8_t *) name + at, n - at);
                if (len == 0)
                        return false;
        }
        return n < AUTHORIZE_DETAIL_MAX;
}

int method_open_turn(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *details[] = {"node", NULL, NULL, NULL, NULL};
        char name[LOCK_NAME_MOST + 1];
        struct agent *a = userdata;
        int r = read_lock(m, name);

        if (r == -EINVAL)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "A lock cannot have that name.");
        if (r < 0)
                return r;
        details[1] = a->opt.node_name;
        if (is_for_rules(name)) {
                details[2] = "lock";
                details[3] = name;
        }
        return authorize(&a->callers, m, LOCK, details, do_open_turn, a);
}
