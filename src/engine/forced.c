/* Owns the table of forced tokens. */
#include "engine/forced.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"

typedef struct entry {
    const int32_t *tokens;
    uint32_t n_prompt, n;
} entry;

struct pgl_forced {
    uint32_t n_slots;
    pthread_mutex_t lock;
    entry *entries; /* [n_slots], guarded by lock */
};

pgl_status pgl_forced_open(uint32_t n_slots, pgl_forced **out, pgl_error *err) {
    *out = NULL;
    pgl_forced *forced = pgl_new(1, sizeof *forced);
    entry *entries = pgl_new(n_slots, sizeof *entries);
    if (forced == NULL || entries == NULL || pthread_mutex_init(&forced->lock, NULL) != 0) {
        free(forced);
        free(entries);
        return pgl_fail(err, PGL_E_MEMORY, "no memory for the forced tokens of %u slots", n_slots);
    }
    forced->n_slots = n_slots;
    forced->entries = entries;
    *out = forced;
    return PGL_OK;
}

void pgl_forced_close(pgl_forced *forced) {
    if (forced == NULL)
        return;
    (void)pthread_mutex_destroy(&forced->lock);
    free(forced->entries);
    free(forced);
}

void pgl_forced_set(pgl_forced *forced, uint32_t slot, uint32_t n_prompt, const int32_t *tokens, uint32_t n) {
    if (slot >= forced->n_slots)
        return;
    (void)pthread_mutex_lock(&forced->lock);
    forced->entries[slot] = (entry){.tokens = tokens, .n_prompt = n_prompt, .n = n};
    (void)pthread_mutex_unlock(&forced->lock);
}

int32_t pgl_forced_token(void *user, uint32_t slot, uint32_t length, int32_t last_token) {
    (void)last_token;
    pgl_forced *forced = user;
    int32_t token = -1;
    if (slot >= forced->n_slots)
        return token;
    (void)pthread_mutex_lock(&forced->lock);
    const entry *e = &forced->entries[slot];
    if (length >= e->n_prompt && length - e->n_prompt < e->n)
        token = e->tokens[length - e->n_prompt];
    (void)pthread_mutex_unlock(&forced->lock);
    return token;
}
