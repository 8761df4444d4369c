#include "fuzz.h"

static const struct fuzzer *const all[] = {
        &fuzz_files,     &fuzz_peers,      &fuzz_message,  &fuzz_rpc_server, &fuzz_rpc_client,
        &fuzz_service,   &fuzz_state,      &fuzz_snapshot, &fuzz_netlink,    &fuzz_place,
        &fuzz_records,   &fuzz_settings,   &fuzz_conf,     &fuzz_wire,       &fuzz_http,
        &fuzz_json_read, &fuzz_json_write, &fuzz_args,
};

const struct fuzzer *fuzzer_find(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
                if (strcmp(all[i]->name, name) == 0)
                        return all[i];
        return NULL;
}

int64_t take_number(struct view *v)
{
        static const int64_t edges[] = {INT64_MAX,
                                        INT64_MIN,
                                        INT64_MAX - 1,
                                        INT32_MAX,
                                        INT64_C(1) << 32,
                                        INT64_C(9000000000),
                                        INT64_C(9000000001),
                                        INT64_C(9000000000) * 1000,
                                        INT64_C(1) << 62,
                                        -2,
                                        -1,
                                        1000,
                                        65535,
                                        65536,
                                        4194304};
        uint8_t b = take_u8(v);

        if (b < 224)
                return b;
        if (b < 224 + (uint8_t) ARRAY_SIZE(edges))
                return edges[b - 224];
        return take_u16(v);
}
