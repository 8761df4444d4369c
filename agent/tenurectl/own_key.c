#include "own_key.h"

static void watch(struct own_key *o)
{
        struct tenure_watch_options q = {
                .key = o->key, .key_len = strlen(o->key), .revision = o->seen + 1};

        o->watch = tenure_watch_free(o->watch);
        (void) !tenure_watch(o->tie, &q, &o->watch);
}

static void look(struct own_key *o)
{
        struct tenure_range q = {.key = o->key, .key_len = strlen(o->key), .keys_only = true};

        o->look = tenure_call_free(o->look);
        (void) !tenure_get(o->tie, &q, &o->look);
}

static void on_look(struct own_key *o)
{
        const struct tenure_kv *kv = tenure_call_kv(o->look, 0, 0);
        int r = tenure_call_result(o->look);

        /* If we may not read the key, we learn of its end with the lease only. */
        if (r == -EACCES || r == -EPERM)
                return;
        if (r < 0)
                return look(o);
        o->gone |= !kv || kv->create_revision != o->created;
        o->seen = tenure_call_revision(o->look);
        o->look = tenure_call_free(o->look);
        watch(o);
}

void own_key_watch(struct own_key *o, struct tenure *tie, const char *key, int64_t created,
                   int64_t seen)
{
        tenure_watch_free(o->watch);
        tenure_call_free(o->look);
        *o = (struct own_key){.tie = tie, .key = key, .created = created, .seen = seen};
        watch(o);
}

void own_key_hear(struct own_key *o, const struct tenure_event *e)
{
        if (o->look && e->call == o->look)
                on_look(o);
        else if (!o->watch || e->watch != o->watch)
                return;
        else if (e->type == TENURE_DELETE)
                o->gone = true;
        else if (e->type == TENURE_WATCH_ENDED)
                look(o);
}
