#include "base/arena.h"
#include "base/blob.h"
#include "base/buf.h"
#include "base/conf.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/rnd.h"
#include "base/url.h"
#include "base/utf8.h"
#include "test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

TEST(varints_are_read_back)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint64_t v[200], got;
        struct view in;

        for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
                v[i] = rnd(0, UINT64_MAX) >> rnd(0, 63);
                buf_add_varint(&b, v[i]);
        }
        in = (struct view){b.data, buf_len(&b)};
        for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
                CHECK_EQ(view_varint(&in, &got), 0);
                CHECK(got == v[i]);
        }
        CHECK_EQ(view_varint(&in, &got), -EBADMSG);
}

TEST(numbers_and_texts_are_appended_as_printf_has_them)
{
        static const uint64_t numbers[] = {0,   9,   10,  15,   16,   99,    100,
                                           101, 255, 999, 1000, 4096, 10000, UINT64_MAX};
        cleanup_(buf_fini) struct buf b = {0};
        char want[256];

        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
                buf_clear(&b);
                buf_add_number(&b, numbers[i], 10);
                buf_add_text(&b, " ");
                buf_add_number(&b, numbers[i], 16);
                buf_add_u8(&b, 0);
                snprintf(want, sizeof(want), "%" PRIu64 " %" PRIx64, numbers[i], numbers[i]);
                CHECK_STR((char *) buf_head(&b), want);
        }
        /* Texts that fit into the initial room, just do not fit, and are far too long. */
        for (int n = 0; n < 200; n++) {
                cleanup_(buf_fini) struct buf one = {0};

                buf_printf(&one, "%*d", n, 7);
                buf_printf(&one, "%s", "!");
                buf_add_u8(&one, 0);
                CHECK_EQ(buf_error(&one), 0);
                snprintf(want, sizeof(want), "%*d!", n, 7);
                CHECK_STR((char *) buf_head(&one), want);
        }
}

TEST(a_varint_that_overflows_is_refused)
{
        uint8_t p[11];
        struct view in = {p, sizeof(p)};
        uint64_t got;

        memset(p, 0xff, sizeof(p));
        CHECK_EQ(view_varint(&in, &got), -EBADMSG);
}

/* RFC 3720, appendix B.4. */
TEST(crc32c_matches_the_rfc)
{
        uint8_t zeroes[32] = {0}, ones[32];

        memset(ones, 0xff, sizeof(ones));
        CHECK(crc32c(0, zeroes, 32) == 0x8a9136aa);
        CHECK(crc32c(0, ones, 32) == 0x62a8ab43);
        CHECK(crc32c(crc32c(0, ones, 7), ones + 7, 25) == 0x62a8ab43);
}

TEST(crc32c_of_a_part_follows_from_those_of_its_ends)
{
        static uint8_t p[70000];

        for (size_t i = 0; i < sizeof(p); i++)
                p[i] = (uint8_t) rnd(0, 255);
        for (unsigned i = 0; i < 200; i++) {
                uint32_t y = (uint32_t) rnd(0, sizeof(p)), x = (uint32_t) rnd(0, y);

                CHECK_EQ(crc32c(0, p + x, y - x),
                         crc32c(0, p, y) ^ crc32c_shift(crc32c(0, p, x), y - x));
        }
        for (unsigned i = 0; i < 200; i++) {
                uint64_t x = rnd(0, UINT64_C(1) << 40), y = rnd(0, UINT64_C(1) << 40);
                uint32_t crc = (uint32_t) rnd(0, UINT32_MAX);

                CHECK_EQ(crc32c_shift(crc32c_shift(crc, x), y), crc32c_shift(crc, x + y));
        }
}

TEST(urls_are_read_and_refused)
{
        char text[320];
        struct url u;

        CHECK_EQ(url_parse("https://[::1]:2379/", &u), 0);
        CHECK(u.tls && u.port == 2379);
        CHECK_STR(url_format(&u, text), "https://[::1]:2379");
        CHECK_EQ(url_parse("core1:80", &u), 0);
        CHECK_STR(url_format(&u, text), "http://core1:80");
        CHECK_EQ(url_parse("http://host", &u), -EINVAL);
        CHECK_EQ(url_parse("http://:80", &u), -EINVAL);
        CHECK_EQ(url_parse("http://h:65536", &u), -EINVAL);
        CHECK_EQ(url_parse("ftp://h:1", &u), -EINVAL);
        CHECK_EQ(url_parse("http://h:1/path", &u), -EINVAL);
}

/* Each passed, was replicated as a member's URL, and could never be reached. */
TEST(a_host_in_a_url_is_a_name_or_an_address)
{
        static const char *const good[] = {"http://a-b.c_d.example:1", "http://10.0.0.255:1",
                                           "http://1a:1", "http://[fe80::1%eth0]:1",
                                           "http://[::ffff:10.0.0.1]:1"};
        static const char *const bad[] = {
                "http://a b:1",   "http://a\nb:1",       "http://x/y:1",  "http://u@h:1",
                "http://h?q:1",   "http://h#f:1",        "//h:1",         "http://\x1b[31mh:1",
                "http://h\xc3:1", "http://10.0.0.300:1", "http://10.0:1", "http://1.2.3.4.:1",
                "http://[h]:1",   "http://[]:1",         "http://[%e]:1", "http://[::1%]:1"};
        struct url u;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                CHECK_EQ(url_parse(good[i], &u), 0);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                CHECK_EQ(url_parse(bad[i], &u), -EINVAL);
}

/* As etcd's clients and gRPC's write them. */
TEST(urls_of_sockets_have_a_path)
{
        static const struct {
                const char *in, *host, *out;
                bool tls;
        } t[] = {{"unix:///run/core.sock", "/run/core.sock", "unix:///run/core.sock", false},
                 {"unix:/run/core.sock", "/run/core.sock", "unix:///run/core.sock", false},
                 {"unixs:///a:1", "/a:1", "unixs:///a:1", true},
                 {"unix://localhost:2379", "localhost:2379", "unix://localhost:2379", false}};
        char text[320],
                longest[] = "unix://12345678901234567890123456789012345678901234567890123456"
                            "789012345678901234567890123456789012345678901234567";
        char *one[] = {text};
        char out[URLS_MAX];
        struct url u;

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                CHECK_EQ(url_parse(t[i].in, &u), 0);
                CHECK(u.local && u.tls == t[i].tls && url_is_loopback(&u));
                CHECK_STR(u.host, t[i].host);
                CHECK_STR(url_format(&u, text), t[i].out);
                CHECK_EQ(urls_join(one, 1, out), -EINVAL); /* replicas have none */
        }
        CHECK_EQ(strlen(longest), 7 + 107);
        CHECK_EQ(url_parse(longest, &u), 0);
        snprintf(text, sizeof(text), "%sx", longest);
        CHECK_EQ(url_parse(text, &u), -EINVAL);
        CHECK_EQ(url_parse("unix:", &u), -EINVAL);
        CHECK_EQ(url_parse("unix://", &u), -EINVAL);
        CHECK_EQ(url_parse("unix:///a,b", &u), -EINVAL);
        CHECK_EQ(url_parse("unixx:///a", &u), -EINVAL);
}

TEST(times_are_read_and_written)
{
        static const struct {
                const char *in;
                nsec_t ns;
                const char *out;
        } t[] = {{"10", 10 * NSEC_PER_SEC, "10s"},
                 {"1500ms", 1500 * NSEC_PER_MSEC, "1500ms"},
                 {"1min 30s", 90 * NSEC_PER_SEC, "90s"},
                 {"2h", 7200 * NSEC_PER_SEC, "2h"},
                 {"0", 0, "0s"},
                 /* Go's */
                 {"1h30m", 5400 * NSEC_PER_SEC, "90min"},
                 {"1.5h", 5400 * NSEC_PER_SEC, "90min"},
                 {".5s", 500 * NSEC_PER_MSEC, "500ms"},
                 {"1.s", NSEC_PER_SEC, "1s"},
                 {"100us", 100 * NSEC_PER_USEC, "100us"},
                 {"1\u00b5s", NSEC_PER_USEC, "1us"},
                 {"2\u03bcs3ns", 2003, "2003ns"},
                 {"+5s", 5 * NSEC_PER_SEC, "5s"},
                 {"0.000000001s", 1, "1ns"},
                 {"1.0000000009s", NSEC_PER_SEC, "1s"},
                 {"2562047h47m16.854775807s", INT64_MAX, "9223372036854775807ns"}};
        static const char *const wrong[] = {"",
                                            "-1s",
                                            "10 parsecs",
                                            "99999999999999h",
                                            "s",
                                            ".s",
                                            "1..5s",
                                            "1.5.5s",
                                            "++1s",
                                            "1s+",
                                            "1\u00b5",
                                            "1S",
                                            "2562047h47m16.854775808s",
                                            "9223372036854775808ns",
                                            "99999999999999999999",
                                            " ",
                                            "+",
                                            "1e3s"};
        char text[32];
        nsec_t got;

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                CHECK_EQ(nsec_parse(t[i].in, &got), 0);
                CHECK_EQ(got, t[i].ns);
                nsec_format(got, text);
                CHECK_STR(text, t[i].out);
        }
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                CHECK_EQ(nsec_parse(wrong[i], &got), -EINVAL);
}

/* What systemd and Go take for one. */
TEST(booleans_are_read)
{
        static const char *const yes[] = {"1",    "t",   "T",  "true", "True",
                                          "TRUE", "yes", "on", "y"},
                                 *const no[] = {"0",     "f",  "F",   "false", "False",
                                                "FALSE", "no", "off", "n"},
                                 *const wrong[] = {"", "2", "tr", "truee", "00", " 1", "-"};
        bool got;

        for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
                got = false;
                CHECK_EQ(bool_parse(yes[i], &got), 0);
                CHECK(got);
        }
        for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
                got = true;
                CHECK_EQ(bool_parse(no[i], &got), 0);
                CHECK(!got);
        }
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                CHECK_EQ(bool_parse(wrong[i], &got), -EINVAL);
}

struct settings {
        char *name, *list;
        bool flag;
        uint64_t n;
        nsec_t t, end;
        int mood;
};

static const struct conf_word moods[] = {{"calm", 7}, {"glad", -1}, {"sad", 0}, {NULL, 0}};

static const struct conf_option table[] = {
        {"A", "Name", "name", CONF_STRING, offsetof(struct settings, name), "x", "", 0, 0,
         false, NULL},
        {"A", "List", "list", CONF_LIST, offsetof(struct settings, list), "", "", 0, 0, false,
         NULL},
        {"B", "Flag", "flag", CONF_BOOL, offsetof(struct settings, flag), "no", "", 0, 0, false,
         NULL},
        {"B", "N", "n", CONF_UINT, offsetof(struct settings, n), "5", "", 1, 10, false, NULL},
        {"B", "T", "t", CONF_NSEC, offsetof(struct settings, t), "1s", "", 1,
         100 * NSEC_PER_SEC, false, NULL},
        {"B", "Mood", "mood", CONF_ENUM, offsetof(struct settings, mood), "glad", "how it is",
         0, 0, false, moods},
        {"B", "End", "end", CONF_NSEC, offsetof(struct settings, end), "24h", "", 0, INT64_MAX,
         false, NULL},
};

static int read_bytes(const char *text, size_t n, struct settings *s, struct conf_error *err)
{
        char path[] = "/tmp/tenure-test-XXXXXX";
        int fd = mkstemp(path), r;

        CHECK(fd >= 0);
        CHECK_EQ(write(fd, text, n), n);
        close(fd);
        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), s), 0);
        r = conf_read_file(table, ARRAY_SIZE(table), s, path, err);
        unlink(path);
        return r;
}

static int read_text(const char *text, struct settings *s, struct conf_error *err)
{
        return read_bytes(text, strlen(text), s, err);
}

TEST(printing_and_reading_a_configuration_changes_nothing)
{
        struct settings s = {0}, again = {0};
        cleanup_(buf_fini) struct buf a = {0}, b = {0};
        struct conf_error err;

        CHECK_EQ(
                read_text("# comment\n[A]\nName = web 1\nList=a, "
                          "b\nList=c\n\n[B]\nFlag=yes\nN=7\nT=1500ms\nEnd=infinity\nMood=sad\n",
                          &s, &err),
                0);
        CHECK_STR(s.name, "web 1");
        CHECK_STR(s.list, "a,b,c");
        CHECK(s.flag && s.n == 7 && s.t == 1500 * NSEC_PER_MSEC && s.mood == 0);
        CHECK_EQ(s.end, INT64_MAX);
        conf_print(table, ARRAY_SIZE(table), &s, &a);
        buf_add_u8(&a, 0);
        CHECK_EQ(read_text((char *) a.data, &again, &err), 0);
        conf_print(table, ARRAY_SIZE(table), &again, &b);
        buf_add_u8(&b, 0);
        CHECK_STR((char *) b.data, (char *) a.data);
        conf_clear(table, ARRAY_SIZE(table), &s);
        conf_clear(table, ARRAY_SIZE(table), &again);
}

TEST(words_stand_for_their_values)
{
        static const struct conf_word one[] = {{"only", 1}, {NULL, 0}};
        struct settings s = {0}, other = {0};
        struct conf_error err = {""};
        char text[64], little[8];
        char *page = NULL;
        size_t n = 0;
        FILE *f;

        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), &s), 0);
        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), &other), 0);
        CHECK_EQ(s.mood, -1);
        CHECK(!conf_differs(&table[5], &s, &other));
        CHECK_EQ(conf_set_flag(&table[5], &other, "calm", &err), 0);
        CHECK(conf_differs(&table[5], &s, &other));
        conf_swap(&table[5], &s, &other);
        CHECK_EQ(s.mood, 7);
        CHECK_EQ(other.mood, -1);
        CHECK_EQ(conf_set_flag(&table[5], &s, "Calm", &err), -EINVAL);
        CHECK_STR(err.text, "--mood must be calm, glad or sad, not 'Calm'");
        CHECK_EQ(s.mood, 7);
        CHECK_STR(conf_words(moods, text, sizeof(text)), "calm, glad or sad");
        CHECK_STR(conf_words(moods + 1, text, sizeof(text)), "glad or sad");
        CHECK_STR(conf_words(one, text, sizeof(text)), "only");
        CHECK_STR(conf_words(moods, little, sizeof(little)), "calm, g");
        CHECK(!conf_word_of(moods, 5));

        f = open_memstream(&page, &n);
        CHECK(f != NULL);
        conf_help(&table[5], 1, f);
        conf_man(&table[5], 1, "prog", "/etc/prog.conf", f);
        fclose(f);
        CHECK(strstr(page, "how it is: calm, glad or sad [glad]\n") != NULL);
        CHECK(strstr(page, "How it is.\nOne of calm, glad or sad; option\n.Fl -mood .\n") !=
              NULL);
        free(page);
        conf_clear(table, ARRAY_SIZE(table), &s);
        conf_clear(table, ARRAY_SIZE(table), &other);
}

TEST(a_wrong_line_is_named)
{
        static const struct {
                const char *text, *says;
        } t[] = {
                {"[A]\nNmae=x\n", ":2: unknown key 'Nmae' in [A]"},
                {"[A]\nName=x\n[C]\nX=1\n", ":4: unknown section [C]"},
                {"Name=x\n", ":1: 'Name' stands before any [Section]"},
                {"[B]\n\nN=11\n", ":3: N= must be a whole number from 1 to 10, not '11'"},
                {"[B]\nFlag=maybe\n", ":2: Flag= must be yes or no, not 'maybe'"},
                {"[B]\nMood=bad\n", ":2: Mood= must be calm, glad or sad, not 'bad'"},
                {"[B]\nMood=\n", ":2: Mood= must be calm, glad or sad, not ''"},
                {"[A] Name=x\n", ":1: a [Section] is followed by something else"},
                {"[A]Name=x\n", ":1: a [Section] is followed by something else"},
                {"[A][B]\n", ":1: a [Section] is followed by something else"},
                {"[B]\nwhat is this\n",
                 ":2: neither a [Section], nor Key=value, nor a comment"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                struct settings s = {0};
                struct conf_error err = {""};

                CHECK_EQ(read_text(t[i].text, &s, &err), -EINVAL);
                if (!strstr(err.text, t[i].says))
                        test_fail(__FILE__, __LINE__, "it says: %s", err.text);
                conf_clear(table, ARRAY_SIZE(table), &s);
        }
}

/* inih takes some of these for blanks, depending on where a piece of a long list begins, and
 * everything after a zero or a carriage return was not seen at all. */
TEST(a_control_character_is_refused_by_name)
{
        static const struct {
                const char *text;
                size_t n;
                const char *says;
        } t[] = {
                {"[A]\nList=a,\vb\n", 14, ":2: the line has a control character (0x0b)"},
                {"[A]\nName=a\fb\n", 13, ":2: the line has a control character (0x0c)"},
                {"[A]\nName=a\0b\n", 13, ":2: the line has a control character (0x00)"},
                {"[A]\nName=a\rb\n", 13, ":2: the line has a control character (0x0d)"},
                {"[A]\nName=\033[1m\n", 14, ":2: the line has a control character (0x1b)"},
                {"[A\v]\n", 5, ":1: the line has a control character (0x0b)"},
                {"[A]\nName=a\x7f\n", 12, ":2: the line has a control character (0x7f)"},
        };
        static const char comments[] = "#\v\0\n;\f\n[A]\r\n\tName\t=\ty ;\v\nList=a,\tb\r\n";
        cleanup_(buf_fini) struct buf text = {0};
        struct settings s = {0};
        struct conf_error err = {""};

        for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
                CHECK_EQ(read_bytes(t[i].text, t[i].n, &s, &err), -EINVAL);
                if (!strstr(err.text, t[i].says))
                        test_fail(__FILE__, __LINE__, "it says: %s", err.text);
                conf_clear(table, ARRAY_SIZE(table), &s);
        }
        buf_printf(&text, "[A]\nList=%0150d,%*s\vb\n", 7, 60, "");
        CHECK_EQ(read_bytes((char *) buf_head(&text), buf_len(&text), &s, &err), -EINVAL);
        CHECK(strstr(err.text, ":2: the line has a control character (0x0b)"));
        conf_clear(table, ARRAY_SIZE(table), &s);

        CHECK_EQ(read_bytes(comments, sizeof(comments) - 1, &s, &err), 0);
        CHECK_STR(s.name, "y");
        CHECK_STR(s.list, "a,b");
        conf_clear(table, ARRAY_SIZE(table), &s);
}

/* The message has room for the reason, however long the path. */
TEST(a_wrong_line_of_a_long_path_is_named)
{
        char dir[] = "/tmp/tenure-test-XXXXXX", path[1024];
        struct settings s = {0};
        struct conf_error err = {""};
        FILE *f;

        CHECK(mkdtemp(dir));
        strcpy(path, dir);
        for (int i = 0; i < 300; i++)
                strcat(path, "//");
        strcat(path, "wrong.conf");
        f = fopen(path, "we");
        CHECK(f && fputs("[A]\nNmae=x\n", f) >= 0 && fclose(f) == 0);
        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), &s), 0);
        CHECK_EQ(conf_read_file(table, ARRAY_SIZE(table), &s, path, &err), -EINVAL);
        CHECK(strstr(err.text, "wrong.conf:2: unknown key 'Nmae' in [A]"));
        conf_clear(table, ARRAY_SIZE(table), &s);
        unlink(path);
        rmdir(dir);
}

/* inih reads 198 characters of a line: a list of many endpoints has more. */
TEST(a_long_line_is_a_list_or_refused)
{
        cleanup_(buf_fini) struct buf text = {0}, want = {0}, printed = {0};
        struct settings s = {0}, again = {0};
        struct conf_error err;

        buf_printf(&text, "# %0300d\n[A]\nName=y ; %0300d\nList = ", 7, 7);
        for (int i = 0; i < 40; i++) {
                buf_printf(&text, "%shttp://core%d:2379", i % 3 ? "," : i ? ", " : "", i);
                buf_printf(&want, "%shttp://core%d:2379", i ? "," : "", i);
        }
        buf_printf(&text, " ; all of them\nList=last\n");
        buf_printf(&want, ",last");
        buf_add_u8(&text, 0);
        buf_add_u8(&want, 0);
        CHECK_EQ(read_text((char *) buf_head(&text), &s, &err), 0);
        CHECK_STR(s.name, "y");
        CHECK_STR(s.list, (char *) buf_head(&want));
        conf_print(table, ARRAY_SIZE(table), &s, &printed);
        buf_add_u8(&printed, 0);
        CHECK_EQ(read_text((char *) buf_head(&printed), &again, &err), 0);
        CHECK_STR(again.list, s.list);
        conf_clear(table, ARRAY_SIZE(table), &s);
        conf_clear(table, ARRAY_SIZE(table), &again);

        /* inih takes a colon for an equals sign, and each piece gets the same key. */
        buf_clear(&text);
        buf_printf(&text, "[A]\nList:%0150d, a=%0150d\n", 7, 8);
        buf_add_u8(&text, 0);
        buf_clear(&want);
        buf_printf(&want, "%0150d,a=%0150d", 7, 8);
        buf_add_u8(&want, 0);
        CHECK_EQ(read_text((char *) buf_head(&text), &s, &err), 0);
        CHECK_STR(s.list, (char *) buf_head(&want));
        conf_clear(table, ARRAY_SIZE(table), &s);

        buf_clear(&text);
        buf_printf(&text, "[A]\nName=%0300d\n", 7);
        buf_add_u8(&text, 0);
        CHECK_EQ(read_text((char *) buf_head(&text), &s, &err), -EINVAL);
        CHECK(strstr(err.text, ":2: a word has more than 193 characters"));
        conf_clear(table, ARRAY_SIZE(table), &s);
        buf_clear(&text);
        buf_printf(&text, "[A]\nName=two words, of which%*sone is far away\n", 200, "");
        buf_add_u8(&text, 0);
        CHECK_EQ(read_text((char *) buf_head(&text), &s, &err), -EINVAL);
        CHECK(strstr(err.text, ":2: Name= stands in a line of more than 198 characters"));
        conf_clear(table, ARRAY_SIZE(table), &s);
        buf_clear(&text);
        buf_printf(&text, "[A]\n%0300d\n", 7);
        buf_add_u8(&text, 0);
        CHECK_EQ(read_text((char *) buf_head(&text), &s, &err), -EINVAL);
        CHECK(strstr(err.text, ":2: the line has 300 characters, more than 198"));
        conf_clear(table, ARRAY_SIZE(table), &s);
}

TEST(the_arena_gives_memory_that_is_zero_and_apart)
{
        cleanup_(arena_fini) struct arena a = {0};
        uint8_t *p[100];

        for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
                size_t n = rnd(1, 900);

                p[i] = arena_alloc(&a, n);
                for (size_t k = 0; k < n; k++)
                        CHECK_EQ(p[i][k], 0);
                memset(p[i], 0xa5, n);
        }
}

TEST(a_blob_is_given_back_from_its_end)
{
        struct buf bytes = {0};
        struct blob *b;

        for (int i = 0; i < 100; i++)
                buf_add(&bytes, (uint8_t[1000]){(uint8_t) i}, 1000);
        b = blob_new(&bytes);
        CHECK(b);
        CHECK(blob_shrink(b, 60000) > 0);
        CHECK(blob_view(b).len < 100000);
        CHECK_EQ(blob_view(b).p[30000], 30);
        while (blob_shrink(b, 60000) > 0)
                ;
        CHECK_EQ(blob_view(b).len, 0);
        blob_free(b);
}

TEST(names_for_dns)
{
        char name[256], text[400];
        bool tls;

        CHECK_EQ(url_parse_srv("srv://example.org", name, &tls), 0);
        CHECK(strcmp(name, "_etcd-client._tcp.example.org") == 0 && !tls);
        CHECK_EQ(url_parse_srv("srvs://example.org", name, &tls), 0);
        CHECK(strcmp(name, "_etcd-client-ssl._tcp.example.org") == 0 && tls);
        CHECK_EQ(url_parse_srv("srvs://_core._tcp.example.org", name, &tls), 0);
        CHECK_EQ(strcmp(name, "_core._tcp.example.org"), 0);
        CHECK_EQ(url_parse_srv("http://example.org:1", name, &tls), -ENOENT);
        CHECK_EQ(url_parse_srv("srv://", name, &tls), -EINVAL);
        CHECK_EQ(url_parse_srv("srv://a b", name, &tls), -EINVAL);
        CHECK_EQ(url_parse_srv("srv://a:1", name, &tls), -EINVAL);
        memset(text, 'a', sizeof(text));
        memcpy(text, "srv://", 6);
        text[sizeof(text) - 1] = '\0';
        CHECK_EQ(url_parse_srv(text, name, &tls), -EINVAL);
}

static char logged[1100];

static int keep_line(int level, const char *const fields[], const char *text)
{
        (void) level;
        (void) fields;
        snprintf(logged, sizeof(logged), "%s", text);
        return 0;
}

/* Whoever sends us text does not write our log: no second line, no escape sequence. */
TEST(a_line_of_the_log_is_one_line_and_printable)
{
        char out[32], was[8];

        log_set_sink(keep_line);
        log_info("at %s.", "http://x\n<3>All is well\x1b[2J\x7f\xc2\x9b");
        CHECK_STR(logged, "at http://x\\x0a<3>All is well\\x1b[2J\\x7f\\xc2\\x9b.");
        log_info("%s", "d\xc3\xbcnn \xe2\x82\xac \xf0\x9f\x90\xa7 \xc3 \xed\xa0\x80 "
                       "\xf5\x80\x80\x80 \xc0\xaf");
        CHECK_STR(logged, "d\xc3\xbcnn \xe2\x82\xac \xf0\x9f\x90\xa7 \\xc3 \\xed\\xa0\\x80 "
                          "\\xf5\\x80\\x80\\x80 \\xc0\\xaf");
        log_info("a\u200eb\u2027 \u2028\u202e\u202f \u2065\u2066\u2069\u206a");
        CHECK_STR(logged, "a\u200eb\u2027 \\xe2\\x80\\xa8\\xe2\\x80\\xae\u202f "
                          "\u2065\\xe2\\x81\\xa6\\xe2\\x81\\xa9\u206a");
        log_set_sink(NULL);
        CHECK_STR(utf8_shown("0123456789", 10, out, 11), "0123456789");
        CHECK_STR(utf8_shown("0123456789", 10, out, 10), "012345...");
        CHECK_STR(utf8_shown("a\0b", 3, out, sizeof(out)), "a\\x00b");
        CHECK_STR(utf8_shown("", 0, was, sizeof(was)), "");
        for (size_t size = 8; size < sizeof(out); size++) {
                memset(out, 'x', sizeof(out));
                utf8_shown("\xe2\x82\xac\n\xe2\x82\xac\n\xe2\x82", 10, out, size);
                CHECK(strlen(out) < size);
                for (size_t i = size; i < sizeof(out); i++)
                        CHECK_EQ(out[i], 'x');
        }
}

TEST(text_that_does_not_fit_is_cut_off_between_characters)
{
        static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
        static const size_t ends[] = {0, 1, 3, 6, 10};
        char out[16], expected[16] = "";
        size_t n = 0;

        for (size_t size = 1; size <= sizeof(text); size++) {
                if (n + 1 < ARRAY_SIZE(ends) && size > ends[n + 1])
                        n++;
                snprintf(expected, sizeof(expected), "%.*s", (int) ends[n], text);
                utf8_print(out, size, "%s", text);
                CHECK_STR(out, expected);
        }
        /* What is no text has no characters, and loses nothing. */
        utf8_print(out, 5, "%s", "\xa9\xa9\xa9\xa9\xa9\xa9");
        CHECK_STR(out, "\xa9\xa9\xa9\xa9");
}

/* The bus disconnects a sender of what it does not accept, so this is exactly what it accepts.
 */
TEST(text_for_the_bus_is_made_valid)
{
        static const char *const cases[][2] = {
                {"d\xc3\xbcnn \xe2\x82\xac \xf0\x9f\x90\xa7 \xf4\x8f\xbf\xbd",
                 "d\xc3\xbcnn \xe2\x82\xac \xf0\x9f\x90\xa7 \xf4\x8f\xbf\xbd"},
                {"\xef\xb7\x8f\xef\xb7\xb0\xef\xbf\xbd",
                 "\xef\xb7\x8f\xef\xb7\xb0\xef\xbf\xbd"},
                {"\xef\xb7\x90\xef\xb7\xaf", "??????"},
                {"\xef\xbf\xbe\xef\xbf\xbf", "??????"},
                {"\xf0\x9f\xbf\xbe\xf4\x8f\xbf\xbf", "????????"},
                {"\xed\xa0\x80\xf4\x90\x80\x80", "???????"},
                {"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", "?????????"},
                {"a\xc3", "a?"},
        };
        char text[32], was[4] = "a\0b";

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                strcpy(text, cases[i][0]);
                utf8_dbus_mend(text, strlen(text));
                CHECK_STR(text, cases[i][1]);
        }
        for (int lead = 0xf5; lead <= 0xff; lead++) {
                snprintf(text, sizeof(text), "%c\x91\x80\x80\x80\x80", (char) lead);
                utf8_dbus_mend(text, strlen(text));
                CHECK_STR(text, "??????");
        }
        utf8_dbus_mend(was, 3);
        CHECK_STR(was, "a?b");
}

static size_t lines_of(char *text, const char *what)
{
        size_t n = 0;

        for (char *at = text; (at = strstr(at, what)); at++)
                n++;
        return n;
}

/* A reader that has stopped reading stops nobody: what it does not take is dropped and counted.
 * Tested with a pipe, a stream and datagrams: like a shell's, systemd's and the journal's. */
TEST(a_log_that_nobody_reads_is_dropped_and_counted)
{
        static char text[4 << 20];
        char number[64];

        for (int kind = 0; kind < 3; kind++) {
                int fds[2], was = dup(STDERR_FILENO);
                ssize_t n, len = 0;
                size_t missing;

                if (kind == 0)
                        CHECK_EQ(pipe(fds), 0);
                else
                        CHECK_EQ(socketpair(AF_UNIX, kind == 1 ? SOCK_STREAM : SOCK_DGRAM, 0,
                                            fds),
                                 0);
                dup2(fds[kind == 0 ? 1 : 0], STDERR_FILENO);
                CHECK_EQ(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
                for (int i = 0; log_dropped() < 100 && i < 100000; i++)
                        log_error("line %d of many", i);
                dup2(was, STDERR_FILENO);
                missing = log_dropped();
                CHECK_EQ(missing, 100);
                /* It reads again, and the next line comes after one that reports the gap. */
                dup2(fds[kind == 0 ? 1 : 0], STDERR_FILENO);
                fcntl(fds[kind == 0 ? 0 : 1], F_SETFL, O_NONBLOCK);
                while ((n = read(fds[kind == 0 ? 0 : 1], text + len,
                                 sizeof(text) - 1 - (size_t) len)) > 0)
                        len += n;
                log_error("it goes on");
                while ((n = read(fds[kind == 0 ? 0 : 1], text + len,
                                 sizeof(text) - 1 - (size_t) len)) > 0)
                        len += n;
                dup2(was, STDERR_FILENO);
                close(was);
                close(fds[0]);
                close(fds[1]);
                text[len] = '\0';
                snprintf(number, sizeof(number), "%zu log messages are missing here", missing);
                CHECK_EQ(lines_of(text, number), 1);
                CHECK_EQ(lines_of(text, "it goes on"), 1);
                CHECK_EQ(log_dropped(), 0);
        }
}

TEST(peer_urls_of_a_member_have_one_form)
{
        char *two[] = {"http://b:1/", "https://a:2", "b:1"}, *bad[] = {"http://a"}, *many[9];
        char out[URLS_MAX];
        struct url u;

        CHECK_EQ(urls_join(two, 3, out), 0);
        CHECK_STR(out, "http://b:1,https://a:2");
        CHECK_EQ(urls_join(two, 0, out), -EINVAL);
        CHECK_EQ(urls_join(bad, 1, out), -EINVAL);
        for (size_t i = 0; i < ARRAY_SIZE(many); i++)
                many[i] = two[0];
        CHECK_EQ(urls_join(many, 9, out), -EINVAL);
        CHECK(urls_meet("http://a:1,http://b:1", "http://c:1,http://b:1"));
        CHECK(!urls_meet("http://a:1,http://b:1", "http://a:11"));
        for (const char *const *s =
                     (const char *const[]){"http://127.0.0.1:1", "localhost:1",
                                           "http://[::1]:1", "127.8.9.1:1", NULL};
             *s; s++) {
                CHECK_EQ(url_parse(*s, &u), 0);
                CHECK(url_is_loopback(&u));
        }
        for (const char *const *s =
                     (const char *const[]){"http://127.example.org:1", "0.0.0.0:1",
                                           "http://[::]:1", "127x:1", NULL};
             *s; s++) {
                CHECK_EQ(url_parse(*s, &u), 0);
                CHECK(!url_is_loopback(&u));
        }
}

static void put_file(const char *dir, const char *name, const char *text)
{
        char path[256];
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        f = fopen(path, "we");
        CHECK(f);
        fputs(text, f);
        fclose(f);
}

/* Drop-ins: by name, whatever their folder; the earlier folder wins, an empty file hides. */
TEST(drop_ins_are_read_in_the_order_of_their_names)
{
        struct both {
                uint64_t a, b;
                char *list;
        } t = {0};
        static const struct conf_option rows[] = {
                {"S", "A", "a", CONF_UINT, offsetof(struct both, a), "1", "", 0, 100, true,
                 NULL},
                {"S", "B", "b", CONF_UINT, offsetof(struct both, b), "1", "", 0, 100, true,
                 NULL},
                {"S", "L", "l", CONF_LIST, offsetof(struct both, list), "x", "", 0, 0, true,
                 NULL},
        };
        char one[] = "/tmp/tenure-conf-XXXXXX", two[] = "/tmp/tenure-conf-XXXXXX", cmd[128];
        const char *folders[] = {one, "/nonexistent", two, NULL};
        struct conf_error err = {""};

        CHECK(mkdtemp(one) && mkdtemp(two));
        put_file(one, "20-b.conf", "[S]\nA=2\nL=p\nL=q\n");
        put_file(two, "10-a.conf", "[S]\nA=3\nB=3\n");
        put_file(two, "20-b.conf", "[S]\nB=4\n"); /* hidden by its namesake */
        put_file(one, "30-c.conf", "");
        put_file(two, "30-c.conf", "[S]\nA=5\n"); /* by an empty one */
        put_file(two, "40-d.txt", "nonsense");
        CHECK_EQ(conf_defaults(rows, 3, &t), 0);
        CHECK_EQ(conf_read_folders(rows, 3, &t, folders, &err), 0);
        CHECK_EQ(t.a, 2);
        CHECK_EQ(t.b, 3);
        CHECK_STR(t.list, "p,q");
        put_file(two, "50-e.conf", "[S]\nC=5\n");
        CHECK_EQ(conf_read_folders(rows, 3, &t, folders, &err), -EINVAL);
        CHECK(strstr(err.text, "50-e.conf:2: unknown key 'C' in [S]"));
        conf_clear(rows, 3, &t);
        snprintf(cmd, sizeof(cmd), "rm -r %s %s", one, two);
        CHECK_EQ(system(cmd), 0);
}

/* A file that cannot be read is not a shorter file. */
TEST(settings_that_cannot_be_read_to_their_end_are_refused)
{
        struct settings s = {0};
        struct conf_error err = {""};
        char self[64];
        const char *const loop[] = {self, NULL}; /* a folder that leads to itself */

        snprintf(self, sizeof(self), "/tmp/base_test.%d", (int) getpid());
        CHECK_EQ(symlink(self, self), 0);
        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), &s), 0);
        CHECK_EQ(conf_read_file(table, ARRAY_SIZE(table), &s, "/", &err), -EISDIR);
        CHECK_STR(err.text, "/: cannot read: Is a directory");
        CHECK_EQ(conf_read_file(table, ARRAY_SIZE(table), &s, "/proc/self/mem", &err), -EIO);
        CHECK_STR(err.text, "/proc/self/mem: cannot read: Input/output error");
        CHECK_EQ(conf_read_file(table, ARRAY_SIZE(table), &s, "/dev/null", &err), 0);
        CHECK_EQ(conf_read_folders(table, ARRAY_SIZE(table), &s, loop, &err), -ELOOP);
        CHECK(strstr(err.text, ": cannot read: Too many levels of symbolic links"));
        CHECK_EQ(unlink(loop[0]), 0);
        CHECK_EQ(conf_read_folders(table, ARRAY_SIZE(table), &s, loop, &err), 0);
        conf_clear(table, ARRAY_SIZE(table), &s);
}

TEST(settings_that_are_too_large_are_not_read)
{
        int fd = memfd_create("settings", MFD_CLOEXEC);
        struct settings s = {0};
        struct conf_error err = {""};
        char path[32];

        CHECK_EQ(ftruncate(fd, (1 << 20) + 1), 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        CHECK_EQ(conf_defaults(table, ARRAY_SIZE(table), &s), 0);
        CHECK_EQ(conf_read_file(table, ARRAY_SIZE(table), &s, path, &err), -EFBIG);
        CHECK(strstr(err.text, ": cannot read: File too large"));
        conf_clear(table, ARRAY_SIZE(table), &s);
        close(fd);
}

/* The programs are linked with the same objects. */
TEST(programs_have_no_probes)
{
#ifdef TENURE_PROBES
        SKIP("this build is for simulated worlds");
#endif
        PROBE("a probe compiles to nothing");
        PROBE_IF(rnd(0, 1) == 0, "a condition is not evaluated");
        CHECK(!__start_probes);
}
