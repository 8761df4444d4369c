/*
 * The address of a member in raft's configuration: its peer URLs (urls_join()); if it was put
 * in the place of a member whose data directory was lost, when; and, once it is recorded, the
 * id of its own data directory.
 *
 *     address = URLS ["!" replaced] ["#" directory | "+" directory]
 *
 * With "+" it was added as a voter, and votes once its directory is recorded and it has caught
 * up; until then it is a learner to raft, and the id is zero until it is recorded. Both numbers
 * have 16 hexadecimal digits. No URLs end like that: they end with a port. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/url.h"

#define ADDRESS_MAX (URLS_MAX + 2 * 17)

/* The id in @address; 0: none is recorded. */
uint64_t address_directory(const char *address);

/* Whether it is one with "+". */
bool address_will_vote(const char *address);

/* When the member was put in the place of another one, in seconds of lease time; 0: it was
 * not. */
uint64_t address_replaced(const char *address);

/* Copies the URLs in @address, or as much of them as there is room for; returns @out. */
const char *address_urls(const char *address, char out[static URLS_MAX]);

/* All of them. */
struct member_address {
        char urls[URLS_MAX];
        uint64_t replaced, directory;
        bool will_vote;
};

struct member_address address_split(const char *address);

/* Writes the address with what is not 0 of @a; returns @out. */
const char *address_join(const struct member_address *a, char out[static ADDRESS_MAX]);
