/*
 * Time that nobody has to wait for: while this process has nothing to do but wait, its clocks
 * run SPEED times as fast, and its timers fire accordingly. What takes a processor takes as
 * long as ever. What is under way in the kernel or in another thread meanwhile is late as on a
 * busy machine, but no more than SPEED times as late as it is.
 *
 * Stands between all that is linked with the tests, libev too, and clock_gettime(),
 * timerfd_settime(), poll() and epoll_wait(). CLOCK_REALTIME stays as it is.
 */
#pragma once

/* From now on until virtual_time_end(), which main.c calls. */
void virtual_time_begin(void);
void virtual_time_end(void);
