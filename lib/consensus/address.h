/*
 * The address of a member in raft's configuration: its peer URLs (urls_join()) and, once it is
 * recorded, the id of its data directory.
 *
 *     address = URLS | URLS "#" directory | URLS "+" directory
 *
 * With "+" it was added as a voter, and votes once its directory is recorded and it has caught
 * up; until then it is a learner to raft. The id has 16 hexadecimal digits, which are zeros
 * after "+" until it is recorded. No URLs end like that: they end with a port. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/url.h"

#define ADDRESS_MAX (URLS_MAX + 17)

/* The id in @address; 0: none is recorded. */
uint64_t address_directory(const char *address);

/* Whether it is one with "+". */
bool address_will_vote(const char *address);

/* Copies the URLs in @address, or as much of them as there is room for; returns @out. */
const char *address_urls(const char *address, char out[static URLS_MAX]);

/* Writes the address of @urls and, unless it is 0, @directory; returns @out. */
const char *address_join(const char *urls, uint64_t directory, bool will_vote,
                         char out[static ADDRESS_MAX]);
