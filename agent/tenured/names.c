#include "names.h"

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

bool names_target(const char *file, char out[static 256])
{
        FILE *f = *file ? fopen(file, "re") : NULL;
        bool ok = f && fgets(out, 256, f);

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
        char target[256];
        struct place p;

        *n = (struct names){0};
        (void) runtime_path("target", n->target_file);
        if (keep_read(k, &p) && strcmp(p.self.boot_id, boot_id) == 0) {
                stay(n, "Cluster", &o->cluster, p.cluster);
                stay(n, "NodeName", &o->node_name, p.self.name);
                stay(n, "NodeId", &o->node_id, p.self.id);
        }
        n->target_kept = names_target(n->target_file, target);
        if (n->target_kept)
                stay(n, "HeldTarget", &o->held_target, target);
}

static void write_target(const void *userdata, FILE *f)
{
        fprintf(f, "%s\n", (const char *) userdata);
}

void names_run(struct names *n, const struct options *o, bool up)
{
        up = up && *o->held_target;
        if (up == n->target_kept || !*n->target_file)
                return;
        if (up)
                runtime_write(n->target_file, write_target, o->held_target,
                              "not know which target is up");
        else
                unlink(n->target_file);
        n->target_kept = up;
}
