/*
 * The view of a run of an adapter: what was started, what the gate let through, and what came of
 * it. Called by view.c. What a guest wrote is shown like the text of an agent.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/view_priv.h"

static void put_name(struct br_cli_view *v, const json_t *o, const char *key)
{
    size_t n;
    const char *s = view_str(o, key, &n);
    br_cli_put_line(&v->out, s, n, 64);
}

static void on_started(struct br_cli_view *v, const json_t *data)
{
    const json_t *lease = json_object_get(data, "lease");
    size_t ntools = json_array_size(json_object_get(data, "tools"));
    view_word(v, VIEW_DIM, "  adapter", 13);
    put_name(v, data, "adapter");
    br_buf_printf(&v->out, "@%llu, %zu tool%s", (unsigned long long)view_u64(data, "revision"),
                  ntools, ntools == 1 ? "" : "s");
    if (json_is_true(json_object_get(data, "gate")))
        br_buf_printf(&v->out, ", each call is asked about");
    br_buf_printf(&v->out, "; at most ");
    view_put_count(&v->out, view_u64(lease, "requests"));
    br_buf_printf(&v->out, " requests, ");
    view_put_count(&v->out, view_u64(lease, "tokens"));
    br_buf_printf(&v->out, " tokens\n");
    const json_t *session = json_object_get(data, "session");
    if (!json_object_get(session, "id"))
        return;
    view_word(v, VIEW_DIM, "  session", 13);
    put_name(v, session, "id");
    br_buf_printf(&v->out, "%s\n",
                  strcmp(json_string_value(json_object_get(session, "intent"))
                             ? json_string_value(json_object_get(session, "intent"))
                             : "",
                         "resume") == 0
                      ? ", resumed"
                      : "");
}

/* What the policy decided by itself; a question has been shown already. */
static void on_gate(struct br_cli_view *v, const json_t *data)
{
    size_t n;
    const char *decision = view_str(data, "decision", &n);
    if (json_is_true(json_object_get(data, "asked")))
        return;
    view_word(v, VIEW_DIM, "  gate", 13);
    put_name(v, data, "tool");
    br_buf_printf(&v->out, ": ");
    view_style_on(v, view_effect_style(decision));
    br_cli_put_line(&v->out, decision, n, 16);
    view_style_off(v, view_effect_style(decision));
    br_buf_printf(&v->out, "\n");
}

static void put_tools(struct br_cli_view *v, const json_t *tools)
{
    json_t *t;
    size_t i;
    if (!json_array_size(tools))
        return;
    view_word(v, VIEW_DIM, "  tools", 13);
    json_array_foreach((json_t *)(uintptr_t)tools, i, t)
    {
        size_t n;
        const char *status = view_str(t, "status", &n);
        br_buf_printf(&v->out, "%s", i ? ", " : "");
        put_name(v, t, "name");
        br_buf_printf(&v->out, " ");
        view_put_count(&v->out, view_u64(t, "count"));
        if (strcmp(status, "ok") != 0) {
            br_buf_printf(&v->out, " (");
            br_cli_put_line(&v->out, status, n, 16);
            br_buf_printf(&v->out, ")");
        }
    }
    br_buf_printf(&v->out, "\n");
}

static void on_result(struct br_cli_view *v, const json_t *data)
{
    const json_t *artifact = json_object_get(data, "artifact");
    const json_t *value = json_object_get(artifact, "value");
    size_t n;
    const char *text = view_str(artifact, "text", &n);
    char *json = value ? json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
    put_tools(v, json_object_get(data, "tools"));
    if (json) {
        view_text(v, json, strlen(json));
        view_text_end(v);
    } else if (n) {
        view_text(v, text, n);
        view_text_end(v);
    }
    free(json);
}

bool view_harness(struct br_cli_view *v, const char *type, const json_t *data)
{
    static const struct {
        const char *type;
        void (*show)(struct br_cli_view *v, const json_t *data);
    } rows[] = {{"bridle.harness.started", on_started},
                {"bridle.harness.gate", on_gate},
                {"bridle.harness.result", on_result}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].type, type) != 0)
            continue;
        rows[i].show(v, data);
        return true;
    }
    return false;
}
