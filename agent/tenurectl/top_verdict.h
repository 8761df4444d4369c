/*
 * The verdict of `tenurectl top`: one line with what an operator has to know first. Pure.
 */
#pragma once

#include "top_model.h"

#define TOP_VERDICT 320

/* As of the last top_arrange(). */
enum top_weight top_verdict(const struct top_model *m, char out[static TOP_VERDICT]);
