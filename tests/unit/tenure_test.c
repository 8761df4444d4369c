/* A tie before it is started: its settings, what is refused, and memory that runs out. */
#include <poll.h>

#include "nomem.h"
#include "tenure/internal.h"
#include "test.h"

TEST(the_settings_of_a_tie_precede_its_start)
{
        struct tenure *t;

        unsetenv("TENURE_ENDPOINTS");
        CHECK_EQ(tenure_new(&t), 0);
        CHECK_STR(tenure_error(t), "");
        CHECK_EQ(tenure_set_cluster(t, "a/b"), -EINVAL);
        CHECK(strstr(tenure_error(t), "'a/b'"));
        CHECK_EQ(tenure_set_tls(t, NULL, "cert.pem", NULL), -EINVAL);
        CHECK_EQ(tenure_set_user(t, "root", NULL), -EINVAL);
        CHECK_EQ(tenure_follow(t, 8), -EINVAL);
        CHECK_EQ(tenure_set_endpoints(t, "http://127.0.0.1:x"), 0);
        CHECK_EQ(tenure_start(t), -EINVAL);
        CHECK(strstr(tenure_error(t), "http://127.0.0.1:x"));

        /* After a refusal, a correct value can be set. */
        CHECK_EQ(tenure_set_endpoints(t, "http://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_set_cluster(t, "prod"), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES | TENURE_SERVICES), 0);
        CHECK_EQ(tenure_start(t), 0);
        CHECK_EQ(tenure_start(t), -EBUSY);
        CHECK_EQ(tenure_follow(t, TENURE_NODES), -EBUSY);
        CHECK_EQ(tenure_set_endpoints(t, "http://127.0.0.1:2"), -EBUSY);
        CHECK_EQ(tenure_n_nodes(t), 0);
        CHECK(!tenure_next_node(t, NULL));
        CHECK(!tenure_find_node(t, "n1"));
        CHECK(!tenure_next_service(t, "s", NULL));
        t = tenure_free(t);
        CHECK(!t);
        CHECK(!tenure_free(NULL));
}

TEST(a_file_that_is_no_certificate_is_named)
{
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_set_endpoints(t, "https://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_set_tls(t, "/nonexistent/ca.pem", NULL, NULL), 0);
        CHECK_EQ(tenure_start(t), -EINVAL);
        CHECK(strstr(tenure_error(t), "/nonexistent/ca.pem"));
        tenure_free(t);
}

/* Nobody listens at that port: tenure_error() has the reason, and the descriptor stays quiet
 * between the attempts. */
TEST(the_reason_why_no_endpoint_is_reached_is_reported)
{
        struct boot_time until = boot_add(boot_now(), 10 * NSEC_PER_SEC);
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_set_endpoints(t, "http://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES), 0);
        CHECK_EQ(tenure_start(t), 0);
        while (!*tenure_error(t) && boot_before(boot_now(), until))
                CHECK_EQ(tenure_wait(t, 20), 0);
        CHECK(strstr(tenure_error(t), "http://127.0.0.1:1: "));
        CHECK_EQ(tenure_get_timeout(t), -1);
        tenure_free(t);
}

/* Every allocation of ours fails once; what comes of it is an error or a tie that works. */
TEST(a_tie_survives_that_memory_runs_out)
{
        bool came;

        for (size_t n = 0;; n++) {
                struct tenure *t = NULL;
                int r;

                nomem_after(n);
                r = tenure_new(&t);
                if (r == 0)
                        r = tenure_set_endpoints(t, "http://127.0.0.1:1,http://127.0.0.1:2");
                if (r == 0)
                        r = tenure_set_user(t, "root", "secret");
                if (r == 0)
                        r = tenure_follow(t, TENURE_NODES);
                if (r == 0)
                        r = tenure_start(t);
                if (r == 0)
                        r = tenure_dispatch(t);
                tenure_free(t);
                came = nomem_end();
                CHECK(r == 0 || r == -ENOMEM);
                if (!came)
                        break;
        }
}

static struct member_node node(const char *name, int64_t revision)
{
        struct member_node n = {
                .lease = 7, .create_revision = revision, .mod_revision = revision};

        snprintf(n.record.name, sizeof(n.record.name), "%s", name);
        snprintf(n.record.tags, sizeof(n.record.tags), "role=primary,zone=a");
        return n;
}

/* Events keep what they speak of, whatever becomes of it. */
TEST(an_event_has_copies_of_what_it_reports)
{
        struct member_node a = node("a", 5);
        const struct tenure_event *e;
        char value[8];
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES), 0);
        follow_events.members.joined(&a, 5, t);
        follow_events.members.left(&a, "expired", 6, t);
        memset(&a, 'x', sizeof(a));
        CHECK_EQ(tenure_get_timeout(t), 0);

        e = tenure_pop_event(t);
        CHECK_EQ(e->type, TENURE_NODE_JOINED);
        CHECK_STR(e->node->name, "a");
        CHECK_STR(e->node->degraded, "");
        CHECK_EQ(e->lease, 7);
        CHECK_EQ(e->revision, 5);
        CHECK_STR(e->reason, "");
        CHECK_EQ(tenure_tag(e->node->tags, "zone", value, sizeof(value)), 1);
        CHECK_STR(value, "a");
        CHECK_EQ(tenure_tag(e->node->tags, "role", value, sizeof(value)), 7);
        CHECK_EQ(tenure_tag(e->node->tags, "role", value, 7), -ENOBUFS);
        CHECK_EQ(tenure_tag(e->node->tags, "rol", value, sizeof(value)), -ENOENT);
        e = tenure_pop_event(t);
        CHECK_EQ(e->type, TENURE_NODE_LEFT);
        CHECK_STR(e->reason, "expired");
        CHECK(!tenure_pop_event(t));
        tenure_free(t);
}

/* A change that cannot be stored is lost for good: from then on the tie reports that. */
TEST(a_change_that_is_lost_breaks_the_tie)
{
        struct member_node a = node("a", 5);
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES), 0);
        nomem_after(0);
        follow_events.members.joined(&a, 5, t);
        CHECK(nomem_end());
        CHECK(!tenure_pop_event(t));
        CHECK_EQ(tenure_dispatch(t), -ENOMEM);
        CHECK_EQ(tenure_wait(t, 0), -ENOMEM);
        tenure_free(t);
}
