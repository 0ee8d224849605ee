/*
 * Checks of one request before it is charged or sent. Called by bridle-broker on bodies from the
 * session (later: from guests), which are hostile. What is allowed is listed; everything else is
 * refused, so that a new parameter of a provider (stored conversations, tools that run on the
 * provider's side, several choices, a dearer tier) does not become authority by itself.
 */
#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "broker/broker_priv.h"

#define REFUSE(err, ...) br_err_set(err, BR_E_LEASE_REFUSED, __VA_ARGS__)

static const char *const known_keys[] = {
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "response_format",
    "reasoning_effort",
};

static bool content_type_is_json(const char *s)
{
    static const char json[] = "application/json";
    size_t n = sizeof(json) - 1;
    if (strncasecmp(s, json, n) != 0)
        return false;
    s += n;
    s += strspn(s, " ");
    return *s == '\0' || strcasecmp(s, ";charset=utf-8") == 0 ||
           strcasecmp(s, "; charset=utf-8") == 0;
}

static int check_keys(json_t *q, struct br_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(q, key, v)
    {
        size_t i = 0;
        while (i < BR_ARRAY_LEN(known_keys) && strcmp(known_keys[i], key) != 0)
            i++;
        if (i == BR_ARRAY_LEN(known_keys))
            return REFUSE(err,
                          "the parameter '%.64s' is not one that the provider lease allows; the "
                          "request was not sent",
                          key);
    }
    return 0;
}

static int check_tools(json_t *q, struct br_err *err)
{
    json_t *tools = json_object_get(q, "tools"), *tool;
    size_t i;
    if (!tools)
        return 0;
    if (!json_is_array(tools))
        return REFUSE(err, "'tools' is not a list; the request was not sent");
    json_array_foreach(tools, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type || strcmp(type, "function") != 0)
            return REFUSE(err,
                          "'tools[%zu]' is not a function; a tool that runs on the provider's side "
                          "is outside the lease. The request was not sent",
                          i);
    }
    return 0;
}

static int check_tokens(json_t *q, struct br_broker_request *out, struct br_err *err)
{
    json_t *a = json_object_get(q, "max_tokens"), *b = json_object_get(q, "max_completion_tokens");
    json_t *v = a ? a : b;
    if (!v || (a && b) || !json_is_integer(v) || json_integer_value(v) < 1 ||
        json_integer_value(v) > (json_int_t)BR_MODEL_TOKENS_MAX)
        return REFUSE(err,
                      "exactly one of 'max_tokens' and 'max_completion_tokens' must be a whole "
                      "number from 1 to %u; the request was not sent",
                      BR_MODEL_TOKENS_MAX);
    out->max_tokens = (uint64_t)json_integer_value(v);
    return 0;
}

static int check_object(json_t *q, const char *model, struct br_broker_request *out,
                        struct br_err *err)
{
    if (!json_is_object(q))
        return REFUSE(err, "the body is not a JSON object; the request was not sent");
    int r = check_keys(q, err);
    if (r < 0)
        return r;
    json_t *m = json_object_get(q, "model");
    if (!json_is_string(m) || json_string_length(m) != strlen(model) ||
        strcmp(json_string_value(m), model) != 0)
        return REFUSE(err,
                      "the provider lease is for the model '%s' and the request names another or "
                      "none; it was not sent",
                      model);
    json_t *n = json_object_get(q, "n");
    if (n && !(json_is_integer(n) && json_integer_value(n) == 1))
        return REFUSE(err, "'n' is not 1; the request was not sent");
    json_t *messages = json_object_get(q, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return REFUSE(err, "'messages' is not a list with a message; the request was not sent");
    json_t *stream = json_object_get(q, "stream");
    if (stream && !json_is_boolean(stream))
        return REFUSE(err, "'stream' is neither true nor false; the request was not sent");
    r = check_tools(q, err);
    return r < 0 ? r : check_tokens(q, out, err);
}

int br_broker_check(const char *route, const char *model, const char *method, const char *path,
                    const char *content_type, const void *body, size_t n,
                    struct br_broker_request *out, struct br_err *err)
{
    if (strcmp(method, "POST") != 0 || strcmp(path, route) != 0)
        return REFUSE(err,
                      "'%.16s %.128s' is not the route of the provider lease, which is 'POST %s'; "
                      "the request was not sent",
                      method, path, route);
    if (!content_type_is_json(content_type))
        return REFUSE(err, "the content type is not 'application/json'; the request was not sent");
    struct br_err why;
    if (br_json_scan(body, n, BR_JSON_DEPTH_MAX, BR_BROKER_NODES_MAX, &why) < 0)
        return REFUSE(err, "the request was not sent: %s", why.text);
    json_error_t je;
    json_t *q = json_loadb(body, n, JSON_REJECT_DUPLICATES, &je);
    if (!q)
        return REFUSE(err, "the body is not JSON (line %d: %.160s); the request was not sent",
                      je.line, je.text);
    int r = check_object(q, model, out, err);
    json_decref(q);
    return r;
}
