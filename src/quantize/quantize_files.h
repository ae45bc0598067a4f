/* The small files of an output directory. */
#ifndef PGL_QUANTIZE_QUANTIZE_FILES_H
#define PGL_QUANTIZE_QUANTIZE_FILES_H

#include "base/buf.h"
#include "checkpoint/config.h"
#include "quantize/quantize.h"

/* The source's config.json with the quantization_config of what is written, as text, and as parsed. */
pgl_status pgl_quantize_config(const pgl_quantize_options *options, pgl_buf *text, pgl_config *config,
                               pgl_error *err);

/* Makes or takes up the output directory: writes pergola-quantize.json, or compares it. */
pgl_status pgl_quantize_begin(const pgl_quantize_options *options, pgl_error *err);

/* Holds the draft head against the checkpoint in options->out, where there is one, makes out/mtp, and gives the path of the
 * file to write; free() releases. */
pgl_status pgl_quantize_begin_draft(const pgl_quantize_options *options, const pgl_config *config,
                                    char **path, pgl_error *err);

/* Copies tokenizer, template and generation files, writes config.json and the index, removes pergola-quantize.json. */
pgl_status pgl_quantize_end(const pgl_quantize_options *options, const pgl_buf *config, uint32_t n_files,
                            pgl_error *err);

/* "OUT/model-00001-of-00042.safetensors", i from 0; free() releases. */
char *pgl_quantize_path(const pgl_quantize_options *options, uint32_t i, uint32_t n_files);

#endif
