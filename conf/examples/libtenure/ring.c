/*
 * A consistent-hash ring that follows the membership: it says which node a key belongs to, by
 * rendezvous hashing. A key belongs to the node for which hash(node, key) is the largest. When
 * a node joins or leaves, only the keys that it gains or loses move. All programs that follow
 * the same membership agree.
 *
 * cc ring.c $(pkg-config --cflags --libs libtenure)
 * usage: ring KEY...       prints the owner of each key, and again when it changes
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <tenure.h>

#define KEYS_MAX 1000
#define NAME_MAX_ 256

/* FNV-1a with a final mix, so that every bit depends on all of the input. */
static uint64_t hash(const char *node, const char *key)
{
        uint64_t h = UINT64_C(14695981039346656037);

        for (; *node; node++)
                h = (h ^ (unsigned char) *node) * UINT64_C(1099511628211);
        h = (h ^ '/') * UINT64_C(1099511628211);
        for (; *key; key++)
                h = (h ^ (unsigned char) *key) * UINT64_C(1099511628211);
        h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
        h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
        return h ^ h >> 33;
}

/* Puts the owner of @key into @owner; "" if there is no node. */
static void find_owner(const struct tenure *t, const char *key, char owner[static NAME_MAX_])
{
        const struct tenure_node *n;
        char name[NAME_MAX_] = "";
        uint64_t best = 0;

        owner[0] = '\0';
        for (n = tenure_next_node(t, NULL); n; n = tenure_next_node(t, name)) {
                uint64_t h = hash(n->name, key);

                snprintf(name, sizeof(name), "%s", n->name);
                /* A host that is giving its place back gets no more keys. */
                if (*n->leaving || (*owner && h <= best))
                        continue;
                best = h;
                strcpy(owner, name);
        }
}

static char owners[KEYS_MAX][NAME_MAX_];

static void look(const struct tenure *t, char **keys, int n)
{
        char owner[NAME_MAX_];

        for (int i = 0; i < n; i++) {
                find_owner(t, keys[i], owner);
                if (strcmp(owner, owners[i]) == 0)
                        continue;
                strcpy(owners[i], owner);
                printf("%s %s\n", keys[i], *owner ? owner : "-");
        }
}

int main(int argc, char **argv)
{
        const struct tenure_event *e;
        int synced = 0, n = argc - 1 < KEYS_MAX ? argc - 1 : KEYS_MAX;
        struct tenure *t;

        if (tenure_new(&t) < 0)
                return 1;
        if (tenure_follow(t, TENURE_NODES) == 0 && tenure_start(t) == 0) {
                setvbuf(stdout, NULL, _IOLBF, 0);
                while (tenure_wait(t, -1) > 0) {
                        while ((e = tenure_pop_event(t)))
                                if (e->type == TENURE_SYNCED)
                                        synced = 1;
                        /* Before all nodes are known, the owners would move needlessly. */
                        if (synced)
                                look(t, argv + 1, n);
                }
        }
        fprintf(stderr, "ring: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}
