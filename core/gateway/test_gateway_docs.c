/*
 * docs/protocol.md is what the gateway does: its examples are played, line by line, its table of
 * errors is the one of the code, and every method and parameter is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/harness_priv.h"
#include "gateway/test_strict.h"

static char *read_page(void)
{
    char path[BR_PATH_MAX];
    const char *root = getenv("BRIDLE_SOURCE");
    assert_non_null(root);
    snprintf(path, sizeof(path), "%s/docs/protocol.md", root);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    assert_non_null(f);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, f) > 0);
    return text;
}

/* The page's `perm_1` is whatever the ledger made. */
static void replace(char *text, const char *from, const char *to)
{
    char *at;
    while ((at = strstr(text, from))) {
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
        memcpy(at, to, strlen(to));
    }
}

struct example {
    struct gateway *g;
    struct conn *c;
    char permission[BR_ID_MAX];
};

static void happens(struct example *x, const char *what)
{
    struct run *r = &x->g->runs[0];
    if (strcmp(what, "another client") == 0)
        x->c = world_connect(x->g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    else if (strcmp(what, "the agent asks whether it may write") == 0)
        world_ask(x->g, r, "c1", false, x->permission);
    else if (strcmp(what, "the answer is recorded") == 0)
        world_resolved(x->g, r, "c1", x->permission);
    else if (strcmp(what, "the run ends") == 0)
        world_end(x->g, r, "completed");
    else
        fail_msg("nobody knows how '%s' happens", what);
}

static void example_line(struct example *x, const char *line)
{
    char *text = malloc(strlen(line) + 4096);
    strcpy(text, line);
    if (x->permission[0])
        replace(text, "perm_1", x->permission);
    if (text[0] == '>') {
        silent(x->c); /* everything that the page has was heard */
        world_say(x->g, x->c, "%s", text + 2);
    } else if (text[0] == '<') {
        hears(x->c, text + 2);
    } else {
        assert_int_equal(text[0], '#');
        happens(x, text + 2);
    }
    free(text);
}

static void test_examples(void **state)
{
    struct example x = {.g = world_new()};
    char *page = read_page(), *save = NULL;
    bool inside = false;
    unsigned lines = 0;
    (void)state;
    x.c = world_connect(x.g, &gw_harness, "uid:1000", BR_ACCESS_OPERATE);
    for (char *line = strtok_r(page, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strcmp(line, "```") == 0) {
            inside = !inside;
        } else if (inside) {
            example_line(&x, line);
            lines++;
        }
    }
    silent(x.c);
    assert_true(lines > 25 && !inside);
    free(page);
    assert_true(world_free(&x.g));
}

static void test_errors(void **state)
{
    char *page = read_page(), row[128];
    unsigned rows = 0, known = 0;
    (void)state;
#define ROW(name, number, text)                                                                    \
    snprintf(row, sizeof(row), "\n| %d | `" text "` | ", number);                                  \
    if (!strstr(page, row))                                                                        \
        fail_msg("docs/protocol.md has no row%s", row);                                            \
    known++;
    HARNESS_ERRORS(ROW)
#undef ROW
    for (const char *p = page; (p = strstr(p, "\n| -32")); p++)
        rows++;
    assert_int_equal(rows, known);
    free(page);
}

/* Longer lists have longer limits: what a method takes stands in its section. */
static void names_method(const char *page, const struct harness_method *m)
{
    char title[64], bold[64];
    snprintf(title, sizeof(title), "### %s\n", m->name);
    snprintf(bold, sizeof(bold), "**%s** `{", m->name);
    const char *at = strstr(page, title);
    at = at ? at : strstr(page, bold);
    if (!at)
        at = strstr(page, "**session/resume**"); /* which has those of load */
    if (!at || (strcmp(m->name, "session/resume") != 0 && at == strstr(page, "**session/resume**")))
        fail_msg("docs/protocol.md does not say what '%s' is", m->name);
    const char *end = strstr(at + 4, "\n#");
    for (unsigned i = 0; i < HARNESS_PARAMS_MAX && m->params[i].name; i++) {
        const char *found = strstr(at, m->params[i].name);
        bool extra = m->params[i].kind == PARAM_SCOPE && strstr(page, "takes `scope?: once|run`");
        bool same = strcmp(m->name, "session/resume") == 0;
        if (!extra && !same && (!found || (end && found > end)))
            fail_msg("docs/protocol.md does not say that '%s' has '%s'", m->name,
                     m->params[i].name);
    }
}

static void test_methods(void **state)
{
    char *page = read_page();
    (void)state;
    for (unsigned i = 0; i < harness_base_count; i++)
        names_method(page, &harness_base[i]);
    for (unsigned i = 0; i < harness_more_count; i++)
        names_method(page, &harness_more[i]);
    free(page);
}

/* ---- docs/protocol.schema.json ---- */

static void put_param(struct br_buf *b, const struct harness_param *p)
{
    switch (p->kind) {
    case PARAM_TEXT:
    case PARAM_KEBAB:
        br_buf_printf(b, "{\"type\": \"string\", \"minLength\": %u, \"maxLength\": %u}", p->min,
                      p->max);
        break;
    case PARAM_COUNT:
    case PARAM_ROW:
        br_buf_printf(b, "{\"type\": \"integer\", \"minimum\": %d, \"maximum\": %lld}",
                      p->kind == PARAM_ROW ? -1 : 1, p->max ? (long long)p->max : 9007199254740991);
        break;
    case PARAM_DECISION:
        br_buf_printf(b, "{\"enum\": [\"allow\", \"deny\"]}");
        break;
    case PARAM_SCOPE:
        br_buf_printf(b, "{\"enum\": [\"once\", \"run\"]}");
        break;
    case PARAM_CAPABILITIES:
        br_buf_printf(b, "{\"$ref\": \"#/$defs/capabilities\"}");
        break;
    }
}

static void put_method(struct br_buf *b, const struct harness_method *m)
{
    unsigned n = 0;
    br_buf_printf(b,
                  ",\n    \"%s\": {\"type\": \"object\", \"additionalProperties\": false,\n"
                  "      \"required\": [\"jsonrpc\", \"id\", \"method\"%s],\n"
                  "      \"properties\": {\"jsonrpc\": {\"const\": \"2.0\"}, \"id\": {\"$ref\": "
                  "\"#/$defs/id\"}, \"method\": {\"const\": \"%s\"},\n"
                  "        \"params\": {\"type\": \"object\", \"additionalProperties\": false, "
                  "\"properties\": {",
                  m->name, m->params[0].required ? ", \"params\"" : "", m->name);
    for (unsigned i = 0; i < HARNESS_PARAMS_MAX && m->params[i].name; i++) {
        br_buf_printf(b, "%s\n          \"%s\": ", i ? "," : "", m->params[i].name);
        put_param(b, &m->params[i]);
    }
    br_buf_printf(b, "},\n          \"required\": [");
    for (unsigned i = 0; i < HARNESS_PARAMS_MAX && m->params[i].name; i++)
        if (m->params[i].required)
            br_buf_printf(b, "%s\"%s\"", n++ ? ", " : "", m->params[i].name);
    br_buf_printf(b, "]}}}");
}

#define TYPED(type) "{\"type\": \"" type "\"}"
#define STRICT "\"type\": \"object\", \"additionalProperties\": false"
#define TEXT(name) "\"" name "\": " TYPED("string")
#define OBJECT(name) "\"" name "\": " TYPED("object")
#define NUMBER(name) "\"" name "\": {\"type\": \"integer\", \"minimum\": -1}"

static void put_answers(struct br_buf *b)
{
    br_buf_printf(b, ",\n    \"result\": {" STRICT ", \"required\": [\"jsonrpc\", \"id\", "
                     "\"result\"],\n      \"properties\": {\"jsonrpc\": {\"const\": \"2.0\"}, "
                     "\"id\": {\"$ref\": \"#/$defs/id\"}, \"result\": " TYPED("object") "}}");
    br_buf_printf(b, ",\n    \"error\": {" STRICT ", \"required\": [\"jsonrpc\", \"id\", "
                     "\"error\"],\n      \"properties\": {\"jsonrpc\": {\"const\": \"2.0\"}, "
                     "\"id\": {\"anyOf\": [{\"$ref\": \"#/$defs/id\"}, " TYPED(
                         "null") "]},\n"
                                 "        \"error\": {" STRICT
                                 ", \"required\": [\"code\", \"message\", "
                                 "\"data\"],\n          \"properties\": {\"code\": {\"enum\": [");
    unsigned n = 0;
#define CODE(name, number, text) br_buf_printf(b, "%s%d", n++ ? ", " : "", number);
    HARNESS_ERRORS(CODE)
#undef CODE
    br_buf_printf(
        b, "]}, \"message\": " TYPED(
               "string") ",\n            \"data\": {" STRICT
                         ", \"required\": [\"code\"], \"properties\": {\"code\": {\"enum\": [");
    n = 0;
#define NAME(name, number, text) br_buf_printf(b, "%s\"%s\"", n++ ? ", " : "", text);
    HARNESS_ERRORS(NAME)
#undef NAME
    br_buf_printf(b, "]}}}}}}}");
    /* clang-format off */
    static const struct {
        const char *name, *required, *properties;
    } told[] = {
        {"session/event", "\"sessionId\", \"seq\", \"event\"",
         TEXT("sessionId") ", " NUMBER("seq") ", " OBJECT("event")},
        {"bridle/event", "\"sessionId\", \"after\", \"seq\", \"event\"",
         TEXT("sessionId") ", " NUMBER("after") ", " NUMBER("seq") ", " OBJECT("event")},
        {"bridle/session",
         "\"sessionId\", \"status\", \"workspace\", \"model\", \"startedAt\", \"asks\", \"owned\"",
         TEXT("sessionId") ", " TEXT("status") ", " TEXT("workspace") ", " TEXT("model") ", "
         TEXT("startedAt") ", " NUMBER("asks") ", \"owned\": " TYPED("boolean")},
    };
    /* clang-format on */
    for (size_t i = 0; i < BR_ARRAY_LEN(told); i++)
        br_buf_printf(b,
                      ",\n    \"%s\": {" STRICT ", \"required\": [\"jsonrpc\", \"method\", "
                      "\"params\"],\n      \"properties\": {\"jsonrpc\": {\"const\": \"2.0\"}, "
                      "\"method\": {\"const\": \"%s\"},\n        \"params\": {" STRICT
                      ", \"required\": [%s],\n          \"properties\": {%s}}}}",
                      told[i].name, told[i].name, told[i].required, told[i].properties);
}

static void put_refs(struct br_buf *b, const struct harness_method *m, unsigned n, bool first)
{
    for (unsigned i = 0; i < n; i++)
        br_buf_printf(b, "%s{\"$ref\": \"#/$defs/%s\"}", first && !i ? "" : ", ", m[i].name);
}

static void make_schema(struct br_buf *b)
{
    br_buf_printf(b, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                     "  \"title\": \"A message of harness/acp/1, with the extension bridle/1\",\n"
                     "  \"description\": \"Made from the tables of core/gateway/harness.c; "
                     "docs/protocol.md says what each is, docs/events.schema.json what an event "
                     "is. Lengths are of bytes there, and of characters here.\",\n"
                     "  \"anyOf\": [{\"$ref\": \"#/$defs/client\"}, {\"$ref\": "
                     "\"#/$defs/server\"}],\n  \"$defs\": {\n    \"client\": {\"anyOf\": [");
    put_refs(b, harness_base, harness_base_count, true);
    put_refs(b, harness_more, harness_more_count, false);
    br_buf_printf(
        b,
        "]},\n    \"server\": {\"anyOf\": [{\"$ref\": \"#/$defs/result\"}, {\"$ref\": "
        "\"#/$defs/error\"}, {\"$ref\": \"#/$defs/session/event\"}, {\"$ref\": "
        "\"#/$defs/bridle/event\"}, {\"$ref\": \"#/$defs/bridle/session\"}]},\n"
        "    \"id\": {\"anyOf\": [{\"type\": \"string\", \"minLength\": 1, "
        "\"maxLength\": 256}, {\"type\": \"integer\", \"minimum\": "
        "-9007199254740991, \"maximum\": 9007199254740991}]},\n"
        "    \"capabilities\": {" STRICT ", \"required\": [\"streaming\", "
        "\"permissioning\"],\n      \"properties\": {\"streaming\": {\"const\": "
        "true}, \"permissioning\": {\"const\": true}, \"sessions\": " TYPED(
            "boolean") ",\n        \"extensions\": {\"type\": \"array\", \"maxItems\": 16, "
                       "\"items\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 64}}}}");
    for (unsigned i = 0; i < harness_base_count; i++)
        put_method(b, &harness_base[i]);
    for (unsigned i = 0; i < harness_more_count; i++)
        put_method(b, &harness_more[i]);
    put_answers(b);
    br_buf_printf(b, "\n  }\n}\n");
}

static void test_schema(void **state)
{
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(1 << 20), have = BR_BUF_INIT(1 << 20);
    char path[BR_PATH_MAX];
    (void)state;
    make_schema(&want);
    char *text = br_buf_cstr(&want);
    /* a name in a reference has no '/' of its own */
    for (char *at = text; (at = strstr(at, "#/$defs/"));) {
        char *end = strchr(at, '"'), *slash = memchr(at + 8, '/', (size_t)(end - at) - 8);
        if (slash)
            *slash = '\x01';
        at = end;
    }
    snprintf(path, sizeof(path), "%s/docs/protocol.schema.json", getenv("BRIDLE_SOURCE"));
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(1 << 20);
    for (const char *p = text; *p; p++)
        br_buf_put(&out, *p == '\x01' ? "~1" : p, *p == '\x01' ? 2 : 1);
    json_t *parsed = json_loadb((char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(parsed);
    json_decref(parsed);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (f && br_read_all(fileno(f), &have, path, NULL) == 0 && have.len == out.len &&
        memcmp(have.data, out.data, out.len) == 0)
        return;
    BR_CLEANUP_FILE FILE *new = fopen("protocol.schema.json", "we");
    assert_non_null(new);
    assert_int_equal(fwrite(out.data, 1, out.len, new), out.len);
    fail_msg("docs/protocol.schema.json is not the protocol; what it has to be is in "
             "protocol.schema.json of the build directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
