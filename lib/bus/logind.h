/* Suspend and resume of the host (org.freedesktop.login1(5)): reported before a suspend, with
 * time to act, as long as the delay inhibitor is held (systemd-inhibit(1); at most
 * InhibitDelayMaxSec= of logind.conf(5)). Nothing here waits. */
#pragma once

#include "bus/bus.h"
#include "bus/signals.h"

struct logind {
        void (*sleep)(void *userdata, bool begins);
        void *userdata;
        sd_bus *sd; /* borrowed; NULL: no bus */
        struct signals from;
        sd_bus_slot *match, *asked, *read;
        int fd; /* the inhibitor; -1: none */
};

void logind_init(struct logind *l, void (*sleep)(void *userdata, bool begins), void *userdata);
void logind_fini(struct logind *l);

/* Uses this connection from now on; NULL: it is gone. An inhibitor outlives its connection.
 * After reconnecting, and when logind was restarted, sleep() is called with the current state,
 * even if it has not changed. */
void logind_attach(struct logind *l, sd_bus *sd);

/* logind_inhibit() asks for time before the next sleep; logind_release() lets a sleep proceed
 * that waits for us. */
void logind_inhibit(struct logind *l);
void logind_release(struct logind *l);
