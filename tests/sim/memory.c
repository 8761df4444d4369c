/*
 * Allocations that fail in the code of replicas and in the libraries that it calls, and only
 * while such code runs. A replica that gets no memory ends as a whole, or answers that one
 * request with an error; it never continues with another history than the others (I4).
 *
 * malloc() and its like are ours in this program. A sanitizer has its own; then only the calls
 * of our objects are redirected (-Wl,--wrap, tests.mk). libraft's own allocations do not fail:
 * the programs end in that case (replica_end_without_memory()). Nor do libcrypto's: it
 * allocates more when it is used for the first time in a process, so that a world would depend
 * on those before it.
 */
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <raft.h>

#include "world.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
static void __lsan_disable(void)
{
}

static void __lsan_enable(void)
{
}
#endif

static struct rnd *rnd;
static enum memory whose;
static bool leaks; /* a replica that ended without memory does not free what it had */
static uint64_t one_in, left, failures[MEMORY_LOAD + 1];

static void draw(void)
{
        left = one_in > 0 ? rnd_between(rnd, 1, 2 * one_in) : 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OURS(name) __wrap_##name
#define REAL(name) __real_##name
#else
#define OURS(name) name
#define REAL(name) __libc_##name
#endif

void *REAL(malloc)(size_t n);
void *REAL(calloc)(size_t n, size_t size);
void *REAL(realloc)(void *p, size_t n);
void *OURS(malloc)(size_t n);
void *OURS(calloc)(size_t n, size_t size);
void *OURS(realloc)(void *p, size_t n);

/* ---- libraft's own ---- */

static void *heap_malloc(void *data, size_t n)
{
        (void) data;
        return REAL(malloc)(n);
}

static void heap_free(void *data, void *p)
{
        (void) data;
        free(p);
}

static void *heap_calloc(void *data, size_t n, size_t size)
{
        (void) data;
        return REAL(calloc)(n, size);
}

static void *heap_realloc(void *data, void *p, size_t n)
{
        (void) data;
        return REAL(realloc)(p, n);
}

static struct raft_heap heap = {.malloc = heap_malloc,
                                .free = heap_free,
                                .calloc = heap_calloc,
                                .realloc = heap_realloc};

/* ---- libcrypto's own ---- */

static void *crypto_malloc(size_t n, const char *file, int line)
{
        (void) file;
        (void) line;
        return REAL(malloc)(n);
}

static void *crypto_realloc(void *p, size_t n, const char *file, int line)
{
        (void) file;
        (void) line;
        return REAL(realloc)(p, n);
}

static void crypto_free(void *p, const char *file, int line)
{
        (void) file;
        (void) line;
        free(p);
}

/* Possible only before it has allocated anything. The first use also allocates by libc's own
 * functions, which read its configuration and load what that names. */
static void take_over_crypto(void)
{
        static bool done;
        uint8_t mac[EVP_MAX_MD_SIZE];

        if (done)
                return;
        if (!CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) ||
            !HMAC(EVP_sha256(), mac, 0, mac, 0, mac, NULL))
                abort();
        done = true;
}

/* ---- */

void memory_begin(struct rnd *r, uint64_t n)
{
        raft_heap_set(&heap);
        take_over_crypto();
        rnd = r;
        whose = MEMORY_OURS;
        leaks = false;
        memset(failures, 0, sizeof(failures));
        memory_go_on(n);
}

void memory_go_on(uint64_t n)
{
        one_in = n;
        leaks = leaks || n > 0;
        draw();
}

void memory_end(void)
{
        one_in = left = 0;
}

void memory_fail_next(void)
{
        left = 1;
}

enum memory memory_of(enum memory next)
{
        enum memory was = whose;

        if (leaks && was == MEMORY_OURS && next != MEMORY_OURS)
                __lsan_disable();
        else if (leaks && was != MEMORY_OURS && next == MEMORY_OURS)
                __lsan_enable();
        whose = next;
        /* The compiler takes it that malloc() reads none of our variables, and would omit a
         * value that is replaced right after a call of it. */
        __asm__ volatile("" : : : "memory");
        return was;
}

uint64_t memory_failed(enum memory of)
{
        return failures[of];
}

uint64_t memory_failures(void)
{
        uint64_t n = 0;

        for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
                n += failures[i];
        return n;
}

static bool fails(void)
{
        if (whose == MEMORY_OURS || left == 0 || --left > 0)
                return false;
        failures[whose]++;
        draw();
        errno = ENOMEM;
        return true;
}

void *OURS(malloc)(size_t n)
{
        return fails() ? NULL : REAL(malloc)(n);
}

void *OURS(calloc)(size_t n, size_t size)
{
        return fails() ? NULL : REAL(calloc)(n, size);
}

void *OURS(realloc)(void *p, size_t n)
{
        return fails() ? NULL : REAL(realloc)(p, n);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void *REAL(reallocarray)(void *p, size_t n, size_t size);
char *REAL(strdup)(const char *s);
char *REAL(strndup)(const char *s, size_t n);
void *OURS(reallocarray)(void *p, size_t n, size_t size);
char *OURS(strdup)(const char *s);
char *OURS(strndup)(const char *s, size_t n);

void *OURS(reallocarray)(void *p, size_t n, size_t size)
{
        return fails() ? NULL : REAL(reallocarray)(p, n, size);
}

char *OURS(strdup)(const char *s)
{
        return fails() ? NULL : REAL(strdup)(s);
}

char *OURS(strndup)(const char *s, size_t n)
{
        return fails() ? NULL : REAL(strndup)(s, n);
}
#endif

void *__real_raft_malloc(size_t n);
void *__real_raft_calloc(size_t n, size_t size);
void *__wrap_raft_malloc(size_t n);
void *__wrap_raft_calloc(size_t n, size_t size);

void *__wrap_raft_malloc(size_t n)
{
        return fails() ? NULL : __real_raft_malloc(n);
}

void *__wrap_raft_calloc(size_t n, size_t size)
{
        return fails() ? NULL : __real_raft_calloc(n, size);
}
