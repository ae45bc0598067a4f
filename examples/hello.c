/* One question to a model: hello DIR [QUESTION]. Build with: cc hello.c -lpergola */
#include <pergola.h>
#include <stdio.h>

static bool on_text(void *user, pergola_text_kind kind, const char *text, size_t size) {
    FILE *answers = user;
    fwrite(text, 1, size, kind == PERGOLA_TEXT_ANSWER ? answers : stderr);
    fflush(answers);
    return true; /* false would end the answer here */
}

static int fail(const char *what, const pergola_error *err) {
    fprintf(stderr, "%s: %s (%s)\n", what, err->text, pergola_status_name(err->status));
    return 1;
}

int main(int argc, char **argv) {
    pergola_error err;
    pergola_model_options options;
    pergola_model_options_init(&options);
    options.path = argc > 1 ? argv[1] : "models/demo";
    options.context = 2048;
    pergola_model *model;
    if (pergola_model_open(&options, &model, &err) != PERGOLA_OK)
        return fail("model", &err);

    pergola_session *session;
    if (pergola_session_open(model, NULL, &session, &err) != PERGOLA_OK)
        return fail("session", &err);
    pergola_generate_options generate;
    pergola_generate_options_init(model, &generate);
    generate.max_tokens = 100;
    pergola_result result = {.size = sizeof result};
    const char *question = argc > 2 ? argv[2] : "Who are you?";
    if (pergola_generate(session, question, &generate, on_text, stdout, &result, &err) != PERGOLA_OK)
        return fail("answer", &err);
    printf("\n%u tokens asked, %u answered\n", result.prompt_tokens, result.answer_tokens);
    pergola_session_close(session);
    pergola_model_close(model);
    return 0;
}
