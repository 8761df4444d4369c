/*
 * The paths of etcd's JSON gateway, /v3/…, /v3beta/… and /v3alpha/…, and the methods behind
 * them.
 */
#include "etcd/gateway_paths.h"

#include "wire/pb.h"

#define METHOD(path, call, request, answer, client, server, waits)                             \
        {                                                                                      \
                path, call, &pb__##request##__descriptor, &pb__##answer##__descriptor, client, \
                        server, waits                                                          \
        }
#define UNARY(path, call, request, answer) \
        METHOD(path, call, request, answer, false, false, false)
#define WAITS(path, call, request, answer) \
        METHOD(path, call, request, answer, false, false, true)
#define STREAM(path, call, request, answer, client) \
        METHOD(path, call, request, answer, client, true, false)

/* Paths without the version in front; sorted. */
static const struct gateway_method methods[] = {
        UNARY("/auth/authenticate", "/etcdserverpb.Auth/Authenticate", authenticate_request,
              authenticate_response),
        UNARY("/auth/disable", "/etcdserverpb.Auth/AuthDisable", auth_disable_request,
              auth_disable_response),
        UNARY("/auth/enable", "/etcdserverpb.Auth/AuthEnable", auth_enable_request,
              auth_enable_response),
        UNARY("/auth/role/add", "/etcdserverpb.Auth/RoleAdd", auth_role_add_request,
              auth_role_add_response),
        UNARY("/auth/role/delete", "/etcdserverpb.Auth/RoleDelete", auth_role_delete_request,
              auth_role_delete_response),
        UNARY("/auth/role/get", "/etcdserverpb.Auth/RoleGet", auth_role_get_request,
              auth_role_get_response),
        UNARY("/auth/role/grant", "/etcdserverpb.Auth/RoleGrantPermission",
              auth_role_grant_permission_request, auth_role_grant_permission_response),
        UNARY("/auth/role/list", "/etcdserverpb.Auth/RoleList", auth_role_list_request,
              auth_role_list_response),
        UNARY("/auth/role/revoke", "/etcdserverpb.Auth/RoleRevokePermission",
              auth_role_revoke_permission_request, auth_role_revoke_permission_response),
        UNARY("/auth/status", "/etcdserverpb.Auth/AuthStatus", auth_status_request,
              auth_status_response),
        UNARY("/auth/user/add", "/etcdserverpb.Auth/UserAdd", auth_user_add_request,
              auth_user_add_response),
        UNARY("/auth/user/changepw", "/etcdserverpb.Auth/UserChangePassword",
              auth_user_change_password_request, auth_user_change_password_response),
        UNARY("/auth/user/delete", "/etcdserverpb.Auth/UserDelete", auth_user_delete_request,
              auth_user_delete_response),
        UNARY("/auth/user/get", "/etcdserverpb.Auth/UserGet", auth_user_get_request,
              auth_user_get_response),
        UNARY("/auth/user/grant", "/etcdserverpb.Auth/UserGrantRole",
              auth_user_grant_role_request, auth_user_grant_role_response),
        UNARY("/auth/user/list", "/etcdserverpb.Auth/UserList", auth_user_list_request,
              auth_user_list_response),
        UNARY("/auth/user/revoke", "/etcdserverpb.Auth/UserRevokeRole",
              auth_user_revoke_role_request, auth_user_revoke_role_response),
        UNARY("/cluster/member/add", "/etcdserverpb.Cluster/MemberAdd", member_add_request,
              member_add_response),
        UNARY("/cluster/member/list", "/etcdserverpb.Cluster/MemberList", member_list_request,
              member_list_response),
        UNARY("/cluster/member/promote", "/etcdserverpb.Cluster/MemberPromote",
              member_promote_request, member_promote_response),
        UNARY("/cluster/member/remove", "/etcdserverpb.Cluster/MemberRemove",
              member_remove_request, member_remove_response),
        UNARY("/cluster/member/update", "/etcdserverpb.Cluster/MemberUpdate",
              member_update_request, member_update_response),
        WAITS("/election/campaign", "/v3electionpb.Election/Campaign", campaign_request,
              campaign_response),
        UNARY("/election/leader", "/v3electionpb.Election/Leader", leader_request,
              leader_response),
        STREAM("/election/observe", "/v3electionpb.Election/Observe", leader_request,
               leader_response, false),
        UNARY("/election/proclaim", "/v3electionpb.Election/Proclaim", proclaim_request,
              proclaim_response),
        UNARY("/election/resign", "/v3electionpb.Election/Resign", resign_request,
              resign_response),
        UNARY("/kv/compaction", "/etcdserverpb.KV/Compact", compaction_request,
              compaction_response),
        UNARY("/kv/deleterange", "/etcdserverpb.KV/DeleteRange", delete_range_request,
              delete_range_response),
        UNARY("/kv/lease/leases", "/etcdserverpb.Lease/LeaseLeases", lease_leases_request,
              lease_leases_response),
        UNARY("/kv/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke", lease_revoke_request,
              lease_revoke_response),
        UNARY("/kv/lease/timetolive", "/etcdserverpb.Lease/LeaseTimeToLive",
              lease_time_to_live_request, lease_time_to_live_response),
        UNARY("/kv/put", "/etcdserverpb.KV/Put", put_request, put_response),
        UNARY("/kv/range", "/etcdserverpb.KV/Range", range_request, range_response),
        UNARY("/kv/txn", "/etcdserverpb.KV/Txn", txn_request, txn_response),
        UNARY("/lease/grant", "/etcdserverpb.Lease/LeaseGrant", lease_grant_request,
              lease_grant_response),
        STREAM("/lease/keepalive", "/etcdserverpb.Lease/LeaseKeepAlive",
               lease_keep_alive_request, lease_keep_alive_response, true),
        UNARY("/lease/leases", "/etcdserverpb.Lease/LeaseLeases", lease_leases_request,
              lease_leases_response),
        UNARY("/lease/revoke", "/etcdserverpb.Lease/LeaseRevoke", lease_revoke_request,
              lease_revoke_response),
        UNARY("/lease/timetolive", "/etcdserverpb.Lease/LeaseTimeToLive",
              lease_time_to_live_request, lease_time_to_live_response),
        WAITS("/lock/lock", "/v3lockpb.Lock/Lock", lock_request, lock_response),
        UNARY("/lock/unlock", "/v3lockpb.Lock/Unlock", unlock_request, unlock_response),
        UNARY("/maintenance/alarm", "/etcdserverpb.Maintenance/Alarm", alarm_request,
              alarm_response),
        UNARY("/maintenance/defragment", "/etcdserverpb.Maintenance/Defragment",
              defragment_request, defragment_response),
        UNARY("/maintenance/downgrade", "/etcdserverpb.Maintenance/Downgrade",
              downgrade_request, downgrade_response),
        UNARY("/maintenance/hash", "/etcdserverpb.Maintenance/Hash", hash_request,
              hash_response),
        UNARY("/maintenance/hashkv", "/etcdserverpb.Maintenance/HashKV", hash_kvrequest,
              hash_kvresponse),
        STREAM("/maintenance/snapshot", "/etcdserverpb.Maintenance/Snapshot", snapshot_request,
               snapshot_response, false),
        UNARY("/maintenance/status", "/etcdserverpb.Maintenance/Status", status_request,
              status_response),
        UNARY("/maintenance/transfer-leadership", "/etcdserverpb.Maintenance/MoveLeader",
              move_leader_request, move_leader_response),
        STREAM("/watch", "/etcdserverpb.Watch/Watch", watch_request, watch_response, true),
};

static int compare(const void *path, const void *method)
{
        return strcmp(path, ((const struct gateway_method *) method)->path);
}

const struct gateway_method *gateway_method_of(const char *path)
{
        static const char *const versions[] = {"/v3/", "/v3beta/", "/v3alpha/"};

        for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
                size_t n = strlen(versions[i]);

                if (strncmp(path, versions[i], n) == 0)
                        return bsearch(path + n - 1, methods, ARRAY_SIZE(methods),
                                       sizeof(methods[0]), compare);
        }
        return NULL;
}

const struct gateway_method *gateway_methods(size_t *ret_n)
{
        *ret_n = ARRAY_SIZE(methods);
        return methods;
}
