/* What the JSON gateway says of methods is what their table says. */
#include "etcd/gateway_paths.h"
#include "etcd/internal.h"
#include "test.h"

static const struct method *method_at(const char *path)
{
        const struct method *m;
        size_t i = 0;

        while ((m = api_method(i)) && strcmp(m->path, path) != 0)
                i++;
        return m;
}

TEST(the_gateway_streams_what_the_methods_stream)
{
        const struct gateway_method *g;
        size_t n;

        g = gateway_methods(&n);
        CHECK(n > 40);
        for (size_t i = 0; i < n; i++) {
                const struct method *m = method_at(g[i].call);

                CHECK(m != NULL);
                CHECK(!m->request || m->request == g[i].request);
                CHECK_EQ(g[i].client_streams, m->kind == BIDI_STREAM);
                CHECK_EQ(g[i].server_streams, m->kind != UNARY);
                CHECK(i == 0 || strcmp(g[i - 1].path, g[i].path) < 0); /* it is searched */
        }
}
