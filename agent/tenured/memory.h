/* Locks the agent's memory: pages that were swapped out would come back too late when memory is
 * short. */
#pragma once

/* Locks all memory if the unit's LimitMEMLOCK= allows it; pages that are never touched stay
 * unallocated. */
void memory_lock(void);
