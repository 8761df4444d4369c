/* Runs the fuzzer's function over the files of a directory, without libFuzzer. */
#include <dirent.h>
#include <stdio.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int main(int argc, char **argv)
{
        DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
        struct dirent *e;
        unsigned done = 0;

        if (!d) {
                fprintf(stderr, "usage: replay CORPUS\n");
                return 2;
        }
        while ((e = readdir(d))) {
                static uint8_t bytes[1 << 20];
                char path[1200];
                size_t n;
                FILE *f;

                if (e->d_name[0] == '.')
                        continue;
                snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
                f = fopen(path, "re");
                if (!f)
                        continue;
                n = fread(bytes, 1, sizeof(bytes), f);
                fclose(f);
                LLVMFuzzerTestOneInput(bytes, n);
                done++;
        }
        closedir(d);
        printf("%u passed, 0 failed\n", done);
        return done > 0 ? 0 : 1;
}
