/*
 * The token that a client sends instead of its password: the user's name, the login and an end,
 * signed with the cluster's secret.
 *
 *     token = NAME-in-hex.LOGIN.END.MAC, numbers in hex
 *
 * Nothing is stored for it: every replica accepts it, even one that has just started. It
 * expires at END, in lease time, or when the password for which it was given changes (struct
 * auth_user, `login`). MAC is HMAC-SHA-256 (RFC 2104). Pure.
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
