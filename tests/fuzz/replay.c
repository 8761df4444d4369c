/*
 * Runs the fuzzers over what is in corpus/<name>/, or one of them over some files, without
 * libFuzzer: `replay CORPUS`, or `replay CORPUS NAME [FILE...]`.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_MAX ((size_t) 4 << 20)
#define CPU_S 60 /* one input that takes so long is a loop without an end */

static char at[1400]; /* the input that is run */

static void tell(void)
{
        (void) !write(STDERR_FILENO, at, strlen(at));
        (void) !write(STDERR_FILENO, "\n", 1);
}

static void on_signal(int sig)
{
        tell();
        signal(sig, SIG_DFL);
        raise(sig);
}

/* Of the sanitizers, where there are any. */
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static bool run_file(const struct fuzzer *f, const char *path)
{
        static uint8_t bytes[INPUT_MAX];
        struct itimerval limit = {.it_value.tv_sec = CPU_S};
        FILE *file = fopen(path, "re");
        uint8_t *copy;
        size_t n;

        if (!file)
                return false;
        n = fread(bytes, 1, sizeof(bytes), file);
        fclose(file);
        copy = malloc(n > 0 ? n
                            : 1); /* of its size exactly, for the sanitizer to see its end */
        if (!copy)
                abort();
        memcpy(copy, bytes, n);
        snprintf(at, sizeof(at), "FAILED: fuzzer %s on %s", f->name, path);
        setitimer(ITIMER_VIRTUAL, &limit, NULL);
        f->run((struct view){copy, n});
        free(copy);
        return true;
}

static unsigned run_folder(const struct fuzzer *f, const char *corpus)
{
        char path[1200];
        struct dirent *e;
        unsigned done = 0;
        DIR *d;

        snprintf(path, sizeof(path), "%s/%s", corpus, f->name);
        d = opendir(path);
        while (d && (e = readdir(d))) {
                if (e->d_name[0] == '.')
                        continue;
                snprintf(path, sizeof(path), "%s/%s/%s", corpus, f->name, e->d_name);
                done += run_file(f, path);
        }
        if (d)
                closedir(d);
        return done;
}

static unsigned run_all(const char *corpus)
{
        struct dirent *e;
        unsigned done = 0;
        DIR *d = opendir(corpus);

        while (d && (e = readdir(d))) {
                const struct fuzzer *f = fuzzer_find(e->d_name);

                if (f)
                        done += run_folder(f, corpus);
                else if (e->d_name[0] != '.')
                        fprintf(stderr, "%s/%s belongs to no fuzzer\n", corpus, e->d_name);
        }
        if (d)
                closedir(d);
        return done;
}

int main(int argc, char **argv)
{
        const struct fuzzer *f = argc > 2 ? fuzzer_find(argv[2]) : NULL;
        unsigned done = 0;

        if (argc < 2 || (argc > 2 && !f)) {
                fprintf(stderr, "usage: replay CORPUS [FUZZER [FILE...]]\n");
                return 2;
        }
        signal(SIGABRT, on_signal);
        signal(SIGVTALRM, on_signal);
        if (__sanitizer_set_death_callback)
                __sanitizer_set_death_callback(tell);
        for (int i = 3; i < argc; i++)
                done += run_file(f, argv[i]);
        if (argc == 3)
                done = run_folder(f, argv[1]);
        else if (argc == 2)
                done = run_all(argv[1]);
        printf("%u passed, 0 failed\n", done);
        return done > 0 ? 0 : 1;
}
