/*
 * The token that a client shows instead of its password: its name, its login and an end, signed
 * with the cluster's secret.
 *
 *     token = NAME-in-hex.LOGIN.END.MAC, numbers in hex
 *
 * Nothing is stored for it: every replica accepts it, also one that has just started. It ends
 * at END, in lease time, or with the password that it was given for (struct auth_user,
 * `login`). MAC is HMAC-SHA-256 (RFC 2104). Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "state/auth.h"

/* Appends the token, as a string without an end. */
void token_make(const struct auth *a, const struct auth_user *u, struct lease_time end,
                struct buf *out);

/* Appends the name of the user that a valid token is for, and fills *@ret_login. Returns 0,
 * -EKEYREJECTED or -ENOMEM. The caller checks that the login is still valid. */
must_check_ int token_read(const struct auth *a, const char *token, struct lease_time now,
                           struct buf *name, uint64_t *ret_login);
