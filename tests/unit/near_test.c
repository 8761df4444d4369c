/* Which word somebody may have meant. */
#include "base/near.h"
#include "test.h"

static const char *nearest(const char *typed)
{
        static const char *const words[] = {"status", "nodes", "services",
                                            "watch",  "top",   "keep-alive"};
        struct near near = {0};

        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                near_try(&near, typed, strlen(typed), words[i]);
        return near.word ? near.word : "";
}

TEST(a_word_that_is_nearly_one_is_found_and_another_is_not)
{
        char longer[100];

        memset(longer, 'a', sizeof(longer));
        longer[sizeof(longer) - 1] = '\0';
        CHECK(strcmp(nearest("status"), "status") == 0);
        CHECK(strcmp(nearest("stauts"), "status") == 0); /* two swapped are one mistake */
        CHECK(strcmp(nearest("node"), "nodes") == 0);
        CHECK(strcmp(nearest("serivces"), "services") == 0);
        CHECK(strcmp(nearest("keepalive"), "keep-alive") == 0);
        CHECK(strcmp(nearest("tpo"), "top") == 0);
        CHECK(strcmp(nearest("dance"), "") == 0);
        CHECK(strcmp(nearest("t"), "") == 0);
        CHECK(strcmp(nearest(""), "") == 0);
        CHECK(strcmp(nearest(longer), "") == 0);
}
