/* What a replica asks that has no link of its own yet, as the others read it. */
#include "consensus/join.h"
#include "test.h"

static struct view all(const struct buf *b)
{
        return (struct view){buf_head(b), buf_len(b)};
}

TEST(a_request_to_be_replaced_is_read_when_all_of_it_is_there)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct join_request q;

        replace_request("http://a:1,http://b:2", "core1", &b);
        CHECK(join_begins(buf_head(&b), 8));
        for (size_t n = 0; n < buf_len(&b); n++)
                CHECK_EQ(join_read((struct view){buf_head(&b), n}, &q), 1);
        CHECK_EQ(join_read(all(&b), &q), 0);
        CHECK(q.replace);
        CHECK_STR(q.urls, "http://a:1,http://b:2");
        CHECK_STR(q.name, "core1");
}

/* A joiner has one URL; text has no zero in it; and nothing is longer than there is room for.
 */
TEST(a_request_that_makes_no_sense_is_refused)
{
        static char name[REPLACE_NAME_MAX + 1], urls[URLS_MAX + 1];
        cleanup_(buf_fini) struct buf b = {0};
        struct join_request q;

        memset(name, 'a', REPLACE_NAME_MAX);
        memset(urls, 'u', URLS_MAX);
        replace_request("http://a:1", name, &b);
        CHECK_EQ(join_read(all(&b), &q), -EBADMSG);
        buf_clear(&b);
        replace_request(urls, "a", &b);
        CHECK_EQ(join_read(all(&b), &q), -EBADMSG);
        buf_clear(&b);
        replace_request("http://a:1", "core1", &b);
        buf_head(&b)[JOIN_HEAD + 3] = 0;
        CHECK_EQ(join_read(all(&b), &q), -EBADMSG);
        buf_clear(&b);
        buf_add(&b, JOIN_MAGIC, 8);
        buf_add_u64(&b, 21);
        buf_add_u64(&b, 0);
        buf_add(&b, "http://a:1,http://b:2", 21);
        CHECK_EQ(join_read(all(&b), &q), -EBADMSG);
}
