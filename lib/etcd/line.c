#include "etcd/line.h"

void line_init(struct line *l, enum line_of of)
{
        l->of = of;
        TAILQ_INIT(&l->addresses);
}

void line_join(struct line *l, struct line_place *p, struct api_turn *turn)
{
        struct line_part *conn = &turn->lines[l->of], *address = &turn->of->lines[l->of];

        if (p->turn)
                return;
        p->turn = turn;
        if (address->n++ == 0) {
                TAILQ_INIT(&address->parts);
                TAILQ_INSERT_TAIL(&l->addresses, address, next);
        }
        if (conn->n++ == 0) {
                TAILQ_INIT(&conn->places);
                TAILQ_INSERT_TAIL(&address->parts, conn, next);
        }
        TAILQ_INSERT_TAIL(&conn->places, p, next);
}

void line_leave(struct line *l, struct line_place *p)
{
        struct line_part *conn, *address;

        if (!p->turn)
                return;
        conn = &p->turn->lines[l->of];
        address = &p->turn->of->lines[l->of];
        p->turn = NULL;
        TAILQ_REMOVE(&conn->places, p, next);
        if (--conn->n == 0)
                TAILQ_REMOVE(&address->parts, conn, next);
        if (--address->n == 0)
                TAILQ_REMOVE(&l->addresses, address, next);
}

size_t line_n_of_address(const struct line *l, const struct api_turn *turn)
{
        return turn->of->lines[l->of].n;
}

struct line_place *line_first(const struct line *l)
{
        struct line_part *address = TAILQ_FIRST(&l->addresses);

        return address ? TAILQ_FIRST(&TAILQ_FIRST(&address->parts)->places) : NULL;
}

void line_skip(struct line *l)
{
        struct line_part *address = TAILQ_FIRST(&l->addresses);

        TAILQ_REMOVE(&l->addresses, address, next);
        TAILQ_INSERT_TAIL(&l->addresses, address, next);
}

void line_rotate(struct line *l, unsigned calls)
{
        struct line_part *address = TAILQ_FIRST(&l->addresses);
        struct line_part *conn = TAILQ_FIRST(&address->parts);
        struct line_place *p = TAILQ_FIRST(&conn->places), *behind = p;

        for (unsigned i = 0; i < calls && TAILQ_NEXT(behind, next); i++)
                behind = TAILQ_NEXT(behind, next);
        if (behind != p) {
                TAILQ_REMOVE(&conn->places, p, next);
                TAILQ_INSERT_AFTER(&conn->places, behind, p, next);
        }
        TAILQ_REMOVE(&address->parts, conn, next);
        TAILQ_INSERT_TAIL(&address->parts, conn, next);
        line_skip(l);
}
