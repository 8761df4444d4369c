#include "core.h"

#include <bsd/readpassphrase.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/secret.h"
#include "client/endpoint.h"
#include "loop/tls.h"
#include "wire/pb.h"

#define TRY_FOR (5 * NSEC_PER_SEC)
#define CALL_FOR (10 * NSEC_PER_SEC)

/* One call, and the loop that runs for it. */
struct talk {
        struct loop *loop;
        struct resolver *resolver;
        struct endpoint *ep;
        SSL_CTX *tls;
        struct endpoint_login login; /* user NULL: none */
        struct loop_timer timer;
        const char *path;
        const ProtobufCMessage *request;
        const ProtobufCMessageDescriptor *reply_type;
        void *reply; /* the last message; owned */
        int (*each)(void *arg,
                    void *reply); /* for every message of a stream; NULL: keep the last */
        void *arg;
        bool sent, done;
        int failed; /* of `each` */
        enum rpc_code code;
        char text[512];
        char down[256];
};

static void finish(struct talk *t)
{
        t->done = true;
        loop_stop(t->loop);
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct talk *t = call->userdata;

        pb_free(t->reply);
        t->reply = protobuf_c_message_unpack(t->reply_type, NULL, m.len, m.p);
        if (t->reply && t->each && t->failed == 0)
                t->failed = t->each(t->arg, t->reply);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct talk *t = call->userdata;

        t->code = code;
        snprintf(t->text, sizeof(t->text), "%s", message);
        finish(t);
}

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static void on_up(struct endpoint *e, void *userdata)
{
        struct talk *t = userdata;
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;

        if (t->sent)
                return;
        t->sent = true;
        pb_append(&b, t->request);
        if (buf_error(&b) < 0 ||
            rpc_call_new(endpoint_rpc(e), t->path, false, &handler, t, &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0) {
                t->code = RPC_UNAVAILABLE;
                snprintf(t->text, sizeof(t->text), "out of memory");
                return finish(t);
        }
        rpc_call_end(call);
        endpoint_kick(e);
        if (loop_timer_arm(&t->timer, boot_add(boot_now(), CALL_FOR)) < 0)
                finish(t);
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        struct talk *t = userdata;

        (void) e;
        snprintf(t->down, sizeof(t->down), "%s", why);
        if (!t->sent && !t->done)
                finish(t);
}

static const struct endpoint_ops endpoint_ops = {.up = on_up, .down = on_down};

static void on_timer(struct loop_timer *timer)
{
        finish(container_of(timer, struct talk, timer));
}

static int make_tls(const struct core_options *o, SSL_CTX **ret)
{
        struct tls_error err;

        if (!strstr(o->endpoints, "https://"))
                return 0;
        if (tls_new_client(
                    ret,
                    &(struct tls_files){
                            .cert = o->cert, .key = o->key, .ca = o->cacert, .http2 = true},
                    &err) == 0)
                return 0;
        fprintf(stderr, "tenurectl: %s.\n", err.text);
        return -EINVAL;
}

/* Who to log in as; @name and @password keep it. */
static int make_login(const struct core_options *o, struct endpoint_login *ret, char name[256],
                      char password[512])
{
        const char *colon = o->user ? strchr(o->user, ':') : NULL;
        char prompt[300];
        int r;

        if (!o->user)
                return 0;
        snprintf(name, 256, "%.*s", (int) (colon ? colon - o->user : 255), o->user);
        *ret = (struct endpoint_login){.user = name, .password = password};
        if (colon) {
                snprintf(password, 512, "%s", colon + 1);
                return 0;
        }
        if (o->password_file) {
                r = secret_read(o->password_file, password, 512);
                if (r < 0)
                        fprintf(stderr, "tenurectl: cannot read a password from %s: %s.\n",
                                o->password_file, strerror(-r));
                return r;
        }
        snprintf(prompt, sizeof(prompt), "Password of %s: ", name);
        if (readpassphrase(prompt, password, 512, RPP_REQUIRE_TTY))
                return 0;
        fprintf(stderr,
                "tenurectl: no terminal to ask for the password of %s; give "
                "--password-file.\n",
                name);
        return -ENOTTY;
}

/* Asks one endpoint. Returns 0 when it answered, whatever it said. */
static int ask(struct talk *t, const char *url)
{
        int r = loop_new(&t->loop);

        if (r == 0)
                r = resolver_new(&t->resolver, t->loop);
        if (r < 0)
                return r;
        loop_timer_init(&t->timer, t->loop, on_timer);
        t->sent = t->done = false;
        t->code = RPC_UNAVAILABLE;
        snprintf(t->text, sizeof(t->text), "no answer in time");
        r = endpoint_new(&t->ep, t->loop, t->resolver, url, t->tls,
                         t->login.user ? &t->login : NULL, &endpoint_ops, t);
        if (r == 0)
                r = loop_timer_arm(&t->timer, boot_add(boot_now(), TRY_FOR));
        if (r == 0) {
                endpoint_want(t->ep);
                loop_run(t->loop);
                r = t->sent ? 0 : -EHOSTUNREACH;
        }
        loop_timer_disarm(&t->timer);
        t->ep = endpoint_free(t->ep);
        t->resolver = resolver_free(t->resolver);
        t->loop = loop_free(t->loop);
        return r;
}

/* Asks one endpoint after the other, until one answers. Tells what went wrong. */
static int talk(const struct core_options *o, struct talk *t)
{
        const char *cursor = o->endpoints;
        char url[320], name[256], password[512];
        int r = make_login(o, &t->login, name, password);

        if (r == 0)
                r = make_tls(o, &t->tls);
        if (r < 0)
                return r;
        r = -EINVAL;
        while (r < 0 && list_next(&cursor, url, sizeof(url))) {
                r = ask(t, url);
                if (r < 0)
                        fprintf(stderr, "tenurectl: no lease core answers at %s%s%s.\n", url,
                                *t->down ? ": " : "", t->down);
        }
        t->tls = tls_free(t->tls);
        explicit_bzero(password, sizeof(password));
        if (r == 0 && t->code != RPC_OK) {
                fprintf(stderr, "tenurectl: %s.\n", *t->text ? t->text : "the call failed");
                r = -EIO;
        } else if (r == 0 && !t->reply) {
                fprintf(stderr, "tenurectl: the answer does not parse.\n");
                r = -EBADMSG;
        }
        return r;
}

static int call(const struct core_options *o, const char *path, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *reply_type, void **ret)
{
        struct talk t = {.path = path, .request = request, .reply_type = reply_type};
        int r = talk(o, &t);

        if (r < 0)
                t.reply = pb_free(t.reply);
        else
                *ret = t.reply;
        return r;
}

/* Prints it, and lets go of it. */
static void print_json(const struct core_options *o, struct json_object *j)
{
        puts(json_object_to_json_string_ext(j, o->json == 2 ? JSON_C_TO_STRING_PRETTY
                                                            : JSON_C_TO_STRING_PLAIN));
        json_object_put(j);
}

/* ---- members ---- */

static void print_members(const struct core_options *o, Pb__Member **members, size_t n,
                          uint64_t leader)
{
        struct json_object *list = o->json ? json_object_new_array() : NULL;

        if (!o->json && o->legend)
                printf("%-16s  %-16s  %-8s  %-28s  %s\n", "ID", "NAME", "ROLE", "PEER URL",
                       "CLIENT URLS");
        for (size_t i = 0; i < n; i++) {
                const Pb__Member *m = members[i];
                const char *role = m->islearner      ? "learner"
                                   : m->id == leader ? "leader"
                                                     : "voter";
                char id[24];

                snprintf(id, sizeof(id), "%016" PRIx64, m->id);
                if (o->json) {
                        struct json_object *e = json_object_new_object(),
                                           *urls = json_object_new_array();

                        for (size_t k = 0; k < m->n_clienturls; k++)
                                json_object_array_add(urls,
                                                      json_object_new_string(m->clienturls[k]));
                        json_object_object_add(e, "id", json_object_new_string(id));
                        json_object_object_add(e, "name", json_object_new_string(m->name));
                        json_object_object_add(e, "role", json_object_new_string(role));
                        json_object_object_add(
                                e, "peer_url",
                                json_object_new_string(m->n_peerurls ? m->peerurls[0] : ""));
                        json_object_object_add(e, "client_urls", urls);
                        json_object_array_add(list, e);
                        continue;
                }
                printf("%-16s  %-16s  %-8s  %-28s  ", id, *m->name ? m->name : "(not started)",
                       role, m->n_peerurls ? m->peerurls[0] : "");
                for (size_t k = 0; k < m->n_clienturls; k++)
                        printf("%s%s", k > 0 ? "," : "", m->clienturls[k]);
                putchar('\n');
        }
        if (list)
                print_json(o, list);
}

static int get_members(const struct core_options *o, Pb__MemberListResponse **ret)
{
        Pb__MemberListRequest q = PB__MEMBER_LIST_REQUEST__INIT;

        return call(o, "/etcdserverpb.Cluster/MemberList", &q.base,
                    &pb__member_list_response__descriptor, (void **) ret);
}

static int get_status(const struct core_options *o, Pb__StatusResponse **ret)
{
        Pb__StatusRequest q = PB__STATUS_REQUEST__INIT;

        return call(o, "/etcdserverpb.Maintenance/Status", &q.base,
                    &pb__status_response__descriptor, (void **) ret);
}

/* A member by its id in hexadecimal, or by its name. */
static int find(const struct core_options *o, const char *what, uint64_t *ret)
{
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        char id[24];
        int r = get_members(o, &p);

        for (size_t i = 0; r == 0 && i < p->n_members; i++) {
                snprintf(id, sizeof(id), "%016" PRIx64, p->members[i]->id);
                if (strcmp(what, p->members[i]->name) != 0 && strcmp(what, id) != 0)
                        continue;
                *ret = p->members[i]->id;
                return 0;
        }
        if (r == 0)
                fprintf(stderr,
                        "tenurectl: no member is named '%s'; see tenurectl core members.\n",
                        what);
        return r < 0 ? r : -ENOENT;
}

static int members(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        int r = get_members(o, &p);

        (void) argv;
        if (r == 0)
                r = get_status(o, &s);
        if (r == 0)
                print_members(o, p->members, p->n_members, s->leader);
        return r;
}

static int add(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberAddResponse *p = NULL;
        Pb__MemberAddRequest q = PB__MEMBER_ADD_REQUEST__INIT;
        int r;

        q.peerurls = argv;
        q.n_peerurls = 1;
        q.islearner = !o->voter;
        r = call(o, "/etcdserverpb.Cluster/MemberAdd", &q.base,
                 &pb__member_add_response__descriptor, (void **) &p);
        if (r < 0)
                return r;
        printf("Added %016" PRIx64 ". Start it with an empty data directory and\n"
               "  --initial-cluster-state=existing --initial-cluster=",
               p->member ? p->member->id : 0);
        for (size_t i = 0; i < p->n_members; i++)
                printf("%s%s=%s", i > 0 ? "," : "",
                       *p->members[i]->name ? p->members[i]->name : "NAME",
                       p->members[i]->n_peerurls ? p->members[i]->peerurls[0] : "");
        printf("\n%s", o->voter ? "" : "It is a learner until you promote it.\n");
        return 0;
}

static int remove_(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberRemoveResponse *p = NULL;
        Pb__MemberRemoveRequest q = PB__MEMBER_REMOVE_REQUEST__INIT;
        int r = find(o, argv[0], &q.id);

        if (r == 0)
                r = call(o, "/etcdserverpb.Cluster/MemberRemove", &q.base,
                         &pb__member_remove_response__descriptor, (void **) &p);
        if (r == 0)
                printf("Removed %016" PRIx64 "; it stops by itself.\n", q.id);
        return r;
}

static int promote(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberPromoteResponse *p = NULL;
        Pb__MemberPromoteRequest q = PB__MEMBER_PROMOTE_REQUEST__INIT;
        int r = find(o, argv[0], &q.id);

        if (r == 0)
                r = call(o, "/etcdserverpb.Cluster/MemberPromote", &q.base,
                         &pb__member_promote_response__descriptor, (void **) &p);
        if (r == 0)
                printf("%016" PRIx64 " votes now.\n", q.id);
        return r;
}

/* Only the leader takes it: the one that leads now is asked, wherever we were sent. */
static int move_leader(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        cleanup_(pb_freep) Pb__MoveLeaderResponse *p = NULL;
        Pb__MoveLeaderRequest q = PB__MOVE_LEADER_REQUEST__INIT;
        struct core_options at = *o;
        int r = find(o, argv[0], &q.targetid);

        if (r == 0)
                r = get_members(o, &list);
        if (r == 0)
                r = get_status(o, &s);
        if (r < 0)
                return r;
        for (size_t i = 0; i < list->n_members; i++)
                if (list->members[i]->id == s->leader && list->members[i]->n_clienturls > 0)
                        at.endpoints = list->members[i]->clienturls[0];
        r = call(&at, "/etcdserverpb.Maintenance/MoveLeader", &q.base,
                 &pb__move_leader_response__descriptor, (void **) &p);
        if (r == 0)
                printf("%016" PRIx64 " takes over.\n", q.targetid);
        return r;
}

/* ---- leases ---- */

static int leases(const struct core_options *o, char **argv)
{
        Pb__LeaseLeasesRequest q = PB__LEASE_LEASES_REQUEST__INIT;
        cleanup_(pb_freep) Pb__LeaseLeasesResponse *p = NULL;
        struct json_object *list = NULL;
        int r = call(o, "/etcdserverpb.Lease/LeaseLeases", &q.base,
                     &pb__lease_leases_response__descriptor, (void **) &p);

        (void) argv;
        if (r < 0)
                return r;
        if (o->json)
                list = json_object_new_array();
        else if (o->legend)
                printf("%-16s  %9s  %9s  %7s  %s\n", "ID", "TTL", "LEFT", "KEYS", "NAME");
        for (size_t i = 0; i < p->n_leases; i++) {
                const Pb__LeaseStatus *l = p->leases[i];
                char id[24];

                snprintf(id, sizeof(id), "%016" PRIx64, (uint64_t) l->id);
                if (o->json) {
                        struct json_object *e = json_object_new_object();

                        json_object_object_add(e, "id", json_object_new_string(id));
                        json_object_object_add(e, "ttl_ms",
                                               json_object_new_int64(l->granted_ttl_ms));
                        json_object_object_add(e, "left_ms", json_object_new_int64(l->ttl_ms));
                        json_object_object_add(e, "keys",
                                               json_object_new_int64((int64_t) l->keys));
                        json_object_object_add(
                                e, "name",
                                json_object_new_string_len((const char *) l->name.data,
                                                           (int) l->name.len));
                        json_object_array_add(list, e);
                        continue;
                }
                printf("%-16s  %8.3fs  %8.3fs  %7" PRIu64 "  %.*s\n", id,
                       (double) l->granted_ttl_ms / 1000, (double) l->ttl_ms / 1000, l->keys,
                       (int) l->name.len, (const char *) l->name.data);
        }
        if (list) {
                print_json(o, list);
        } else if (o->legend) {
                printf("\n%zu leases.\n", p->n_leases);
        }
        return 0;
}

/* ---- snapshots ---- */

static int write_chunk(void *arg, void *reply)
{
        const Pb__SnapshotResponse *p = reply;

        return fwrite(p->blob.data, 1, p->blob.len, arg) == p->blob.len ? 0 : -EIO;
}

static int save(const struct core_options *o, char **argv)
{
        Pb__SnapshotRequest q = PB__SNAPSHOT_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Maintenance/Snapshot",
                         .request = &q.base,
                         .reply_type = &pb__snapshot_response__descriptor,
                         .each = write_chunk};
        char part[4096];
        FILE *f;
        int r;

        snprintf(part, sizeof(part), "%s.part", argv[0]);
        f = fopen(part, "we");
        if (!f) {
                r = -errno;
                fprintf(stderr, "tenurectl: cannot write %s: %s.\n", part, strerror(-r));
                return r;
        }
        t.arg = f;
        r = talk(o, &t);
        t.reply = pb_free(t.reply);
        if (r == 0 && (t.failed < 0 || fflush(f) != 0 || fsync(fileno(f)) < 0)) {
                r = t.failed < 0 ? t.failed : -errno;
                fprintf(stderr, "tenurectl: cannot write %s: %s.\n", part, strerror(-r));
        }
        fclose(f);
        if (r == 0 && rename(part, argv[0]) < 0) {
                r = -errno;
                fprintf(stderr, "tenurectl: cannot rename %s: %s.\n", part, strerror(-r));
        }
        if (r < 0)
                unlink(part);
        else
                printf("Saved %s.\n", argv[0]);
        return r;
}

/* tenure-core knows its data directory; it takes the same options as for running. */
static int restore(int argc, char **argv)
{
        char *args[64] = {(char *) (uintptr_t) "tenure-core", (char *) (uintptr_t) "--restore"};
        int n = 2;

        for (int i = 0; i < argc && n < 63; i++)
                args[n++] = argv[i];
        execvp(args[0], args);
        fprintf(stderr, "tenurectl: cannot run tenure-core: %s.\n", strerror(errno));
        return -errno;
}

static const struct {
        const char *verb, *noun;
        int n_args;
        int (*fn)(const struct core_options *o, char **argv);
} verbs[] = {
        {"members", NULL, 0, members},         {"add", NULL, 1, add},
        {"remove", NULL, 1, remove_},          {"promote", NULL, 1, promote},
        {"move-leader", NULL, 1, move_leader}, {"snapshot", "save", 1, save},
        {"leases", NULL, 0, leases},
};

int core_main(const struct core_options *o, int argc, char **argv)
{
        if (argc >= 3 && strcmp(argv[0], "snapshot") == 0 && strcmp(argv[1], "restore") == 0)
                return restore(argc - 2, argv + 2) < 0 ? 1 : 0;
        for (size_t i = 0; argc > 0 && i < ARRAY_SIZE(verbs); i++) {
                int skip = verbs[i].noun ? 2 : 1;

                if (strcmp(argv[0], verbs[i].verb) != 0 ||
                    (verbs[i].noun && (argc < 2 || strcmp(argv[1], verbs[i].noun) != 0)))
                        continue;
                if (argc - skip != verbs[i].n_args)
                        break;
                return verbs[i].fn(o, argv + skip) < 0 ? 1 : 0;
        }
        fprintf(stderr, "usage: tenurectl [--endpoints=URLS] core COMMAND\n"
                        "  members                    the replicas, their roles and URLs\n"
                        "  add PEER-URL [--voter]     as a learner, unless told otherwise\n"
                        "  promote NAME|ID            a learner that is in sync\n"
                        "  remove NAME|ID\n"
                        "  move-leader NAME|ID\n"
                        "  leases                     all, with what they have left\n"
                        "  snapshot save FILE\n"
                        "  snapshot restore FILE [OPTIONS of tenure-core...]\n");
        return 1;
}
