/*
 * One fuzzer for everything that reads bytes from outside; the first byte selects the reader.
 * `make fuzz SECONDS=n` searches with libFuzzer; `make test` replays tests/fuzz/corpus under
 * the sanitizers.
 */
#include <stdio.h>
#include <unistd.h>

#include "../sim/world.h"
#include "base/conf.h"
#include "base/crc32c.h"
#include "base/url.h"
#include "client/node_record.h"
#include "client/place.h"
#include "client/service_record.h"
#include "consensus/message.h"
#include "lease/state.h"
#include "link/table.h"
#include "rpc/conn.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define NOW ((struct lease_time){100 * NSEC_PER_SEC})

/* An entry of the log, as a peer may send it; then what is left must still be a whole state. */
static void fuzz_apply(struct view in)
{
        cleanup_(buf_fini) struct buf out = {0}, saved = {0};
        struct state s, back;
        struct cmd c;
        uint64_t index = 1;

        state_init(&s);
        while (cmd_next(&in, &c) == 0) {
                struct state_reply reply = {.out = &out};

                pb__response_header__init(&reply.header);
                state_begin(&s, index++, NOW);
                if (state_apply(&s, &c, &reply) < 0)
                        abort();
                buf_clear(&out);
        }
        state_save(&s, &saved);
        if (state_load(&back, (struct view){saved.data, buf_len(&saved)}) < 0 ||
            state_hash(&back) != state_hash(&s))
                abort();
        state_fini(&back);
        state_fini(&s);
}

static void fuzz_snapshot(struct view in)
{
        struct state s;

        (void) !state_load(&s, in);
        state_fini(&s);
}

static void fuzz_peer(struct view in)
{
        struct raft_message m;

        if (message_decode(in, &m) == 0)
                message_discard(&m);
}

static void on_message(struct rpc_call *call, struct view m)
{
        (void) !rpc_call_send(call, m.p, m.len);
}

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler handler = {.on_message = on_message, .on_close = on_close};

static void accept_call(struct rpc_call *call, void *userdata)
{
        (void) userdata;
        call->handler = &handler;
}

/* After a good preface, so that what follows gets somewhere. */
static void fuzz_client(struct view in)
{
        static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
        static const struct rpc_limits limits = {
                .message_max = 4096, .calls_max = 10, .too_large = "too large"};
        cleanup_(rpc_conn_freep) struct rpc_conn *c = NULL;
        cleanup_(buf_fini) struct buf out = {0};

        if (rpc_conn_new_server(&c, &limits, accept_call, NULL) < 0 ||
            rpc_conn_input(c, preface, sizeof(preface) - 1) < 0)
                abort();
        while (in.len > 0) {
                size_t n = min_of(in.len, (size_t) 200);

                if (rpc_conn_input(c, in.p, n) < 0)
                        break;
                in.p += n;
                in.len -= n;
                (void) !rpc_conn_output(c, &out, 1 << 20);
                buf_clear(&out);
        }
}

static void fuzz_record(struct view in)
{
        struct node_record rec, again;
        cleanup_(buf_fini) struct buf text = {0};

        if (node_record_read(&rec, in.p, in.len) < 0)
                return;
        node_record_write(&rec, &text);
        if (buf_len(&text) < 60000 && node_record_read(&again, text.data, buf_len(&text)) < 0)
                abort();
}

/* A key's end and a value, with a zero between them. */
static void fuzz_service(struct view in)
{
        const uint8_t *zero = memchr(in.p, 0, in.len);
        size_t n = zero ? (size_t) (zero - in.p) : in.len;
        struct view key = {in.p, n}, value = {in.p + n, in.len - n};
        struct service_record a, b;
        cleanup_(buf_fini) struct buf text = {0};

        if (value.len > 0)
                value = (struct view){value.p + 1, value.len - 1};
        if (service_record_read_key(&a, key) == 0) {
                service_record_key(&a, &text);
                if (buf_len(&text) != key.len || memcmp(text.data, key.p, key.len) != 0)
                        abort();
        }
        buf_clear(&text);
        if (service_record_read(&a, value.p, value.len) < 0)
                return;
        service_record_write(&a, &text);
        if (service_record_read(&b, text.data, buf_len(&text)) < 0 ||
            strcmp(a.tags, b.tags) != 0 || a.port != b.port)
                abort();
}

/* Messages of the kernel, one behind the other. */
static void fuzz_netlink(struct view in)
{
        uint8_t b[1024] __attribute__((aligned(8)));
        struct link_table t;
        char out[64];

        link_table_init(&t);
        while (in.len > 4) {
                size_t room = min_of(in.len, sizeof(b)), n = min_of((size_t) in.p[0] * 4, room);

                if (n < 4)
                        break;
                memcpy(b, in.p, n);
                memset(b + 1, 0, 3); /* its length, as nlmsg_len has it */
                b[0] = (uint8_t) n;
                if (n > 255)
                        b[1] = (uint8_t) (n >> 8);
                (void) link_table_feed(&t, b, n);
                in = (struct view){in.p + n, in.len - n};
        }
        link_table_choose(&t, "core,interface:e,::/0,10.0.0.0/7", "", out, sizeof(out));
        link_table_fini(&t);
}

/* With the checksum that belongs to it, or nothing would get past that. */
static void fuzz_place(struct view in)
{
        cleanup_(buf_fini) struct buf text = {0}, again = {0};
        struct place p, back;

        (void) !place_read(&p, in.p, in.len);
        buf_add(&text, in.p, in.len);
        buf_printf(&text, "\nCHECK=%08x\n",
                   (unsigned) crc32c(crc32c(0, in.p, in.len), "\n", 1));
        if (place_read(&p, text.data, buf_len(&text)) < 0)
                return;
        place_write(&p, &again);
        if (place_read(&back, again.data, buf_len(&again)) < 0 ||
            memcmp(&p, &back, sizeof(p)) != 0)
                abort();
}

static void ignore(void *u, uint64_t index)
{
        (void) u;
        (void) index;
}

static void ignore_failed(void *u, const char *file, int r)
{
        (void) u;
        (void) file;
        (void) r;
}

static void ignore_snapshot(void *u, uint64_t index, int r)
{
        (void) u;
        (void) index;
        (void) r;
}

/* A log file with anything in it is read or refused. */
static void fuzz_log(struct view in)
{
        static const struct store_ops ops = {.persisted = ignore,
                                             .snapshot_done = ignore,
                                             .snapshot_failed = ignore_snapshot,
                                             .failed = ignore_failed};
        struct store_entry first = {.index = 1, .term = 1, .type = 3};
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store_error err;
        struct store *s = NULL;

        if (store_open(&s, d, &ops, NULL, &err) < 0 ||
            store_init(s, (struct store_identity){1, 2}, 1, &first) < 0)
                abort();
        store_free(s);
        s = NULL;
        if (d->ops->create(d, "log-0000000000000001", in.len + 64) < 0 ||
            d->ops->write(d, "log-0000000000000001", 0, in.p, in.len) < 0)
                abort();
        (void) !store_open(&s, d, &ops, NULL, &err);
        store_free(s);
}

static void fuzz_settings(struct view in)
{
        char text[300];
        struct url u;
        nsec_t t;

        snprintf(text, sizeof(text), "%.*s", (int) min_of(in.len, (size_t) 299),
                 (const char *) in.p);
        if (url_parse(text, &u) == 0) {
                char again[320];

                if (url_parse(url_format(&u, again), &u) < 0)
                        abort();
        }
        if (nsec_parse(text, &t) == 0) {
                char again[32];
                nsec_t back;

                nsec_format(t, again);
                if (nsec_parse(again, &back) < 0 || back != t)
                        abort();
        }
}

static void (*const readers[])(struct view in) = {
        fuzz_apply, fuzz_snapshot, fuzz_peer, fuzz_client, fuzz_record, fuzz_log, fuzz_settings,
};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        if (n == 0)
                return 0;
        /* What came later has a number of its own, so that the corpus stays what it was. */
        if (p[0] == 0xfe)
                fuzz_place((struct view){p + 1, n - 1});
        else if (p[0] == 0xfc)
                fuzz_netlink((struct view){p + 1, n - 1});
        else if (p[0] == 0xfd)
                fuzz_service((struct view){p + 1, n - 1});
        else
                readers[p[0] % ARRAY_SIZE(readers)]((struct view){p + 1, n - 1});
        return 0;
}
