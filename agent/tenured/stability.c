#include "stability.h"

#include <inttypes.h>

/* The file has instants of this boot's clock; /run is emptied with each boot. */
static void load(struct stability *s)
{
        FILE *f = fopen(s->file, "re");
        struct damping *d = &s->damping;

        if (!f)
                return;
        if (fscanf(f, "UNTIL %" SCNd64, &d->until.ns) != 1)
                d->until.ns = 0;
        while (d->n < DAMPING_LIMIT_MAX &&
               fscanf(f, " LOST %" SCNd64, &d->losses[d->n].ns) == 1)
                d->n++;
        fclose(f);
}

static void write_losses(const void *userdata, FILE *f)
{
        const struct damping *d = userdata;

        fprintf(f, "UNTIL %" PRId64 "\n", d->until.ns);
        for (size_t i = 0; i < d->n; i++)
                fprintf(f, "LOST %" PRId64 "\n", d->losses[i].ns);
}

static void save(const struct stability *s)
{
        runtime_write(s->file, write_losses, &s->damping, "forgive what was lost");
}

static void look(struct stability *s, struct boot_time now)
{
        if (brake_update(&s->brake, &s->brake_cfg, s->n_nodes, now))
                s->brake_changed(s);
        loop_timer_arm(&s->timer, brake_wakeup(&s->brake, &s->brake_cfg));
}

static void on_timer(struct loop_timer *t)
{
        look(container_of(t, struct stability, timer), boot_now());
}

void stability_init(struct stability *s, struct loop *l,
                    void (*brake_changed)(struct stability *s))
{
        loop_timer_init(&s->timer, l, on_timer);
        brake_init(&s->brake);
        s->brake_changed = brake_changed;
        if (runtime_path("losses", s->file))
                load(s);
}

void stability_fini(struct stability *s)
{
        if (!s->timer.loop)
                return;
        loop_timer_disarm(&s->timer);
        brake_fini(&s->brake);
}

bool stability_lost(struct stability *s, struct boot_time now)
{
        bool rest = damping_lost(&s->damping, &s->damping_cfg, now);

        if (s->damping_cfg.limit > 0)
                save(s);
        return rest;
}

void stability_forgive(struct stability *s)
{
        if (s->damping.n == 0 && s->damping.until.ns == 0)
                return;
        damping_forgive(&s->damping);
        save(s);
}

void stability_nodes(struct stability *s, size_t n_nodes, struct boot_time now)
{
        s->n_nodes = n_nodes;
        look(s, now);
}
