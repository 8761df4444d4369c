/*
 * Samples of what leaves a process, as each release made them: tests/compat/RELEASE/samples, a
 * line NAME HEX for each. What is written today for the same content has the same bytes.
 *
 * With $SAMPLES, the test writes such a file, for a release (compat/make.py). A sample that is
 * of another form from some version on gets another name from then on.
 */
#include <glob.h>
#include <raft.h>
#include <stdlib.h>

#include "consensus/join.h"
#include "consensus/message.h"
#include "etcd/token.h"
#include "member/node_record.h"
#include "member/service_record.h"
#include "member/switchover.h"
#include "member/tenancy.h"
#include "member/work_record.h"
#include "test.h"
#include "wire/cmd.h"

static struct buf made; /* the lines */

static void sample(const char *name, struct buf *b)
{
        CHECK_EQ(buf_error(b), 0);
        buf_printf(&made, "%s ", name);
        for (size_t i = 0; i < buf_len(b); i++)
                buf_printf(&made, "%02x", ((const uint8_t *) buf_head(b))[i]);
        buf_add_u8(&made, '\n');
        buf_fini(b);
}

/* ---- the log ---- */

static void sample_commands(void)
{
        struct cmd_user ann = {{(const uint8_t *) "ann", 3}, 7};
        cleanup_(buf_fini) struct buf b = {0}, body = {0};
        struct cmd_slots slots;

        cmd_append(&b, CMD_PUT, 0x1234, 300, &ann, 1 << 20, "body", 4);
        cmd_append(&b, CMD_TICK, 1, 2, NULL, 0, "", 0);
        sample("commands", &b);
        cmd_renew_begin(&body, &slots, 1000);
        cmd_renew_add(&body, &slots, 3, 0);
        cmd_renew_add(&body, &slots, 70, 63);
        sample("renewals", &body);
        slots = (struct cmd_slots){0};
        cmd_expire_add(&body, &slots, 5, 900);
        cmd_expire_add(&body, &slots, 6, 1);
        sample("expiries", &body);
        cmd_uncache(&body, 1, 1 << 30, 3);
        sample("uncache", &body);
}

/* ---- links ---- */

static bool entry_of(void *u unused_, uint64_t index, uint64_t *ret_term, uint8_t *ret_type,
                     struct view *ret_data)
{
        static const uint8_t data[] = "01234567 and commands";

        *ret_term = index / 4;
        *ret_type = RAFT_COMMAND;
        *ret_data = (struct view){data, sizeof(data) - 1};
        return true;
}

static void sample_message(const char *name, const struct raft_message *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        CHECK_EQ(message_encode(m, entry_of, NULL, 12345, &b), 0);
        sample(name, &b);
}

static void sample_messages(void)
{
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};

        m.append_entries = (struct raft_append_entries){.version = 1,
                                                        .term = 9,
                                                        .prev_log_index = 40,
                                                        .prev_log_term = 8,
                                                        .leader_commit = 39,
                                                        .n_entries = 2};
        sample_message("append_entries", &m);
        m = (struct raft_message){.type = RAFT_APPEND_ENTRIES_RESULT};
        m.append_entries_result = (struct raft_append_entries_result){
                .version = 1, .term = 9, .rejected = 41, .last_log_index = 40, .features = 1};
        sample_message("append_entries_result", &m);
        m = (struct raft_message){.type = RAFT_REQUEST_VOTE};
        m.request_vote = (struct raft_request_vote){.version = 2,
                                                    .term = 9,
                                                    .candidate_id = UINT64_MAX - 1,
                                                    .last_log_index = 40,
                                                    .last_log_term = 8,
                                                    .disrupt_leader = true};
        sample_message("request_vote", &m);
        m = (struct raft_message){.type = RAFT_REQUEST_VOTE_RESULT};
        m.request_vote_result = (struct raft_request_vote_result){
                .version = 2, .term = 9, .vote_granted = true, .pre_vote = true, .features = 1};
        sample_message("request_vote_result", &m);
        m = (struct raft_message){.type = RAFT_TIMEOUT_NOW};
        m.timeout_now = (struct raft_timeout_now){
                .version = 1, .term = 9, .last_log_index = 40, .last_log_term = 8};
        sample_message("timeout_now", &m);
        m = (struct raft_message){.type = RAFT_INSTALL_SNAPSHOT};
        m.install_snapshot = (struct raft_install_snapshot){
                .version = 0, .term = 9, .last_index = 40, .last_term = 8, .conf_index = 3};
        raft_configuration_init(&m.install_snapshot.conf);
        CHECK_EQ(raft_configuration_add(&m.install_snapshot.conf, 0x1234, "https://a:2380",
                                        RAFT_VOTER),
                 0);
        CHECK_EQ(raft_configuration_add(&m.install_snapshot.conf, 0x5678, "https://b:2380",
                                        RAFT_STANDBY),
                 0);
        sample_message("install_snapshot", &m);
        raft_configuration_close(&m.install_snapshot.conf);
}

static void sample_join(void)
{
        static struct joined who = {
                .cluster_id = 0xabcdef, .member_id = 0x1234, .n_members = 2};
        cleanup_(buf_fini) struct buf b = {0};

        for (size_t i = 0; i < 2; i++) {
                who.members[i].id = 0x1234 + i;
                snprintf(who.members[i].urls, sizeof(who.members[i].urls), "https://m%zu:1", i);
        }
        join_answer(&who, &b);
        sample("join_answer", &b);
        buf_clear(&b);
        replace_request("https://a:2380,https://a:2381", "core1", &b);
        sample("replace_request", &b);
}

/* ---- records, tokens, the page ---- */

static void sample_records(void)
{
        struct node_record node = {.name = "web1",
                                   .id = "0123",
                                   .incarnation = "4567",
                                   .boot_id = "89ab",
                                   .since = "2026-11-21T02:00:00Z",
                                   .version = "0.1.0",
                                   .os_release = "Debian \"12\"",
                                   .leaving = "shutdown",
                                   .degraded = "memory pressure 71 %",
                                   .ttl_ms = 10000,
                                   .addresses = "10.0.0.7,fd00::7",
                                   .tags = "zone=a,rack=1"};
        struct service_record service = {.name = "db",
                                         .node = "web1",
                                         .instance = "main",
                                         .address = "10.0.0.7",
                                         .port = 5432,
                                         .tags = "role=primary",
                                         .unit = "db@main.service",
                                         .invocation = "cdef",
                                         .state = "running",
                                         .since = "2026-11-21T02:00:00Z"};
        struct switchover s = {.to = "db2",
                               .from = "db1",
                               .by = "admin",
                               .key = "main/3f2a",
                               .holder = "main/77c1",
                               .created = 812,
                               .within_ms = 30000};
        const char *const names[] = {"b", "a"}, *bad;
        cleanup_(buf_fini) struct buf b = {0};
        struct work_record work;

        node_record_write(&node, &b);
        sample("node", &b);
        service_record_write(&service, &b);
        sample("service", &b);
        switchover_write(&s, &b);
        sample("switchover", &b);
        CHECK_EQ(work_record_make(&work, 5, names, 2, &bad), 0);
        work_record_write(&work, &b);
        sample("work", &b);
        work_record_fini(&work);
        CHECK_EQ(work_record_make(&work, 1, NULL, 1000, &bad), 0);
        work_record_write(&work, &b);
        sample("numbered_work", &b);
}

static void sample_token(void)
{
        struct auth a = {.secret = "a secret of thirty-two bytes..."};
        struct auth_user ann = {.name = (char *) "ann", .login = 7};
        cleanup_(buf_fini) struct buf b = {0};

        token_make(&a, &ann, (struct lease_time){300 * NSEC_PER_SEC}, &b);
        sample("token", &b);
}

static void sample_page(void)
{
        struct tenancy t = {.lease = 0x3e19dc5218d44ad9,
                            .ttl = 10 * NSEC_PER_SEC,
                            .deadline = {36028766642125},
                            .time_ns = 4026531834,
                            .leaving = true};
        cleanup_(buf_fini) struct buf b = {0};
        uint8_t bytes[TENANCY_BYTES];

        tenancy_write(&t, bytes);
        buf_add(&b, bytes, sizeof(bytes));
        sample("page", &b);
}

/* ---- comparing ---- */

static void save(const char *path)
{
        FILE *f = fopen(path, "we");

        CHECK(f);
        fwrite(buf_head(&made), 1, buf_len(&made), f);
        CHECK_EQ(fclose(f), 0);
}

/* Each line of the file is among those that were made. Returns how many there are. */
static unsigned compare(const char *path)
{
        FILE *f = fopen(path, "re");
        char *line = NULL;
        unsigned n = 0;
        size_t cap = 0;

        CHECK(f);
        for (; getline(&line, &cap, f) > 0; n++)
                if (!strstr((const char *) buf_head(&made), line))
                        test_fail(__FILE__, __LINE__, "%s: has other bytes now: %s", path,
                                  line);
        free(line);
        fclose(f);
        return n;
}

TEST(what_leaves_a_process_has_the_bytes_of_each_release)
{
        glob_t files;

        sample_commands();
        sample_messages();
        sample_join();
        sample_records();
        sample_token();
        sample_page();
        buf_add_u8(&made, 0);
        made.end -= buf_error(&made) == 0;
        if (getenv("SAMPLES"))
                save(getenv("SAMPLES"));
        CHECK_EQ(glob("tests/compat/*/samples", 0, NULL, &files), 0);
        for (size_t i = 0; i < files.gl_pathc; i++)
                CHECK(compare(files.gl_pathv[i]) >= 18);
        globfree(&files);
        buf_fini(&made);
}
