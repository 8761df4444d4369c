#include "loop/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

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
