/* The date, for people and for HTTP; leases never look at it (A28). */
#pragma once

/* Now, as in RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT"; empty where the clock shows no
 * date. The text is the thread's, and stays until its next call. */
const char *date_http(void);
