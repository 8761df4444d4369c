#include "etcd/status_page.h"

/* Includes the bytes of a file in conf/page by the assembler: the build runs in the top folder,
 * and knows these dependencies (Makefile). */
#define FILE_BYTES(name, path)                        \
        __asm__(".section .rodata\n"                  \
                ".global status_page_" #name "\n"     \
                ".hidden status_page_" #name "\n"     \
                "status_page_" #name ":\n"            \
                ".incbin \"" path "\"\n"              \
                ".global status_page_" #name "_end\n" \
                ".hidden status_page_" #name "_end\n" \
                "status_page_" #name "_end:\n"        \
                ".previous\n");                       \
        extern const uint8_t status_page_##name[] hidden_, status_page_##name##_end[] hidden_

#define hidden_ __attribute__((visibility("hidden")))

FILE_BYTES(html, "conf/page/index.html");
FILE_BYTES(css, "conf/page/page.css");
FILE_BYTES(js, "conf/page/page.js");
FILE_BYTES(icon, "conf/page/icon.svg");

/* The page uses only what this replica serves: no script, style, image or request from or to
 * elsewhere, no inline script or style, no frame around it, and no form that leads anywhere. */
const char *const status_page_headers[] = {
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Referrer-Policy: no-referrer",
        "Cross-Origin-Resource-Policy: same-origin",
        "Cache-Control: no-cache",
        NULL,
};

static const struct status_page_file files[] = {
        {"/", "text/html; charset=utf-8", status_page_html, status_page_html_end},
        {"/page.css", "text/css; charset=utf-8", status_page_css, status_page_css_end},
        {"/page.js", "text/javascript; charset=utf-8", status_page_js, status_page_js_end},
        {"/page.svg", "image/svg+xml", status_page_icon, status_page_icon_end},
};

const struct status_page_file *status_page_find(const char *path)
{
        for (size_t i = 0; i < ARRAY_SIZE(files); i++)
                if (strcmp(path, files[i].path) == 0)
                        return &files[i];
        return NULL;
}
