/*
 * `bridle policy hold` becomes a standing bridled. `bridle policy reload`: a standing bridled is
 * asked to take a bundle for new runs. It reads the file itself, tests it in processes of its own
 * and answers; this client only makes the path absolute and shows the answer. Also how one of its
 * bundles is written as JSON, for `bridle repl`.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/policy_priv.h"

static const char *kind_name(uint8_t kind)
{
    static const char *const names[] = {"", "current", "earlier", "refused"};
    return kind < BR_ARRAY_LEN(names) ? names[kind] : "";
}

static json_t *row_json(const struct br_policy_row *w)
{
    char at[32];
    bool refused = w->kind == BR_POLICY_REFUSED;
    br_time_iso(at, w->pin.at_us);
    const char *path = w->path[0] ? w->path : "default";
    json_t *o = json_pack("{s:s, s:I, s:s, s:i, s:s*, s:s*, s:s*}", "kind", kind_name(w->kind),
                          "generation", (json_int_t)w->pin.generation, "at", at, "uid",
                          (int)w->pin.uid, "by", br_policy_by_name(w->pin.by), "path", path,
                          "sha256", w->pin.sha256[0] ? w->pin.sha256 : NULL);
    if (refused) {
        json_object_set_new(o, "code", json_string(br_code_name((int)w->code)));
        json_object_set_new(o, "message", json_string(w->text));
        return o;
    }
    json_object_set_new(o, "tableSha256", json_string(w->table));
    json_object_set_new(o, "rules", json_integer(w->rules));
    json_object_set_new(o, "warnings", json_integer(w->warnings));
    json_object_set_new(o, "probes", json_integer(w->probes));
    json_object_set_new(o, "running", json_integer(w->runs));
    json_t *runs = json_array();
    for (uint32_t i = 0; i < w->nids; i++)
        json_array_append_new(runs, json_string(w->ids[i]));
    json_object_set_new(o, "runs", runs);
    return o;
}

void br_cli_put_policy_json(struct br_buf *b, const struct br_policy_row *w)
{
    json_t *o = row_json(w);
    BR_CLEANUP_FREE char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    br_buf_printf(b, "%s", text ? text : "{}"); /* a path that is no UTF-8 is shown by no JSON */
}

struct reload {
    struct policy_out out;
    bool json, shown;
};

static int on_policy(void *ctx, const struct br_policy_row *w)
{
    struct reload *l = ctx;
    struct br_buf *b = &l->out.v.out;
    l->shown = true;
    if (l->json) {
        policy_out_json(&l->out, row_json(w));
        return 0;
    }
    const char *path = w->path[0] ? w->path : "default (built in)";
    br_cli_put_line(b, path, strlen(path), 4096);
    br_buf_printf(b, ": generation %llu, %u rule%s, %u warning%s, %u probes decided, table %.12s\n",
                  (unsigned long long)w->pin.generation, w->rules, w->rules == 1 ? "" : "s",
                  w->warnings, w->warnings == 1 ? "" : "s", w->probes, w->table);
    br_buf_printf(b, "New runs take it; those that run keep what they have.\n");
    (void)policy_out_flush(&l->out, true);
    return 0;
}

static const struct br_cli_hooks hooks = {.policy = on_policy};

/* Only bridled opens it; the name of a shipped one stays a name. */
static int absolute(const char *word, char path[BR_PATH_MAX], struct br_err *err)
{
    char cwd[BR_PATH_MAX] = "";
    if (word[0] && word[0] != '/' && !br_cli_is_shipped(word) && !getcwd(cwd, sizeof(cwd)))
        return br_err_errno(err, BR_E_USAGE, "the present directory has no usable path");
    int n = snprintf(path, BR_PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", word);
    if (n < 0 || n >= (int)BR_PATH_MAX)
        return br_err_set(err, BR_E_USAGE,
                          "the path of the policy is too long; nothing was "
                          "reloaded");
    return 0;
}

int policy_hold(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    const char *word = a->noperands > 1 ? a->operands[1] : br_cli_opt(a, "policy");
    char program[BR_PATH_MAX], path[BR_PATH_MAX];
    if (br_cli_program(program, "bridled", &err) < 0 || absolute(word ? word : "", path, &err) < 0)
        return br_cli_fail(&err);
    char *argv[] = {(char *)(uintptr_t) "bridled", (char *)(uintptr_t) "--standing",
                    path[0] ? (char *)(uintptr_t) "--policy" : NULL, path, NULL};
    execv(program, argv);
    (void)br_err_errno(&err, BR_E_FAILED, "'%s' could not be started", program);
    return br_cli_fail(&err);
}

int policy_reload(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct br_cli_client c = {.loop = NULL};
    struct reload l = {.json = br_cli_opt(a, "json") != NULL};
    const char *word = a->noperands > 1 ? a->operands[1] : br_cli_opt(a, "policy");
    char path[BR_PATH_MAX];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    policy_out_init(&l.out);
    int r = absolute(word ? word : "", path, &err), code = 0;
    if (r == 0) {
        br_buf_put_str(&o.buf, path);
        r = br_cli_client_ask(&c, &hooks, &l, BR_MSG_CTL_RELOAD, &o, &err);
        if (r == 0 && c.code)
            r = br_err_set(&err, c.code, "%s", c.text);
        br_cli_client_close(&c);
    }
    if (r == 0 && !l.shown)
        r = br_err_set(&err, BR_E_PEER_PROTOCOL, "bridled did not say what is current now");
    if (r < 0)
        code = br_cli_fail(&err);
    return policy_out_end(&l.out, code);
}
