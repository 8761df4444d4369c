#include "member/refusal.h"

bool refusal_wants_login(enum rpc_code code, const char *message)
{
        return code == RPC_UNAUTHENTICATED || strstr(message, "invalid auth token") ||
               strstr(message, "revision of auth store is old") ||
               strstr(message, "user name is empty");
}
