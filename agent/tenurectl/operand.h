/* Reads operands: times, numbers and NAME=VALUE have the same form in all verbs. All functions
 * return 0, or -1 after printing what is wrong. @what: the name of the operand, for
 * messages. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

must_check_ int operand_time(const char *what, const char *text, nsec_t min, nsec_t max,
                             nsec_t *ret);
must_check_ int operand_count(const char *what, const char *text, int64_t min, int64_t max,
                              uint64_t *ret);
/* Splits NAME=VALUE at the =, which becomes a NUL; the value follows it. */
must_check_ int operand_pair(char *text);
