#include "consensus/join.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/le.h"
#include "base/utf8.h"

#define TRY_FOR NSEC_PER_SEC
#define ANSWER_MAX (REPLICA_PEERS_MAX * (URLS_MAX + 32))

struct join {
        char *urls, *self, *self_urls, *name;
        bool may_replace;
        bool replaces;       /* this request is to replace us ... */
        bool asks_again;     /* ... or the next one is, to the same member */
        uint64_t refused_by; /* the cluster that knows another directory of ours; 0: none */
        uint64_t directory;
        const char *cursor; /* the next URL to ask */
        struct tls *tls;
        const struct admission *admission;
        join_fn fn;
        void *userdata;
        struct url url;
        struct stream *stream;
        struct dial dial;
        struct buf rx;
        struct loop_timer timer;
        char asked[320];
        char why[560];
};

static void join_request(const char *url, uint64_t directory, struct buf *out)
{
        buf_add(out, JOIN_MAGIC, strlen(JOIN_MAGIC));
        buf_add_u64(out, strlen(url));
        buf_add_u64(out, directory);
        buf_add(out, url, strlen(url));
}

void replace_request(const char *urls, const char *name, struct buf *out)
{
        buf_add(out, REPLACE_MAGIC, strlen(REPLACE_MAGIC));
        buf_add_u64(out, strlen(urls));
        buf_add_u64(out, strlen(name));
        buf_add(out, urls, strlen(urls));
        buf_add(out, name, strlen(name));
}

bool join_begins(const uint8_t *p, size_t n)
{
        return memcmp(p, JOIN_MAGIC, n) == 0 || memcmp(p, REPLACE_MAGIC, n) == 0;
}

/* Takes @len bytes as a string. */
static bool take_text(struct view *in, uint64_t len, char *ret, size_t size)
{
        if (len >= size || memchr(in->p, 0, (size_t) len))
                return false;
        memcpy(ret, in->p, (size_t) len);
        ret[len] = '\0';
        in->p += len;
        in->len -= (size_t) len;
        return true;
}

int join_read(struct view in, struct join_request *ret)
{
        uint64_t len, other, name_len;
        struct url u;

        *ret = (struct join_request){0};
        if (in.len < JOIN_HEAD)
                return 1;
        ret->replace = memcmp(in.p, REPLACE_MAGIC, 8) == 0;
        len = le64_get(in.p + 8);
        other = le64_get(in.p + 16);
        name_len = ret->replace ? other : 0;
        if (len >= (ret->replace ? URLS_MAX : JOIN_URL_MAX) || name_len >= REPLACE_NAME_MAX)
                return -EBADMSG;
        if (in.len - JOIN_HEAD < len + name_len)
                return 1;
        in.p += JOIN_HEAD;
        in.len -= JOIN_HEAD;
        if (!take_text(&in, len, ret->urls, sizeof(ret->urls)) ||
            !take_text(&in, name_len, ret->name, sizeof(ret->name)))
                return -EBADMSG;
        ret->directory = ret->replace ? 0 : other;
        if (!ret->replace && (strchr(ret->urls, ',') || url_parse(ret->urls, &u) < 0))
                return -EBADMSG;
        return 0;
}

void replace_answer(const char *clause, struct buf *out)
{
        buf_add_u32(out, (uint32_t) strlen(clause));
        buf_add(out, clause, strlen(clause));
}

static void on_connected(struct stream *s, void *userdata)
{
        struct join *j = userdata;
        struct buf *tx = stream_tx(s);
        char why[512];

        j->stream = s;
        if (!admission_check(j->admission, s, j->asked, why)) {
                snprintf(j->why, sizeof(j->why), "refused the answer of %.320s: %.180s",
                         j->asked, why);
                j->stream = stream_free(j->stream);
                return;
        }
        if (j->replaces)
                replace_request(j->self_urls, j->name, tx);
        else
                join_request(j->self, j->directory, tx);
        stream_kick(s);
}

void join_answer(const struct joined *who, struct buf *out)
{
        cleanup_(buf_fini) struct buf b = {0};

        buf_add_u64(&b, who->cluster_id);
        buf_add_u64(&b, who->member_id);
        for (size_t i = 0; i < who->n_members; i++) {
                buf_add_u64(&b, who->members[i].id);
                buf_add_bytes(&b, who->members[i].urls, strlen(who->members[i].urls));
        }
        buf_add_u32(out, (uint32_t) buf_len(&b));
        buf_add(out, buf_head(&b), buf_len(&b));
}

static int parse(struct view in, struct joined *ret)
{
        struct reader rd = {.in = in};

        ret->cluster_id = reader_u64(&rd);
        ret->member_id = reader_u64(&rd);
        ret->n_members = 0;
        while (rd.r == 0 && rd.in.len > 0 && ret->n_members < REPLICA_PEERS_MAX) {
                size_t i = ret->n_members++;
                struct view urls;

                ret->members[i].id = reader_u64(&rd);
                urls = reader_bytes(&rd);
                reader_check(&rd, ret->members[i].id != 0 && urls.len > 0 &&
                                          urls.len < sizeof(ret->members[i].urls) &&
                                          !memchr(urls.p, 0, urls.len));
                if (rd.r < 0)
                        break;
                memcpy(ret->members[i].urls, urls.p, urls.len);
                ret->members[i].urls[urls.len] = '\0';
        }
        reader_check(&rd, rd.in.len == 0);
        return rd.r;
}

/* The member there; 0: there is none. */
static uint64_t member_at(const struct joined *who, const char *url)
{
        for (size_t i = 0; i < who->n_members; i++)
                if (urls_meet(who->members[i].urls, url))
                        return who->members[i].id;
        return 0;
}

/* Member @id, which we would be, has another directory than ours, which is empty. It may have
 * been lost before the others knew its name, so the command has the id. */
static void refused(struct join *j, uint64_t id)
{
        int n = snprintf(
                j->why, sizeof(j->why),
                "%.200s reports that the member at %.200s has a data directory already",
                j->asked, j->self);

        j->asks_again = j->may_replace;
        if (j->may_replace)
                loop_timer_in(&j->timer, 0);
        else
                snprintf(j->why + n, sizeof(j->why) - (size_t) n,
                         "; if its disk is lost: tenurectl core replace %016" PRIx64
                         ", or ReplaceLostDisk=yes on all core hosts",
                         id);
}

static void on_data(struct stream *s, struct view data)
{
        struct join *j = stream_userdata(s);
        struct joined who;
        uint32_t len;

        buf_add(&j->rx, data.p, data.len);
        if (buf_len(&j->rx) < 4)
                return;
        len = le32_get(buf_head(&j->rx));
        if (buf_len(&j->rx) - 4 < len && len <= ANSWER_MAX)
                return;
        j->stream = stream_free(j->stream); /* one answer is enough */
        if (j->replaces && len <= ANSWER_MAX) {
                char shown[300];

                snprintf(j->why, sizeof(j->why), "%.200s was asked to replace this member: %s",
                         j->asked,
                         utf8_shown((const char *) buf_head(&j->rx) + 4, len, shown,
                                    sizeof(shown)));
        } else if (len > ANSWER_MAX ||
                   parse((struct view){buf_head(&j->rx) + 4, len}, &who) < 0) {
                snprintf(j->why, sizeof(j->why), "%s sent an invalid answer", j->asked);
        } else if (who.member_id != 0) {
                loop_timer_disarm(&j->timer);
                return j->fn(j->userdata, &who, "");
        } else if (member_at(&who, j->self) != 0) {
                j->refused_by = who.cluster_id;
                refused(j, member_at(&who, j->self));
        } else {
                snprintf(j->why, sizeof(j->why),
                         "%s knows no member at %s; add it first (tenurectl core add)",
                         j->asked, j->self);
        }
}

static void on_close(struct stream *s, const char *why)
{
        struct join *j = stream_userdata(s);

        if (!*j->why)
                snprintf(j->why, sizeof(j->why), "%s does not answer (%s); its log may say why",
                         j->asked, why);
        j->stream = stream_free(j->stream);
}

static const struct stream_ops ops = {.on_data = on_data, .on_close = on_close};

static void on_failed(const char *why, void *userdata)
{
        struct join *j = userdata;

        snprintf(j->why, sizeof(j->why), "%s does not answer (%s); its log may say why",
                 j->asked, why);
}

static const struct dial_ops dial_ops = {.connected = on_connected, .failed = on_failed};

/* Asks at the next URL. */
static void on_timer(struct loop_timer *t)
{
        struct join *j = container_of(t, struct join, timer);
        struct joined refused_by = {.cluster_id = j->refused_by};
        char why[sizeof(j->why)];

        j->stream = stream_free(j->stream);
        dial_stop(&j->dial);
        buf_clear(&j->rx);
        strcpy(why, j->why);
        *j->why = '\0';
        j->refused_by = 0;
        j->replaces = j->asks_again;
        j->asks_again = false;
        if (!j->replaces && !list_next(&j->cursor, j->asked, sizeof(j->asked))) {
                j->cursor = j->urls;
                (void) list_next(&j->cursor, j->asked, sizeof(j->asked));
        }
        if (url_parse(j->asked, &j->url) == 0 && (!j->url.tls || j->tls))
                dial_start(&j->dial, &j->url, j->tls);
        loop_timer_in(&j->timer, TRY_FOR);
        if (*why) /* last: the callback may end @j */
                j->fn(j->userdata, refused_by.cluster_id != 0 ? &refused_by : NULL, why);
}

int join_new(struct join **ret, struct loop *l, struct resolver *rv,
             const struct join_config *cfg, join_fn fn, void *userdata)
{
        cleanup_(join_freep) struct join *j = calloc(1, sizeof(*j));

        if (!j)
                return -ENOMEM;
        loop_timer_init(&j->timer, l, on_timer);
        dial_init(&j->dial, l, rv, &dial_ops, &ops, j);
        j->tls = cfg->tls;
        j->directory = cfg->directory;
        j->admission = cfg->admission;
        j->fn = fn;
        j->userdata = userdata;
        j->urls = strdup(cfg->urls);
        j->self = strdup(cfg->self);
        j->self_urls = strdup(cfg->self_urls ? cfg->self_urls : "");
        j->name = strdup(cfg->name ? cfg->name : "");
        if (!j->urls || !j->self || !j->self_urls || !j->name)
                return -ENOMEM;
        j->may_replace = cfg->replace;
        j->cursor = j->urls;
        loop_timer_in(&j->timer, 0);
        *ret = take_ptr(j);
        return 0;
}

struct join *join_free(struct join *j)
{
        if (!j)
                return NULL;
        loop_timer_disarm(&j->timer);
        dial_stop(&j->dial);
        stream_free(j->stream);
        buf_fini(&j->rx);
        free(j->urls);
        free(j->self);
        free(j->self_urls);
        free(j->name);
        free(j);
        return NULL;
}
