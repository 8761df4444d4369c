#include "core.h"

#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "core_ask.h"
#include "core_replace.h"
#include "lease.h"
#include "replace.h"
#include "talk.h"
#include "text.h"
#include "wire/pb.h"

/* Prints @j, and frees it. */
static void print_json(const struct core_options *o, struct json_object *j)
{
        text_print_json(j, o->json == 2 ? JSON_C_TO_STRING_PRETTY : JSON_C_TO_STRING_PLAIN);
}

/* ---- members ---- */

/* What the replica with status @s knows of a member's program; NULL: nothing. */
static const Pb__MemberVersion *version_of(const Pb__StatusResponse *s, uint64_t id)
{
        const Pb__MemberVersion *v = core_status_of(s, id);

        return v && *v->version ? v : NULL;
}

static const char *name_of(const Pb__Member *m, char out[static CORE_SHOWN])
{
        return *m->name ? core_shown(m->name, out) : "(not started)";
}

static void print_members(const struct core_options *o, const Pb__MemberListResponse *p,
                          const Pb__StatusResponse *s)
{
        struct json_object *list = o->json ? json_object_new_array() : NULL;
        const Pb__ResponseHeader *h = s->header;
        char cluster[24] = "", ancestor[24] = "";

        if (h)
                snprintf(cluster, sizeof(cluster), "%016" PRIx64, h->cluster_id);
        if (h && h->ancestor != 0)
                snprintf(ancestor, sizeof(ancestor), "%016" PRIx64, h->ancestor);
        if (!o->json && o->legend)
                printf("%-16s  %-16s  %-8s  %-8s  %-28s  %s\n", "ID", "NAME", "ROLE", "VERSION",
                       "PEER URL", "CLIENT URLS");
        for (size_t i = 0; i < p->n_members; i++) {
                const Pb__Member *m = p->members[i];
                const Pb__MemberVersion *v = version_of(s, m->id);
                const char *role = m->islearner         ? "learner"
                                   : m->id == s->leader ? "leader"
                                                        : "voter";
                char id[24], name[CORE_SHOWN], url[CORE_SHOWN], version[CORE_SHOWN];

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
                        json_object_object_add(e, "version",
                                               json_object_new_string(v ? v->version : ""));
                        json_object_object_add(
                                e, "peer_url",
                                json_object_new_string(m->n_peerurls ? m->peerurls[0] : ""));
                        json_object_object_add(e, "client_urls", urls);
                        json_object_object_add(e, "cluster", json_object_new_string(cluster));
                        json_object_object_add(e, "ancestor", json_object_new_string(ancestor));
                        json_object_array_add(list, e);
                        continue;
                }
                printf("%-16s  %-16s  %-8s  %-8s  %-28s  ", id, name_of(m, name), role,
                       v ? core_shown(v->version, version) : "-",
                       m->n_peerurls ? core_shown(m->peerurls[0], url) : "");
                for (size_t k = 0; k < m->n_clienturls; k++)
                        printf("%s%s", k > 0 ? "," : "", core_shown(m->clienturls[k], url));
                putchar('\n');
        }
        if (list)
                return print_json(o, list);
        if (o->legend && *ancestor)
                printf("This is cluster %s, which was forced to descend from %s.\n", cluster,
                       ancestor);
}

/* Finds a member by its id in hexadecimal, or by its name. */
static int find(const struct core_options *o, const char *what, uint64_t *ret)
{
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        int r = core_ask_members(o, &p);
        const Pb__Member *m = r == 0 ? core_find(p, what) : NULL;

        if (m) {
                *ret = m->id;
                return 0;
        }
        if (r == 0)
                fprintf(stderr,
                        "tenurectl: no member is named '%s'; see tenurectl core members.\n",
                        what);
        return r < 0 ? r : -ENOENT;
}

/* What an operator may have to do. */
static void print_notes(const Pb__MemberListResponse *p, const Pb__StatusResponse *s)
{
        static const char ours[] = "tenure: ";
        char name[CORE_SHOWN], id[24];

        for (size_t i = 0; i < p->n_members; i++) {
                const Pb__Member *m = p->members[i];
                const Pb__MemberVersion *v = core_status_of(s, m->id);

                snprintf(id, sizeof(id), "%016" PRIx64, m->id);
                if (v && v->refused)
                        printf("%s has another data directory than is recorded, "
                               "and takes no part: its disk was lost, replaced or restored. "
                               "Start it with the old directory, or run: tenurectl core "
                               "replace "
                               "%s\n",
                               id, *m->name ? core_shown(m->name, name) : id);
                if (v && v->replaces)
                        printf("%s takes the place of a member that was replaced; "
                               "it has to start with an empty data directory, and becomes a "
                               "voter once it has caught up.\n",
                               id);
        }
        for (size_t i = 0; i < s->n_errors; i++)
                if (strncmp(s->errors[i], ours, strlen(ours)) == 0)
                        printf("The replica that was asked says: %s.\n",
                               core_shown(s->errors[i] + strlen(ours), name));
}

static int members(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        int r = core_ask_members(o, &p);

        (void) argv;
        if (r == 0)
                r = core_ask_status(o, &s);
        if (r < 0)
                return r;
        print_members(o, p, s);
        if (!o->json && o->legend)
                print_notes(p, s);
        return 0;
}

static int add(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberAddResponse *p = NULL;
        Pb__MemberAddRequest q = PB__MEMBER_ADD_REQUEST__INIT;
        char name[CORE_SHOWN], url[CORE_SHOWN];
        int r;

        q.peerurls = argv;
        q.n_peerurls = 1;
        q.islearner = !o->voter;
        r = talk_call(o, "/etcdserverpb.Cluster/MemberAdd", &q.base,
                      &pb__member_add_response__descriptor, (void **) &p);
        if (r < 0)
                return r;
        printf("Added %016" PRIx64 ". Start it with an empty data directory and\n"
               "  --initial-cluster-state=existing --initial-cluster=",
               p->member ? p->member->id : 0);
        for (size_t i = 0; i < p->n_members; i++)
                for (size_t j = 0; j < p->members[i]->n_peerurls; j++)
                        printf("%s%s=%s", i + j > 0 ? "," : "",
                               *p->members[i]->name ? core_shown(p->members[i]->name, name)
                                                    : "NAME",
                               core_shown(p->members[i]->peerurls[j], url));
        printf("\n%s", o->voter ? "" : "It is a learner until you promote it.\n");
        return 0;
}

static int remove_(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberRemoveResponse *p = NULL;
        Pb__MemberRemoveRequest q = PB__MEMBER_REMOVE_REQUEST__INIT;
        int r = find(o, argv[0], &q.id);

        if (r == 0)
                r = talk_call(o, "/etcdserverpb.Cluster/MemberRemove", &q.base,
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
                r = talk_call(o, "/etcdserverpb.Cluster/MemberPromote", &q.base,
                              &pb__member_promote_response__descriptor, (void **) &p);
        if (r == 0)
                printf("%016" PRIx64 " is a voter now.\n", q.id);
        return r;
}

static int move_leader(const struct core_options *o, char **argv)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        cleanup_(pb_freep) Pb__MoveLeaderResponse *p = NULL;
        Pb__MoveLeaderRequest q = PB__MOVE_LEADER_REQUEST__INIT;
        struct core_options at = *o;
        int r = find(o, argv[0], &q.targetid);

        if (r == 0)
                r = core_ask_members(o, &list);
        if (r == 0)
                r = core_ask_status(o, &s);
        if (r < 0)
                return r;
        core_ask_leader(&at, list, s->leader);
        r = talk_call(&at, "/etcdserverpb.Maintenance/MoveLeader", &q.base,
                      &pb__move_leader_response__descriptor, (void **) &p);
        if (r == 0)
                printf("%016" PRIx64 " is the leader now.\n", q.targetid);
        return r;
}

/* ---- upgrades ---- */

static void print_versions(const struct core_options *o, const Pb__MemberListResponse *p,
                           const Pb__StatusResponse *s)
{
        if (o->legend)
                printf("%-16s  %-16s  %-8s  %-15s  %s\n", "ID", "NAME", "VERSION",
                       "CLUSTER VERSION", "LINK");
        for (size_t i = 0; i < p->n_members; i++) {
                const Pb__Member *m = p->members[i];
                const Pb__MemberVersion *v = version_of(s, m->id);
                char name[CORE_SHOWN], version[CORE_SHOWN], newest[CORE_SHOWN];

                printf("%016" PRIx64 "  %-16s  %-8s  up to %-9s  %s\n", m->id, name_of(m, name),
                       v ? core_shown(v->version, version) : "-",
                       v ? core_shown(v->newest_cluster_version, newest) : "?",
                       v && v->linked ? "up" : "down");
        }
}

static void print_versions_json(const struct core_options *o, const Pb__MemberListResponse *p,
                                const Pb__StatusResponse *s)
{
        struct json_object *all = json_object_new_object(), *list = json_object_new_array();

        for (size_t i = 0; i < p->n_members; i++) {
                const Pb__MemberVersion *v = version_of(s, p->members[i]->id);
                struct json_object *e = json_object_new_object();
                char id[24];

                snprintf(id, sizeof(id), "%016" PRIx64, p->members[i]->id);
                json_object_object_add(e, "id", json_object_new_string(id));
                json_object_object_add(e, "name", json_object_new_string(p->members[i]->name));
                json_object_object_add(e, "version",
                                       json_object_new_string(v ? v->version : ""));
                json_object_object_add(
                        e, "newest_cluster_version",
                        json_object_new_string(v ? v->newest_cluster_version : ""));
                json_object_object_add(e, "linked", json_object_new_boolean(v && v->linked));
                json_object_array_add(list, e);
        }
        json_object_object_add(all, "cluster_version",
                               json_object_new_string(s->cluster_version));
        json_object_object_add(all, "members", list);
        print_json(o, all);
}

static const char *name_by_id(const Pb__MemberListResponse *list, uint64_t id,
                              char out[static CORE_SHOWN])
{
        const Pb__Member *m = core_member(list, id);

        return m ? name_of(m, out) : "a member that was removed";
}

/* Shows how far an upgrade has come, and with --finish ends it: raises the cluster version. */
static int upgrade(const struct core_options *o, char **argv unused_)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        cleanup_(pb_freep) Pb__FinishUpgradeResponse *p = NULL;
        Pb__FinishUpgradeRequest q = PB__FINISH_UPGRADE_REQUEST__INIT;
        struct core_options at = *o;
        char name[CORE_SHOWN], version[CORE_SHOWN];
        int r = core_ask_members(o, &list);

        if (r == 0)
                r = core_ask_status(o, &s);
        if (r == 0 && o->finish) {
                core_ask_leader(&at, list, s->leader);
                pb_freep(&s);
                s = NULL;
                r = core_ask_status(&at, &s);
        }
        if (r < 0)
                return r;
        if (!*s->cluster_version) {
                fprintf(stderr,
                        "tenurectl: %s, %s, knows no cluster version: it is an etcd, or runs "
                        "release 0.1.0.\n",
                        o->finish ? "the leader" : "the replica that was asked",
                        name_by_id(list, s->header ? s->header->member_id : 0, name));
                return -EOPNOTSUPP;
        }
        if (o->finish) {
                r = talk_call(&at, "/tenurepb.Maintenance/FinishUpgrade", &q.base,
                              &pb__finish_upgrade_response__descriptor, (void **) &p);
                if (r == 0)
                        printf("The cluster version is %s. The data directories are in its "
                               "formats: no older release can use them.\n",
                               core_shown(p->cluster_version, version));
                return r;
        }
        if (o->json) {
                print_versions_json(o, list, s);
                return 0;
        }
        print_versions(o, list, s);
        if (o->legend)
                printf("The cluster version is %s.\n", core_shown(s->cluster_version, version));
        return 0;
}

/* ---- leases ---- */

static int leases(const struct core_options *o, char **argv)
{
        (void) argv;
        return lease_list(o);
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
        int r, fd;

        r = replace_check(argv[0]);
        if (r < 0)
                return r;
        if (snprintf(part, sizeof(part), "%s.part", argv[0]) >= (int) sizeof(part)) {
                fprintf(stderr, "tenurectl: the name of the file is too long.\n");
                return -ENAMETOOLONG;
        }
        /* It holds all values, the passwords' hashes and the key that signs logins; and what
         * somebody else has put there is not written to. */
        (void) !unlink(part);
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        f = fd < 0 ? NULL : fdopen(fd, "w");
        if (!f) {
                r = -errno;
                if (fd >= 0)
                        close(fd);
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

/* tenure-core does it: it knows its data directory, and takes the same options as always. */
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
        {"upgrade", NULL, 0, upgrade},         {"leases", NULL, 0, leases},
        {"replace", NULL, 1, core_replace},
};

static const char usage[] =
        "usage: tenurectl [--endpoints=URLS] core COMMAND\n"
        "  members                    list the replicas, their roles, versions and URLs\n"
        "  add PEER-URL [--voter]     add a learner, or what will vote\n"
        "  promote NAME|ID            make a learner that is in sync a voter\n"
        "  remove NAME|ID\n"
        "  replace NAME|ID            replace a replica whose data directory is lost\n"
        "  move-leader NAME|ID\n"
        "  upgrade [--finish]         show how far an upgrade has come, or end it\n"
        "  leases                     list all leases, with the time that they have left\n"
        "  snapshot save FILE\n"
        "  snapshot restore FILE [OPTIONS of tenure-core...]\n";

int core_main(const struct core_options *o, int argc, char **argv)
{
        struct core_options once = *o;
        char login[TALK_LOGIN_MAX] = "";
        int r;

        if (argc >= 3 && strcmp(argv[0], "snapshot") == 0 && strcmp(argv[1], "restore") == 0)
                return restore(argc - 2, argv + 2) < 0 ? 1 : 0;
        for (size_t i = 0; argc > 0 && i < ARRAY_SIZE(verbs); i++) {
                int skip = verbs[i].noun ? 2 : 1;

                if (strcmp(argv[0], verbs[i].verb) != 0 ||
                    (verbs[i].noun && (argc < 2 || strcmp(argv[1], verbs[i].noun) != 0)))
                        continue;
                if (argc - skip != verbs[i].n_args)
                        break;
                r = talk_log_in_once(&once, login);
                if (r == 0)
                        r = verbs[i].fn(&once, argv + skip);
                explicit_bzero(login, sizeof(login));
                return r < 0 ? 1 : 0;
        }
        fputs(usage, stderr);
        return 1;
}
