/*
 * docs/events.schema.json is the table of events, as JSON Schema for programs that read them. Here
 * it is made again and compared; where it differs, what it has to be is left beside the build.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "audit/events_priv.h"

static void put_enum(struct br_buf *b, const char *values)
{
    br_buf_printf(b, "{\"enum\": [");
    for (const char *p = values; *p;) {
        size_t n = strcspn(p, "|");
        br_buf_printf(b, "%s\"%.*s\"", p == values ? "" : ", ", (int)n, p);
        p += n + (p[n] == '|');
    }
    br_buf_printf(b, "]}");
}

static void put_fields(struct br_buf *b, const struct event_field *fields);

static void put_field(struct br_buf *b, const struct event_field *f)
{
    long long min = f->min, max = f->max;
    switch (f->kind) {
    case FIELD_TEXT:
        br_buf_printf(b, "{\"type\": \"string\", \"minLength\": %d, \"maxLength\": %lld}", min > 0,
                      max);
        break;
    case FIELD_INT:
    case FIELD_NUM:
        br_buf_printf(b, "{\"type\": \"%s\", \"minimum\": %lld, \"maximum\": %lld}",
                      f->kind == FIELD_INT ? "integer" : "number", min, max);
        break;
    case FIELD_BOOL:
        br_buf_printf(b, "{\"type\": \"boolean\"}");
        break;
    case FIELD_ENUM:
        put_enum(b, f->values);
        break;
    case FIELD_ANY:
        br_buf_printf(b, "true");
        break;
    case FIELD_OBJECT:
        br_buf_printf(b, "{\"type\": \"object\"}");
        break;
    case FIELD_USAGE:
        br_buf_printf(b, "{\"$ref\": \"#/$defs/usage\"}");
        break;
    case FIELD_RECORD:
        put_fields(b, f->fields);
        break;
    case FIELD_LIST:
        br_buf_printf(b, "{\"type\": \"array\", \"maxItems\": %lld, \"items\": ", max);
        put_fields(b, f->fields);
        br_buf_printf(b, "}");
        break;
    }
}

static void put_fields(struct br_buf *b, const struct event_field *fields)
{
    unsigned n = 0;
    br_buf_printf(b, "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {");
    for (const struct event_field *f = fields; f->name; f++) {
        br_buf_printf(b, "%s\"%s\": ", f == fields ? "" : ", ", f->name);
        put_field(b, f);
    }
    br_buf_printf(b, "}, \"required\": [");
    for (const struct event_field *f = fields; f->name; f++)
        if (!f->optional || f->or_null)
            br_buf_printf(b, "%s\"%s\"", n++ ? ", " : "", f->name);
    br_buf_printf(b, "]}");
}

static void put_type(struct br_buf *b, const struct event_type *t)
{
    br_buf_printf(b,
                  ",\n    \"%s\": {\"type\": \"object\", \"additionalProperties\": false,\n"
                  "      \"required\": [\"v\", \"type\", \"eventId\", \"at\", \"data\"],\n"
                  "      \"properties\": {\"v\": {\"const\": 1}, \"type\": {\"const\": \"%s\"},\n"
                  "        \"eventId\": {\"$ref\": \"#/$defs/id\"}, \"at\": {\"type\": "
                  "\"string\"}, \"actor\": {\"$ref\": \"#/$defs/actor\"},\n        \"data\": ",
                  t->type, t->type);
    put_fields(b, t->fields);
    br_buf_printf(b, "}}");
}

static void make(struct br_buf *b)
{
    const struct event_type *t;
    br_buf_printf(b, "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                     "  \"title\": \"An event of a run\",\n"
                     "  \"description\": \"Made from the table of core/audit/events_table.c; "
                     "docs/events.md says what each is. Lengths are of bytes there, and of "
                     "characters here.\",\n  \"anyOf\": [");
    for (size_t i = 0; (t = event_type_at(i)); i++)
        br_buf_printf(b, "%s\n    {\"$ref\": \"#/$defs/%s\"}", i ? "," : "", t->type);
    br_buf_printf(b, "\n  ],\n  \"$defs\": {\n    \"id\": {\"type\": \"string\", \"minLength\": 1, "
                     "\"maxLength\": 256},\n    \"count\": {\"type\": \"integer\", \"minimum\": 0, "
                     "\"maximum\": 9007199254740991},\n    \"actor\": ");
    put_enum(b, EVENT_ACTORS);
    br_buf_printf(b, ",\n    \"usage\": {\"type\": \"object\", \"additionalProperties\": false,\n"
                     "      \"properties\": {\"promptTokens\": {\"$ref\": \"#/$defs/count\"}, "
                     "\"completionTokens\": {\"$ref\": \"#/$defs/count\"}, \"totalTokens\": "
                     "{\"$ref\": \"#/$defs/count\"}},\n      \"required\": [\"promptTokens\", "
                     "\"completionTokens\", \"totalTokens\"]}");
    for (size_t i = 0; (t = event_type_at(i)); i++)
        put_type(b, t);
    br_buf_printf(b, "\n  }\n}\n");
}

static void test_schema(void **state)
{
    BR_CLEANUP_BUF struct br_buf want = BR_BUF_INIT(1 << 20), have = BR_BUF_INIT(1 << 20);
    char path[BR_PATH_MAX];
    const char *root = getenv("BRIDLE_SOURCE");
    (void)state;
    assert_non_null(root);
    make(&want);
    assert_non_null(br_buf_cstr(&want));
    snprintf(path, sizeof(path), "%s/docs/events.schema.json", root);
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (f && br_read_all(fileno(f), &have, path, NULL) == 0 && have.len == want.len &&
        memcmp(have.data, want.data, want.len) == 0)
        return;
    BR_CLEANUP_FILE FILE *new = fopen("events.schema.json", "we");
    assert_non_null(new);
    assert_int_equal(fwrite(want.data, 1, want.len, new), want.len);
    fail_msg("docs/events.schema.json is not the table of events; what it has to be is in "
             "events.schema.json of the build directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schema)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
