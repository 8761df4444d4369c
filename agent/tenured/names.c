#include "names.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"

const char *names_when(const char *key)
{
        static const char *const keys[] = {"Cluster", "NodeName", "NodeId", "HeldTarget"};

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (strcmp(key, keys[i]) == 0)
                        return "; not while this place is held: stop the agent, and start it";
        return NULL;
}

bool names_target(const char *file, char out[static 256], struct fencing_config *cfg)
{
        FILE *f = *file ? fopen(file, "re") : NULL;
        bool ok = f && fgets(out, 256, f);
        int64_t lead;
        int reboot;

        /* Earlier releases have written no second line, and read none. */
        if (ok && fscanf(f, "%" SCNd64 " %d", &lead, &reboot) == 2)
                *cfg = (struct fencing_config){.lead = lead, .reboot = reboot};
        if (f)
                fclose(f);
        if (!ok)
                return false;
        out[strcspn(out, "\n")] = '\0';
        return *out != '\0';
}

static void stay(struct names *n, const char *key, char **setting, const char *held)
{
        char *copy;

        if (strcmp(*setting, held) == 0)
                return;
        log_error("%s=%s is deferred: the place is still held as '%s'; give it back first "
                  "(systemctl stop tenured, then start).",
                  key, *setting, held);
        copy = strdup(held);
        if (!copy)
                abort();
        free(*setting);
        *setting = copy;
        n->waiting = true;
}

void names_init(struct names *n, struct options *o, const struct keep *k, const char *boot_id)
{
        struct fencing_config cfg;
        char target[256];
        struct place p;

        *n = (struct names){0};
        (void) runtime_path("target", n->target_file);
        if (keep_read(k, &p) && strcmp(p.self.boot_id, boot_id) == 0) {
                stay(n, "Cluster", &o->cluster, p.cluster);
                stay(n, "NodeName", &o->node_name, p.self.name);
                stay(n, "NodeId", &o->node_id, p.self.id);
        }
        n->target_kept = names_target(n->target_file, target, &cfg);
        if (n->target_kept)
                stay(n, "HeldTarget", &o->held_target, target);
}

static void write_target(const void *userdata, FILE *f)
{
        const struct options *o = userdata;
        struct fencing_config cfg = options_fencing(o);

        fprintf(f, "%s\n%" PRId64 " %d\n", o->held_target, cfg.lead, cfg.reboot);
}

bool names_run(struct names *n, const struct options *o, bool up)
{
        struct fencing_config cfg = options_fencing(o);
        bool same = cfg.lead == n->fencing_kept.lead && cfg.reboot == n->fencing_kept.reboot;

        up = up && *o->held_target;
        if ((up == n->target_kept && (!up || same)) || !*n->target_file)
                return false;
        if (up)
                runtime_write(n->target_file, write_target, o, "not know which target is up");
        else
                unlink(n->target_file);
        n->target_kept = up;
        n->fencing_kept = cfg;
        return up;
}
