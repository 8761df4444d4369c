/*
 * Probes: rare moments in the code that simulated worlds must reach, written where they occur.
 *
 *         PROBE("a read round is open while the members change");
 *
 * The programs contain none of this: it is compiled in with TENURE_PROBES only, as in
 * MODE=fast. Then each probe is registered when the program is linked, so that those that are
 * never reached are known, too. Reaching one costs a store. The sentence is the probe's name:
 * no two are alike. tests/sim/README.md says how to read what a run prints.
 */
#pragma once

#include <stdbool.h>

struct probe_site {
        const char *what; /* a plain sentence, without a full stop */
        const char *file;
        int line;
        bool reached; /* since it was last reset */
};

#ifdef TENURE_PROBES
/* For computing, before a step, what a probe in it needs. */
#define PROBING true
/* The pointers stand next to each other in a section, whose ends the linker names. */
#define PROBE(sentence)                                                                  \
        do {                                                                             \
                static struct probe_site _probe = {sentence, __FILE__, __LINE__, false}; \
                static struct probe_site *_at __attribute__((section("probes"), used)) = \
                        &_probe;                                                         \
                                                                                         \
                _probe.reached = true;                                                   \
        } while (0)
#define PROBE_IF(condition, sentence)    \
        do {                             \
                if (condition)           \
                        PROBE(sentence); \
        } while (0)
#else
#define PROBING false
#define PROBE(sentence) ((void) 0)
/* The compiler checks the condition, and drops it. */
#define PROBE_IF(condition, sentence) ((void) (false && (condition)))
#endif

/* All probes, in no order; NULL: there are none, as in the programs. */
extern struct probe_site *__start_probes[] __attribute__((weak));
extern struct probe_site *__stop_probes[] __attribute__((weak));
