#include "boots.h"

#include <fcntl.h>
#include <stdio.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "base/log.h"
#include "loop/loop.h"

#define PATH_MAX_ 512
#define KEEP 16 /* boots; they fit into BOOTS_MAX with commas */
#define ID_LEN 32

static bool is_id(const char *id)
{
        return strlen(id) == ID_LEN && strspn(id, "0123456789abcdef") == ID_LEN;
}

void boots_own(char id[static 64], struct boot_time *ret_began)
{
        const char *said = getenv("TENURE_BOOT_ID"); /* set by the unit: the boot id as PID 1
                                                      * knows it */
        bool inside = access("/run/systemd/container", F_OK) == 0;
        sd_id128_t boot;

        id[0] = '\0';
        if (sd_id128_get_boot(&boot) >= 0)
                sd_id128_to_string(boot, id);
        if (said && is_id(said) && strcmp(said, id) != 0) {
                strcpy(id, said);
                inside = true; /* the kernel has another boot id: we are in a container */
        }
        *ret_began = inside ? boot_now() : (struct boot_time){0};
}

/* Synced, because a power failure may follow at once. */
static int save(const char *dir, const char *path, char ids[KEEP][ID_LEN + 1], size_t n)
{
        char fresh[PATH_MAX_ + 8];
        int fd, r = 0;
        FILE *f;

        snprintf(fresh, sizeof(fresh), "%s.new", path);
        f = fopen(fresh, "we");
        if (!f)
                return -errno;
        for (size_t i = 0; i < n; i++)
                fprintf(f, "%s\n", ids[i]);
        if (fflush(f) != 0 || fsync(fileno(f)) < 0)
                r = -errno;
        if (fclose(f) != 0 && r == 0)
                r = -errno;
        if (r == 0 && rename(fresh, path) < 0)
                r = -errno;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
                (void) !fsync(fd);
                close(fd);
        }
        return r;
}

void boots_load(const char *own, char boots[static BOOTS_MAX])
{
        const char *dir = getenv("STATE_DIRECTORY");
        char path[PATH_MAX_], ids[KEEP][ID_LEN + 1], line[ID_LEN + 2];
        bool known = false;
        size_t n = 0;
        FILE *f;
        int r = 0;

        boots[0] = '\0';
        if (!dir || !*dir || strchr(dir, ':') || strlen(dir) > PATH_MAX_ - 16 || !is_id(own))
                return;
        snprintf(path, sizeof(path), "%s/boots", dir);
        f = fopen(path, "re");
        if (!f && errno != ENOENT)
                r = -errno;
        while (f && fgets(line, sizeof(line), f)) {
                line[strcspn(line, "\n")] = '\0';
                if (!is_id(line))
                        continue;
                if (strcmp(line, own) == 0) {
                        known = true;
                        continue;
                }
                if (n == KEEP - 1) /* drop the oldest */
                        memmove(ids[0], ids[1], --n * sizeof(ids[0]));
                strcpy(ids[n++], line);
        }
        if (f && ferror(f))
                r = -EIO;
        if (f)
                fclose(f);
        for (size_t i = 0; i < n; i++) {
                strcat(boots, i > 0 ? "," : "");
                strcat(boots, ids[i]);
        }
        strcpy(ids[n++], own);
        if (r == 0 && !known) /* or the boots that were not read would be forgotten for good */
                r = save(dir, path, ids, n);
        if (r < 0)
                log_warning("%s: cannot read or write it: %s. After a power failure this host "
                            "waits for its old lease to expire.",
                            path, strerror(-r));
}
