/* tenurectl nodes. */
#include "table.h"
#include "verbs.h"

int verb_nodes(struct ctl *c, int argc, char **argv)
{
        static const struct column columns[] = {
                {"NODE", "Name", COLUMN_TEXT},      {"ADDRESS", "Addresses", COLUMN_TEXT},
                {"TTL", "TTLUSec", COLUMN_SECONDS}, {"SINCE", "Since", COLUMN_TEXT},
                {"ID", "Id", COLUMN_TEXT},          {"DEGRADED", "Degraded", COLUMN_REST}};
        static const struct listing listing = {"GetNodes", "node", columns,
                                               ARRAY_SIZE(columns)};

        return ctl_list(c, &listing, argc, argv);
}
