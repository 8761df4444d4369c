/* The bytes of a snapshot: those of release 0.1.0 stay, and what is damaged is refused with a
 * sentence. snapshot.golden has each record and each optional part; the code before there was a
 * table of fields wrote it. */
#include "../whole.h"
#include "base/le.h"
#include "test.h"

__asm__(".section .rodata\n"
        ".global snapshot_golden, snapshot_golden_end\n"
        "snapshot_golden:\n"
        ".incbin \"tests/unit/snapshot.golden\"\n"
        "snapshot_golden_end:\n"
        ".previous\n");
extern const uint8_t snapshot_golden[], snapshot_golden_end[];

static struct view golden(void)
{
        return (struct view){snapshot_golden, (size_t) (snapshot_golden_end - snapshot_golden)};
}

/* Loads in slices, as a program that knows cluster versions up to @newest. On failure, @wrong
 * is why. */
static int load_as(struct state *s, uint32_t newest, struct view in, char wrong[static 128])
{
        struct state_loader l;
        int r;

        state_load_start(&l, s, in);
        l.newest = newest;
        do {
                struct budget left = {(size_t) rnd(1, 40)};

                r = state_load_some(&l, &left);
        } while (r > 0);
        memcpy(wrong, l.wrong, sizeof(l.wrong));
        return r;
}

static int load(struct state *s, struct view in, char wrong[static 128])
{
        return load_as(s, CLUSTER_NEWEST, in, wrong);
}

static void check_saved(struct state *s, struct view as)
{
        struct state_saver sv = {0};
        int r;

        state_save_start(&sv, s);
        while ((r = state_save_more(&sv, rnd(1, 100))) > 0)
                ;
        CHECK_EQ(r, 0);
        CHECK_EQ(bytes_cmp(buf_head(&sv.out), buf_len(&sv.out), as.p, as.len), 0);
        state_saver_fini(&sv);
}

static void raise_version(struct state *s, uint32_t version)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};

        cmd_version(&body, version);
        CHECK_EQ(state_apply(s,
                             &(struct cmd){.type = CMD_VERSION,
                                           .body = {body.data, buf_len(&body)}},
                             &reply),
                 0);
}

TEST(a_snapshot_of_release_0_1_0_is_loaded_and_saved_again_byte_for_byte)
{
        struct view was = golden();
        struct state s;
        char wrong[128];

        CHECK_EQ(load(&s, was, wrong), 0);
        CHECK_EQ(s.leases.n, 3);
        CHECK_EQ(s.kv.n_all, 13);
        CHECK_EQ(s.n_alarms, 3);
        CHECK_EQ(s.auth.n_users, 3);
        CHECK_EQ(s.cached.n, 4);
        CHECK_EQ(s.cluster_version, CLUSTER_0_1);
        check_saved(&s, was);
        state_fini(&s);
}

/* From then on the state ends with the cluster version, by which 0.1.0 refuses it. */
TEST(a_snapshot_says_the_cluster_version_once_it_is_raised)
{
        cleanup_(buf_fini) struct buf is = {0};
        struct state s;
        char wrong[128];

        buf_add(&is, golden().p, golden().len);
        buf_add_u32(&is, CLUSTER_0_2);
        CHECK_EQ(load(&s, golden(), wrong), 0);
        raise_version(&s, CLUSTER_0_1);
        check_saved(&s, golden());
        raise_version(&s, CLUSTER_0_2);
        raise_version(&s, CLUSTER_0_1);
        CHECK_EQ(s.cluster_version, CLUSTER_0_2);
        check_saved(&s, (struct view){is.data, buf_len(&is)});
        state_fini(&s);
        CHECK_EQ(load(&s, (struct view){is.data, buf_len(&is)}, wrong), 0);
        CHECK_EQ(s.cluster_version, CLUSTER_0_2);
        state_fini(&s);
        CHECK_EQ(load_as(&s, CLUSTER_0_1, (struct view){is.data, buf_len(&is)}, wrong),
                 -EBADMSG);
        CHECK_STR(wrong, "cluster version 1: it is 0.2 (2), and this program knows up to 0.1");
        state_fini(&s);
        is.data[golden().len] = CLUSTER_NEWEST + 1;
        CHECK_EQ(load(&s, (struct view){is.data, buf_len(&is)}, wrong), -EBADMSG);
        CHECK_STR(wrong,
                  "cluster version 1: it is unknown (3), and this program knows up to 0.2");
        state_fini(&s);
}

/* The parts before the cluster version are there even if they are empty. */
TEST(an_empty_state_has_a_cluster_version)
{
        cleanup_(buf_fini) struct buf was = {0}, is = {0};
        struct state s, back;
        char wrong[128];

        state_init(&s);
        state_save(&s, &was);
        raise_version(&s, CLUSTER_0_2);
        state_save(&s, &is);
        buf_add_u64(&was, 0); /* owners */
        buf_add_u64(&was, 0); /* the serial of the last cached range */
        buf_add_u64(&was, 0); /* cached ranges */
        buf_add_u32(&was, CLUSTER_0_2);
        CHECK_EQ(bytes_cmp(was.data, buf_len(&was), is.data, buf_len(&is)), 0);
        CHECK_EQ(load(&back, (struct view){is.data, buf_len(&is)}, wrong), 0);
        CHECK_EQ(state_hash(&back), state_hash(&s));
        state_fini(&back);
        state_fini(&s);
}

static void descend(struct state *s, uint64_t cluster, uint64_t ancestor)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};

        cmd_descend(&body, cluster, ancestor);
        CHECK_EQ(state_apply(s,
                             &(struct cmd){.type = CMD_DESCEND,
                                           .body = {body.data, buf_len(&body)}},
                             &reply),
                 0);
}

/* Forced twice, it is the heir of the first heir; restored, it is nobody's. */
TEST(a_snapshot_says_from_which_cluster_a_forced_one_descends)
{
        cleanup_(buf_fini) struct buf was = {0}, is = {0};
        struct state s, back;
        char wrong[128];

        state_init(&s);
        raise_version(&s, CLUSTER_0_2);
        state_save(&s, &was);
        descend(&s, 8, 0);
        CHECK_EQ(s.descent.cluster, 0); /* malformed */
        descend(&s, 8, 7);
        descend(&s, 9, 8);
        state_save(&s, &is);
        buf_add_u64(&was, 9);
        buf_add_u64(&was, 8);
        CHECK_EQ(bytes_cmp(was.data, buf_len(&was), is.data, buf_len(&is)), 0);
        CHECK_EQ(load(&back, (struct view){is.data, buf_len(&is)}, wrong), 0);
        CHECK_EQ(state_ancestor(&back, 9), 8);
        CHECK_EQ(state_ancestor(&back, 8), 0);
        CHECK_EQ(state_ancestor(&back, 10), 0); /* restored from it */
        state_fini(&back);
        le64_put(is.data + buf_len(&is) - 8, 0);
        CHECK_EQ(load(&back, (struct view){is.data, buf_len(&is)}, wrong), -EBADMSG);
        CHECK_STR(wrong, "descent 1: ancestor is 0, which is not allowed");
        state_fini(&back);
        state_fini(&s);
}

/* What a program that knows cluster versions up to @newest makes of an entry. */
static int check_entry(enum cmd_type type, const struct buf *body, uint32_t newest)
{
        cleanup_(buf_fini) struct buf entry = {0};

        cmd_append(&entry, CMD_TICK, 1, 0, NULL, 0, NULL, 0);
        cmd_append(&entry, type, 1, 0, NULL, 0, buf_head(body), buf_len(body));
        return cmd_check((struct view){entry.data, buf_len(&entry)}, newest);
}

TEST(a_command_of_a_newer_cluster_version_is_not_known)
{
        cleanup_(buf_fini) struct buf two = {0}, three = {0}, damaged = {0};

        cmd_version(&two, CLUSTER_0_2);
        cmd_version(&three, CLUSTER_NEWEST + 1);
        CHECK_EQ(check_entry(CMD_RENEW_AHEAD, &two, CLUSTER_0_1), 0);
        CHECK_EQ(check_entry(CMD_VERSION, &two, CLUSTER_0_1), -ENOTSUP);
        CHECK_EQ(check_entry(CMD_VERSION, &two, CLUSTER_0_2), 0);
        CHECK_EQ(check_entry(CMD_VERSION, &three, CLUSTER_NEWEST), -ENOTSUP);
        CHECK_EQ(check_entry(CMD_DESCEND, &two, CLUSTER_0_1), -ENOTSUP);
        CHECK_EQ(check_entry(CMD_LAST_ + 1, &two, CLUSTER_NEWEST), -ENOTSUP);
        CHECK_EQ(check_entry(CMD_VERSION, &damaged, CLUSTER_0_2), -EBADMSG);
        buf_add_u64(&two, 0);
        CHECK_EQ(check_entry(CMD_VERSION, &two, CLUSTER_0_2), -EBADMSG);
}

/* The snapshot with @value at @at, over @width bytes. */
static void check_refused(size_t at, size_t width, uint64_t value, const char *why)
{
        cleanup_(freep) uint8_t *copy = malloc(golden().len);
        uint8_t le[8];
        struct state s;
        char wrong[128];

        le64_put(le, value);
        memcpy(copy, golden().p, golden().len);
        memcpy(copy + at, le, width);
        CHECK_EQ(load(&s, (struct view){copy, golden().len}, wrong), -EBADMSG);
        CHECK_STR(wrong, why);
        state_fini(&s);
}

/* Release 0.1.0 loaded all but the id and the lease. */
TEST(a_value_that_no_state_has_is_refused)
{
        enum { HEAD = 32, LEASE = HEAD + 8, KEYS = 482, VERSION = KEYS + 8 + 3 };

        check_refused(0, 8, 0, "head 1: revision is 0, which is not allowed");
        check_refused(0, 8, UINT64_C(1) << 63,
                      "head 1: revision is 9223372036854775808, which is not allowed");
        check_refused(8, 8, 1000, "head 1: it is compacted beyond its revision");
        check_refused(LEASE + 4, 8, 0, "lease 1: id is 0, which is not allowed");
        check_refused(LEASE + 12, 8, 0, "lease 1: ttl_ms is 0, which is not allowed");
        check_refused(LEASE + 12, 8, INT64_MAX,
                      "lease 1: ttl_ms is 9223372036854775807, which is not allowed");
        check_refused(VERSION, 8, 1000, "key 1: its revisions contradict each other");
        check_refused(VERSION + 16, 8, UINT64_MAX,
                      "key 1: version is 18446744073709551615, which is not allowed");
        check_refused(VERSION + 24, 8, UINT64_MAX,
                      "key 1: lease is 18446744073709551615, which is not allowed");
}

/* Cut off anywhere, it is refused with a sentence, unless it ends before a part that a state
 * may lack. With any bit flipped it is refused, or it is a state that can be saved and loaded.
 */
TEST(a_damaged_snapshot_is_refused_as_a_whole)
{
        cleanup_(freep) uint8_t *copy = malloc(golden().len);
        unsigned whole = 0, refused = 0;

        for (size_t n = 0; n < golden().len; n++) {
                struct state s;
                char wrong[128] = "";
                int r = load(&s, (struct view){golden().p, n}, wrong);

                CHECK(r == 0 || (r == -EBADMSG && *wrong));
                whole += r == 0;
                state_fini(&s);
        }
        CHECK_EQ(whole, 3); /* without users, without owners, without cached ranges */
        memcpy(copy, golden().p, golden().len);
        for (size_t bit = 0; bit < 8 * golden().len; bit += rnd(1, 8)) {
                cleanup_(buf_fini) struct buf out = {0};
                struct state s, again;
                char wrong[128] = "";
                int r;

                copy[bit / 8] ^= (uint8_t) (1 << bit % 8);
                r = load(&s, (struct view){copy, golden().len}, wrong);
                copy[bit / 8] ^= (uint8_t) (1 << bit % 8);
                CHECK(r == 0 || (r == -EBADMSG && *wrong));
                refused += r < 0;
                if (r == 0) {
                        state_save(&s, &out);
                        CHECK_EQ(state_load(&again,
                                            (struct view){buf_head(&out), buf_len(&out)}),
                                 0);
                        state_fini(&again);
                }
                state_fini(&s);
        }
        CHECK(refused > 1000);
}
