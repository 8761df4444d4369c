/* In place of loop/resolve.c, for the processes of sockets.c: what names lead to. */
#pragma once

#include "loop/resolve.h"

struct world;

void names_begin(struct world *w);
struct resolver *names_resolver(unsigned host);
/* What is at an address: a host of tcp.h, and the address as text. */
struct names_place {
        unsigned host;
        char text[32];
} names_look(const struct sockaddr *addr);
/* Answers one question of that host, if an answer is due. */
bool names_answer(unsigned host);
nsec_t names_next(unsigned host);
