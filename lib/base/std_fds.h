/* Descriptors 0, 1 and 2. */
#pragma once

/* Occupies those of the descriptors 0, 1 and 2 that are closed. A program that was started with
 * one of them closed would get its number for the next file or socket that it opens, and would
 * write its messages there. Reading and writing an occupied descriptor still fails with EBADF,
 * and programs that we run find it closed, as we did. main() calls this first. */
void std_fds_reserve(void);
