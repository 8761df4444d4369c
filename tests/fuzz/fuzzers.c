#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"

static const struct fuzzer *const all[] = {
        &fuzz_files,      &fuzz_peers,   &fuzz_message,       &fuzz_rpc_server,
        &fuzz_rpc_client, &fuzz_service, &fuzz_state,         &fuzz_snapshot,
        &fuzz_netlink,    &fuzz_place,   &fuzz_records,       &fuzz_settings,
        &fuzz_conf,       &fuzz_wire,    &fuzz_http,          &fuzz_json_read,
        &fuzz_json_write, &fuzz_args,    &fuzz_core_settings, &fuzz_agent_settings,
        &fuzz_entry,      &fuzz_request, &fuzz_stat,
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

const char *as_file(struct view text)
{
        static char path[64];
        static int fd = -1;

        if (fd < 0)
                fd = memfd_create("settings", MFD_CLOEXEC);
        HOLDS(fd >= 0 && ftruncate(fd, 0) == 0 &&
              pwrite(fd, text.p, text.len, 0) == (ssize_t) text.len);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return path;
}

/* Whether inih has room for each line of this settings file. */
static bool lines_fit(struct view text)
{
        const uint8_t *end;

        while (text.len > 0 && (end = memchr(text.p, '\n', text.len))) {
                if (end - text.p > 190)
                        return false;
                text = (struct view){end + 1, text.len - (size_t) (end + 1 - text.p)};
        }
        return true;
}

void check_reads_back(const struct conf_option *table, size_t n, const void *a, void *b,
                      int (*read)(void *b, const char *path))
{
        cleanup_(buf_fini) struct buf printed = {0}, again = {0};
        struct view file;

        conf_print(table, n, a, &printed);
        file = (struct view){printed.data, buf_len(&printed)};
        if (!lines_fit(file))
                return;
        HOLDS(read(b, as_file(file)) == 0);
        conf_print(table, n, b, &again);
        HOLDS(file.len == buf_len(&again) && memcmp(file.p, again.data, file.len) == 0);
        for (size_t i = 0; i < n; i++)
                HOLDS(!conf_differs(&table[i], a, b));
        conf_clear(table, n, b);
}
