/*
 * What whoever opens `tenurectl top` at night has to know first, in one line. Pure.
 */
#pragma once

#include "top_model.h"

#define TOP_VERDICT 320

/* As of the last top_arrange(). */
enum top_weight top_verdict(const struct top_model *m, char out[static TOP_VERDICT]);
