/* Who may ask: API keys, Host and Origin.
 *
 * With keys, a request needs one of them (Authorization: Bearer, or x-api-key); any page may ask with a key in hand, so
 * every Origin is allowed unless a list is given. Without keys the server trusts the machine it runs on, and what has
 * to be kept out is a web page in a browser there: Host must be a loopback name (DNS rebinding), or, where the server
 * was told to listen to others, an address or a name from the list; a foreign Origin is refused.
 *
 * Fixed after open; any thread. Keys are compared in a time that does not depend on what was sent and never written
 * anywhere. */
#ifndef PGL_SERVER_ACCESS_H
#define PGL_SERVER_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/http_parse.h"

typedef struct pgl_access pgl_access;

typedef struct pgl_access_options {
    const char *const *keys;
    size_t n_keys;
    const char *const *origins; /* "https://example.org"; "*": every one */
    size_t n_origins;
    const char *const *hosts; /* names that Host may have besides loopback ones */
    size_t n_hosts;
    bool loopback_only; /* as pgl_http_bind found */
} pgl_access_options;

/* Everything is copied. PGL_E_INVALID for a key that is empty or has characters that no header carries. */
pgl_status pgl_access_open(const pgl_access_options *options, pgl_access **out, pgl_error *err);
void pgl_access_close(pgl_access *access); /* wipes the keys; NULL is allowed */

/* Keys from text, one a line; blank lines and those that start with # are skipped. keys points into text, which is
 * changed; its capacity is the number of lines. Returns how many there are. */
size_t pgl_access_split_keys(char *text, const char **keys, size_t capacity);

bool pgl_access_has_keys(const pgl_access *access);
bool pgl_access_key_fits(const pgl_access *access, const pgl_http_head *head);

/* False: the request comes from where it should not; why says how (403). */
bool pgl_access_check_origin(const pgl_access *access, const pgl_http_head *head, pgl_http_fault *why);

/* What Access-Control-Allow-Origin says: "*", the request's own Origin, or NULL for no such header. */
const char *pgl_access_allow_origin(const pgl_access *access, const pgl_http_head *head);

#endif
