/* A byte-level BPE of a given size, made the same way every time. Its tokens are, in the order of their ranks: the
 * 256 bytes; common English words with a space in front; white space and punctuation; pairs of letters; characters of
 * two and three bytes; groups of three letters with and without a space or a capital; groups of four letters until
 * the vocabulary is full. Text in it comes out two to four letters to a token, as a tokenizer that was trained would. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/synth_plan.h"

const pgl_synth_special pgl_synth_specials[PGL_SYNTH_N_SPECIAL] = {
    {"<|endoftext|>", true},      {"<|im_start|>", true},
    {"<|im_end|>", true},         {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},        {"<|quad_start|>", true},
    {"<|quad_end|>", true},       {"<|vision_start|>", true},
    {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},      {"<|video_pad|>", true},
    {"<tool_call>", false},       {"</tool_call>", false},
    {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},     {"<|file_sep|>", false},
    {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},           {"</think>", false},
    {"<|audio_start|>", true},    {"<|audio_end|>", true},
    {"<tts_pad>", true},          {"<tts_text_bos>", true},
    {"<tts_text_eod>", true},     {"<tts_text_bos_single>", true},
    {"<|audio_pad|>", true},
};

#define MAX_TOKEN_BYTES 24
#define NONE UINT32_MAX

static const char common_words[] =
    " the of and to in is that it for was on are as with his they at be this from have or by one had not but "
    "what all"
    " were when we there can an your which their said if do will each about how up out them then she many "
    "some so"
    " these would other into has more her two like him see time could no make than first been its who now "
    "people my"
    " made over did down only way find use may water long little very after words called just where most "
    "know get"
    " through back much before go good new write our used me man too any day same right look think also "
    "around"
    " another came come work three word must because does part even place well such here take why things "
    "help put"
    " years different away again off went old number great tell men say small every found still between name "
    "should"
    " home big give air line set own under read last never us left end along while might next sound below saw"
    " something thought both few those always looked show large often together asked house world going want "
    "school"
    " important until form food keep children feet land side without boy once animals life enough took "
    "sometimes four"
    " head above kind began almost live page got earth need far hand high year mother light parts country "
    "father let"
    " night following picture being study second eyes soon times story boys since white days ever paper hard "
    "near"
    " sentence better best across during today others however sure means knew try told young miles sun ways "
    "thing"
    " whole hear example heard several change answer room sea against top turned learn point city play "
    "toward five"
    " using himself usually money seen car morning given The This It In If We You He What";

static const char *const fragments[] = {
    "  ",  "    ", "        ", "\n\n", "\n\n\n", "\t\t", "\r\n", ",\n", ".\n", ":\n", ";\n",
    "{\n", "}\n",  ")\n",      "()",   "==",     "!=",   "->",   "=>",  "//",  "**",  "##",
    "###", "--",   "---",      "...",  "\"\"",   "''",   "::",   "</",  "/>",  " (",  " \"",
    " '",  " =",   " {",       " [",   " -",     " *",   " +",   " #",  " /",  " <",  " >",
    " &",  " |",   "'s",       "'t",   "'re",    "'ve",  "'m",   "'ll", "'d",
};

typedef struct token {
    char bytes[MAX_TOKEN_BYTES];
    uint32_t size;
    uint32_t left, right; /* the merge that makes it; NONE for a byte */
} token;

/* Tokens so far, and where each byte string is: open addressing over a power of two. */
typedef struct vocabulary {
    token *tokens;
    uint32_t n, wanted;
    uint32_t *table;
    uint32_t mask;
    uint32_t of_byte[256];
} vocabulary;

/* The byte-level alphabet: printable bytes first, as themselves, then the rest. */
static bool is_printable_byte(uint32_t byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static uint32_t slot_of(const vocabulary *v, const char *bytes, uint32_t size) {
    uint32_t hash = 2166136261U;
    for (uint32_t i = 0; i < size; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619U;
    }
    hash ^= hash >> 15;
    while (v->table[hash & v->mask] != NONE) {
        const token *t = &v->tokens[v->table[hash & v->mask]];
        if (t->size == size && memcmp(t->bytes, bytes, size) == 0) {
            break;
        }
        hash++;
    }
    return hash & v->mask;
}

static uint32_t lookup(const vocabulary *v, const char *bytes, uint32_t size) {
    return v->table[slot_of(v, bytes, size)];
}

/* The token of left followed by right, added where it is new; NONE when the vocabulary is full or it is too long. */
static uint32_t merge(vocabulary *v, uint32_t left, uint32_t right) {
    if (left == NONE || right == NONE || v->tokens[left].size + v->tokens[right].size > MAX_TOKEN_BYTES) {
        return NONE;
    }
    const token *a = &v->tokens[left];
    const token *b = &v->tokens[right];
    char bytes[MAX_TOKEN_BYTES];
    memcpy(bytes, a->bytes, a->size);
    memcpy(bytes + a->size, b->bytes, b->size);
    const uint32_t size = a->size + b->size;
    const uint32_t slot = slot_of(v, bytes, size);
    if (v->table[slot] != NONE) {
        return v->table[slot];
    }
    if (v->n == v->wanted) {
        return NONE;
    }
    token *t = &v->tokens[v->n];
    memcpy(t->bytes, bytes, size);
    t->size = size;
    t->left = left;
    t->right = right;
    v->table[slot] = v->n;
    return v->n++;
}

/* Merges from the left, byte by byte: every beginning of the text becomes a token. */
static void add_text(vocabulary *v, const char *text, size_t size) {
    uint32_t so_far = v->of_byte[(unsigned char)text[0]];
    for (size_t i = 1; i < size && so_far != NONE; i++) {
        so_far = merge(v, so_far, v->of_byte[(unsigned char)text[i]]);
    }
}

static void add_words(vocabulary *v) {
    const char *at = common_words;
    while (*at != '\0') {
        const char *end = at + 1;
        while (*end != '\0' && *end != ' ') {
            end++;
        }
        add_text(v, at, (size_t)(end - at));
        at = end;
    }
    for (size_t i = 0; i < sizeof fragments / sizeof fragments[0]; i++) {
        add_text(v, fragments[i], strlen(fragments[i]));
    }
}

/* Every x followed by every y, for tokens first .. last in front (their bytes' order). */
static void add_pairs(vocabulary *v, int first, int last) {
    for (int x = first; x <= last; x++) {
        for (int y = 'a'; y <= 'z'; y++) {
            merge(v, v->of_byte[x], v->of_byte[y]);
        }
    }
}

static uint32_t letters(const vocabulary *v, int x, int y) {
    const char bytes[2] = {(char)x, (char)y};
    return lookup(v, bytes, 2);
}

/* Characters of U+0080-U+06FF in two bytes, and of U+3000-U+9FFF in three. */
static void add_characters(vocabulary *v) {
    for (uint32_t lead = 0xc2; lead <= 0xdb; lead++) {
        for (uint32_t last = 0x80; last <= 0xbf; last++) {
            merge(v, v->of_byte[lead], v->of_byte[last]);
        }
    }
    for (uint32_t lead = 0xe3; lead <= 0xe9; lead++) {
        for (uint32_t middle = 0x80; middle <= 0xbf; middle++) {
            const uint32_t pair = merge(v, v->of_byte[lead], v->of_byte[middle]);
            for (uint32_t last = 0x80; last <= 0xbf; last++) {
                merge(v, pair, v->of_byte[last]);
            }
        }
    }
}

/* Front followed by every letter, then by every pair of letters. */
static void add_triples(vocabulary *v, uint32_t front) {
    for (int x = 'a'; x <= 'z'; x++) {
        merge(v, front, v->of_byte[x]);
    }
    for (int x = 'a'; x <= 'z'; x++) {
        for (int y = 'a'; y <= 'z'; y++) {
            merge(v, front, letters(v, x, y));
        }
    }
}

/* Pairs of pairs in a scattered order until the vocabulary is full: 456,976 of them, each once, because the step has
 * no divisor in common with their number. */
static void add_quadruples(vocabulary *v) {
    const uint32_t all = 26 * 26 * 26 * 26;
    uint32_t at = 0;
    for (uint32_t i = 0; i < all && v->n < v->wanted; i++) {
        at = (at + 174763) % all;
        const uint32_t left = letters(v, 'a' + (int)(at / 17576), 'a' + (int)(at / 676 % 26));
        merge(v, left, letters(v, 'a' + (int)(at / 26 % 26), 'a' + (int)(at % 26)));
    }
}

static pgl_status build(vocabulary *v, uint32_t wanted, pgl_error *err) {
    uint32_t slots = 1024;
    while (slots < 2 * wanted && slots < 1U << 30) {
        slots *= 2;
    }
    v->tokens = pgl_new(wanted, sizeof *v->tokens);
    v->table = pgl_new(slots, sizeof *v->table);
    if (v->tokens == NULL || v->table == NULL) {
        return pgl_fail(err, PGL_E_MEMORY, "no memory for a vocabulary of %u tokens", wanted);
    }
    memset(v->table, 0xff, slots * sizeof *v->table);
    v->mask = slots - 1;
    v->wanted = wanted;
    for (int printable = 1; printable >= 0; printable--) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            if (is_printable_byte(byte) == (printable != 0)) {
                token *t = &v->tokens[v->n];
                *t = (token){.bytes = {(char)byte}, .size = 1, .left = NONE, .right = NONE};
                v->table[slot_of(v, t->bytes, 1)] = v->n;
                v->of_byte[byte] = v->n++;
            }
        }
    }
    add_words(v);
    add_pairs(v, 'a', 'z');
    add_pairs(v, 'A', 'Z');
    add_characters(v);
    for (int x = 'a'; x <= 'z'; x++) {
        const char spaced[2] = {' ', (char)x};
        const char capital[2] = {' ', (char)(x - 32)};
        add_text(v, spaced, 2);
        add_text(v, capital, 2);
        add_triples(v, lookup(v, spaced, 2));
        add_triples(v, lookup(v, capital, 2));
    }
    for (int x = 'a'; x <= 'z'; x++) {
        add_triples(v, v->of_byte[x]);
        add_triples(v, v->of_byte[x - 32]);
    }
    add_quadruples(v);
    if (v->n != wanted) {
        return pgl_fail(err, PGL_E_INVALID,
                        "a synthetic vocabulary has at most %u ordinary tokens; %u were wanted", v->n,
                        wanted);
    }
    return PGL_OK;
}

/* One character of the byte-level alphabet, in UTF-8, escaped for JSON. */
static bool put_byte(pgl_buf *out, const uint32_t alphabet[256], unsigned char byte) {
    const uint32_t c = alphabet[byte];
    if (c == '"' || c == '\\') {
        return pgl_buf_putc(out, '\\') && pgl_buf_putc(out, (char)c);
    }
    if (c < 0x80) {
        return pgl_buf_putc(out, (char)c);
    }
    return pgl_buf_putc(out, (char)(0xc0 | c >> 6)) && pgl_buf_putc(out, (char)(0x80 | (c & 0x3f)));
}

static bool put_token(pgl_buf *out, const uint32_t alphabet[256], const token *t) {
    bool ok = pgl_buf_putc(out, '"');
    for (uint32_t i = 0; ok && i < t->size; i++) {
        ok = put_byte(out, alphabet, (unsigned char)t->bytes[i]);
    }
    return ok && pgl_buf_putc(out, '"');
}

static bool put_model(const vocabulary *v, pgl_buf *out) {
    uint32_t alphabet[256];
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        alphabet[byte] = is_printable_byte(byte) ? byte : next++;
    }
    bool ok = pgl_buf_puts(
        out, " \"model\": {\n  \"type\": \"BPE\",\n  \"dropout\": null,\n  \"unk_token\": null,\n"
             "  \"continuing_subword_prefix\": \"\",\n  \"end_of_word_suffix\": \"\",\n"
             "  \"fuse_unk\": false,\n  \"byte_fallback\": false,\n  \"ignore_merges\": false,\n"
             "  \"vocab\": {");
    for (uint32_t i = 0; ok && i < v->n; i++) {
        ok = pgl_buf_puts(out, i == 0 ? "\n   " : ",\n   ") && put_token(out, alphabet, &v->tokens[i]) &&
             pgl_buf_printf(out, ": %u", i);
    }
    ok = ok && pgl_buf_puts(out, "\n  },\n  \"merges\": [");
    for (uint32_t i = 256; ok && i < v->n; i++) {
        const token *t = &v->tokens[i];
        ok = pgl_buf_puts(out, i == 256 ? "\n   [" : ",\n   [") &&
             put_token(out, alphabet, &v->tokens[t->left]) && pgl_buf_puts(out, ", ") &&
             put_token(out, alphabet, &v->tokens[t->right]) && pgl_buf_putc(out, ']');
    }
    return ok && pgl_buf_puts(out, "\n  ]\n }\n}\n");
}

static bool put_special(pgl_buf *out, uint32_t id, const pgl_synth_special *special, bool first) {
    return pgl_buf_printf(
        out,
        "%s\n  {\"id\": %u, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
        "\"rstrip\": false, \"normalized\": false, \"special\": %s}",
        first ? "" : ",", id, special->text, special->special ? "true" : "false");
}

pgl_status pgl_synth_tokenizer(const pgl_synth_shape *shape, pgl_buf *out, pgl_error *err) {
    vocabulary v = {0};
    pgl_status status = build(&v, shape->n_tokens, err);
    if (status == PGL_OK) {
        bool ok = pgl_buf_puts(out, "{\n \"version\": \"1.0\",\n \"truncation\": null,\n \"padding\": null,\n"
                                    " \"added_tokens\": [");
        for (uint32_t i = 0; ok && i < PGL_SYNTH_N_SPECIAL; i++) {
            ok = put_special(out, shape->n_tokens + i, &pgl_synth_specials[i], i == 0);
        }
        ok = ok &&
             pgl_buf_puts(
                 out,
                 "\n ],\n \"normalizer\": {\"type\": \"NFC\"},\n \"pre_tokenizer\": {\n"
                 "  \"type\": \"Sequence\",\n  \"pretokenizers\": [\n   {\"type\": \"Split\", \"pattern\": "
                 "{\"Regex\": "
                 "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"
                 "\\\\p{N}| "
                 "?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
                 "\\\\s+\"}, \"behavior\": \"Isolated\", \"invert\": false},\n   {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}\n  ]\n },\n"
                 " \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                 "\"trim_offsets\": false, \"use_regex\": false},\n \"decoder\": {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n") &&
             put_model(&v, out);
        if (!ok) {
            status = pgl_fail(err, PGL_E_MEMORY, "no memory for tokenizer.json");
        }
    }
    free(v.table);
    free(v.tokens);
    return status;
}
