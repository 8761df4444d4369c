#include "consensus/message.h"

#include "base/le.h"
#include "consensus/address.h"
#include "consensus/lease_clock.h"
#include "consensus/log_tail.h"
#include "consensus/replica.h"

#define ENTRIES_MAX 4096
#define CONF_FORMAT 1 /* the version in libraft's encoding */

static int encode_entries(const struct raft_append_entries *p, message_entry_fn entry_of,
                          void *userdata, struct buf *out)
{
        buf_add_u32(out, p->n_entries);
        for (unsigned i = 0; i < p->n_entries; i++) {
                uint64_t term;
                uint8_t type;
                struct view data;

                if (!entry_of(userdata, p->prev_log_index + 1 + i, &term, &type, &data))
                        return -ENOENT;
                buf_add_u64(out, term);
                buf_add_u8(out, type);
                buf_add_u32(out, (uint32_t) data.len);
                buf_add(out, data.p, data.len);
        }
        return 0;
}

int message_encode(const struct raft_message *m, message_entry_fn entry_of, void *userdata,
                   size_t snapshot_len, struct buf *out)
{
        int r = 0;

        buf_add_u8(out, FRAME_RAFT);
        buf_add_u8(out, (uint8_t) m->type);
        switch (m->type) {
        case RAFT_APPEND_ENTRIES: {
                const struct raft_append_entries *p = &m->append_entries;

                buf_add_u64(out, p->term);
                buf_add_u64(out, p->prev_log_index);
                buf_add_u64(out, p->prev_log_term);
                buf_add_u64(out, p->leader_commit);
                r = encode_entries(p, entry_of, userdata, out);
                break;
        }
        case RAFT_APPEND_ENTRIES_RESULT: {
                const struct raft_append_entries_result *p = &m->append_entries_result;

                buf_add_u64(out, p->term);
                buf_add_u64(out, p->rejected);
                buf_add_u64(out, p->last_log_index);
                buf_add_u32(out, p->features);
                buf_add_u32(out, p->capacity);
                break;
        }
        case RAFT_REQUEST_VOTE: {
                const struct raft_request_vote *p = &m->request_vote;

                buf_add_u64(out, p->term);
                buf_add_u64(out, p->candidate_id);
                buf_add_u64(out, p->last_log_index);
                buf_add_u64(out, p->last_log_term);
                buf_add_u8(out, p->disrupt_leader);
                buf_add_u8(out, p->pre_vote);
                break;
        }
        case RAFT_REQUEST_VOTE_RESULT: {
                const struct raft_request_vote_result *p = &m->request_vote_result;

                buf_add_u64(out, p->term);
                buf_add_u8(out, p->vote_granted);
                buf_add_u8(out, p->pre_vote);
                buf_add_u32(out, p->features);
                buf_add_u32(out, p->capacity);
                break;
        }
        case RAFT_INSTALL_SNAPSHOT: {
                const struct raft_install_snapshot *p = &m->install_snapshot;
                struct raft_buffer conf;

                if (raft_configuration_encode(&p->conf, &conf) != 0)
                        return -ENOMEM;
                buf_add_u64(out, p->term);
                buf_add_u64(out, p->last_index);
                buf_add_u64(out, p->last_term);
                buf_add_u64(out, p->conf_index);
                buf_add_bytes(out, conf.base, conf.len);
                buf_add_varint(out, snapshot_len);
                raft_free(conf.base);
                break;
        }
        case RAFT_TIMEOUT_NOW: {
                const struct raft_timeout_now *p = &m->timeout_now;

                buf_add_u64(out, p->term);
                buf_add_u64(out, p->last_log_index);
                buf_add_u64(out, p->last_log_term);
                break;
        }
        }
        return r < 0 ? r : buf_error(out);
}

static bool flag(struct reader *rd)
{
        uint8_t v = reader_u8(rd);

        reader_check(rd, v <= 1);
        return v == 1;
}

static uint64_t index_of(struct reader *rd)
{
        uint64_t v = reader_u64(rd);

        reader_check(rd, v <= LOG_INDEX_MAX);
        return v;
}

static uint64_t term_upto(struct reader *rd, uint64_t max)
{
        uint64_t v = reader_u64(rd);

        reader_check(rd, v <= max);
        return v;
}

static unsigned short u16(struct reader *rd)
{
        uint32_t v = reader_u32(rd);

        reader_check(rd, v <= UINT16_MAX);
        return (unsigned short) v;
}

bool message_entry_is_sound(uint64_t term, uint8_t type, struct view data)
{
        if (type == RAFT_COMMAND)
                return term > 0 && data.len >= STAMP && le64_get(data.p) <= LEASE_CLOCK_MAX;
        return term > 0 &&
               (type == RAFT_BARRIER || (type == RAFT_CHANGE && message_conf_is_sound(data)));
}

/* All payloads are copied once, into the batch that raft expects. */
static void decode_entries(struct reader *rd, struct raft_append_entries *p)
{
        uint64_t term = p->prev_log_term; /* it never falls from one entry to the next */
        uint32_t n = reader_u32(rd);
        struct raft_entry *e;
        uint8_t *batch;

        reader_check(rd, n <= ENTRIES_MAX && n <= rd->in.len);
        if (rd->r < 0 || n == 0)
                return;
        e = raft_malloc(n * sizeof(*e));
        batch = raft_malloc(rd->in.len);
        rd->r = e && batch ? 0 : -ENOMEM;
        for (uint32_t i = 0, at = 0; i < n && rd->r == 0; i++) {
                struct view data;

                e[i].term = reader_u64(rd);
                e[i].type = reader_u8(rd);
                data = reader_take(rd, reader_u32(rd));
                reader_check(rd, e[i].term >= term && e[i].term <= p->term &&
                                         message_entry_is_sound(e[i].term, (uint8_t) e[i].type,
                                                                data));
                term = e[i].term;
                if (data.len > 0)
                        memcpy(batch + at, data.p, data.len);
                e[i].buf = (struct raft_buffer){batch + at, data.len};
                e[i].batch = batch;
                at += (uint32_t) data.len;
        }
        if (rd->r < 0) {
                raft_free(e);
                raft_free(batch);
                return;
        }
        p->entries = e;
        p->n_entries = n;
}

bool message_conf_is_sound(struct view conf)
{
        struct {
                uint64_t id;
                char urls[URLS_MAX];
        } servers[REPLICA_PEERS_MAX];
        uint8_t format, role;
        bool voter = false;
        uint64_t n;

        if (view_u8(&conf, &format) < 0 || format != CONF_FORMAT || view_u64(&conf, &n) < 0 ||
            n > REPLICA_PEERS_MAX)
                return false;
        for (size_t i = 0; i < n; i++) {
                const uint8_t *end;
                struct view address;

                if (view_u64(&conf, &servers[i].id) < 0 || servers[i].id == 0 || conf.len == 0)
                        return false;
                end = memchr(conf.p, 0, conf.len);
                if (!end || view_take(&conf, (size_t) (end - conf.p) + 1, &address) < 0 ||
                    view_u8(&conf, &role) < 0 || role > RAFT_SPARE)
                        return false;
                (void) address_urls((const char *) address.p, servers[i].urls);
                voter = voter || role == RAFT_VOTER;
                for (size_t k = 0; k < i; k++)
                        if (servers[k].id == servers[i].id ||
                            strcmp(servers[k].urls, servers[i].urls) == 0)
                                return false;
        }
        return voter;
}

int message_decode_conf(struct view in, struct raft_configuration *ret)
{
        struct raft_buffer b = {(void *) (uintptr_t) in.p, in.len};

        if (!message_conf_is_sound(in))
                return -EBADMSG;
        return raft_configuration_decode(&b, ret) == 0 ? 0 : -ENOMEM;
}

int message_decode_snapshot(struct view in, uint64_t term, uint64_t index,
                            struct raft_message *ret, struct view *ret_state)
{
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        struct raft_install_snapshot *p = &m.install_snapshot;
        struct reader rd = {.in = in};
        uint8_t type = reader_u8(&rd);
        struct view conf, state;

        p->term = reader_u64(&rd);
        p->last_index = reader_u64(&rd);
        p->last_term = term_upto(&rd, term);
        p->conf_index = reader_u64(&rd);
        conf = reader_bytes(&rd);
        state = reader_bytes(&rd);
        /* [libraft] These are only assertions there. */
        reader_check(&rd, type == RAFT_INSTALL_SNAPSHOT && rd.in.len == 0 && p->term == term &&
                                  p->last_index == index && index > 0 && p->last_term > 0 &&
                                  p->conf_index > 0 && p->conf_index <= index);
        if (rd.r == 0)
                rd.r = message_decode_conf(conf, &p->conf);
        if (rd.r < 0)
                return rd.r;
        *ret = m;
        *ret_state = state;
        return 0;
}

int message_decode(struct view in, uint64_t peer, uint64_t term_max, struct raft_message *ret)
{
        struct reader rd = {.in = in};
        struct raft_message m = {.type = reader_u8(&rd)};
        uint64_t term = term_upto(&rd, term_max); /* each kind begins with it */

        switch (m.type) {
        case RAFT_APPEND_ENTRIES:
                m.append_entries.version = 1;
                m.append_entries.term = term;
                m.append_entries.prev_log_index = index_of(&rd);
                m.append_entries.prev_log_term = term_upto(&rd, term);
                m.append_entries.leader_commit = index_of(&rd);
                reader_check(&rd, (m.append_entries.prev_log_index == 0) ==
                                          (m.append_entries.prev_log_term == 0));
                decode_entries(&rd, &m.append_entries);
                break;
        case RAFT_APPEND_ENTRIES_RESULT:
                m.append_entries_result.version = 1;
                m.append_entries_result.term = term;
                m.append_entries_result.rejected = index_of(&rd);
                m.append_entries_result.last_log_index = index_of(&rd);
                m.append_entries_result.features = u16(&rd);
                m.append_entries_result.capacity = u16(&rd);
                break;
        case RAFT_REQUEST_VOTE:
                m.request_vote.version = 2;
                m.request_vote.term = term;
                m.request_vote.candidate_id = reader_u64(&rd);
                m.request_vote.last_log_index = index_of(&rd);
                m.request_vote.last_log_term = term_upto(&rd, term);
                m.request_vote.disrupt_leader = flag(&rd);
                m.request_vote.pre_vote = flag(&rd);
                reader_check(&rd, m.request_vote.candidate_id == peer);
                break;
        case RAFT_REQUEST_VOTE_RESULT:
                m.request_vote_result.version = 2;
                m.request_vote_result.term = term;
                m.request_vote_result.vote_granted = flag(&rd);
                m.request_vote_result.pre_vote = flag(&rd);
                m.request_vote_result.features = u16(&rd);
                m.request_vote_result.capacity = u16(&rd);
                break;
        case RAFT_TIMEOUT_NOW:
                m.timeout_now.term = term;
                m.timeout_now.last_log_index = index_of(&rd);
                m.timeout_now.last_log_term = term_upto(&rd, term);
                break;
        default:
                return -EBADMSG;
        }
        reader_check(&rd, rd.in.len == 0);
        if (rd.r < 0)
                message_discard(&m);
        else
                *ret = m;
        return rd.r;
}

void message_drop_entries(struct raft_append_entries *p)
{
        if (p->n_entries > 0)
                raft_free(p->entries[0].batch);
        raft_free(p->entries);
        p->entries = NULL;
        p->n_entries = 0;
}

void message_discard(struct raft_message *m)
{
        if (m->type == RAFT_APPEND_ENTRIES)
                message_drop_entries(&m->append_entries);
        else if (m->type == RAFT_INSTALL_SNAPSHOT)
                raft_configuration_close(&m->install_snapshot.conf);
}
