/* What tenurectl top shows: members in their states, sorted, filtered, in as many columns and
 * lines as there is room for. */
#include <locale.h>

#include "../../agent/tenurectl/terminal.h"
#include "../../agent/tenurectl/top_history.h"
#include "../../agent/tenurectl/top_line.h"
#include "../../agent/tenurectl/top_verdict.h"
#include "../../agent/tenurectl/top_view.h"
#include "test.h"

static struct boot_time at(double s)
{
        return (struct boot_time){.ns = (nsec_t) (s * 1e9) + 1000 * NSEC_PER_SEC};
}

static void put(struct top_model *m, const char *name, int64_t lease, const char *degraded,
                const char *tags)
{
        struct top_facts f = {.name = name,
                              .address = "10.0.0.1",
                              .zone = "",
                              .tags = tags,
                              .degraded = degraded,
                              .leaving = "",
                              .lease = lease,
                              .ttl_ms = 8000,
                              .since = 100};

        CHECK_EQ(top_node_put(m, &f), 0);
}

static const char *order(struct top_model *m)
{
        static char text[256];
        size_t n = 0;

        *text = '\0';
        CHECK_EQ(top_arrange(m, at(0)), 0);
        for (size_t i = 0; i < m->n_shown; i++)
                n += (size_t) snprintf(text + n, sizeof(text) - n, "%s%s", i > 0 ? " " : "",
                                       m->shown[i]->name);
        return text;
}

TEST(top_states)
{
        struct top_model m = {0};
        struct top_node *n;

        put(&m, "a", 1, "", "");
        n = top_node_find(&m, "a");
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_HELD); /* the core has not said */
        top_node_left(n, 1001 * NSEC_PER_MSEC, at(0));
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_HELD);
        top_node_left(n, 999 * NSEC_PER_MSEC, at(0)); /* less than an eighth */
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_JEOPARDY);
        CHECK_EQ(top_node_state(&m, n, at(10)), TOP_HELD); /* nobody has asked since */
        CHECK_EQ(top_node_gone(&m, "a", "expired", at(1), 1001), 0);
        CHECK_EQ(top_node_state(&m, n, at(1)), TOP_LOST);
        CHECK_STR(top_node_note(n), "expired");
        put(&m, "a", 2, "memory", "");
        CHECK_EQ(top_node_state(&m, n, at(1)), TOP_HELD);
        CHECK_EQ(n->left, -1); /* of another life */
        CHECK_STR(top_node_note(n), "memory");
        CHECK_EQ(top_node_gone(&m, "a", "shutdown", at(2), 1002), 0);
        CHECK_EQ(top_node_state(&m, n, at(2)), TOP_LEFT);
        /* It stays for a minute. */
        CHECK_EQ(top_arrange(&m, at(61)), 0);
        CHECK_EQ(m.n_shown, 1);
        CHECK_EQ(m.n_there, 0);
        CHECK_EQ(top_arrange(&m, at(63)), 0);
        CHECK_EQ(m.n_shown, 0);
        CHECK_EQ(top_node_gone(&m, "never there", "expired", at(2), 1002), 0);
        top_model_fini(&m);
}

TEST(top_sorts)
{
        struct top_model m = {0};

        put(&m, "node10", 1, "", "");
        put(&m, "node9", 2, "slow", "");
        put(&m, "node1", 3, "", "");
        CHECK_STR(order(&m), "node1 node9 node10");
        m.reverse = true;
        CHECK_STR(order(&m), "node10 node9 node1");
        m.reverse = false;
        top_node_left(top_node_find(&m, "node9"), 5 * NSEC_PER_SEC, at(0));
        top_node_left(top_node_find(&m, "node10"), 4 * NSEC_PER_SEC, at(0));
        m.sort = TOP_BY_LEFT; /* nodes without a deadline come last */
        CHECK_STR(order(&m), "node10 node9 node1");
        CHECK_EQ(top_node_gone(&m, "node1", "expired", at(0), 1000), 0);
        m.sort = TOP_BY_STATE; /* the worst first; degraded before well */
        CHECK_STR(order(&m), "node1 node9 node10");
        CHECK_EQ(top_service_put(&m, "node10", "web"), 0);
        CHECK_EQ(top_service_put(&m, "node10", "web"), 0);
        CHECK_EQ(top_service_put(&m, "nobody", "web"), 0);
        m.sort = TOP_BY_SERVICES;
        CHECK_STR(order(&m), "node10 node1 node9");
        CHECK_EQ(m.n_services, 1);
        top_service_gone(&m, "node10", "other");
        top_service_gone(&m, "node10", "web");
        CHECK_STR(order(&m), "node1 node9 node10");
        top_model_fini(&m);
}

TEST(top_filters)
{
        struct top_model m = {0};

        put(&m, "web1", 1, "", "zone=a");
        put(&m, "web2", 2, "memory pressure", "zone=b");
        put(&m, "db1", 3, "", "zone=a");
        CHECK_EQ(top_service_put(&m, "db1", "postgresql"), 0);
        strcpy(m.filter, "WEB");
        CHECK_STR(order(&m), "web1 web2");
        strcpy(m.filter, "zone=a !db");
        CHECK_STR(order(&m), "web1");
        strcpy(m.filter, " degraded ");
        CHECK_STR(order(&m), "web2");
        strcpy(m.filter, "postgres held");
        CHECK_STR(order(&m), "db1");
        strcpy(m.filter, "!"); /* as it is typed: nothing yet */
        CHECK_STR(order(&m), "db1 web1 web2");
        strcpy(m.filter, "nothing");
        CHECK_STR(order(&m), "");
        top_model_fini(&m);
}

/* ---- how it looks ---- */

static const char *line(struct top_screen *s, size_t i)
{
        static char text[1024];
        size_t n = 0;

        /* Without what makes it bold. */
        for (size_t k = 0; i < s->n && k < buf_len(&s->lines[i]); k++) {
                const char *p = (const char *) buf_head(&s->lines[i]);

                if (p[k] == '\x1b')
                        while (p[k] != 'm')
                                k++;
                else
                        text[n++] = p[k];
        }
        text[n] = '\0';
        return text;
}

static void fill(struct top_model *m, size_t n)
{
        char name[32];

        strcpy(m->cluster, "default");
        m->followed = m->ever = true;
        for (size_t i = 0; i < n; i++) {
                snprintf(name, sizeof(name), "node%zu", i);
                put(m, name, (int64_t) i + 1, i % 2 ? "memory" : "", "zone=\xc3\xa4");
        }
        for (uint64_t i = 1; i <= 3; i++)
                snprintf(top_replica_get(m, i)->name, TOP_NAME, "core%u", (unsigned) i);
        for (int i = 0; i < 20; i++)
                top_event(m, 0, TOP_NEWS, "event %d", i);
}

/* Whatever its size: no line is wider than the terminal, and there are as many lines as it
 * has. */
TEST(top_fits)
{
        struct top_model m = {0};
        struct top_screen s = {0};

        setlocale(LC_CTYPE, "C.UTF-8");
        fill(&m, 50);
        CHECK(top_lock_get(&m, "job") != NULL);
        CHECK_EQ(top_arrange(&m, at(0)), 0);
        for (size_t width = 1; width < 160; width += width < 50 ? 1 : 13)
                for (size_t height = 1; height < 60; height++) {
                        struct top_look k = {.width = width,
                                             .height = height,
                                             .utf8 = height % 2 == 0,
                                             .color = true,
                                             .legend = true,
                                             .help = height % 5 == 0,
                                             .scroll = height};

                        CHECK_EQ(top_draw(&m, &k, at(1), 200, &s), 0);
                        CHECK_EQ(s.n, height);
                        for (size_t i = 0; i < s.n; i++)
                                CHECK(top_width(line(&s, i), true) <= width);
                        CHECK(s.first + s.n_rows <= m.n_shown);
                        if (height >= 8 && height % 5 != 0)
                                CHECK(s.n_rows > 0);
                }
        top_screen_fini(&s);
        top_model_fini(&m);
}

TEST(top_shows)
{
        struct top_model m = {0};
        struct top_screen s = {0};
        struct top_look k = {.width = 80, .height = 24, .utf8 = true, .legend = true};

        setlocale(LC_CTYPE, "C.UTF-8");
        fill(&m, 3);
        top_node_left(top_node_find(&m, "node0"), 6300 * NSEC_PER_MSEC, at(0));
        put(&m, "e\x1b[2J", 9, "", ""); /* a name that would clear the page */
        CHECK_EQ(top_arrange(&m, at(1)), 0);
        CHECK_EQ(top_draw(&m, &k, at(1), 200, &s), 0);
        CHECK(strstr(line(&s, 0), "  default: all 4 hosts hold their places, 1 degraded"));
        CHECK_STR(line(&s, 1), "4 node(s), 1 degraded; 0 service(s); revision 0");
        CHECK_STR(line(&s, 3), "No agent on this host");
        CHECK(strstr(line(&s, 8), "NODE\xe2\x96\xbc"));
        CHECK(strstr(line(&s, 9), "e\\x1b[2J"));
        CHECK(strstr(line(&s, 10), "node0"));
        CHECK(strstr(line(&s, 10), "held         6.3s \xe2\x96\x88"));
        CHECK(strstr(line(&s, 10), "zone=\xc3\xa4"));
        CHECK(strstr(line(&s, 11), "degraded: mem"));
        CHECK(strstr(line(&s, 22), "event 19"));
        CHECK(strstr(line(&s, 23), "? help"));
        /* Before anything has been heard, and then without an answer. */
        m.followed = m.ever = false;
        CHECK_EQ(top_draw(&m, &k, at(1), 200, &s), 0);
        CHECK(strstr(line(&s, 0), "  default: reading from the lease core"));
        m.stale_since = 100;
        CHECK_EQ(top_draw(&m, &k, at(1), 200, &s), 0);
        CHECK(strstr(line(&s, 0), "  default: no lease core has answered since "));
        /* A character that would turn around what stands behind it. */
        CHECK_EQ(top_width("\xe2\x80\xae", true), 12);
        CHECK_EQ(top_width("\xe2\x81\xa6", true), 12);
        CHECK_EQ(top_width("\xe2\x80\xa6", true), 1);
        /* As a table: all columns, and no escapes. */
        k = (struct top_look){.utf8 = false};
        m.followed = m.ever = true;
        CHECK_EQ(top_draw(&m, &k, at(1), 200, &s), 0);
        CHECK_EQ(s.n, 4);
        CHECK(!memchr(buf_head(&s.lines[0]), '\x1b', buf_len(&s.lines[0])));
        CHECK_STR(line(&s, 1),
                  "node0            held         6.3s     8s     1m 10.0.0.1        "
                  "-        -              zone=\\xc3\\xa4");
        top_screen_fini(&s);
        top_model_fini(&m);
}

/* A lease of 2 s is renewed between two answers of the core: what was left at the last one is
 * true, and that minus the time since then is not. */
TEST(top_left_is_what_the_core_reported)
{
        struct top_model m = {0};
        struct top_screen s = {0};
        struct top_look k = {.legend = false};

        put(&m, "a", 1, "", "");
        m.followed = true;
        top_node_find(&m, "a")->ttl_ms = 2000;
        top_node_left(top_node_find(&m, "a"), 1100 * NSEC_PER_MSEC, at(0));
        for (double t = 0; t < 1.05; t += 0.1) {
                CHECK_EQ(top_arrange(&m, at(t)), 0);
                CHECK_EQ(top_draw(&m, &k, at(t), 200, &s), 0);
                CHECK(strstr(line(&s, 0), " held         1.1s     2s "));
        }
        top_screen_fini(&s);
        top_model_fini(&m);
}

static const char *verdict(struct top_model *m, double s)
{
        static char text[TOP_VERDICT];

        CHECK_EQ(top_arrange(m, at(s)), 0);
        (void) top_verdict(m, text);
        return text;
}

static const char *clock_of(int64_t wall)
{
        static char text[TOP_CLOCK];

        top_clock(wall, text);
        return text;
}

TEST(top_verdicts)
{
        struct top_model m = {.followed = true, .ever = true};
        char name[8], want[TOP_VERDICT];

        CHECK_STR(verdict(&m, 0), "no host has joined");
        for (int i = 0; i < 5; i++) {
                snprintf(name, sizeof(name), "h%d", i);
                put(&m, name, i + 1, "", "");
        }
        CHECK_STR(verdict(&m, 0), "all 5 hosts hold their places");
        top_node_left(top_node_find(&m, "h0"), 1, at(0));
        CHECK_STR(verdict(&m, 0), "4 of 5 hosts hold their places, 1 jeopardy");
        CHECK_EQ(top_node_gone(&m, "h0", "shutdown", at(10), 1010), 0);
        CHECK_STR(verdict(&m, 12), "all 4 hosts hold their places");
        CHECK_EQ(top_node_gone(&m, "h1", "expired", at(20), 1020), 0);
        CHECK_EQ(top_node_gone(&m, "h2", "expired", at(22), 1022), 0);
        snprintf(want, sizeof(want), "2 of 4 hosts lost at %s", clock_of(1020));
        CHECK_STR(verdict(&m, 700), want); /* which is what somebody sees who comes later */
        CHECK_EQ(top_node_gone(&m, "h3", "expired", at(300), 1300), 0);
        snprintf(want, sizeof(want), "3 of 4 hosts lost, the last one at %s", clock_of(1300));
        CHECK_STR(verdict(&m, 700), want);
        for (uint64_t i = 1; i <= 3; i++)
                top_replica_get(&m, i)->answers = i > 1;
        CHECK_STR(verdict(&m, 700), want); /* the first has not been heard yet */
        for (uint64_t i = 2; i <= 3; i++) {
                top_replica_get(&m, i)->answers = false;
                strcpy(top_replica_get(&m, i)->why, "refused");
                if (i == 2) {
                        snprintf(want, sizeof(want),
                                 "3 of 4 hosts lost, the last one at %s; 1 of 3 replicas does "
                                 "not answer",
                                 clock_of(1300));
                        CHECK_STR(verdict(&m, 700), want);
                }
        }
        m.followed = false;
        m.stale_since = 1500;
        strcpy(m.down, "Connection refused");
        snprintf(want, sizeof(want),
                 "no majority: 1 of 3 replica(s) answer; not followed since %s; 3 of 4 hosts "
                 "lost",
                 clock_of(1500));
        CHECK(strncmp(verdict(&m, 700), want, strlen(want)) == 0);
        m.followed = true;
        m.n_replicas = 0;
        CHECK_STR(verdict(&m, 2 * 3600),
                  "the only host holds its place"); /* lost ones are forgotten */
        top_model_fini(&m);
}

static void happen(struct top_history *h, int64_t revision, const char *name, const char *was,
                   const char *is)
{
        Pb__KeyValue kv = PB__KEY_VALUE__INIT, prev = PB__KEY_VALUE__INIT;
        Pb__Event e = PB__EVENT__INIT;
        char key[64];

        kv.key = pb_bytes(key, (size_t) snprintf(key, sizeof(key), "/tenure/c/nodes/%s", name));
        kv.mod_revision = revision;
        e.type = is ? PB__EVENT__EVENT_TYPE__PUT : PB__EVENT__EVENT_TYPE__DELETE;
        if (is)
                kv.value = pb_bytes(is, strlen(is));
        if (was)
                prev.value = pb_bytes(was, strlen(was));
        e.kv = &kv;
        e.prev_kv = was ? &prev : NULL;
        top_history_event(h, &e);
}

/* Of before it was opened: what happened when, who is lost, and who has come back. */
TEST(top_history_is_reported)
{
        struct top_model m = {.followed = true, .ever = true, .first_revision = 30};
        Pb__StatusResponse p = PB__STATUS_RESPONSE__INIT;
        Pb__RevisionTime t[3], *list[] = {&t[0], &t[1], &t[2]};
        struct top_history *h = NULL;
        char want[TOP_VERDICT];

        strcpy(m.cluster, "c");
        CHECK_EQ(top_history_new(&h, &m), 0);
        CHECK(!top_history_waits(h) && top_history_is_done(h, at(4000)));
        for (size_t i = 0; i < 3; i++)
                pb__revision_time__init(&t[i]);
        t[0].revision = 10, t[0].ago_ms = INT64_MAX; /* whatever a core says */
        t[1].revision = 20, t[1].ago_ms = 600000;
        t[2].revision = 25, t[2].ago_ms = 100900;
        p.revision_times = list;
        p.n_revision_times = 3;
        top_history_times(h, &p, at(4000));
        CHECK(top_history_waits(h) && !top_history_is_done(h, at(4000)));
        m.first_revision = 10; /* so that there is nothing to read from the core */
        top_history_begin(h, NULL, at(4000), 5000 * NSEC_PER_SEC + 999 * NSEC_PER_MSEC);
        CHECK(!top_history_waits(h) && top_history_is_done(h, at(4000)));

        put(&m, "back", 1, "", "");
        happen(h, 11, "new", NULL, "{}");
        happen(h, 12, "back", "{}", NULL);
        happen(h, 20, "dead", "{\"ttl_ms\": 2000}", NULL);
        happen(h, 21, "sick", "{}", "{\"degraded\": \"memory\"}");
        happen(h, 22, "sick", "{\"degraded\": \"memory\"}", "{}");
        happen(h, 23, "quits", "{\"leaving\": \"shutdown\"}", NULL);
        happen(h, 24, "bad\n", "{}", NULL);
        happen(h, 26, "last", "no JSON", NULL);
        CHECK_EQ(m.n_events, 7);
        CHECK_STR(top_event_at(&m, 0)->text, "last left: expired");
        CHECK_EQ(top_event_at(&m, 0)->at, 5000);
        CHECK_STR(top_event_at(&m, 1)->text, "quits left: shutdown");
        CHECK_EQ(top_event_at(&m, 1)->at, 4900); /* at 4900.099 */
        CHECK_STR(top_event_at(&m, 3)->text, "sick is degraded: memory");
        CHECK_STR(top_event_at(&m, 4)->text, "dead left: expired");
        CHECK_EQ(top_event_at(&m, 4)->at, 4400);
        CHECK_STR(top_event_at(&m, 6)->text, "new joined");
        CHECK(top_node_find(&m, "back")->there);
        snprintf(want, sizeof(want), "2 of 3 hosts lost, the last one at %s", clock_of(5000));
        CHECK_STR(verdict(&m, 4000), want);
        top_history_free(h);
        top_model_fini(&m);
}

/* What is of before the core was heard last says so; of this host its agent knows. */
TEST(top_marks_stale_rows)
{
        struct top_model m = {.ever = true, .stale_since = 1500};
        struct top_screen s = {0};
        struct top_look k = {.width = 80, .height = 24};
        char want[64];

        put(&m, "a", 1, "", "");
        put(&m, "b", 2, "", "");
        strcpy(m.host.node, "a");
        strcpy(m.host.state, "joining");
        m.host.known = true;
        snprintf(want, sizeof(want), "as of %s", clock_of(1500));
        CHECK_EQ(top_arrange(&m, at(0)), 0);
        CHECK_EQ(top_draw(&m, &k, at(0), 2000, &s), 0);
        CHECK(strstr(line(&s, 5), "a ") && strstr(line(&s, 5), "joining"));
        CHECK(!strstr(line(&s, 5), want));
        CHECK(strstr(line(&s, 6), want));
        top_screen_fini(&s);
        top_model_fini(&m);
}

/* Columns align whatever names are, as tables and on a terminal. */
TEST(top_aligns)
{
        struct top_model m = {.followed = true, .ever = true};
        struct top_screen s = {0};
        struct top_look k = {.utf8 = true};

        setlocale(LC_CTYPE, "C.UTF-8");
        put(&m, "a-name-that-is-longer-than-any-column-that-was-made-for-it", 1, "", "");
        put(&m, "b\xe4\xb8\xad\xe6\x96\x87", 2, "", "");
        put(&m, "c\x1b[2J", 3, "", "");
        CHECK_EQ(top_arrange(&m, at(0)), 0);
        for (k.height = 0; k.height <= 24; k.height += 24, k.width = 80) {
                size_t at_column = 0;

                CHECK_EQ(top_draw(&m, &k, at(0), 200, &s), 0);
                for (size_t i = k.height > 0 ? 5 : 0, rows = 0; rows < 3; i++, rows++) {
                        char *text = strdup(line(&s, i)), *held = strstr(text, " held ");

                        CHECK(held != NULL);
                        *held = '\0';
                        CHECK(rows == 0 || top_width(text, true) == at_column);
                        at_column = top_width(text, true);
                        free(text);
                }
        }
        top_screen_fini(&s);
        top_model_fini(&m);
}

/* Events that are learned of later stand where they belong. */
TEST(top_events_are_in_the_order_of_time)
{
        struct top_model m = {0};

        for (int i = 0; i < 2 * TOP_EVENTS; i++)
                top_event(&m, 2 * i, TOP_NEWS, "event %d", i);
        top_event(&m, 4 * TOP_EVENTS - 7, TOP_NEWS, "late");
        CHECK_STR(top_event_at(&m, 0)->text, "event 1023");
        CHECK_STR(top_event_at(&m, 3)->text, "late");
        top_event(&m, 0, TOP_NEWS, "too old");
        CHECK_STR(top_event_at(&m, TOP_EVENTS - 1)->text, "too old");
        CHECK_STR(top_event_at(&m, 3)->text, "late");
        top_model_fini(&m);
}

/* The agent knows first that this host has no place any more; what the core said before it
 * stopped is older. */
TEST(top_own_state_is_the_agents)
{
        struct top_model m = {.followed = false, .ever = true, .stale_since = 100};
        struct top_node *n;

        put(&m, "a", 1, "", "");
        n = top_node_find(&m, "a");
        strcpy(m.host.node, "a");
        m.host.known = true;
        strcpy(m.host.state, "joining");
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_JOINING);
        strcpy(m.host.state, "lost");
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_LOST);
        strcpy(m.host.state, "held");
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_HELD);
        strcpy(m.host.state, "a newer word");
        CHECK_EQ(top_node_state(&m, n, at(0)), TOP_HELD);
        top_model_fini(&m);
}

TEST(top_durations)
{
        static const struct {
                nsec_t d;
                bool tenths;
                const char *text;
        } cases[] = {
                {-1, true, "0.0s"},
                {8349 * NSEC_PER_MSEC, true, "8.3s"},
                {8999 * NSEC_PER_MSEC, false, "8s"},
                {99 * NSEC_PER_SEC, false, "99s"},
                {150 * NSEC_PER_SEC, true, "2m"},
                {2 * 3600 * NSEC_PER_SEC, false, "2h00m"},
                {INT64_C(1000000) * NSEC_PER_SEC, false, "11d"},
        };
        char text[TOP_DURATION];

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                top_duration(cases[i].d, cases[i].tenths, text);
                CHECK_STR(text, cases[i].text);
        }
}

TEST(top_keys)
{
        static const struct {
                const char *text;
                bool all;
                int key;
                size_t len;
        } cases[] = {
                {"q", false, 'q', 1},
                {"\x1b", false, KEY_NONE, 0}, /* what follows may be on its way */
                {"\x1b", true, KEY_ESCAPE, 1},
                {"\x1b[A", false, KEY_UP, 3},
                {"\x1bOBx", false, KEY_DOWN, 3},
                {"\x1b[6~", false, KEY_PAGE_DOWN, 4},
                {"\x1b[1;5C", false, KEY_OTHER, 6},
                {"\x1b[1;", false, KEY_NONE, 0},
                {"\x1b[1;", true, KEY_OTHER, 4},
                {"\x1bx", false, KEY_ESCAPE, 1},
                {"\n", false, KEY_ENTER, 1},
                {"\b", false, KEY_BACKSPACE, 1},
        };
        size_t len;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                CHECK_EQ(terminal_key((const uint8_t *) cases[i].text, strlen(cases[i].text),
                                      cases[i].all, &len),
                         cases[i].key);
                CHECK_EQ(len, cases[i].len);
        }
        CHECK_EQ(terminal_key((const uint8_t *) "", 0, true, &len), KEY_NONE);
}

TEST(top_edits)
{
        char text[5] = "";

        CHECK(terminal_edit(text, sizeof(text), 'a'));
        CHECK(terminal_edit(text, sizeof(text), 0xc3) &&
              terminal_edit(text, sizeof(text), 0xa4));
        CHECK(!terminal_edit(text, sizeof(text), KEY_UP) &&
              !terminal_edit(text, sizeof(text), '\t'));
        CHECK(terminal_edit(text, sizeof(text), 'b') &&
              !terminal_edit(text, sizeof(text), 'c'));
        CHECK_STR(text, "a\xc3\xa4"
                        "b");
        CHECK(terminal_edit(text, sizeof(text), KEY_BACKSPACE));
        CHECK(terminal_edit(text, sizeof(text), KEY_BACKSPACE));
        CHECK_STR(text, "a");
        CHECK(terminal_edit(text, sizeof(text), 'U' - '@') &&
              terminal_edit(text, sizeof(text), KEY_BACKSPACE));
        CHECK_STR(text, "");
}

/* Only lines that differ are written. */
TEST(top_writes_what_differs)
{
        struct terminal t = {.fd = -1, .width = 20, .height = 3};
        struct buf lines[3] = {{0}};

        for (int i = 0; i < 3; i++)
                buf_printf(&lines[i], "line %d", i);
        CHECK_EQ(terminal_show(&t, lines, 3), 0);
        CHECK(memmem(buf_head(&t.out), buf_len(&t.out), "line 0", 6));
        CHECK(memmem(buf_head(&t.out), buf_len(&t.out), "line 2", 6));
        buf_printf(&lines[1], "!");
        CHECK_EQ(terminal_show(&t, lines, 3), 0); /* the terminal has not taken the first one */
        CHECK(!memmem(buf_head(&t.out), buf_len(&t.out), "!", 1));
        buf_clear(&t.out);
        CHECK_EQ(terminal_show(&t, lines, 3), 0);
        buf_add_u8(&t.out, 0);
        CHECK_STR((const char *) buf_head(&t.out), "\x1b[2;1H\x1b[Kline 1!");
        for (size_t i = 0; i < 3; i++)
                buf_fini(&lines[i]);
        for (size_t i = 0; i < t.cap; i++)
                buf_fini(&t.shown[i]);
        free(t.shown);
        buf_fini(&t.out);
}
