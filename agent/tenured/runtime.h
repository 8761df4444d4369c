/* Small files that survive this process, in $RUNTIME_DIRECTORY (systemd.exec(5)). */
#pragma once

#include <stdio.h>

#include "base/base.h"

#define RUNTIME_PATH_MAX 512

/* The path of the file @name; false, and "", if nothing can be kept. */
bool runtime_path(const char *name, char path[static RUNTIME_PATH_MAX]);

/* Whether @path is still the file of @fd, and we may read and write it. Restores its mode if
 * somebody changed that. */
bool runtime_is_there(const char *path, int fd);

/* Opens the file of @fd again, as another open file description. Returns -1 with errno. */
must_check_ int runtime_open_again(int fd, int flags);

/* Replaces the file by what @fn writes; a reader finds the old text or the new one. Does
 * nothing if @path is "". On failure logs why, and @loss, which says what a restart will
 * forget. */
void runtime_write(const char *path, void (*fn)(const void *userdata, FILE *f),
                   const void *userdata, const char *loss);
