#include "methods.h"

const struct method *fuzz_method(size_t i)
{
        const struct {
                const struct method *methods;
                size_t n;
        } tables[] = {
                {kv_methods, n_kv_methods},
                {lease_methods, n_lease_methods},
                {auth_methods, n_auth_methods},
                {lock_methods, n_lock_methods},
                {maintenance_methods, n_maintenance_methods},
                {cluster_methods, n_cluster_methods},
        };

        for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
                for (size_t k = 0; k < tables[t].n; k++)
                        if (!tables[t].methods[k].stream && i-- == 0)
                                return &tables[t].methods[k];
        return NULL;
}

size_t fuzz_methods(void)
{
        size_t n = 0;

        while (fuzz_method(n))
                n++;
        return n;
}
