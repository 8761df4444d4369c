/* The date, for people and for HTTP; leases never depend on it (A28). */
#pragma once

/* The present time as in RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT"; empty if the clock
 * has no valid date. The text belongs to the thread, and is valid until its next call. */
const char *date_http(void);
