/* Smaller parsers: messages of the kernel, the place file, records of nodes and services,
 * settings, addresses, and answers of name servers. */
#include <stdio.h>

#include "../sim/worker.h"
#include "base/conf.h"
#include "base/crc32c.h"
#include "base/url.h"
#include "base/yaml.h"
#include "edge.h"
#include "fuzz.h"
#include "link/table.h"
#include "loop/resolve.h"
#include "member/node_record.h"
#include "member/place.h"
#include "member/service_record.h"
#include "member/switchover.h"

/* Messages of the kernel, one a step, each with the length that it has or one that it says. */
static void run_netlink(struct view in)
{
        struct link_table t;
        struct view step;
        char out[256];

        link_table_init(&t);
        while (step_next(&in, &step)) {
                size_t n = min_of(step.len, (size_t) 1024);
                uint32_t says = (uint32_t) n;
                uint8_t *b;

                if (n == 1) { /* around a dump */
                        if (step.p[0] & 1)
                                link_table_dump_begin(&t);
                        else
                                (void) link_table_dump_end(&t);
                        continue;
                }
                if (n < 16)
                        continue;
                b = malloc(n); /* nothing behind it that could be read */
                HOLDS(b);
                memcpy(b, step.p, n);
                if (b[0] != 0xff) /* else what it says stays */
                        memcpy(b, &says, sizeof(says));
                (void) !link_table_feed(&t, b, n);
                free(b);
        }
        link_table_choose(&t, "core,interface:e,interface:eth*,::/0,10.0.0.0/7", "10.1.2.3",
                          out, sizeof(out));
        (void) link_table_has(&t, "10.1.2.3");
        (void) link_table_has(&t, "fe80::1");
        (void) link_table_find(&t, 1);
        link_table_fini(&t);
}

/* With the checksum that belongs to it, too, or nothing would get past that. */
static void run_place(struct view in)
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
        HOLDS(place_read(&back, again.data, buf_len(&again)) == 0);
        HOLDS(memcmp(&p, &back, sizeof(p)) == 0);
}

static void run_request(struct view in)
{
        cleanup_(buf_fini) struct buf text = {0};
        struct switchover a, b;

        if (switchover_read(&a, in.p, in.len) < 0)
                return;
        switchover_write(&a, &text);
        HOLDS(switchover_read(&b, text.data, buf_len(&text)) == 0);
        HOLDS(strcmp(a.key, b.key) == 0 && a.created == b.created &&
              a.within_ms == b.within_ms);
}

/* A key's end and a value, with a zero between them, of a service; or a node's value, or a
 * request for a switchover. */
static void run_records(struct view in)
{
        const uint8_t *zero = memchr(in.p, 0, in.len);
        size_t n = zero ? (size_t) (zero - in.p) : in.len;
        struct view key = {in.p, n}, value = {in.p + n, in.len - n};
        cleanup_(buf_fini) struct buf text = {0}, again = {0};
        struct service_record a, b;
        struct node_record node, back;

        if (value.len > 0)
                value = (struct view){value.p + 1, value.len - 1};
        if (service_record_read_key(&a, key) == 0) {
                service_record_key(&a, &text);
                HOLDS(buf_len(&text) == key.len && memcmp(text.data, key.p, key.len) == 0);
        }
        buf_clear(&text);
        if (service_record_read(&a, value.p, value.len) == 0) {
                service_record_write(&a, &text);
                HOLDS(service_record_read(&b, text.data, buf_len(&text)) == 0);
                HOLDS(strcmp(a.tags, b.tags) == 0 && a.port == b.port);
        }
        run_request(value);
        if (node_record_read(&node, value.p, value.len) < 0)
                return;
        node_record_write(&node, &again);
        if (buf_len(&again) < 60000)
                HOLDS(node_record_read(&back, again.data, buf_len(&again)) == 0);
}

static char *text_of(struct view in)
{
        char *text = malloc(in.len + 1);

        if (!text)
                abort();
        memcpy(text, in.p, in.len);
        text[in.len] = '\0';
        return text;
}

static void on_addresses(int r, const char *targets, void *userdata)
{
        HOLDS((r == 0) == (targets != NULL));
        *(bool *) userdata = true;
}

static void run_dns(struct view in)
{
        struct resolver *rv;
        struct resolve_query *q;
        bool answered = false;

        fuzz_dns_answer(in);
        if (resolver_new(&rv, NULL) < 0 ||
            resolve_srv(rv, "_x._tcp.example.org", on_addresses, &answered, &q) < 0)
                abort();
        workers_run();
        HOLDS(answered);
        resolver_free(rv);
}

/* What comes out is text. */
static int on_yaml(const char *section, const char *key, const char *value, void *arg,
                   struct conf_error *err)
{
        struct buf *out = arg;

        HOLDS(!*err->text);
        for (const char *p = value; *p; p++)
                HOLDS((unsigned char) *p >= ' ' && *p != 0x7f);
        if (*key == '!') { /* some are refused */
                snprintf(err->text, sizeof(err->text), "no");
                return -EINVAL;
        }
        buf_printf(out, "%zu %zu %zu;", strlen(section), strlen(key), strlen(value));
        return 0;
}

static void run_yaml(struct view in)
{
        cleanup_(buf_fini) struct buf once = {0}, again = {0};
        struct conf_error err = {""};
        int r = yaml_read(in, "f", on_yaml, &once, &err);

        HOLDS(r == 0 || *err.text);
        HOLDS(yaml_read(in, "f", on_yaml, &again, &err) == r);
        HOLDS(buf_len(&once) == buf_len(&again));
}

static void run_settings(struct view in)
{
        uint8_t what = take_u8(&in);
        char name[256], item[320];
        const char *cursor;
        struct url u;
        bool tls;
        char *text;
        nsec_t t;

        if (what == 'D')
                return run_dns(in);
        if (what == 'Y')
                return run_yaml(in);
        text = text_of(in);
        if (url_parse(text, &u) == 0) {
                char again[320];

                HOLDS(url_parse(url_format(&u, again), &u) == 0);
        }
        if (url_parse_srv(text, name, &tls) == 0)
                HOLDS(*name);
        if (nsec_parse(text, &t) == 0) {
                char again[32];
                nsec_t back;

                nsec_format(t, again);
                HOLDS(nsec_parse(again, &back) == 0 && back == t);
        }
        (void) link_choice_is_valid(text);
        (void) node_name_is_valid(text);
        for (cursor = text; list_next(&cursor, item, sizeof(item));)
                HOLDS(strlen(item) < sizeof(item));
        free(text);
}

const struct fuzzer fuzz_netlink = {.name = "netlink", .run = run_netlink, .steps = true};
const struct fuzzer fuzz_place = {.name = "place", .run = run_place};
const struct fuzzer fuzz_records = {.name = "records", .run = run_records};
const struct fuzzer fuzz_settings = {.name = "settings", .run = run_settings};
