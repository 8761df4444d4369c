/* Translates errors of a core to errnos. Texts of etcd are kept for the sentence; they decide
 * only where one code of etcd stands for several errors. */
#include "tenure/calls.h"

static bool has(const char *message, const char *part)
{
        return strstr(message, part) != NULL;
}

int code_errno(enum rpc_code code, const char *m)
{
        switch (code) {
        case RPC_OK:
                return 0;
        case RPC_NOT_FOUND:
                return -ENOENT;
        case RPC_ALREADY_EXISTS:
                return -EEXIST;
        case RPC_PERMISSION_DENIED:
        case RPC_UNAUTHENTICATED:
                return -EACCES;
        case RPC_INVALID_ARGUMENT:
                if (has(m, "too large"))
                        return -EMSGSIZE;
                if (has(m, "user name is empty") || has(m, "authentication failed"))
                        return -EACCES;
                if (has(m, "too many operations"))
                        return -E2BIG;
                return -EINVAL;
        case RPC_RESOURCE_EXHAUSTED:
                if (has(m, "too large") || has(m, "larger than max"))
                        return -EMSGSIZE;
                return -ENOSPC;
        case RPC_FAILED_PRECONDITION:
                return has(m, "already exists") ? -EEXIST : -EPERM;
        case RPC_OUT_OF_RANGE:
                return has(m, "compacted") ? -ENODATA : -ERANGE;
        case RPC_UNIMPLEMENTED:
                return -EOPNOTSUPP;
        case RPC_DATA_LOSS: /* such a core accepts nothing any more */
                return -EIO;
        default: /* it may have been done, or not */
                return -EREMOTEIO;
        }
}

bool code_is_untouched(enum rpc_code code, const char *m)
{
        return (code == RPC_UNAVAILABLE && has(m, "rpc not supported for learner")) ||
               (code == RPC_RESOURCE_EXHAUSTED && has(m, "etcdserver: too many requests"));
}

const char *code_text(const char *text)
{
        const char *desc = strstr(text, "desc = ");

        return desc ? desc + strlen("desc = ") : text;
}
