/* A file that a command writes beside FILE, and then puts in its place. */
#pragma once

#include <stdio.h>
#include <sys/stat.h>

#include "base/base.h"

/* A new file takes the place of a file, or of nothing: not that of a device such as /dev/null,
 * or of a link such as /dev/stdout. Returns 0, or -EEXIST and has said so. */
must_check_ static inline int replace_check(const char *path)
{
        struct stat st;

        if (lstat(path, &st) < 0 || S_ISREG(st.st_mode))
                return 0;
        fprintf(stderr,
                "tenurectl: cannot write %s: it is there, and is not a regular file; name a "
                "file.\n",
                path);
        return -EEXIST;
}
