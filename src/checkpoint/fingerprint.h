/* What tells one checkpoint from another: for records that are only of use with the model they were made with. */
#ifndef PGL_CHECKPOINT_FINGERPRINT_H
#define PGL_CHECKPOINT_FINGERPRINT_H

#include "checkpoint/checkpoint.h"

#define PGL_FINGERPRINT_TEXT 33

/* Writes 32 hexadecimal digits: a hash of config.json, tokenizer.json, and of each used tensor's name, type, shape and
 * first 64 bytes. Reads those files and a page of each tensor. It tells models apart and proves nothing: weights
 * that differ behind the first bytes of every tensor look the same. PGL_E_IO, PGL_E_NOT_FOUND, PGL_E_MEMORY. Any thread. */
pgl_status pgl_checkpoint_fingerprint(const pgl_checkpoint *checkpoint, char out[PGL_FINGERPRINT_TEXT],
                                      pgl_error *err);

#endif
