#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet.h"

static void on_interrupt(int signo)
{
        (void) signo;
        F.interrupted = true;
}

static int usage(void)
{
        fprintf(stderr, "fleet --bin DIR --dir DIR [--cores N] [--agents N] [--ttl-ms N] "
                        "[--endpoints URLS]\n"
                        "      [--log-level LEVEL]\n"
                        "      show [--oneshot] | cases [--rounds N]\n");
        return 2;
}

/* What is set for other programs, or told to us by systemd, is not for those that we start. */
static void forget_environment(void)
{
        static const char *const prefixes[] = {"ETCD",
                                               "TENURE_",
                                               "NOTIFY_SOCKET=",
                                               "WATCHDOG_",
                                               "LISTEN_",
                                               "INVOCATION_ID=",
                                               "JOURNAL_STREAM=",
                                               "RUNTIME_DIRECTORY=",
                                               "STATE_DIRECTORY=",
                                               "CREDENTIALS_DIRECTORY="};
        size_t i = 0, k;

        while (environ[i]) {
                char name[256];

                for (k = 0; k < sizeof(prefixes) / sizeof(*prefixes); k++)
                        if (strncmp(environ[i], prefixes[k], strlen(prefixes[k])) == 0)
                                break;
                snprintf(name, sizeof(name), "%.*s", (int) strcspn(environ[i], "="),
                         environ[i]);
                if (k == sizeof(prefixes) / sizeof(*prefixes) || unsetenv(name) < 0)
                        i++;
        }
}

int main(int argc, char **argv)
{
        bool oneshot = false, is_show = false;
        unsigned rounds = 1;

        F.n_cores = 3;
        F.n_agents = 5;
        F.ttl_ms = 2000;
        for (int i = 1; i < argc; i++) {
                const char *value = i + 1 < argc ? argv[i + 1] : "";
                bool takes = true;

                if (strcmp(argv[i], "--bin") == 0)
                        F.bin = value;
                else if (strcmp(argv[i], "--dir") == 0)
                        F.dir = value;
                else if (strcmp(argv[i], "--cores") == 0)
                        F.n_cores = (unsigned) atoi(value);
                else if (strcmp(argv[i], "--agents") == 0)
                        F.n_agents = (unsigned) atoi(value);
                else if (strcmp(argv[i], "--ttl-ms") == 0)
                        F.ttl_ms = (unsigned) atoi(value);
                else if (strcmp(argv[i], "--rounds") == 0)
                        rounds = (unsigned) atoi(value);
                else if (strcmp(argv[i], "--log-level") == 0)
                        F.log_level = argv[i + 1];
                else if (strcmp(argv[i], "--endpoints") == 0) {
                        snprintf(F.endpoints, sizeof(F.endpoints), "%s", value);
                        F.n_cores = 0;
                } else {
                        takes = false;
                        if (strcmp(argv[i], "--oneshot") == 0)
                                oneshot = true;
                        else if (strcmp(argv[i], "show") == 0)
                                is_show = true;
                        else if (strcmp(argv[i], "cases") != 0)
                                return usage();
                }
                i += takes;
        }
        if (!F.bin || !F.dir || F.n_cores > CORES_MAX || F.n_agents < 2 ||
            F.n_agents > AGENTS_MAX)
                return usage();
        forget_environment();
        F.began = now_us();
        signal(SIGINT, on_interrupt);
        signal(SIGTERM, on_interrupt);
        signal(SIGPIPE, SIG_IGN);
        return is_show ? show(oneshot) : cases(rounds);
}
