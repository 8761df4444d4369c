/* tenurectl core ...: the replicas of the lease core, upgrades and snapshots. */
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <unistd.h>

#include "core_ask.h"
#include "replace.h"
#include "table.h"
#include "talk.h"
#include "text.h"
#include "verbs.h"
#include "wire/pb.h"

/* ---- members ---- */

/* What the replica with status @s knows about a member's program; NULL if nothing. */
static const Pb__MemberVersion *version_of(const Pb__StatusResponse *s, uint64_t id)
{
        const Pb__MemberVersion *v = core_status_of(s, id);

        return v && *v->version ? v : NULL;
}

static const char *role_of(const Pb__Member *m, const Pb__StatusResponse *s)
{
        return m->islearner ? "learner" : m->id == s->leader ? "leader" : "voter";
}

static struct json_object *json_member(const Pb__Member *m, const Pb__StatusResponse *s)
{
        struct json_object *o = json_object_new_object(), *urls = json_object_new_array();
        const Pb__MemberVersion *v = version_of(s, m->id);

        for (size_t k = 0; k < m->n_clienturls; k++)
                json_object_array_add(urls, json_object_new_string(m->clienturls[k]));
        json_put_id(o, "id", m->id);
        json_put_text(o, "name", m->name);
        json_put_text(o, "role", role_of(m, s));
        json_put_text(o, "version", v ? v->version : "");
        json_put_text(o, "peer_url", m->n_peerurls ? m->peerurls[0] : "");
        json_object_object_add(o, "client_urls", urls);
        json_put_id(o, "cluster", s->header ? s->header->cluster_id : 0);
        json_put_id(o, "ancestor", s->header ? s->header->ancestor : 0);
        return o;
}

/* Finds a member by its id in hexadecimal, or by its name. */
static int find(const struct ctl *c, const char *what, uint64_t *ret)
{
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        const Pb__Member *m;

        if (core_ask_members(&c->core, &p) < 0)
                return -1;
        m = core_find(p, what);
        if (!m)
                return say("no member is named '%s'; see tenurectl core members", what);
        *ret = m->id;
        return 0;
}

/* What an operator may have to do. */
static void print_notes(const Pb__MemberListResponse *p, const Pb__StatusResponse *s)
{
        static const char ours[] = "tenure: ";
        char name[TEXT_SHOWN], id[24];

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
                               id, *m->name ? text_shown(m->name, name) : id);
                if (v && v->replaces)
                        printf("%s takes the place of a member that was replaced; "
                               "it has to start with an empty data directory, and becomes a "
                               "voter once it has caught up.\n",
                               id);
        }
        if (s->header && s->header->ancestor != 0)
                printf("This is cluster %016" PRIx64
                       ", which was forced to descend from %016" PRIx64 ".\n",
                       s->header->cluster_id, s->header->ancestor);
        for (size_t i = 0; i < s->n_errors; i++)
                if (strncmp(s->errors[i], ours, strlen(ours)) == 0)
                        printf("The replica that was asked reports: %s.\n",
                               text_shown(s->errors[i] + strlen(ours), name));
}

int verb_core_members(struct ctl *c, int argc unused_, char **argv unused_)
{
        static const struct column columns[] = {
                {"ID", "id", COLUMN_TEXT},
                {"NAME", "name", COLUMN_TEXT}, /* "-" before it has started */
                {"ROLE", "role", COLUMN_TEXT},
                {"VERSION", "version", COLUMN_TEXT},
                {"PEER-URL", "peer_url", COLUMN_TEXT},
                {"CLIENT-URLS", "client_urls", COLUMN_TEXT}};
        cleanup_(pb_freep) Pb__MemberListResponse *p = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        struct json_object *list;

        if (core_ask_members(&c->core, &p) < 0 || core_ask_status(&c->core, &s) < 0)
                return -1;
        list = json_object_new_array();
        for (size_t i = 0; i < p->n_members; i++)
                json_object_array_add(list, json_member(p->members[i], s));
        table_print(c, list, columns, ARRAY_SIZE(columns));
        if (c->json == JSON_OFF && c->legend)
                print_notes(p, s);
        json_object_put(list);
        return 0;
}

int verb_core_add(struct ctl *c, int argc unused_, char **argv)
{
        cleanup_(pb_freep) Pb__MemberAddResponse *p = NULL;
        Pb__MemberAddRequest q = PB__MEMBER_ADD_REQUEST__INIT;
        cleanup_(buf_fini) struct buf all = {0};
        struct json_object *o;

        q.peerurls = argv;
        q.n_peerurls = 1;
        q.islearner = !c->o.voter;
        if (talk_call(&c->core, "/etcdserverpb.Cluster/MemberAdd", &q.base,
                      &pb__member_add_response__descriptor, (void **) &p) < 0)
                return -1;
        for (size_t i = 0; i < p->n_members; i++)
                for (size_t j = 0; j < p->members[i]->n_peerurls; j++) {
                        buf_printf(&all, "%s", buf_len(&all) > 0 ? "," : "");
                        text_add(&all,
                                 view_str(*p->members[i]->name ? p->members[i]->name : "NAME"));
                        buf_add(&all, "=", 1);
                        text_add(&all, view_str(p->members[i]->peerurls[j]));
                }
        buf_add(&all, "", 1);
        if (buf_error(&all) < 0)
                return ctl_fail("cannot show it", -ENOMEM, NULL);
        o = json_object_new_object();
        json_put_id(o, "id", p->member ? p->member->id : 0);
        json_put_text(o, "role", c->o.voter ? "voter" : "learner");
        json_put_text(o, "initial_cluster", (const char *) buf_head(&all));
        ctl_did(c, o,
                "Added %016" PRIx64
                ". Start it with an empty data directory, a --name for NAME, "
                "its\n--listen-client-urls and --listen-peer-urls, and\n"
                "  --initial-cluster-state=existing --initial-cluster=%s%s",
                p->member ? p->member->id : 0, (const char *) buf_head(&all),
                c->o.voter ? "" : "\nIt is a learner until you promote it.");
        return 0;
}

/* Reports that a member was changed, and how. */
static int did(struct ctl *c, const char *before, uint64_t id, const char *role,
               const char *behind)
{
        struct json_object *o = json_object_new_object();

        json_put_id(o, "id", id);
        if (role)
                json_put_text(o, "role", role);
        ctl_did(c, o, "%s%016" PRIx64 "%s.", before, id, behind);
        return 0;
}

int verb_core_remove(struct ctl *c, int argc unused_, char **argv)
{
        cleanup_(pb_freep) Pb__MemberRemoveResponse *p = NULL;
        Pb__MemberRemoveRequest q = PB__MEMBER_REMOVE_REQUEST__INIT;

        if (find(c, argv[0], &q.id) < 0 ||
            talk_call(&c->core, "/etcdserverpb.Cluster/MemberRemove", &q.base,
                      &pb__member_remove_response__descriptor, (void **) &p) < 0)
                return -1;
        return did(c, "Removed ", q.id, NULL, "; it stops by itself");
}

int verb_core_promote(struct ctl *c, int argc unused_, char **argv)
{
        cleanup_(pb_freep) Pb__MemberPromoteResponse *p = NULL;
        Pb__MemberPromoteRequest q = PB__MEMBER_PROMOTE_REQUEST__INIT;

        if (find(c, argv[0], &q.id) < 0 ||
            talk_call(&c->core, "/etcdserverpb.Cluster/MemberPromote", &q.base,
                      &pb__member_promote_response__descriptor, (void **) &p) < 0)
                return -1;
        return did(c, "", q.id, "voter", " is a voter now");
}

int verb_core_move_leader(struct ctl *c, int argc unused_, char **argv)
{
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL;
        cleanup_(pb_freep) Pb__MoveLeaderResponse *p = NULL;
        Pb__MoveLeaderRequest q = PB__MOVE_LEADER_REQUEST__INIT;
        struct core_options at = c->core;

        if (find(c, argv[0], &q.targetid) < 0 || core_ask_members(&c->core, &list) < 0 ||
            core_ask_status(&c->core, &s) < 0)
                return -1;
        core_ask_leader(&at, list, s->leader);
        if (talk_call(&at, "/etcdserverpb.Maintenance/MoveLeader", &q.base,
                      &pb__move_leader_response__descriptor, (void **) &p) < 0)
                return -1;
        return did(c, "", q.targetid, "leader", " is the leader now");
}

/* ---- upgrades ---- */

static struct json_object *json_versions(const Pb__MemberListResponse *p,
                                         const Pb__StatusResponse *s)
{
        struct json_object *all = json_object_new_object(), *list = json_object_new_array();

        for (size_t i = 0; i < p->n_members; i++) {
                const Pb__MemberVersion *v = version_of(s, p->members[i]->id);
                struct json_object *o = json_object_new_object();

                json_put_id(o, "id", p->members[i]->id);
                json_put_text(o, "name", p->members[i]->name);
                json_put_text(o, "version", v ? v->version : "");
                json_put_text(o, "newest_cluster_version", v ? v->newest_cluster_version : "");
                json_object_object_add(o, "linked", json_object_new_boolean(v && v->linked));
                json_object_array_add(list, o);
        }
        json_put_text(all, "cluster_version", s->cluster_version);
        json_object_object_add(all, "members", list);
        return all;
}

static const char *name_by_id(const Pb__MemberListResponse *list, uint64_t id)
{
        const Pb__Member *m = core_member(list, id);

        return m && *m->name ? m->name : "a member without a name";
}

static int finish(struct ctl *c, const struct core_options *leader)
{
        cleanup_(pb_freep) Pb__FinishUpgradeResponse *p = NULL;
        Pb__FinishUpgradeRequest q = PB__FINISH_UPGRADE_REQUEST__INIT;
        char version[TEXT_SHOWN];
        struct json_object *o;

        if (talk_call(leader, "/tenurepb.Maintenance/FinishUpgrade", &q.base,
                      &pb__finish_upgrade_response__descriptor, (void **) &p) < 0)
                return -1;
        o = json_object_new_object();
        json_put_text(o, "cluster_version", p->cluster_version);
        ctl_did(c, o,
                "The cluster version is %s. The data directories are in its formats: no older "
                "release can use them.",
                text_shown(p->cluster_version, version));
        return 0;
}

/* Shows how far an upgrade has come, and with --finish ends it: raises the cluster version. */
int verb_core_upgrade(struct ctl *c, int argc unused_, char **argv unused_)
{
        static const struct column columns[] = {
                {"ID", "id", COLUMN_TEXT},
                {"NAME", "name", COLUMN_TEXT},
                {"VERSION", "version", COLUMN_TEXT},
                {"UP-TO", "newest_cluster_version", COLUMN_TEXT},
                {"LINK", "linked", COLUMN_UP}};
        cleanup_(pb_freep) Pb__MemberListResponse *list = NULL;
        cleanup_(pb_freep) Pb__StatusResponse *s = NULL, *leaders = NULL;
        struct core_options at = c->core;
        const Pb__StatusResponse *from;
        struct json_object *all;
        char version[TEXT_SHOWN];

        if (core_ask_members(&at, &list) < 0 || core_ask_status(&at, &s) < 0)
                return -1;
        if (c->o.finish) {
                core_ask_leader(&at, list, s->leader);
                if (core_ask_status(&at, &leaders) < 0)
                        return -1;
        }
        from = c->o.finish ? leaders : s;
        if (!*from->cluster_version)
                return say("%s, %s, knows no cluster version: it is an etcd, or runs release "
                           "0.1.0",
                           c->o.finish ? "the leader" : "the replica that was asked",
                           name_by_id(list, from->header ? from->header->member_id : 0));
        if (c->o.finish)
                return finish(c, &at);
        all = json_versions(list, s);
        if (c->json != JSON_OFF)
                ctl_print(c, json_object_get(all));
        else
                table_print(c, json_object_object_get(all, "members"), columns,
                            ARRAY_SIZE(columns));
        if (c->json == JSON_OFF && c->legend)
                printf("The cluster version is %s.\n",
                       ctl_shown(all, "cluster_version", version));
        json_object_put(all);
        return 0;
}

/* ---- snapshots ---- */

static int write_chunk(void *arg, void *reply)
{
        const Pb__SnapshotResponse *p = reply;

        return fwrite(p->blob.data, 1, p->blob.len, arg) == p->blob.len ? 0 : -EIO;
}

/* Writes to @part, which is a new file. Returns 0, or -1 after printing why. */
static int save_to(const struct ctl *c, const char *part)
{
        Pb__SnapshotRequest q = PB__SNAPSHOT_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Maintenance/Snapshot",
                         .request = &q.base,
                         .reply_type = &pb__snapshot_response__descriptor,
                         .each = write_chunk};
        /* A snapshot has all values, the hashes of passwords and the key that signs logins; so
         * it must not go into a file that somebody else has put there. */
        int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), r;
        FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

        if (!f) {
                say("cannot write %s: %s", part, strerror(errno));
                if (fd >= 0)
                        close(fd);
                return -1;
        }
        t.arg = f;
        r = talk(&c->core, &t);
        t.reply = pb_free(t.reply);
        if (r == 0 && (t.failed < 0 || fflush(f) != 0 || fsync(fileno(f)) < 0))
                r = say("cannot write %s: %s", part,
                        strerror(t.failed < 0 ? -t.failed : errno));
        fclose(f);
        return r < 0 ? -1 : 0;
}

int verb_snapshot_save(struct ctl *c, int argc unused_, char **argv)
{
        struct json_object *o;
        char part[4096];
        int r;

        if (replace_check(argv[0]) < 0)
                return -1;
        if (snprintf(part, sizeof(part), "%s.part", argv[0]) >= (int) sizeof(part))
                return say("the name of the file is too long");
        (void) !unlink(part);
        r = save_to(c, part);
        if (r == 0 && rename(part, argv[0]) < 0)
                r = say("cannot rename %s: %s", part, strerror(errno));
        if (r < 0) {
                unlink(part);
                return -1;
        }
        o = json_object_new_object();
        json_object_object_add(o, "file", text_json(view_str(argv[0])));
        ctl_did(c, o, "Saved %s.", argv[0]);
        return 0;
}

/* Runs tenure-core, which knows its data directory and takes its usual options. */
int verb_snapshot_restore(struct ctl *c unused_, int argc, char **argv)
{
        char **args = calloc((size_t) argc + 3, sizeof(*args));

        if (!args)
                return ctl_fail("cannot run tenure-core", -ENOMEM, NULL);
        args[0] = (char *) (uintptr_t) "tenure-core";
        args[1] = (char *) (uintptr_t) "--restore";
        memcpy(args + 2, argv, (size_t) argc * sizeof(*args));
        execvp(args[0], args);
        free(args);
        if (errno == ENOENT)
                return say("tenure-core is not in $PATH, and restores snapshots: install it on "
                           "this host, or add its directory to $PATH");
        return ctl_fail("cannot run tenure-core", -errno, NULL);
}
