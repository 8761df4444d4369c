/* Small files that survive this process, in $RUNTIME_DIRECTORY (systemd.exec(5)). */
#pragma once

#include <stdio.h>

#include "base/base.h"

#define RUNTIME_PATH_MAX 512

/* Where the file @name is; false, and "", where nothing can be kept. */
bool runtime_path(const char *name, char path[static RUNTIME_PATH_MAX]);

/* Whether @path is still the file that @fd is, and ours to read and write: its mode is mended,
 * should somebody have changed it. */
bool runtime_is_there(const char *path, int fd);

/* Has @fn write the file anew: a reader finds the old text or the new one. Does nothing if
 * @path is "". If it fails, logs why, and @loss, which says what a restart will forget. */
void runtime_write(const char *path, void (*fn)(const void *userdata, FILE *f),
                   const void *userdata, const char *loss);
