#include "reached.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/probe.h"
#include "etcd/internal.h"

/* What is reached in fewer than one of so many worlds is printed as rare. */
#define RARE 300
/* What is listed as unreached is not, if more than one in so many worlds reaches it. */
#define WRONG 100
#define ENOUGH 3000 /* worlds: fewer fail because of nothing */
/* What only long worlds reach, and what they are asked for; so many of them are enough. */
#define LONG "nights: "
#define ENOUGH_LONG 60

/* The list, by the assembler: the build runs in the top folder. */
__asm__(".section .rodata\n"
        ".global unreached_list\n"
        ".hidden unreached_list\n"
        "unreached_list:\n"
        ".incbin \"tests/sim/unreached\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char unreached_list[] __attribute__((visibility("hidden")));

static uint64_t calls[METHODS_MAX][CODES]; /* of this world */

static size_t n_probes(void)
{
        size_t n = __start_probes ? (size_t) (__stop_probes - __start_probes) : 0;

        assert(n <= PROBES_MAX);
        return n;
}

void reached_begin(void)
{
        for (size_t i = 0; i < n_probes(); i++)
                __start_probes[i]->reached = false;
        memset(calls, 0, sizeof(calls));
}

void reached_api(const struct api *a)
{
        for (size_t i = 0; a && a->counts && api_method(i); i++) {
                assert(i < METHODS_MAX);
                for (size_t k = 0; k < CODES; k++)
                        calls[i][k] += a->counts[i].handled[k];
        }
}

void reached_end(struct reached *r)
{
        for (size_t i = 0; i < n_probes(); i++)
                r->worlds[i] += __start_probes[i]->reached;
        for (size_t i = 0; i < METHODS_MAX; i++)
                for (size_t k = 0; k < CODES; k++)
                        r->calls[i][k] += calls[i][k];
}

/* ---- what is listed as unreached ---- */

/* Whether the line is about @name. */
static bool is_about(const char *line, const char *name)
{
        size_t n = strlen(name);

        return strncmp(line, name, n) == 0 && line[n] == ':' && line[n + 1] == ' ';
}

/* The line about it, without what is before the name; NULL: there is none. */
static const char *line_of(const char *name, bool of_long)
{
        for (const char *p = unreached_list; *p; p += strcspn(p, "\n") + 1) {
                bool is_long = strncmp(p, LONG, strlen(LONG)) == 0;
                const char *line = p + (is_long ? strlen(LONG) : 0);

                if (is_long == of_long && is_about(line, name))
                        return line;
        }
        return NULL;
}

/* Prints the reason that follows the name. */
static void tell_reason(const char *line, const char *name)
{
        const char *p = line ? line + strlen(name) + 2 : "";

        if (line)
                printf("            %.*s\n", (int) strcspn(p, "\n"), p);
}

static void tell_name(const char *name, const char *file, int line)
{
        printf("%s", name);
        if (file)
                printf(" (%s:%d)", file, line);
        puts("");
}

/* Returns whether something is wrong with it. */
static bool tell_one(const char *name, const char *file, int line, uint64_t times,
                     uint64_t worlds)
{
        const char *listed = line_of(name, false);
        bool wrong = listed && times * WRONG > worlds;

        if (line_of(name, true))
                return false;
        if (times == 0)
                printf("never reached: ");
        else if (wrong)
                printf("%10" PRIu64 " listed as unreached: ", times);
        else if (listed || times * RARE < worlds)
                printf("%10" PRIu64 " (rare) ", times);
        else
                return false;
        tell_name(name, file, line);
        tell_reason(listed, name);
        return worlds >= ENOUGH && (wrong || (times == 0 && !listed));
}

/* Like tell_one(), for what long worlds must reach. */
static bool tell_long(const struct probe_site *p, uint64_t times, uint64_t worlds)
{
        const char *listed = line_of(p->what, true);

        if (!listed)
                return false;
        printf(times == 0 ? "never reached: " : "%10" PRIu64 " ", times);
        tell_name(p->what, p->file, p->line);
        if (times == 0)
                tell_reason(listed, p->what);
        return worlds >= ENOUGH_LONG && times == 0;
}

/* Lines of the list that name nothing. */
static size_t tell_unknown(void)
{
        size_t bad = 0;

        for (const char *p = unreached_list; *p; p += strcspn(p, "\n") + 1) {
                bool known = *p == '#' || *p == '\n';
                const char *line = p + (strncmp(p, LONG, strlen(LONG)) == 0 ? strlen(LONG) : 0);

                for (size_t i = 0; i < n_probes() && !known; i++)
                        known = is_about(line, __start_probes[i]->what);
                for (size_t i = 0; api_method(i) && !known; i++)
                        known = is_about(line, api_method(i)->path);
                if (known)
                        continue;
                printf("tests/sim/unreached names nothing that exists: %.*s\n",
                       (int) strcspn(p, "\n"), p);
                bad++;
        }
        return bad;
}

/* ---- the methods ---- */

static const char *const code_names[CODES] = {
        "OK",      "CANCEL", "UNKN",  "INVAL",  "DEADL",  "NOTFND",  "EXISTS", "PERM",  "EXHAU",
        "PRECOND", "ABORT",  "RANGE", "UNIMPL", "INTERN", "UNAVAIL", "LOSS",   "UNAUTH"};

static uint64_t total(const struct reached *r, size_t method)
{
        uint64_t n = 0;

        for (size_t k = 0; k < CODES; k++)
                n += r->calls[method][k];
        return n;
}

static bool is_used(const struct reached *r, size_t code)
{
        for (size_t i = 0; i < METHODS_MAX; i++)
                if (r->calls[i][code] > 0)
                        return true;
        return false;
}

static void tell_calls(const struct reached *r)
{
        printf("%-36s", "calls, by how they ended");
        for (size_t k = 0; k < CODES; k++)
                if (is_used(r, k))
                        printf(" %8s", code_names[k]);
        puts("");
        for (size_t i = 0; api_method(i); i++) {
                if (total(r, i) == 0)
                        continue;
                printf("%-36s", api_method(i)->path);
                for (size_t k = 0; k < CODES; k++)
                        if (!is_used(r, k))
                                continue;
                        else if (r->calls[i][k] > 0)
                                printf(" %8" PRIu64, r->calls[i][k]);
                        else
                                printf(" %8s", ".");
                puts("");
        }
}

size_t reached_tell(const struct reached *r, uint64_t worlds, bool are_long)
{
        size_t bad = 0;

        if (n_probes() == 0) {
                puts("This build has no probes; MODE=fast has them.");
                return SIZE_MAX;
        }
        tell_calls(r);
        for (size_t i = 0; are_long && i < n_probes(); i++)
                bad += tell_long(__start_probes[i], r->worlds[i], worlds);
        if (are_long)
                return bad + tell_unknown();
        for (size_t i = 0; api_method(i); i++)
                bad += tell_one(api_method(i)->path, NULL, 0, total(r, i), worlds);
        for (size_t i = 0; i < n_probes(); i++)
                bad += tell_one(__start_probes[i]->what, __start_probes[i]->file,
                                __start_probes[i]->line, r->worlds[i], worlds);
        return bad + tell_unknown();
}
