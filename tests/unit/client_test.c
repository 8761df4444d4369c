#include <inttypes.h>

#include "base/crc32c.h"
#include "consensus/message.h"
#include "member/membership.h"
#include "member/pace.h"
#include "member/place.h"
#include "member/tenancy.h"
#include "test.h"

static struct {
        unsigned joined, left, changed;
        char reason[32], name[32];
        int64_t revision;
} seen;

static void joined(const struct member_node *n, int64_t revision, void *u)
{
        (void) u;
        seen.joined++;
        seen.revision = revision;
        snprintf(seen.name, sizeof(seen.name), "%s", n->record.name);
}

static void left(const struct member_node *n, const char *reason, int64_t revision, void *u)
{
        (void) n;
        (void) u;
        seen.left++;
        seen.revision = revision;
        snprintf(seen.reason, sizeof(seen.reason), "%s", reason);
}

static void changed(const struct member_node *n, int64_t revision, void *u)
{
        (void) n;
        (void) u;
        seen.changed++;
        seen.revision = revision;
}

static const struct membership_ops ops = {joined, left, changed};

#define V(s) ((struct view){(const uint8_t *) (s), strlen(s)})

static void put(struct membership *m, const char *name, const char *value, int64_t create,
                int64_t mod)
{
        CHECK_EQ(membership_put(m, V(name), V(value), 1, create, mod), 0);
}

TEST(the_members_of_the_cluster_and_why_they_left)
{
        struct membership m;

        memset(&seen, 0, sizeof(seen));
        membership_init(&m, &ops, NULL);
        put(&m, "web1", "{\"id\":\"i\",\"incarnation\":\"a\",\"boot_id\":\"b\"}", 5, 5);
        CHECK_EQ(seen.joined, 1);
        put(&m, "web1", "{\"id\":\"i\",\"incarnation\":\"a\",\"boot_id\":\"b\",\"ttl_ms\":5}",
            5, 6);
        CHECK_EQ(seen.changed, 1);
        /* A node that says why it leaves has not changed. */
        put(&m, "web1",
            "{\"id\":\"i\",\"incarnation\":\"a\",\"boot_id\":\"b\",\"leaving\":\"shutdown\"}",
            5, 7);
        CHECK_EQ(seen.changed, 1);
        membership_delete(&m, V("web1"), 8);
        CHECK_STR(seen.reason, "shutdown");
        membership_delete(&m, V("web1"), 8);
        CHECK_EQ(seen.left, 1);
        /* Another life: it left, and joined. */
        put(&m, "db", "{\"id\":\"i\",\"incarnation\":\"a\",\"boot_id\":\"b\"}", 9, 9);
        put(&m, "db", "{\"id\":\"i\",\"incarnation\":\"c\",\"boot_id\":\"d\"}", 9, 10);
        CHECK_STR(seen.reason, "rebooted");
        CHECK_EQ(seen.joined, 3);
        membership_delete(&m, V("db"), 11);
        CHECK_STR(seen.reason, "expired");
        /* Keys that no agent wrote do no harm. */
        put(&m, "odd", "not json", 12, 12);
        put(&m, "bad name", "{}", 13, 13);
        put(&m, "list", "[1]", 14, 14);
        CHECK_EQ(m.n, 2);
        /* A whole range: nodes that are missing in it have left. */
        membership_resync_begin(&m);
        put(&m, "odd", "not json", 12, 12);
        membership_resync_end(&m, 20);
        CHECK_STR(seen.reason, "resync"); /* how, nobody has seen */
        CHECK_EQ(m.n, 1);
        CHECK_EQ(m.revision, 20);
        membership_fini(&m);
}

TEST(a_record_is_read_as_it_was_written)
{
        struct node_record a = {.name = "n", .id = "i\"", .ttl_ms = 1500, .leaving = "left"}, b;
        cleanup_(buf_fini) struct buf text = {0};

        node_record_write(&a, &text);
        CHECK_EQ(node_record_read(&b, text.data, buf_len(&text)), 0);
        CHECK_EQ(memcmp(&a, &b, sizeof(a)), 0);
}

/* Whatever a record contains: sd-bus refuses a whole list for one invalid text. */
TEST(a_record_has_texts_that_the_bus_takes)
{
        static const struct {
                const char *written, *read;
        } c[] = {{"\xc3\xa4", "\xc3\xa4"},
                 {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!"},
                 {"\xff", "?"},
                 {"a\xc3", "a?"},
                 {"\xc0\x80", "??"},
                 {"\xed\xa0\x80", "???"},
                 {"\xef\xb7\x90\xef\xbf\xbe", "??????"},
                 {"\xf0\x9f\xbf\xbf", "????"},
                 {"\xf4\x90\x80\x80", "????"},
                 {"\\uffff", "???"}};
        char text[256], whole[sizeof(((struct node_record *) 0)->version)];
        struct node_record r;

        for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
                snprintf(text, sizeof(text),
                         "{\"id\":\"%s\",\"addresses\":[\"x\",\"%s\"],\"tags\":{\"t\":\"%s\"}}",
                         c[i].written, c[i].written, c[i].written);
                CHECK_EQ(node_record_read(&r, text, strlen(text)), 0);
                CHECK_STR(r.id, c[i].read);
                snprintf(text, sizeof(text), "x,%s", c[i].read);
                CHECK_STR(r.addresses, text);
                snprintf(text, sizeof(text), "t=%s", c[i].read);
                CHECK_STR(r.tags, text);
        }
        /* A text that is too long is not cut within a character. */
        memset(whole, 'x', sizeof(whole));
        whole[sizeof(whole) - 2] = '\0';
        snprintf(text, sizeof(text), "{\"version\":\"%s\xc3\xa4\"}", whole);
        CHECK_EQ(node_record_read(&r, text, strlen(text)), 0);
        CHECK_STR(r.version, whole);
}

TEST(a_place_is_read_as_it_was_written_or_not_at_all)
{
        struct place a = {.cluster = "c",
                          .self = {.name = "n", .id = "i", .boot_id = "b", .since = "s"},
                          .session = {-2, 10 * NSEC_PER_SEC, {77}, 100000}},
                     b;
        cleanup_(buf_fini) struct buf text = {0};
        size_t n;

        place_write(&a, &text);
        CHECK_EQ(place_read(&b, text.data, buf_len(&text)), -EBADMSG); /* there is no such
                                                                        * lease */
        a.session.lease = 0x1234;
        buf_clear(&text);
        place_write(&a, &text);
        CHECK(!strstr((const char *) text.data, "ANCESTOR"));
        CHECK(!strstr((const char *) text.data, "FOLLOWED"));
        strcpy(a.ancestor, "00000000000000aa");
        a.followed = 1234;
        buf_clear(&text);
        place_write(&a, &text);
        n = buf_len(&text);
        CHECK(strstr((const char *) text.data, "ANCESTOR=00000000000000aa\n"));
        CHECK(strstr((const char *) text.data, "LEASE=0000000000001234\n"));
        CHECK(strstr((const char *) text.data, "FOLLOWED=1234\n"));
        buf_printf(&text, "of a longer one before\n");
        CHECK_EQ(place_read(&b, text.data, buf_len(&text)), 0);
        CHECK_EQ(memcmp(&a, &b, sizeof(a)), 0);
        for (size_t cut = 0; cut < n; cut++) {
                CHECK_EQ(place_read(&b, text.data, cut), -EBADMSG);
                text.data[cut] ^= 1;
                CHECK_EQ(place_read(&b, text.data, n), -EBADMSG);
                text.data[cut] ^= 1;
        }
}

/* An agent may be upgraded while it holds its place. */
TEST(the_place_that_release_0_1_0_wrote_is_read_and_written_alike)
{
        static const char kept[] = /* tests/compat/0.1.0/place */
                "# What tenured goes on with after a restart. Nothing to edit.\n"
                "CLUSTER=default\n"
                "CORE=263b0c2d4baf767e\n"
                "ENDPOINT=http://127.0.0.1:26689\n"
                "AT=127.0.0.1:26689\n"
                "NODE=h1\n"
                "NODE_ID=bb5b72a58bc8aff66fe165be761df5b3\n"
                "BOOT_ID=51b479029c0746d1a58a623a15e23ed4\n"
                "INCARNATION=70ffa566a2af6d845582a44776a0c257\n"
                "SINCE=2026-11-30T02:57:37Z\n"
                "LEASE=3e19dc5218d44ad9\n"
                "TTL_NSEC=36000000000000\n"
                "RENEWED_RAW_NSEC=36028766642125\n"
                "DRIFT_PPM=1000\n"
                "CHECK=c8459ecb\n";
        cleanup_(buf_fini) struct buf again = {0};
        struct place p;

        CHECK_EQ(place_read(&p, kept, sizeof(kept) - 1), 0);
        CHECK_STR(p.cluster, "default");
        CHECK_STR(p.self.name, "h1");
        CHECK_EQ(p.session.lease, 0x3e19dc5218d44ad9);
        CHECK_EQ(p.session.ttl, 36000 * NSEC_PER_SEC);
        CHECK_EQ(p.session.renewed_at.ns, 36028766642125);
        CHECK_EQ(p.session.drift_ppm, 1000);
        place_write(&p, &again);
        CHECK_EQ(buf_len(&again), sizeof(kept) - 1);
        CHECK_EQ(memcmp(again.data, kept, sizeof(kept) - 1), 0);
}

/* ... or downgraded. What a later release adds is skipped, unless that release says that the
 * text has another meaning without it. */
TEST(the_place_of_a_later_release_is_read_or_refused)
{
        static const struct {
                const char *line;
                int r;
        } c[] = {{"ADDED=1\n", 0}, {"FORMAT=2\n", -ENOTSUP}, {"FORMAT=\n", -ENOTSUP}};
        cleanup_(buf_fini) struct buf whole = {0};
        struct place a = {.cluster = "c", .session = {1, NSEC_PER_SEC, {77}, 1000}}, b;

        place_write(&a, &whole);
        for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
                cleanup_(buf_fini) struct buf text = {0};

                buf_printf(&text, "%s", c[i].line);
                buf_add(&text, whole.data, buf_len(&whole) - strlen("CHECK=00000000\n"));
                buf_printf(&text, "CHECK=%08" PRIx32 "\n",
                           crc32c(0, text.data, buf_len(&text)));
                CHECK_EQ(place_read(&b, text.data, buf_len(&text)), c[i].r);
                text.data[0] ^= 1;
                CHECK_EQ(place_read(&b, text.data, buf_len(&text)), -EBADMSG);
        }
}

/* Messages of peers: whatever comes, it is read whole or refused, and nothing leaks or is read
 * beyond its end. */
TEST(frames_from_peers_are_read_or_refused)
{
        for (int round = 0; round < 3000; round++) {
                uint8_t p[200];
                struct raft_message m;
                size_t n = rnd(0, sizeof(p));

                for (size_t i = 0; i < n; i++)
                        p[i] = rnd(0, 2) ? 0 : (uint8_t) rnd(0, 255);
                if (n > 0)
                        p[0] = (uint8_t) rnd(0, 7);
                if (message_decode((struct view){p, n}, 1, UINT64_MAX, &m) == 0)
                        message_discard(&m);
        }
}

/* A published tenancy is read as a whole, or not at all. */
TEST(a_tenancy_is_read_as_it_was_written_or_refused)
{
        for (unsigned i = 0; i < 1000; i++) {
                struct tenancy t = {.lease = (int64_t) rnd(0, INT64_MAX),
                                    .ttl = (nsec_t) rnd(0, INT64_MAX),
                                    .deadline = {(nsec_t) rnd(0, INT64_MAX)},
                                    .time_ns = rnd(0, UINT64_MAX),
                                    .leaving = rnd(0, 1) == 1},
                               got = {0};
                uint8_t bytes[TENANCY_BYTES];
                size_t at = rnd(0, sizeof(bytes) - 1);

                tenancy_write(&t, bytes);
                CHECK_EQ(tenancy_read(&got, bytes, sizeof(bytes)), 0);
                CHECK_EQ(got.lease, t.lease);
                CHECK_EQ(got.ttl, t.ttl);
                CHECK_EQ(got.deadline.ns, t.deadline.ns);
                CHECK_EQ(got.leaving, t.leaving);
                CHECK_EQ(got.time_ns, t.time_ns);
                CHECK_EQ(tenancy_read(&got, bytes, at), -EBADMSG);
                bytes[at] ^= (uint8_t) (1 << rnd(0, 7));
                CHECK_EQ(tenancy_read(&got, bytes, sizeof(bytes)), -EBADMSG);
        }
}

/* ---- what has failed is tried again ---- */

TEST(each_endpoint_is_tried_before_it_takes_longer)
{
        static const int ms[] = {100, 100, 100, 200, 200, 200, 400};
        struct boot_time now = {.ns = NSEC_PER_SEC};
        struct pace p = {0};

        for (size_t i = 0; i < ARRAY_SIZE(ms); i++) {
                CHECK_EQ(pace_is_round(&p, 3), i >= 3);
                CHECK_EQ(pace_next(&p, 3, now), ms[i] * NSEC_PER_MSEC);
                now = boot_add(now, ms[i] * NSEC_PER_MSEC);
        }
        for (int i = 0; i < 1000; i++)
                CHECK(pace_next(&p, 3, now) <= 5 * NSEC_PER_SEC);
        CHECK_EQ(pace_next(&p, 3, now), 5 * NSEC_PER_SEC);
        /* It has gone well for a while. */
        now = boot_add(now, 11 * NSEC_PER_SEC);
        CHECK_EQ(pace_next(&p, 3, now), 100 * NSEC_PER_MSEC);
        CHECK_EQ(pace_next(&p, 0, now), 200 * NSEC_PER_MSEC);
}
