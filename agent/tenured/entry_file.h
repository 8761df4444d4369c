/* One file NAME.service-entry. tenured.service-entry(5). */
#pragma once

#include "base/conf.h"
#include "member/service_record.h"

/* Reads the service of the file at @path, which is called @name if Name= is not set. Returns 1
 * with *@ret; 0 for an empty file or one that is not regular, which hides others; or a negative
 * errno with *@err, which names the file. */
must_check_ int entry_file_read(const char *path, const char *name, struct service_record *ret,
                                struct conf_error *err);
