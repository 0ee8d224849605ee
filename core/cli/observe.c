/*
 * bridle observe: one question to a model, one JSON value of a given schema back. The model's
 * answer is taken by a cell that has nothing but that question (profile observer-v1, adapter
 * observer@1); what is printed fits the schema, or nothing is.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* A file, the words, or what comes on stdin. */
static int collect(const struct br_cli_args *a, struct br_buf *goal, struct br_err *err)
{
    const char *path = br_cli_opt(a, "input");
    struct br_cli_file file = {.path = ""};
    if (path && a->noperands)
        return br_err_set(
            err, BR_E_USAGE,
            "both '--input' and words were given; nothing was started. Leave one out");
    for (unsigned i = 0; i < a->noperands; i++)
        br_buf_printf(goal, "%s%s", i ? " " : "", a->operands[i]);
    if (a->noperands)
        return 0;
    if (!path || strcmp(path, "-") == 0)
        return br_read_all(STDIN_FILENO, goal, "the input", err);
    int r = br_cli_file_read(&file, path, "input", BR_E_USAGE, BR_GOAL_MAX, err);
    if (r == 0)
        br_buf_put(goal, file.text.data, file.text.len);
    br_cli_file_free(&file);
    return r;
}

static int read_input(const struct br_cli_args *a, struct br_buf *goal, struct br_err *err)
{
    int r = collect(a, goal, err);
    if (r < 0)
        return r;
    if (goal->failed || goal->len > BR_GOAL_MAX)
        return br_err_set(err, BR_E_USAGE, "the input is longer than %u bytes; nothing was started",
                          BR_GOAL_MAX);
    const char *text = br_buf_cstr(goal);
    if (!br_utf8_valid(text, goal->len) || memchr(text, 0, goal->len))
        return br_err_set(err, BR_E_USAGE, "the input is not valid UTF-8; nothing was started");
    if (strspn(text, " \t\r\n") == goal->len)
        return br_err_set(err, BR_E_USAGE,
                          "there is no input; nothing was started. Give words, --input FILE, or "
                          "stdin");
    return 0;
}

static int read_schema(const struct br_cli_args *a, struct br_cli_file *schema, struct br_err *err)
{
    const char *path = br_cli_opt(a, "schema");
    if (!path)
        return br_err_set(err, BR_E_USAGE,
                          "there is no schema; nothing was started. Say what the answer has to be: "
                          "bridle observe %s",
                          a->verb->synopsis);
    int r = br_cli_file_read(schema, path, "schema", BR_E_INVALID_ARGUMENTS, BR_SCHEMA_MAX, err);
    if (r == 0 && schema->text.len == 0)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the schema '%.512s' is empty; nothing was started", path);
    if (r == 0)
        r = br_json_scan((const char *)schema->text.data, schema->text.len, BR_JSON_DEPTH_MAX,
                         BR_JSON_NODES_MAX, err);
    return r == -BR_E_INVALID_JSON ? br_err_wrap(err, "'%.512s'", path) : r;
}

int br_cli_observe(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf goal = BR_BUF_INIT(BR_GOAL_MAX + 1);
    struct br_cli_file schema = {.path = ""};
    const char *timeout = br_cli_opt(a, "timeout"), *profile = br_cli_opt(a, "profile");
    uint32_t seconds = 0;
    int r = 0;
    if (timeout)
        r = br_cli_number("--timeout", timeout, 1, BR_RUN_SECONDS_MAX, &seconds, &err);
    if (r == 0)
        r = read_schema(a, &schema, &err);
    if (r == 0)
        r = read_input(a, &goal, &err);
    if (r < 0) {
        br_cli_file_free(&schema);
        return br_cli_fail(&err);
    }
    const struct br_cli_foreground f = {.mode = BR_RUN_AGENT,
                                        .args = a,
                                        .goal = (char *)goal.data,
                                        .json = br_cli_opt(a, "json") != NULL,
                                        .profile = profile ? profile : "observer-v1",
                                        .adapter = "observer@1",
                                        .schema = br_buf_cstr(&schema.text),
                                        .wall_seconds = seconds};
    int code = br_cli_foreground(&f);
    br_cli_file_free(&schema);
    return code;
}
