/*
 * The page for operators: what a browser gets at `/` of the client port, with its style, script
 * and icon. The files are those of conf/page, built into the program.
 *
 * The page gets its data from this replica's JSON gateway, like any client, with the
 * permissions of its reader: the files served here are the same for everybody, and contain
 * nothing about the cluster.
 */
#pragma once

#include "etcd/api.h"

struct status_page_file {
        const char *path, *type;
        const uint8_t *p, *end;
};

/* The file at @path; NULL: none. Constant. */
const struct status_page_file *status_page_find(const char *path);

/* For http_add_header(): what a browser may do with them. Ends with NULL. */
extern const char *const status_page_headers[];
