/* Files of settings in YAML: their content, and the lines that errors name. */
#include "base/yaml.h"

#include "nomem.h"
#include "test.h"

static struct buf said;

static int on_setting(const char *section, const char *key, const char *value, void *arg,
                      struct conf_error *err)
{
        (void) arg;
        if (strcmp(value, "wrong") == 0) {
                snprintf(err->text, sizeof(err->text), "%s cannot be that", key);
                return -EINVAL;
        }
        buf_printf(&said, "%s/%s=%s;", section, key, value);
        return 0;
}

/* The settings of a text, or the error. */
static const char *read_text(const char *text, size_t len)
{
        static struct conf_error err;

        buf_clear(&said);
        err.text[0] = '\0';
        if (yaml_read((struct view){(const uint8_t *) text, len}, "f", on_setting, NULL, &err) <
            0)
                return err.text;
        buf_add_u8(&said, 0);
        CHECK_EQ(buf_error(&said), 0);
        return (const char *) buf_head(&said);
}

#define READ(text) read_text(text, strlen(text))

TEST(settings_in_yaml_are_read)
{
        static const struct {
                const char *in, *out;
        } t[] = {
                {"", ""},
                {"# nothing\n---\n", ""},
                {"name: 'n 1'\nb: 2 # two\n", "/name=n 1;/b=2;"},
                {"a:\nb: ~\nc: null\nd: 'null'\ne: ''\n", "/d=null;/e=;"},
                {"list: [x, \"y\"]\nl2:\n- 1\n- 2\nl3: []\n", "/list=x,y;/l2=1,2;/l3=;"},
                {"s:\n  k: v\n  l: [1]\nt: u\n", "s/k=v;s/l=1;/t=u;"},
                {"k: v\ns:\n  k: v\n", "/k=v;s/k=v;"},
                {"{\"a\": \"b\", \"c\": {\"d\": true}}", "/a=b;c/d=true;"},
                {"a: >\n  x\n  y\n", "/a=x y;"},
                {"a: http://h:1,http://i:2\n", "/a=http://h:1,http://i:2;"},
                /* and errors */
                {"a: wrong\n", "f:1: a cannot be that"},
                {"a: b\n\ns:\n  k: wrong\n", "f:4: k cannot be that"},
                {"a: 1\nb: 2\na: 3\n", "f:3: 'a' is given a second time"},
                {"s:\n  t:\n    u: v\n", "f:3: 't' has sections of its own"},
                {"a: [[1]]\n", "f:1: a is neither a word nor a number"},
                {"? [x]\n: y\n", "f:1: a key is neither a word nor a number"},
                {"- a\n", "f:1: neither a setting, KEY: VALUE, nor a comment"},
                {"hello\n", "f:1: neither a setting, KEY: VALUE, nor a comment"},
                {"a: &x 1\nb: *x\n", "f:2: 'b' is an alias, which is not supported"},
                {"a: 1\n---\nb: 2\n", "f:2: a second document begins here"},
                {"a: \"x\\ny\"\n", "f:1: a has a control character (0x0a)"},
                {"a: \"x\\0y\"\n", "f:1: a has a control character (0x00)"},
                {"a: 'x\n", "f:2: found unexpected end of stream"},
                {"a: b: c\n", "f:1: mapping values are not allowed in this context"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(t); i++)
                CHECK_STR(READ(t[i].in), t[i].out);
        buf_fini(&said);
}

/* A file may not keep us busy. */
TEST(yaml_has_bounds)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct conf_error err;

        for (size_t i = 0; i < 1001; i++)
                buf_printf(&b, "k%zu: v\n", i);
        CHECK_STR(read_text((const char *) buf_head(&b), buf_len(&b)),
                  "f:1001: more than 1000 settings");
        buf_clear(&b);
        for (size_t i = 0; i < 100000; i++)
                buf_add_u8(&b, '[');
        CHECK_STR(read_text((const char *) buf_head(&b), buf_len(&b)),
                  "f:1: neither a setting, KEY: VALUE, nor a comment");
        CHECK_EQ(yaml_read_file("/nonexistent/x", on_setting, NULL, &err), -ENOENT);
        CHECK_STR(err.text, "/nonexistent/x: cannot read: No such file or directory");
        CHECK_EQ(yaml_read_file("/proc/self", on_setting, NULL, &err), -EISDIR);
        CHECK_EQ(yaml_read_file("/dev/zero", on_setting, NULL, &err), -EFBIG);
        buf_fini(&said);
}

TEST(yaml_without_memory)
{
        static const char text[] = "a: b\nl: [x, y]\ns:\n  k: v\n";
        struct conf_error err = {""};
        size_t n = 0;
        int r;

        do {
                buf_fini(&said);
                nomem_after(n++);
                r = yaml_read((struct view){(const uint8_t *) text, strlen(text)}, "f",
                              on_setting, NULL, &err);
        } while (nomem_end());
        CHECK_EQ(r, 0);
        CHECK(n > 5);
        buf_fini(&said);
}
