/* Descriptors 0, 1 and 2. */
#pragma once

/* A program that was started with one of them closed would get it for the next file or socket
 * that it opens, and would write its messages there. Takes those that are closed: reading and
 * writing them goes on to fail with EBADF, and programs that we run find them closed, as we
 * did. The first that main() does. */
void std_fds_reserve(void);
