/* The fuzzers behind libFuzzer: FUZZER=name chooses one (`make fuzz` goes through all). */
#include <stdio.h>

#include "fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
size_t LLVMFuzzerMutate(uint8_t *p, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
                                 uint8_t *out, size_t max, unsigned seed);

static const struct fuzzer *fuzzer;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
        const char *name = getenv("FUZZER");

        (void) argc;
        (void) argv;
        fuzzer = name ? fuzzer_find(name) : NULL;
        if (!fuzzer) {
                fprintf(stderr, "FUZZER=%s names no fuzzer; see tests/fuzz/README.md\n",
                        name ? name : "");
                exit(2);
        }
        return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
        fuzzer->run((struct view){p, n});
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *p, size_t n, size_t max, unsigned seed)
{
        return mutate(fuzzer, p, n, max, seed, LLVMFuzzerMutate);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t n_a, const uint8_t *b, size_t n_b,
                                 uint8_t *out, size_t max, unsigned seed)
{
        return mutate_cross(fuzzer, (struct view){a, n_a}, (struct view){b, n_b}, out, max,
                            seed);
}
