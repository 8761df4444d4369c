/* Descriptors 0, 1 and 2. */
#pragma once

/* A program that was started with one of them closed would get that number for the next file or
 * socket that it opens, and would write its messages there. This occupies those that are
 * closed: reading and writing them still fails with EBADF, and programs that we run find them
 * closed, as we did. main() calls it first. */
void std_fds_reserve(void);
