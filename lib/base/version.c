#include "base/version.h"

const char *cluster_version_name(uint32_t version)
{
        static const char *const names[] = {[CLUSTER_0_1] = "0.1", [CLUSTER_0_2] = "0.2"};

        return version >= CLUSTER_0_1 && version <= CLUSTER_NEWEST ? names[version] : "unknown";
}
