/* For commands that write a new file beside FILE, and then rename it to FILE. */
#pragma once

#include <sys/stat.h>

#include "text.h"

/* Checks that @path does not exist or is a regular file: a device such as /dev/null, or a link
 * such as /dev/stdout, must not be replaced. Returns 0, or -1 after printing why. */
must_check_ static inline int replace_check(const char *path)
{
        struct stat st;

        if (lstat(path, &st) < 0 || S_ISREG(st.st_mode))
                return 0;
        return say("cannot write %s: it exists, and is not a regular file", path);
}
