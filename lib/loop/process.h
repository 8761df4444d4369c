/*
 * The resources that this process uses (proc(5)). A look takes about 20 us, however large they
 * are.
 *
 * Before Linux 6.2, descriptors have to be counted one by one, at 2 us each. So in a process
 * that has very many, only those that are not clients' are counted, and rarely.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct process_usage {
        nsec_t cpu;                  /* processor time used, in user mode and in the kernel */
        double started;              /* in seconds since 1970 */
        uint64_t resident, virtual_; /* the limit of virtual_; UINT64_MAX: none */
        uint64_t virtual_max;        /* open file descriptors, and their limit */
        uint64_t fds, fds_max;       /* file descriptors: open, and how many may be */
};

/* State between two looks; zeroed at first. */
struct process_look {
        double started;
        uint64_t other_fds; /* descriptors that are not clients', when last counted */
};

/* Fills in what can be found out; the rest is 0. @clients: how many descriptors are those of
 * clients. */
void process_look(struct process_look *l, uint64_t clients, struct process_usage *ret);
