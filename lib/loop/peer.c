#include "loop/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

void peer_address(const struct sockaddr_storage *a, char out[static PEER_MAX])
{
        const struct sockaddr_in6 *v6 = (const void *) a;
        const struct sockaddr_in *v4 = (const void *) a;

        *out = '\0';
        if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
                inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, out, PEER_MAX);
        else if (a->ss_family == AF_INET6)
                inet_ntop(AF_INET6, &v6->sin6_addr, out, PEER_MAX);
        else if (a->ss_family == AF_INET)
                inet_ntop(AF_INET, &v4->sin_addr, out, PEER_MAX);
}

void peer_shown(const struct sockaddr_storage *a, char out[static PEER_SHOWN_MAX])
{
        char host[INET6_ADDRSTRLEN] = "?";

        if (a->ss_family == AF_INET6) {
                const struct sockaddr_in6 *in6 = (const void *) a;

                inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
                snprintf(out, PEER_SHOWN_MAX, "[%s]:%u", host, ntohs(in6->sin6_port));
        } else if (a->ss_family == AF_INET) {
                const struct sockaddr_in *in = (const void *) a;

                inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
                snprintf(out, PEER_SHOWN_MAX, "%s:%u", host, ntohs(in->sin_port));
        } else if (a->ss_family == AF_UNIX) {
                snprintf(out, PEER_SHOWN_MAX, "unix:%.70s",
                         ((const struct sockaddr_un *) (const void *) a)->sun_path);
        }
}

void peer_process(int fd, char out[static PEER_SHOWN_MAX])
{
        struct ucred who;
        socklen_t len = sizeof(who);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0)
                snprintf(out, PEER_SHOWN_MAX, "unix:%d", (int) who.pid);
}
