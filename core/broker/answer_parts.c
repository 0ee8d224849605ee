/*
 * What the answers of all dialects have in common: tool calls with their ids and arguments, usage,
 * errors that a provider reports, and the edits that repair an event. Called by answer*.c on what a
 * provider sent, which is hostile.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/dialect_priv.h"

int br_answer_invalid(struct br_err *err, const char *what)
{
    return br_err_set(err, BR_E_PROVIDER_INVALID, "the provider's answer %s; it was not used",
                      what);
}

static int no_memory(struct br_err *err)
{
    return br_err_set(err, BR_E_NOMEM, "no memory for a provider's answer");
}

/* ---- edits ---- */

int br_answer_edit(struct br_answer *a, const struct br_slice *old, struct br_err *err,
                   const char *fmt, ...)
{
    if (a->nedits == a->edits_cap) {
        size_t cap = a->edits_cap ? a->edits_cap * 2 : 8;
        struct br_edit *more = realloc(a->edits, cap * sizeof(*more));
        if (!more)
            return no_memory(err);
        a->edits = more;
        a->edits_cap = cap;
    }
    size_t at = a->words.len, i = a->nedits++;
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    int r = n < 0 ? -1 : br_buf_put(&a->words, text, (size_t)n);
    free(n < 0 ? NULL : text);
    if (r < 0) {
        a->nedits--;
        return no_memory(err);
    }
    for (; i > 0 && a->edits[i - 1].p > old->p; i--)
        a->edits[i] = a->edits[i - 1];
    a->edits[i] = (struct br_edit){.p = old->p, .n = old->n, .at = at, .len = (size_t)n};
    return 0;
}

struct br_slice br_slice_quoted(const struct br_slice *s)
{
    return (struct br_slice){.p = s->p - 1, .n = s->n + 2};
}

uint64_t br_slice_hash(const struct br_slice *s)
{
    struct br_slice rest = *s;
    char piece[256];
    uint64_t h = 0xcbf29ce484222325u;
    size_t n;
    while ((n = br_slice_take(&rest, piece, sizeof(piece))) > 0)
        for (size_t i = 0; i < n; i++)
            h = (h ^ (unsigned char)piece[i]) * 0x100000001b3u;
    return h;
}

unsigned br_hole_text(struct br_hole *h, unsigned n, const struct br_slice *s)
{
    if (!s->p)
        return n;
    h[n] = (struct br_hole){.p = s->p, .n = s->n};
    return n + 1;
}

unsigned br_hole_number(struct br_hole *h, unsigned n, const struct br_slice *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->p[i] < '0' || s->p[i] > '9')
            return n;
    if (!s->n)
        return n;
    h[n] = (struct br_hole){.p = s->p, .n = s->n, .number = true};
    return n + 1;
}

/* ---- errors that the provider reports ---- */

static bool said_object(struct br_scan *j, struct br_said *said)
{
    static const struct br_scan_name names[] = {BR_NAME("type"), BR_NAME("code"),
                                                BR_NAME("message")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_slice *const to[] = {&said->type, &said->code, &said->message};
    struct br_scan_in in = {.seen = 0};
    int id;
    if (!br_scan_open(j, '{'))
        return false;
    while (br_scan_key(j, &in, &keys, &id, NULL))
        if (!(id >= 0 && br_scan_peek(j) == '"' ? br_scan_string(j, to[id])
                                                : br_scan_skip(j, NULL)))
            return false;
    return j->state == BR_SCAN_OK;
}

bool br_said_read(struct br_scan *j, struct br_said *said)
{
    *said = (struct br_said){.is = true};
    switch (br_scan_peek(j)) {
    case '{':
        return said_object(j, said);
    case '"':
        return br_scan_string(j, &said->message);
    case 'n':
        said->is = false;
        return br_scan_skip(j, NULL);
    default:
        return br_scan_skip(j, NULL);
    }
}

/* Errors about the credential may quote it. */
static bool about_credential(const struct br_said *s)
{
    return br_slice_is(&s->type, "authentication_error") ||
           br_slice_is(&s->type, "permission_error") || br_slice_is(&s->code, "invalid_api_key");
}

/* Other errors may do so too: what looks like a key is not shown. */
#define KEY_LIKE 32u
static void mask_keys(char *p, size_t n)
{
    for (size_t from = 0, i = 0; i <= n; i++) {
        if (i < n && ((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') ||
                      (p[i] >= '0' && p[i] <= '9') || (p[i] && strchr("_-+/=.", p[i]))))
            continue;
        if (i - from >= KEY_LIKE)
            memset(p + from, '*', i - from);
        from = i + 1;
    }
}

int br_said_error(const struct br_said *s, struct br_err *err)
{
    char text[BR_PROVIDER_TEXT_MAX + 8];
    struct br_slice rest = s->message;
    size_t n = 0;
    if (rest.p && !about_credential(s))
        n = br_slice_take(&rest, text, sizeof(text));
    mask_keys(text, n);
    bool cut = n > BR_PROVIDER_TEXT_MAX || rest.n > 0;
    n = br_utf8_floor(text, n > BR_PROVIDER_TEXT_MAX ? BR_PROVIDER_TEXT_MAX : n);
    BR_CLEANUP_BUF struct br_buf safe = BR_BUF_INIT(BR_ERR_TEXT_MAX * 4);
    br_buf_put_visible(&safe, text, n, true);
    return br_err_set(err, BR_E_PROVIDER_STATUS, "the provider reported an error: %.700s%s",
                      n ? br_buf_cstr(&safe) : "it gives no reason that may be shown",
                      n && cut ? "..." : "");
}

/* ---- usage ---- */

bool br_usage_read(struct br_scan *j, const struct br_scan_keys *keys, struct br_usage *u)
{
    static const char why[] = "has a usage that is not made of token counts";
    struct br_scan_in in = {.seen = 0};
    uint64_t v[3] = {0};
    bool has[3] = {false}, null;
    int id;
    if (!br_scan_null(j, &null) || null)
        return j->state == BR_SCAN_OK;
    if (br_scan_peek(j) != '{')
        return br_scan_refuse(j, why);
    br_scan_open(j, '{');
    while (br_scan_key(j, &in, keys, &id, NULL)) {
        if (id < 0 ? !br_scan_skip(j, NULL) : !br_scan_null(j, &null))
            return false;
        if (id < 0 || null)
            continue;
        br_scan_peek(j);
        const char *from = j->p;
        if (!br_scan_count(j, &v[id], why))
            return false;
        has[id] = true;
        if (id == 2)
            u->total_at = (struct br_slice){.p = from, .n = (size_t)(j->p - from)};
    }
    u->known = true;
    u->prompt = v[0];
    u->completion = v[1];
    u->total = v[2];
    u->has_prompt = has[0];
    u->has_completion = has[1];
    u->has_total = has[2];
    return j->state == BR_SCAN_OK;
}

int br_usage_apply(struct br_answer *a, struct br_err *err)
{
    struct br_usage *u = &a->usage;
    struct br_answer_facts *f = &a->facts;
    if (!u->known)
        return 0;
    if (!u->has_prompt || !u->has_completion || u->prompt > BR_ANSWER_TOKENS_MAX ||
        u->completion > BR_ANSWER_TOKENS_MAX)
        return br_answer_invalid(err, "has a usage that is not made of token counts");
    uint64_t sum = u->prompt + u->completion;
    if (u->has_total && u->total != sum) {
        if (!a->normalize)
            return br_answer_invalid(err, "has a usage whose total is not the sum of its parts");
        f->repairs |= BR_REPAIR_TOTAL;
        int r = br_answer_edit(a, &u->total_at, err, "%llu", (unsigned long long)sum);
        if (r < 0)
            return r;
        if (u->total > sum && u->total <= 2 * BR_ANSWER_TOKENS_MAX)
            u->completion = u->total - u->prompt; /* what is charged is never the smaller one */
    }
    if (f->usage_known && (u->prompt < f->prompt || u->completion < f->completion)) {
        if (!a->normalize)
            return br_answer_invalid(err, "has a usage that became smaller");
        f->repairs |= BR_REPAIR_TOTAL;
    }
    f->usage_known = true;
    f->prompt = u->prompt > f->prompt ? u->prompt : f->prompt;
    f->completion = u->completion > f->completion ? u->completion : f->completion;
    return 0;
}

/* ---- tool calls ---- */

struct br_call *br_call_find(struct br_answer *a, uint64_t index)
{
    for (uint32_t i = a->ncalls; i-- > 0;) /* mostly it is the last */
        if (a->calls[i].index == index)
            return &a->calls[i];
    return NULL;
}

static bool id_taken(const struct br_answer *a, const char *id)
{
    for (uint32_t i = 0; i < a->ncalls; i++)
        if (strcmp(a->calls[i].id, id) == 0 || strcmp(a->calls[i].renamed, id) == 0)
            return true;
    return false;
}

static bool id_text(const struct br_slice *s, char *id)
{
    int n = s->p ? br_slice_text(s, id, BR_CALL_ID_MAX + 1) : -1;
    for (int i = 0; i < n; i++)
        if ((unsigned char)id[i] < 0x20 || id[i] == 0x7f)
            return false;
    return n > 0;
}

static int edit_id(struct br_answer *a, const struct br_call *c, const struct br_slice *id,
                   struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(8 * BR_CALL_ID_MAX);
    struct br_slice old = br_slice_quoted(id);
    br_buf_put_json_str(&text, c->renamed, strlen(c->renamed));
    char *s = br_buf_cstr(&text);
    return s ? br_answer_edit(a, &old, err, "%s", s) : no_memory(err);
}

/* Give *c an id that no other call has. */
static void rename_call(struct br_answer *a, struct br_call *c)
{
    size_t keep = br_utf8_floor(c->id, strlen(c->id) < 240 ? strlen(c->id) : 240);
    for (unsigned n = 2; n < 2 * BR_TOOL_CALLS_PER_TURN_MAX + 8; n++) {
        char id[sizeof(c->renamed)];
        (void)snprintf(id, sizeof(id), "%.*s_%u", (int)keep, c->id, n);
        if (!id_taken(a, id)) {
            memcpy(c->renamed, id, sizeof(id));
            return;
        }
    }
}

struct br_call *br_call_add(struct br_answer *a, uint64_t index, const struct br_slice *id,
                            const struct br_slice *name, struct br_err *err)
{
    struct br_call c = {.index = index};
    if (a->ncalls >= BR_TOOL_CALLS_PER_TURN_MAX) {
        br_err_set(err, BR_E_LIMIT_EXCEEDED,
                   "the provider's answer has more than %u tool calls; it was not used",
                   BR_TOOL_CALLS_PER_TURN_MAX);
        return NULL;
    }
    if (!id_text(id, c.id)) {
        br_answer_invalid(err, "has a tool call without a usable id");
        return NULL;
    }
    if (!name->p) {
        br_answer_invalid(err, "has a tool call without a name");
        return NULL;
    }
    if (a->ncalls == a->calls_cap) {
        uint32_t cap = a->calls_cap ? a->calls_cap * 2 : 4;
        struct br_call *more = realloc(a->calls, cap * sizeof(*more));
        if (!more) {
            no_memory(err);
            return NULL;
        }
        a->calls = more;
        a->calls_cap = cap;
    }
    c.name_hash = br_slice_hash(name);
    c.hash = 0xcbf29ce484222325u;
    if (id_taken(a, c.id)) {
        if (!a->normalize) {
            br_answer_invalid(err, "has two tool calls with one id");
            return NULL;
        }
        rename_call(a, &c);
        a->facts.repairs |= BR_REPAIR_IDS;
        if (edit_id(a, &c, id, err) < 0)
            return NULL;
    }
    a->calls[a->ncalls++] = c;
    a->facts.calls = a->ncalls;
    return &a->calls[a->ncalls - 1];
}

int br_call_same(struct br_answer *a, const struct br_call *c, const struct br_slice *id,
                 struct br_err *err)
{
    char text[BR_CALL_ID_MAX + 1];
    if (!id->p || id->n == 0)
        return 0;
    if (!id_text(id, text) || strcmp(text, c->id) != 0)
        return br_answer_invalid(err, "has a tool call that changes its id");
    return c->renamed[0] ? edit_id(a, c, id, err) : 0;
}

int br_call_arguments(struct br_answer *a, struct br_call *c, const struct br_slice *text,
                      struct br_err *err)
{
    struct br_slice rest = *text;
    char piece[512];
    size_t n;
    if (!text->p || !text->n)
        return 0;
    if (c->whole)
        return br_answer_invalid(err, "goes on with arguments that were said to be whole");
    /* the session judges its own: there a call with bad arguments is a failed call */
    if (!a->guest)
        return 0;
    while ((n = br_slice_take(&rest, piece, sizeof(piece))) > 0) {
        br_argjson_put(&c->json, piece, n);
        for (size_t i = 0; i < n; i++)
            c->hash = (c->hash ^ (unsigned char)piece[i]) * 0x100000001b3u;
    }
    if (c->json.size > BR_TOOL_JSON_MAX)
        return br_err_set(
            err, BR_E_LIMIT_EXCEEDED,
            "the provider's tool call has more than %u bytes of arguments; the answer "
            "was not used",
            BR_TOOL_JSON_MAX);
    return 0;
}

int br_call_all(struct br_answer *a, struct br_call *c, const struct br_slice *text,
                struct br_err *err)
{
    if (!text->p)
        return 0;
    if (a->guest && (c->whole || c->json.size)) {
        c->whole = true;
        return br_slice_hash(text) == c->hash
                   ? 0
                   : br_answer_invalid(err, "says the arguments of a tool call in two ways");
    }
    int r = c->whole ? 0 : br_call_arguments(a, c, text, err);
    c->whole = true;
    return r;
}

int br_calls_check(struct br_answer *a, struct br_err *err)
{
    for (uint32_t i = 0; a->guest && i < a->ncalls; i++)
        if (!br_argjson_ok(&a->calls[i].json))
            return br_answer_invalid(err, "has a tool call whose arguments are not a JSON object");
    return 0;
}
