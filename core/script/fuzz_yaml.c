/*
 * The manifest reader on any bytes: YAML or JSON, then the Lua compiler. Whatever comes out is
 * either a typed refusal or a whole manifest whose table the evaluator accepts.
 */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "script/script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_compile_out out;
    if (size == 0 || size > BR_MANIFEST_MAX)
        return 0;
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    br_require(s != NULL);
    struct br_compile_in in = {
        .policy_path = "", .manifest_path = "m.yaml", .manifest = data, .manifest_len = size};
    struct br_err err = {.code = BR_OK};
    br_compile_out_init(&out);
    int r = br_compile(s, &in, &out, &err);
    br_require((r == 0) == (err.code == BR_OK));
    br_require(r == 0 || err.code == BR_E_INVALID_MANIFEST ||
               err.code == BR_E_INVALID_ALLOWED_PATH);
    br_require(r < 0 || (out.table.len > 0 && out.manifest.len > 0));
    if (r == 0) {
        struct br_table *t = NULL;
        br_require(br_table_load(out.table.data, out.table.len, &t, &err) == 0);
        br_table_free(&t);
    }
    br_compile_out_free(&out);
    br_script_free(&s);
    return 0;
}
