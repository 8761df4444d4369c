#include "metrics_request.h"

#include <stdio.h>

const char *metrics_judge(const char *request, bool *ret_body)
{
        char method[8], path[256], version[16];

        *ret_body = true;
        if (sscanf(request, "%7[A-Z]%*1[ ]%255[^ \r\n]%*1[ ]%15[^ \r\n]", method, path,
                   version) != 3 ||
            strncmp(version, "HTTP/1.", 7) != 0)
                return "400 Bad Request";
        *ret_body = strcmp(method, "HEAD") != 0;
        path[strcspn(path, "?")] = '\0';
        if (strcmp(path, "/metrics") != 0)
                return "404 Not Found";
        if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
                return "405 Method Not Allowed";
        return "200 OK";
}
