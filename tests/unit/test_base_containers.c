/* The hash map, the arena and the buffer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"

static int values[5000];

static size_t key_text(char *out, int i) {
    return (size_t)snprintf(out, 32, "key %d", i);
}

static void every_key_is_found_through_growth_and_removal(void **state) {
    (void)state;
    pgl_map map = PGL_MAP_INIT;
    char key[32];
    assert_null(pgl_map_find(&map, "key 0"));
    assert_null(pgl_map_remove(&map, "x", 1));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5000; i++)
            assert_true(pgl_map_set(&map, key, key_text(key, i), &values[i], NULL));
        assert_int_equal(map.count, 5000);
        for (int i = 0; i < 5000; i++)
            assert_ptr_equal(pgl_map_get(&map, key, key_text(key, i)), &values[i]);
        for (int i = 0; i < 5000; i++)
            if (i % 3 != round)
                assert_ptr_equal(pgl_map_remove(&map, key, key_text(key, i)), &values[i]);
        for (int i = 0; i < 5000; i++) {
            void *expected = i % 3 != round ? NULL : &values[i];
            assert_ptr_equal(pgl_map_get(&map, key, key_text(key, i)), expected);
        }
    }
    assert_true(map.n_slots <= 32768); /* removed entries do not pile up */
    pgl_map_fini(&map);
}

static void the_walk_is_in_order_of_insertion(void **state) {
    (void)state;
    pgl_map map = PGL_MAP_INIT;
    char key[32];
    for (int i = 0; i < 100; i++)
        assert_true(pgl_map_set(&map, key, key_text(key, (i * 37) % 100), &values[(i * 37) % 100], NULL));
    void *old = NULL;
    assert_true(pgl_map_set(&map, "key 0", 5, &values[200], &old)); /* a new value keeps the place */
    assert_ptr_equal(old, &values[0]);
    assert_ptr_equal(pgl_map_remove(&map, "key 37", 6), &values[37]);
    size_t cursor = 0;
    int n = 0;
    for (const pgl_map_entry *e; (e = pgl_map_next(&map, &cursor)) != NULL; n++) {
        int i = n == 0 ? 0 : n + 1;
        key_text(key, (i * 37) % 100);
        assert_string_equal(e->key, key);
    }
    assert_int_equal(n, 99);
    pgl_map_fini(&map);
}

static void keys_are_bytes_not_text(void **state) {
    (void)state;
    pgl_map map = PGL_MAP_INIT;
    assert_true(pgl_map_set(&map, "a\0b", 3, &values[0], NULL));
    assert_true(pgl_map_set(&map, "a", 1, &values[1], NULL));
    assert_true(pgl_map_set(&map, "", 0, &values[2], NULL));
    assert_ptr_equal(pgl_map_get(&map, "a\0b", 3), &values[0]);
    assert_null(pgl_map_get(&map, "a\0c", 3));
    assert_ptr_equal(pgl_map_find(&map, "a"), &values[1]);
    assert_ptr_equal(pgl_map_find(&map, ""), &values[2]);
    pgl_map_fini(&map);
}

static int order[4], n_order;

static void record(void *arg) {
    order[n_order++] = *(int *)arg;
}

static void an_arena_runs_its_hooks_last_first(void **state) {
    (void)state;
    pgl_arena *arena = pgl_arena_open(256);
    assert_non_null(arena);
    for (int i = 0; i < 4; i++) {
        int *id = pgl_arena_new(arena, 1, sizeof *id);
        assert_non_null(id);
        *id = i;
        assert_true(pgl_arena_on_close(arena, record, id));
        char *big = pgl_arena_new(arena, 1000, 1); /* larger than a block */
        assert_non_null(big);
        assert_int_equal((uintptr_t)big % 16, 0);
        for (int k = 0; k < 1000; k++)
            assert_int_equal(big[k], 0);
        memset(big, 0xAA, 1000);
        assert_string_equal(pgl_arena_strndup(arena, "text and more", 4), "text");
    }
    assert_null(pgl_arena_new(arena, SIZE_MAX, 2));
    assert_null(pgl_arena_new(arena, SIZE_MAX - 3, 1));
    assert_true(pgl_arena_used(arena) >= 4000);
    n_order = 0;
    pgl_arena_close(arena);
    assert_int_equal(n_order, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(order[i], 3 - i);
    pgl_arena_close(NULL);
}

static void sizes_that_do_not_fit_are_refused(void **state) {
    (void)state;
    size_t n = 7;
    assert_false(pgl_mul_size(SIZE_MAX, 2, &n));
    assert_false(pgl_add_size(SIZE_MAX, 1, &n));
    assert_int_equal(n, 7);
    assert_null(pgl_new(SIZE_MAX, 2));
    assert_null(pgl_new_aligned(SIZE_MAX / 2, 3));
    assert_null(pgl_new_aligned(SIZE_MAX - 10, 1));
    void *p = pgl_new(0, 5);
    assert_non_null(p);
    free(p);
    p = pgl_new_aligned(3, 5);
    assert_int_equal((uintptr_t)p % 64, 0);
    free(p);
    pgl_buf buf = PGL_BUF_INIT;
    assert_string_equal(pgl_buf_text(&buf), "");
    assert_true(pgl_buf_puts(&buf, "abc") && pgl_buf_printf(&buf, "%d", 42) && pgl_buf_putc(&buf, '.'));
    assert_string_equal(pgl_buf_text(&buf), "abc42.");
    assert_false(pgl_buf_reserve(&buf, SIZE_MAX));
    assert_string_equal(pgl_buf_text(&buf), "abc42.");
    pgl_buf_fini(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_found_through_growth_and_removal),
        cmocka_unit_test(the_walk_is_in_order_of_insertion),
        cmocka_unit_test(keys_are_bytes_not_text),
        cmocka_unit_test(an_arena_runs_its_hooks_last_first),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
