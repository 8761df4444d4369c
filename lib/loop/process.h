/*
 * What this process takes of the machine (proc(5)): some 20 us, however much that is.
 *
 * Kernels before Linux 6.2 make us count descriptors one by one, at 2 us each. So in a process
 * that has very many, only those that are not clients' are counted, and rarely.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct process_usage {
        nsec_t cpu;                  /* that it has used, in user mode and in the kernel's */
        double started;              /* in seconds since 1970 */
        uint64_t resident, virtual_; /* bytes */
        uint64_t virtual_max;        /* that it may have; UINT64_MAX: any number */
        uint64_t fds, fds_max;       /* file descriptors: open, and how many may be */
};

/* What is remembered between two looks; zeroed at first. */
struct process_look {
        double started;
        uint64_t other_fds; /* that are not clients', as last counted */
};

/* Fills in what can be found out; the rest is 0. @clients: how many descriptors are those of
 * clients. */
void process_look(struct process_look *l, uint64_t clients, struct process_usage *ret);
