/* Reads operands: one form of a time, one of a number, and one of NAME=VALUE for all verbs. All
 * return 0, or -1 after printing what is wrong. @what: the name of the operand, for a person.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

must_check_ int operand_time(const char *what, const char *text, nsec_t min, nsec_t max,
                             nsec_t *ret);
must_check_ int operand_count(const char *what, const char *text, int64_t min, int64_t max,
                              uint64_t *ret);
/* Ends the name at its =; the value is behind that. */
must_check_ int operand_pair(char *text);
