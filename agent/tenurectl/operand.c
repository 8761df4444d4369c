#include "operand.h"

#include "base/conf.h"
#include "text.h"

static int read(const struct conf_option *o, const char *what, const char *text, void *ret)
{
        struct conf_error err;

        return conf_set(o, ret, text, what, &err) < 0 ? say("%s", err.text) : 0;
}

int operand_time(const char *what, const char *text, nsec_t min, nsec_t max, nsec_t *ret)
{
        return read(&(struct conf_option){.type = CONF_NSEC, .min = min, .max = max}, what,
                    text, ret);
}

int operand_count(const char *what, const char *text, int64_t min, int64_t max, uint64_t *ret)
{
        return read(&(struct conf_option){.type = CONF_UINT, .min = min, .max = max}, what,
                    text, ret);
}

int operand_pair(char *text)
{
        char *eq = strchr(text, '=');

        if (!eq || eq == text)
                return say("'%s' is not NAME=VALUE", text);
        *eq = '\0';
        return 0;
}
