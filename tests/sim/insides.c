#include "insides.h"

#include "member/internal.h" /* which has another `struct world` than world.h */

struct insides insides_of(const struct member *m)
{
        return (struct insides){.core = m->world.cluster,
                                .watch_at = m->view_peer,
                                .asked = m->lease_op,
                                .watching = m->watch != NULL,
                                .waits = m->ranging || m->creating || m->checking || m->asking};
}
