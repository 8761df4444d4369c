/* Locks a process's memory: pages that were swapped out would come back too late when memory is
 * short. */
#pragma once

/* Locks all memory if the unit's LimitMEMLOCK= allows it; pages that are never touched stay
 * unallocated. */
void memory_lock(void);

/* Locks all memory, and reads all pages of the program and its libraries now: what is executed
 * for the first time while the disk hangs must not wait for the disk. Without
 * LimitMEMLOCK=infinity, memory that is allocated later is not locked. */
void memory_lock_whole(void);
