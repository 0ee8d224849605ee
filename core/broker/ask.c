/*
 * Checks of one request before it is charged or sent. Called by bridle-broker on bodies of guests
 * and sessions, which are hostile. What is allowed is listed; everything else is refused, so that a
 * new parameter of a provider (stored conversations, tools that run on the provider's side, an
 * address that it would fetch, a dearer tier) does not become authority by itself. What passes is
 * the text as it came, with a few values replaced: so what was checked is what is sent.
 */
#include <string.h>
#include <strings.h>

#include "broker/ask_priv.h"

static const struct {
    uint32_t route;
    const char *method, *path, *limit;
    bool (*check)(struct br_ask *q);
} routes[] = {
    {BR_ROUTE_CHAT, "POST", "/chat/completions", "max_tokens", br_ask_chat},
    {BR_ROUTE_RESPONSES, "POST", "/responses", "max_output_tokens", br_ask_responses},
    {BR_ROUTE_MESSAGES, "POST", "/messages", "max_tokens", br_ask_messages},
};

bool br_ask_refuse(struct br_ask *q, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (q->failed)
        return false;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    q->failed = true;
    br_err_set(q->err, BR_E_LEASE_REFUSED, "%s; the request was not sent", text);
    return false;
}

/* The text is not what JSON is, or not what `where` needs. */
static bool unreadable(struct br_ask *q, const char *where)
{
    if (q->j.state == BR_SCAN_REFUSED)
        return br_ask_refuse(q, "'%s': %s", where, q->j.why);
    return br_ask_refuse(q, "the body is not JSON (%s)", q->j.why ? q->j.why : "it ends");
}

void br_ask_replace(struct br_ask *q, const char *from, const char *text)
{
    br_buf_put(q->out, q->copied, (size_t)(from - q->copied));
    br_buf_put(q->out, text, strlen(text));
    q->copied = q->j.p;
}

/* ---- objects and lists ---- */

bool br_ask_object(struct br_ask *q, const struct br_ask_rule *rules, unsigned n, const char *where)
{
    struct br_scan_name names[64];
    const struct br_scan_keys keys = {names, n};
    struct br_scan_in in = {.seen = 0};
    struct br_slice key;
    int id;
    br_require(n <= BR_ARRAY_LEN(names));
    for (unsigned i = 0; i < n; i++)
        names[i] = rules[i].key;
    if (br_scan_peek(&q->j) != '{')
        return q->j.state ? unreadable(q, where) : br_ask_refuse(q, "'%s' is not an object", where);
    if (!br_scan_open(&q->j, '{'))
        return unreadable(q, where);
    while (br_scan_key(&q->j, &in, &keys, &id, &key)) {
        if (id < 0)
            return br_ask_refuse(q,
                                 "'%s' has the member '%.*s', which is not one that the provider "
                                 "lease allows",
                                 where, key.n < 64 ? (int)key.n : 64, key.p);
        if (!rules[id].check(q, rules[id].key.name))
            return unreadable(q, rules[id].key.name);
    }
    return q->j.state == BR_SCAN_OK ? true : unreadable(q, where);
}

bool br_ask_list(struct br_ask *q, bool (*check)(struct br_ask *q, const char *where),
                 const char *where, uint32_t *n)
{
    struct br_scan_in in = {.seen = 0};
    uint32_t count = 0;
    if (br_scan_peek(&q->j) != '[')
        return q->j.state ? unreadable(q, where) : br_ask_refuse(q, "'%s' is not a list", where);
    if (!br_scan_open(&q->j, '['))
        return unreadable(q, where);
    while (br_scan_element(&q->j, &in)) {
        if (!check(q, where))
            return unreadable(q, where);
        count++;
    }
    if (n)
        *n = count;
    return q->j.state == BR_SCAN_OK ? true : unreadable(q, where);
}

/* The value of the object's "type"; what it holds is read again afterwards. */
static bool find_type(struct br_ask *q, struct br_slice *type)
{
    static const struct br_scan_name names[] = {BR_NAME("type")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_scan_in in = {.seen = 0};
    struct br_scan before = q->j;
    int id;
    *type = (struct br_slice){.p = NULL};
    if (!br_scan_open(&q->j, '{'))
        return false;
    while (br_scan_key(&q->j, &in, &keys, &id, NULL))
        if (!(id == 0 ? br_scan_string_or_null(&q->j, type, "is no text")
                      : br_scan_skip(&q->j, NULL)))
            return false;
    if (q->j.state != BR_SCAN_OK)
        return false;
    q->j = before;
    return true;
}

bool br_ask_kinds(struct br_ask *q, const struct br_ask_kind *kinds, unsigned n, bool bare,
                  const char *where)
{
    struct br_slice type;
    if (br_scan_peek(&q->j) != '{')
        return q->j.state ? unreadable(q, where)
                          : br_ask_refuse(q, "'%s' has something that is no object", where);
    if (!find_type(q, &type))
        return unreadable(q, where);
    for (unsigned i = 0; i < n; i++)
        if (type.p ? br_slice_is(&type, kinds[i].type) : bare)
            return br_ask_object(q, kinds[i].rules, kinds[i].n, where);
    return br_ask_refuse(q, "'%s' has the type '%.*s', which the provider lease does not allow",
                         where, type.n < 64 ? (int)type.n : 64, type.p ? type.p : "");
}

/* ---- values ---- */

bool br_ask_any(struct br_ask *q, const char *where)
{
    return br_scan_skip(&q->j, NULL) ? true : unreadable(q, where);
}

bool br_ask_text(struct br_ask *q, const char *where)
{
    struct br_slice s;
    return br_scan_string_or_null(&q->j, &s, "is no text") ? true : unreadable(q, where);
}

bool br_ask_number(struct br_ask *q, const char *where)
{
    char c = br_scan_peek(&q->j);
    if (c != '-' && c != 'n' && !(c >= '0' && c <= '9'))
        return q->j.state ? unreadable(q, where) : br_ask_refuse(q, "'%s' is no number", where);
    return br_ask_any(q, where);
}

bool br_ask_flag(struct br_ask *q, const char *where)
{
    char c = br_scan_peek(&q->j);
    if (c != 't' && c != 'f' && c != 'n')
        return q->j.state ? unreadable(q, where)
                          : br_ask_refuse(q, "'%s' is neither true nor false", where);
    return br_ask_any(q, where);
}

bool br_ask_null(struct br_ask *q, const char *where)
{
    struct br_slice s;
    char c = br_scan_peek(&q->j);
    if (!br_scan_skip(&q->j, &s))
        return unreadable(q, where);
    bool empty = c == '[' && strspn(s.p + 1, " \t\r\n") + 2 == s.n;
    return c == 'n' || empty
               ? true
               : br_ask_refuse(q, "'%s' is not one that the provider lease allows", where);
}

bool br_ask_false(struct br_ask *q, const char *where)
{
    char c = br_scan_peek(&q->j);
    if (c != 'f' && c != 'n')
        return q->j.state
                   ? unreadable(q, where)
                   : br_ask_refuse(q, "'%s' is not false, as the provider lease wants it", where);
    return br_ask_any(q, where);
}

bool br_ask_word(struct br_ask *q, const char *where, const char *const *words, unsigned n,
                 const char *what)
{
    struct br_slice s;
    if (!br_scan_string_or_null(&q->j, &s, "is no text"))
        return unreadable(q, where);
    for (unsigned i = 0; i < n; i++)
        if (!s.p || br_slice_is(&s, words[i]))
            return true;
    return br_ask_refuse(q, "'%s' is '%.*s', which is %s", where, s.n < 64 ? (int)s.n : 64, s.p,
                         what);
}

bool br_ask_tier(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"auto", "default", "standard_only"};
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words), "a tier outside of the lease");
}

bool br_ask_model(struct br_ask *q, const char *where)
{
    char text[BR_NAME_MAX + 1];
    struct br_slice s;
    if (!br_scan_string_or_null(&q->j, &s, "is no text"))
        return unreadable(q, where);
    q->has_model = true;
    if (!s.p || br_slice_text(&s, text, sizeof(text)) < 0 || strcmp(text, q->model) != 0)
        return br_ask_refuse(
            q, "the provider lease is for the model '%s' and the request names another or none",
            q->model);
    return true;
}

bool br_ask_stream(struct br_ask *q, const char *where)
{
    bool null;
    if (!br_scan_null(&q->j, &null))
        return unreadable(q, where);
    if (null)
        return true;
    return br_scan_bool(&q->j, &q->facts->stream, "is neither true nor false")
               ? true
               : unreadable(q, where);
}

bool br_ask_limit(struct br_ask *q, const char *where)
{
    uint32_t max = q->lease->max_answer_tokens;
    uint64_t v = 0;
    bool null;
    br_scan_peek(&q->j);
    const char *from = q->j.p;
    if (!br_scan_null(&q->j, &null))
        return unreadable(q, where);
    if (null) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%u", max);
        br_ask_replace(q, from, text);
        v = max;
    } else if (!br_scan_count(&q->j, &v, "is not a whole number")) {
        return unreadable(q, where);
    }
    if (v < 1 || v > max)
        return br_ask_refuse(q, "'%s' is %llu; the provider lease allows 1 to %u", where,
                             (unsigned long long)v, max);
    if (q->has_limit)
        return br_ask_refuse(q, "the limit of the answer is said twice");
    q->has_limit = true;
    q->facts->max_tokens = v;
    return true;
}

bool br_ask_tool_name(struct br_ask *q, const char *where)
{
    char text[BR_NAME_MAX + 1];
    struct br_slice s;
    if (!br_scan_string_or_null(&q->j, &s, "is no text"))
        return unreadable(q, where);
    if (!s.p || br_slice_text(&s, text, sizeof(text)) < 1)
        return br_ask_refuse(q, "a tool has no usable name");
    if (q->lease->any_tools)
        return true;
    for (uint32_t i = 0; i < q->lease->ntools && i < BR_LEASE_TOOLS_MAX; i++)
        if (strcmp(q->lease->tools[i], text) == 0)
            return true;
    return br_ask_refuse(q, "the tool '%.64s' is not one of the provider lease", text);
}

/* Bytes that are an image's and no text. */
static void image_add(struct br_ask *q, size_t n)
{
    q->images++;
    q->image_bytes += n;
}

/* Anything else than a picture could cost more than one does. */
static bool is_image(const char *p, size_t n, char end)
{
    static const char *const kinds[] = {"image/png", "image/jpeg", "image/gif", "image/webp"};
    for (size_t i = 0; i < BR_ARRAY_LEN(kinds); i++) {
        size_t k = strlen(kinds[i]);
        if (n >= k && strncasecmp(p, kinds[i], k) == 0 && (end ? n > k && p[k] == end : n == k))
            return true;
    }
    return false;
}

bool br_ask_image_type(struct br_ask *q, const char *where)
{
    char text[32];
    struct br_slice s;
    if (!br_scan_string_or_null(&q->j, &s, "is no text"))
        return unreadable(q, where);
    size_t n = s.p ? br_slice_take(&s, text, sizeof(text)) : 0;
    return (n && s.n == 0 && is_image(text, n, 0)) ||
           br_ask_refuse(q, "'%s' is not PNG, JPEG, GIF or WebP", where);
}

/* Base64 has no colon; a text that has one may be an address. */
static bool read_inline(struct br_ask *q, const char *where, struct br_slice *s)
{
    char begin[64];
    if (!br_scan_string_or_null(&q->j, s, "is no text"))
        return unreadable(q, where);
    struct br_slice rest = *s;
    size_t n = s->p ? br_slice_take(&rest, begin, sizeof(begin)) : 0;
    bool url = n >= 5 && strncasecmp(begin, "data:", 5) == 0;
    if (url || !memchr(begin, ':', n))
        return true;
    return br_ask_refuse(q, "'%s' looks like an address; only inline data is inside of the lease",
                         where);
}

bool br_ask_inline(struct br_ask *q, const char *where)
{
    struct br_slice s;
    return read_inline(q, where, &s);
}

bool br_ask_data(struct br_ask *q, const char *where)
{
    struct br_slice s;
    if (!read_inline(q, where, &s))
        return false;
    image_add(q, s.n);
    return true;
}

bool br_ask_data_url(struct br_ask *q, const char *where)
{
    char begin[32];
    struct br_slice s, rest;
    if (!br_scan_string_or_null(&q->j, &s, "is no text"))
        return unreadable(q, where);
    if (!s.p)
        return true;
    rest = s;
    size_t n = br_slice_take(&rest, begin, sizeof(begin));
    if (n < 5 || strncasecmp(begin, "data:", 5) != 0)
        return br_ask_refuse(q,
                             "'%s' is an address that the provider would fetch; only inline data "
                             "is inside of the lease",
                             where);
    if (is_image(begin + 5, n - 5, ';')) {
        image_add(q, s.n);
        return true;
    }
    return br_ask_refuse(q, "'%s' is no inline image of PNG, JPEG, GIF or WebP", where);
}

static bool choice_function(struct br_ask *q, const char *where)
{
    static const struct br_ask_rule rules[] = {{BR_NAME("name"), br_ask_tool_name}};
    return br_ask_object(q, rules, BR_ARRAY_LEN(rules), where);
}

bool br_ask_choice(struct br_ask *q, const char *where)
{
    static const char *const words[] = {"auto", "none", "required", "any"};
    static const struct br_ask_rule plain[] = {{BR_NAME("type"), br_ask_any},
                                               {BR_NAME("disable_parallel_tool_use"), br_ask_flag}};
    static const struct br_ask_rule one[] = {{BR_NAME("type"), br_ask_any},
                                             {BR_NAME("name"), br_ask_tool_name},
                                             {BR_NAME("function"), choice_function},
                                             {BR_NAME("disable_parallel_tool_use"), br_ask_flag}};
    static const struct br_ask_kind kinds[] = {
        {"auto", plain, BR_ARRAY_LEN(plain)}, {"any", plain, BR_ARRAY_LEN(plain)},
        {"none", plain, BR_ARRAY_LEN(plain)}, {"tool", one, BR_ARRAY_LEN(one)},
        {"function", one, BR_ARRAY_LEN(one)},
    };
    if (br_scan_peek(&q->j) == '{')
        return br_ask_kinds(q, kinds, BR_ARRAY_LEN(kinds), false, where);
    return br_ask_word(q, where, words, BR_ARRAY_LEN(words),
                       "not a choice of tools that the lease allows");
}

/* ---- the whole request ---- */

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

/* OpenAI's newer models refuse `max_tokens`; most other servers know nothing else. */
static const char *limit_key(uint32_t route, const char *model, const char *usual)
{
    bool newer = (model[0] == 'o' && model[1] >= '1' && model[1] <= '9') ||
                 (strncmp(model, "gpt-", 4) == 0 && model[4] >= '5' && model[4] <= '9');
    return route == BR_ROUTE_CHAT && newer ? "max_completion_tokens" : usual;
}

/* The rest of the text, and the members that were missing. */
static void finish_text(struct br_ask *q, const char *limit)
{
    const char *close = q->j.p - 1;
    br_buf_put(q->out, q->copied, (size_t)(close - q->copied));
    if (!q->has_limit) {
        q->facts->max_tokens = q->lease->max_answer_tokens;
        br_buf_printf(q->out, ",\"%s\":%u", limit_key(q->facts->route, q->model, limit),
                      q->lease->max_answer_tokens);
    }
    if (q->facts->route == BR_ROUTE_CHAT && q->facts->stream && !q->has_options) {
        br_buf_printf(q->out, ",\"stream_options\":{\"include_usage\":true}");
        q->facts->hide_usage = true;
    }
    if (q->facts->route == BR_ROUTE_RESPONSES && !q->has_store)
        br_buf_printf(q->out, ",\"store\":false");
    br_buf_put(q->out, "}", 1);
}

static bool check_body(struct br_ask *q, const char *body, size_t n, size_t route)
{
    q->copied = body;
    br_scan_init(&q->j, body, n, true);
    if (br_scan_peek(&q->j) != '{')
        return br_ask_refuse(q, "the body is not a JSON object");
    if (!routes[route].check(q))
        return br_ask_refuse(q, "the body is not what the route takes");
    struct br_scan end = q->j;
    if (!br_scan_done(&end))
        return br_ask_refuse(q, "the body is not JSON (%s)", end.why);
    if (!q->has_model)
        return br_ask_refuse(
            q, "the provider lease is for the model '%s' and the request names another or none",
            q->model);
    if (q->facts->messages < 1)
        return br_ask_refuse(q, "the request has no message");
    finish_text(q, routes[route].limit);
    return q->out->failed ? br_ask_refuse(q, "the request is too large") : true;
}

/* The list of models, and one of them, in a shape that both families of clients read. */
static int models(const char *model, bool one, struct br_buf *out)
{
    BR_CLEANUP_BUF struct br_buf m = BR_BUF_INIT(8 * BR_NAME_MAX);
    br_buf_put_json_str(&m, model, strlen(model));
    const char *id = br_buf_cstr(&m);
    if (!id)
        return -BR_E_NOMEM;
    if (!one)
        br_buf_printf(out,
                      "{\"object\":\"list\",\"has_more\":false,\"first_id\":%s,\"last_id\":%s,"
                      "\"data\":[",
                      id, id);
    br_buf_printf(out,
                  "{\"id\":%s,\"object\":\"model\",\"type\":\"model\",\"created\":0,"
                  "\"created_at\":\"1970-01-01T00:00:00Z\",\"owned_by\":\"bridle\","
                  "\"display_name\":%s}",
                  id, id);
    return br_buf_printf(out, one ? "" : "]}");
}

static int check_models(const char *model, const char *path, struct br_buf *out, struct br_err *err)
{
    bool one = path[7] == '/';
    if (one && strcmp(path + 8, model) != 0)
        return br_err_set(err, BR_E_LEASE_REFUSED,
                          "the provider lease has no model '%.128s'; it is for '%s'", path + 8,
                          model);
    return models(model, one, out) < 0 || out->failed
               ? br_err_set(err, BR_E_LEASE_REFUSED, "no memory for the list of models")
               : 0;
}

static bool is_models(const char *method, const char *path)
{
    return strcmp(method, "GET") == 0 && strncmp(path, "/models", 7) == 0 &&
           (path[7] == 0 || path[7] == '?' || path[7] == '/');
}

int br_ask_check(const struct br_lease *l, const char *model, const char *method, const char *path,
                 const char *content_type, const void *body, size_t n, struct br_buf *out,
                 struct br_ask_facts *facts, struct br_err *err)
{
    struct br_err why = {.code = BR_OK};
    struct br_ask q = {.lease = l, .model = model, .facts = facts, .err = &why, .out = out};
    size_t i = 0;
    *facts = (struct br_ask_facts){.route = BR_ROUTE_MODELS};
    if ((l->routes & BR_ROUTE_MODELS) && is_models(method, path))
        return check_models(model, path, out, err);
    while (i < BR_ARRAY_LEN(routes) &&
           !((l->routes & routes[i].route) && strcmp(path, routes[i].path) == 0 &&
             strcmp(method, routes[i].method) == 0))
        i++;
    if (i == BR_ARRAY_LEN(routes))
        return br_err_set(err, BR_E_LEASE_REFUSED,
                          "'%.16s %.128s' is not a route of the provider lease; the request was "
                          "not sent",
                          method, path);
    facts->route = routes[i].route;
    if (!content_type_is_json(content_type))
        br_ask_refuse(&q, "the content type is not 'application/json'");
    else if (check_body(&q, body, n, i)) {
        uint64_t text = n > q.image_bytes ? n - q.image_bytes : 0;
        /* no tokeniser makes more tokens than there are bytes; providers add words of their own */
        facts->reserve =
            text + BR_ASK_TOKENS_BESIDE + (uint64_t)q.images * BR_IMAGE_TOKENS + facts->max_tokens;
        return 0;
    }
    if (err)
        *err = why;
    return -BR_E_LEASE_REFUSED;
}
