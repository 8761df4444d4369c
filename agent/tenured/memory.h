/* Locks the agent's memory: what is paged out would come back too late when memory is short. */
#pragma once

/* Locks all of ours, where the unit's LimitMEMLOCK= says that it may be; of what is never
 * touched nothing is. */
void memory_lock(void);
