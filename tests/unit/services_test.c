#include <stdio.h>

#include "base/utf8.h"
#include "member/json.h"
#include "member/services.h"
#include "member/tags.h"
#include "test.h"

#define V(s) ((struct view){(const uint8_t *) (s), strlen(s)})

TEST(tags_are_kept_in_order_and_once)
{
        char t[TAGS_MAX] = "", long_value[TAGS_MAX], k[TAGS_MAX], v[TAGS_MAX];
        const char *cursor;

        CHECK_EQ(tags_set(t, "role", "primary"), 0);
        CHECK_EQ(tags_set(t, "zone", "b=c"), 0);
        CHECK_EQ(tags_set(t, "arch", "x"), 0);
        CHECK_EQ(tags_set(t, "role", "standby"), 0);
        CHECK_EQ(strcmp(t, "arch=x,role=standby,zone=b=c"), 0);
        cursor = t;
        CHECK(tags_next(&cursor, k, v) && tags_next(&cursor, k, v) && tags_next(&cursor, k, v));
        CHECK_EQ(strcmp(v, "b=c"), 0);
        CHECK(!tags_next(&cursor, k, v));
        CHECK_EQ(tags_set(t, "role", ""), 0);
        CHECK_EQ(tags_set(t, "nobody", ""), 0);
        CHECK_EQ(strcmp(t, "arch=x,zone=b=c"), 0);
        CHECK_EQ(tags_set(t, "", "x"), -EINVAL);
        CHECK_EQ(tags_set(t, "a b", "x"), -EINVAL);
        CHECK_EQ(tags_set(t, "a", "x,y"), -EINVAL);
        CHECK_EQ(tags_set(t, "a", "x\xff"), -EINVAL);
        CHECK_EQ(tags_set(t, "a", "caf\xc3"), -EINVAL);
        CHECK_EQ(tags_set(t, "a", "\xef\xbf\xbf"), -EINVAL); /* U+FFFF, which the bus refuses */
        CHECK_EQ(tags_set(t, "utf8", "caf\xc3\xa9"), 0);
        CHECK_EQ(tags_set(t, "utf8", ""), 0);
        memset(long_value, 'x', sizeof(long_value));
        long_value[TAGS_MAX - 1] = '\0';
        CHECK_EQ(tags_set(t, "a", long_value), -ENOSPC);
        CHECK_EQ(strcmp(t, "arch=x,zone=b=c"), 0); /* and nothing has changed */
        CHECK_EQ(tags_set_list(t, "b=1,c"), -EINVAL);
}

TEST(address_of_a_service_is_one_word_of_text)
{
        static const char *const bad[] = {"a b", "a,b", "a\nb", "caf\xe9", "a\x7f", "\xc3"};
        char name[65];

        CHECK(service_address_is_valid("") && service_address_is_valid("2001:db8::1"));
        CHECK(service_address_is_valid("b\xc3\xbc"
                                       "cher.example"));
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                CHECK(!service_address_is_valid(bad[i]));
        memset(name, 'a', 64);
        name[64] = '\0';
        CHECK(!service_address_is_valid(name) && service_address_is_valid(name + 1));
}

/* A text that the bus rejects would break every list that it is in. */
TEST(text_of_a_record_is_valid_on_the_bus)
{
        char text[200];
        struct node_record n;

        for (int lead = 0x80; lead <= 0xff; lead++) {
                int len = snprintf(text, sizeof(text),
                                   "{\"os_release\":\"%c\x91\x80\x80\",\"tags\":{\"a\":\"%c\"},"
                                   "\"addresses\":[\"%c\"]}",
                                   lead, lead, lead);

                CHECK_EQ(node_record_read(&n, text, (size_t) len), 0);
                CHECK_STR(n.tags, "a=?");
                CHECK_STR(n.addresses, "?");
                if (lead < 0xf0 || lead > 0xf3) {
                        utf8_dbus_mend(n.os_release, strlen(n.os_release));
                        CHECK(strlen(n.os_release) == 4 && strchr(n.os_release, '?'));
                } else {
                        CHECK_EQ((uint8_t) n.os_release[0], lead);
                }
        }
}

TEST(keys_of_services)
{
        static const char *const bad[] = {"",     "a",       "/",     "a/",   "/b",     "a//c",
                                          "a/b/", "a/b/c/d", "a b/c", ".a/b", "a/b/c,d"};
        struct service_record s;
        char text[200];

        CHECK_EQ(service_record_read_key(&s, V("web/h1")), 0);
        CHECK(strcmp(s.name, "web") == 0 && strcmp(s.node, "h1") == 0 && !*s.instance);
        CHECK_EQ(service_record_read_key(&s, V("web/h1/main")), 0);
        CHECK_EQ(strcmp(s.instance, "main"), 0);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                CHECK_EQ(service_record_read_key(&s, V(bad[i])), -EBADMSG);
        memset(text, 'a', sizeof(text));
        CHECK_EQ(service_record_read_key(&s, (struct view){(uint8_t *) text, sizeof(text)}),
                 -EBADMSG);
        CHECK_EQ(service_record_read_key(&s, (struct view){(const uint8_t *) "a\0b/h", 5}),
                 -EBADMSG);
}

static char said[1024];

static void say(const char *what, const struct service *s, const char *reason)
{
        size_t n = strlen(said);

        snprintf(said + n, sizeof(said) - n, "%s%s/%s%s%s%s ", what, s->name, s->node,
                 *s->instance ? "/" : "", s->instance, reason);
}

static void added(const struct service *s, int64_t revision, void *u)
{
        (void) revision;
        (void) u;
        say("+", s, "");
}

static void removed(const struct service *s, const char *reason, int64_t revision, void *u)
{
        char why[64];

        (void) revision;
        (void) u;
        snprintf(why, sizeof(why), "(%s)", reason);
        say("-", s, why);
}

static void changed(const struct service *s, int64_t revision, void *u)
{
        (void) revision;
        (void) u;
        say("=", s, "");
}

static const struct services_ops ops = {added, removed, changed};

#define SAID(text)                               \
        do {                                     \
                CHECK_EQ(strcmp(said, text), 0); \
                said[0] = '\0';                  \
        } while (0)

static void put(struct services *v, const char *key, const char *value, int64_t lease,
                int64_t create, int64_t mod)
{
        CHECK_EQ(services_put(v, V(key), V(value), lease, create, mod), 0);
}

TEST(services_come_and_go)
{
        struct services v;
        struct service_record r;
        struct service *s;

        said[0] = '\0';
        services_init(&v, &ops, NULL);
        put(&v, "web/h1", "{\"port\":80,\"invocation\":\"a\"}", 7, 5, 5);
        put(&v, "web/h2", "{}", 8, 6, 6);
        put(&v, "db/h1/x", "{\"tags\":{\"a\":\"b\",\"c\":1}}", 7, 7, 7);
        put(&v, "nonsense", "{}", 7, 7, 7);
        SAID("+web/h1 +web/h2 +db/h1/x ");
        put(&v, "web/h1", "{\"port\":81,\"invocation\":\"a\"}", 7, 5, 8);
        put(&v, "web/h1", "{\"port\":81,\"invocation\":\"a\"}", 7, 5, 8); /* announced before */
        SAID("=web/h1 ");
        put(&v, "web/h1", "{\"port\":81,\"invocation\":\"b\"}", 7, 5, 9);
        SAID("-web/h1(restarted) +web/h1 ");
        s = services_from(&v, "d");
        CHECK(s && strcmp(s->name, "db") == 0);
        service_read(s, &r);
        CHECK(strcmp(r.tags, "a=b") == 0 && strcmp(r.instance, "x") == 0);
        CHECK_EQ(services_find(&v, "web", "h1", "")->mod_revision, 9);
        CHECK(!services_find(&v, "web", "h1", "x"));

        /* When a node has left, the services on its lease go; those on another lease stay. */
        put(&v, "cache/h1", "{}", 9, 10, 10);
        said[0] = '\0';
        services_node_left(&v, "h1", 7, "expired", 11);
        SAID("-db/h1/x(expired) -web/h1(expired) ");
        CHECK_EQ(v.n, 2);
        services_delete(&v, V("web/h1"), 11); /* the core reports it as well */
        services_delete(&v, V("cache/h1"), 12);
        SAID("-cache/h1(stopped) ");

        services_resync_begin(&v);
        put(&v, "a/h3", "{}", 1, 20, 20);
        services_resync_end(&v, 21);
        SAID("+a/h3 -web/h2(resync) ");
        services_fini(&v);
        CHECK_EQ(v.n, 0);
}

/* Puts a record of @n bytes, most of them in a field that no agent knows. */
static const struct service *put_large(struct services *v, size_t n, int64_t mod)
{
        static char text[70000];
        int head = snprintf(text, sizeof(text),
                            "{\"address\":\"10.0.0.7\",\"invocation\":\"i\",\"x\":\"");

        memset(text + head, 'x', n - (size_t) head);
        strcpy(text + n - 2, "\"}");
        put(v, "web/h1", text, 7, 5, mod);
        return services_find(v, "web", "h1", "");
}

/* Whoever may write the prefix does not decide how much memory each agent needs. */
TEST(no_more_than_its_record_is_kept_of_a_service)
{
        const struct service *s;
        struct service_record r;
        struct services v;

        said[0] = '\0';
        services_init(&v, &ops, NULL);
        s = put_large(&v, 2048, 5);
        CHECK_EQ(s->value_len, 2048);
        s = put_large(&v, RECORD_MAX, 6);
        SAID("+web/h1 =web/h1 ");
        service_read(s, &r);
        CHECK_STR(r.address, "10.0.0.7");
        CHECK_STR(r.invocation, "i");
        CHECK(s->value_len < 200);
        s = put_large(&v, RECORD_MAX + 1, 7);
        SAID("-web/h1(restarted) +web/h1 "); /* it reads as empty */
        service_read(s, &r);
        CHECK_STR(r.address, "");
        CHECK(s->value_len < 200);
        services_fini(&v);
}

/* Each tag costs as much as all that are kept, so their number is bounded by what has room. */
TEST(a_record_with_too_many_tags_is_not_read_to_its_end)
{
        char text[4096];
        struct node_record n;
        size_t len = (size_t) snprintf(text, sizeof(text), "{\"name\":\"h\",\"tags\":{");

        for (unsigned i = 0; i < TAGS_COUNT_MAX - 1; i++)
                len += (size_t) snprintf(text + len, sizeof(text) - len, "\"t%u\":\"\",", i);
        len += (size_t) snprintf(text + len, sizeof(text) - len,
                                 "\"last\":\"1\",\"late\":\"1\"}}");
        CHECK_EQ(node_record_read(&n, text, len), 0);
        CHECK_STR(n.name, "h");
        CHECK_STR(n.tags, "last=1");
}
