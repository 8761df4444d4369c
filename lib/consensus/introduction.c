#include "consensus/introduction.h"

#include "consensus/message.h"

const struct introduction introduction_0_1 = {.newest = CLUSTER_0_1, .program = "0.1.0"};

void introduction_append(const struct introduction *in, struct buf *out)
{
        buf_add_u8(out, FRAME_TIME_ASK);
        buf_add_u64(out, 0);
        buf_add_u32(out, in->newest);
        buf_add_u64(out, in->directory);
        buf_add_u64(out, in->yours);
        buf_add_u64(out, in->term);
        buf_add_u8(out, in->founding);
        buf_add_u64(out, in->process);
        buf_add_bytes(out, in->program, strlen(in->program));
}

/* It is shown to people. */
static bool is_program(struct view v)
{
        for (size_t i = 0; i < v.len; i++)
                if (v.p[i] <= ' ' || v.p[i] > '~')
                        return false;
        return v.len > 0 && v.len < sizeof(((struct introduction *) 0)->program);
}

int introduction_read(struct view frame, struct introduction *ret)
{
        struct reader rd = {.in = frame};
        uint8_t type = reader_u8(&rd);
        bool it = type == FRAME_TIME_ASK && reader_u64(&rd) == 0;
        struct introduction in = {0};
        struct view program;

        reader_check(&rd, type >= FRAME_RAFT && type <= FRAME_LACKS); /* as 0.1.0 sends them */
        if (!it && rd.r == 0) {
                *ret = introduction_0_1;
                return -ENODATA;
        }
        in.newest = reader_u32(&rd);
        in.directory = reader_u64(&rd);
        in.yours = reader_u64(&rd);
        in.term = reader_u64(&rd);
        in.founding = reader_u8(&rd) != 0;
        in.process = reader_u64(&rd);
        program = reader_bytes(&rd);
        reader_check(&rd, in.newest > CLUSTER_0_1 && is_program(program));
        if (rd.r < 0)
                return rd.r;
        memcpy(in.program, program.p, program.len);
        *ret = in;
        return 0;
}
