#include "health.h"

#include <fcntl.h>
#include <unistd.h>

/* For memory and disks, the time counts in which no task at all made progress. A processor
 * always has something to run, so for processors the time counts in which some task had to
 * wait. That is normal under load, so it counts only if the settings say so. */
static const struct {
        const char *path, *kind;
} files[] = {{"/proc/pressure/cpu", "some"},
             {"/proc/pressure/memory", "full"},
             {"/proc/pressure/io", "full"}};

void health_init(struct health *h)
{
        *h = (struct health){0};
        for (size_t i = 0; i < ARRAY_SIZE(files); i++)
                h->fds[i] = open(files[i].path, O_RDONLY | O_CLOEXEC);
}

void health_fini(struct health *h)
{
        for (size_t i = 0; i < ARRAY_SIZE(files); i++)
                if (h->fds[i] > 0)
                        close(h->fds[i]);
}

static double pressure(const struct health *h, size_t i)
{
        char text[512];
        ssize_t n = h->fds[i] < 0 ? -1 : pread(h->fds[i], text, sizeof(text) - 1, 0);

        if (n <= 0)
                return -1;
        text[n] = '\0';
        return pressure_parse(text, files[i].kind);
}

bool health_look(struct health *h, const struct degraded_config *cfg, nsec_t lag,
                 struct boot_time now)
{
        struct degraded_reading r = {.cpu = pressure(h, 0),
                                     .memory = pressure(h, 1),
                                     .io = pressure(h, 2),
                                     .lag = lag};

        return degraded_update(&h->degraded, cfg, &r, now);
}
