/* tenurectl nodes. */
#include "pick.h"
#include "table.h"
#include "verbs.h"

/* An agent of an earlier release does not say that a node is leaving. */
static const char *state_of(struct json_object *o)
{
        return *ctl_text(o, "Leaving")    ? "leaving"
               : *ctl_text(o, "Degraded") ? "degraded"
                                          : "held";
}

static bool keep(const struct ctl *c, struct json_object *o, void *arg unused_)
{
        struct json_object *tags = json_object_object_get(o, "Tags");

        json_put_text(o, "state", state_of(o));
        json_put_text(o, "zone", ctl_text(tags, "zone"));
        return pick_word(c->o.state, ctl_text(o, "state")) &&
               pick_word(c->o.zone, ctl_text(o, "zone")) && pick_tags(c->o.tag, tags);
}

int verb_nodes(struct ctl *c, int argc, char **argv)
{
        static const struct column columns[] = {
                {"NODE", "Name", COLUMN_TEXT},      {"ADDRESS", "Addresses", COLUMN_TEXT},
                {"TTL", "TTLUSec", COLUMN_SECONDS}, {"SINCE", "Since", COLUMN_TEXT},
                {"ID", "Id", COLUMN_TEXT},          {"STATE", "state", COLUMN_TEXT},
                {"ZONE", "zone", COLUMN_TEXT},      {"DEGRADED", "Degraded", COLUMN_REST}};
        static const struct listing listing = {"GetNodes", "node", columns, ARRAY_SIZE(columns),
                                               keep};

        return ctl_list(c, &listing, NULL, argc, argv);
}
