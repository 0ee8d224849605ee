/*
 * Frames of the gate: what a guest asks before each of its tool calls, and what it is told. Read by
 * bridle-session from a socket in the sandbox; the bytes are hostile.
 */
#include <string.h>

#include "frame/frame_priv.h"

int br_frame_ask_get(const void *p, size_t n, const char *const *tools, uint32_t ntools,
                     struct br_frame_ask *out, struct br_err *err)
{
    static const struct frame_key keys[] = {
        {"id", JSON_STRING, .min = 1, .max = 128},
        {"tool", JSON_STRING, .min = 1, .max = BR_FRAME_NAME_MAX - 1},
        {"input", JSON_OBJECT},
    };
    memset(out, 0, sizeof(*out));
    out->root = frame_load(p, n, BR_FRAME_ASK_MAX, err);
    if (!out->root)
        return -BR_E_INVALID_FRAME;
    int r = frame_keys(out->root, "", keys, BR_ARRAY_LEN(keys), err);
    if (r < 0)
        return r;
    out->id = frame_text(out->root, "id");
    out->input = json_object_get(out->root, "input");
    const char *tool = frame_text(out->root, "tool");
    for (uint32_t i = 0; i < ntools; i++)
        if (strcmp(tools[i], tool) == 0)
            out->tool = tools[i];
    return out->tool ? 0 : frame_bad(err, "'tool' is one that the adapter does not have");
}

void br_frame_ask_free(struct br_frame_ask *a)
{
    json_decref(a->root);
    memset(a, 0, sizeof(*a));
}

int br_frame_answer_put(struct br_buf *out, const char *id, bool allow, const char *reason,
                        struct br_err *err)
{
    size_t n = reason ? strlen(reason) : 0;
    n = n > BR_FRAME_REASON_MAX ? br_utf8_floor(reason, BR_FRAME_REASON_MAX) : n;
    json_t *root = json_pack("{s:s, s:s, s:s%}", "id", id, "decision", allow ? "allow" : "deny",
                             "reason", reason ? reason : "", n);
    int r = root
                ? br_frame_put(out, root, BR_FRAME_ASK_MAX, err)
                : br_err_set(err, BR_E_INVALID_FRAME, "an answer of the gate could not be written");
    json_decref(root);
    return r;
}
