#include "loop/date.h"

#include <time.h>

const char *date_http(void)
{
        static _Thread_local char text[32];
        static _Thread_local time_t made_at = -1;
        time_t now = time(NULL);
        struct tm tm;

        if (now == made_at)
                return text;
        made_at = now;
        if (!gmtime_r(&now, &tm) ||
            strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm) == 0)
                *text = '\0';
        return text;
}
