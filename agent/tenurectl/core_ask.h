/* Questions to the core that several commands have in common. */
#pragma once

#include "core.h"
#include "wire/pb.h"

/* Both return 0, or a negative errno after printing why; the caller frees *@ret. */
must_check_ int core_ask_members(const struct core_options *o, Pb__MemberListResponse **ret);
must_check_ int core_ask_status(const struct core_options *o, Pb__StatusResponse **ret);

/* Finds a member by its name, or by its id in hexadecimal, which etcdctl prints without leading
 * zeros; NULL: there is none. */
const Pb__Member *core_find(const Pb__MemberListResponse *p, const char *what);

/* The member with @id; NULL: there is none. */
const Pb__Member *core_member(const Pb__MemberListResponse *p, uint64_t id);

/* What the replica with status @s knows about a member; NULL: the replica is an etcd, or of
 * release 0.1.0. */
const Pb__MemberVersion *core_status_of(const Pb__StatusResponse *s, uint64_t id);

/* Directs further calls to the leader, whatever the endpoints are: some requests only it
 * accepts, and some facts only it knows. */
void core_ask_leader(struct core_options *o, const Pb__MemberListResponse *list,
                     uint64_t leader);
