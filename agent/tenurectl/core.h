/* How the lease core is reached. */
#pragma once

#include "client/endpoint.h"

struct core_options {
        const char *endpoints; /* joined by commas */
        bool given; /* the endpoints were given, by an option or in the environment */
        const char *cacert, *cert, *key;
        const char *user; /* NAME or NAME:PASSWORD; NULL: nobody */
        const char *password_file;
        struct endpoint_login
                login; /* made of `user` and the password file; see talk_log_in() */
};
