#include "session/leaving.h"

void leaving_begin(struct leaving *l, enum leaving_cause cause, const char *reason)
{
        l->causes |= cause;
        if (l->state == LEAVING_STAYING)
                l->state = LEAVING_RELEASING;
        if (!l->reason)
                l->reason = reason;
}

void leaving_tell(struct leaving *l, const char *reason)
{
        if (l->state == LEAVING_RELEASING)
                l->reason = reason;
}

void leaving_end(struct leaving *l, unsigned causes)
{
        l->causes &= ~causes;
}

void leaving_is_out(struct leaving *l)
{
        l->state = LEAVING_GIVING_BACK;
}

static unsigned release(struct leaving *l, const struct leaving_sight *s)
{
        if (!l->reason || !s->down)
                return 0;
        if (!s->released)
                return LEAVING_ASK_HOLDERS;
        l->state = LEAVING_GIVING_BACK;
        return LEAVING_GIVE_BACK;
}

static unsigned be_out(struct leaving *l)
{
        if (l->causes & LEAVING_EXIT)
                return LEAVING_END;
        if (l->causes)
                return LEAVING_SETTLE;
        *l = (struct leaving){.state = LEAVING_STAYING};
        return LEAVING_SETTLE | LEAVING_JOIN;
}

unsigned leaving_next(struct leaving *l, const struct leaving_sight *s)
{
        switch (l->state) {
        case LEAVING_STAYING:
                return 0;
        case LEAVING_RELEASING:
                return release(l, s);
        case LEAVING_GIVING_BACK:
                if (!s->left || !s->down)
                        return 0;
                l->state = LEAVING_OUT;
                return be_out(l);
        case LEAVING_OUT:
                return be_out(l);
        }
        return 0;
}
