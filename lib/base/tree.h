/* Red-black trees of tree(3bsd). */
#pragma once

#include <bsd/sys/tree.h>

/* Defines the functions of a tree, in the one file that has its comparison. Some of libbsd's
 * are static, and not every tree uses all of them. */
#define TREE_GENERATE(name, type, field, cmp)                                                  \
        _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wunused-function\"") \
                RB_PROTOTYPE(name, type, field, cmp) RB_GENERATE(name, type, field, cmp)       \
                        _Pragma("GCC diagnostic pop")
