/*
 * Errors in the shape of the dialect that the guest speaks: ours, and those of a provider, of which
 * a type, a code and a bounded message are passed on and nothing else. Called by bridle-broker.
 */
#include <string.h>

#include "broker/dialect_priv.h"

/* The vocabulary of providers, so that clients choose the right exception. */
static const char *type_of_code(enum br_code code)
{
    switch (code) {
    case BR_E_LEASE_REFUSED:
    case BR_E_LIMIT_EXCEEDED:
    case BR_E_INVALID_JSON:
        return "invalid_request_error";
    case BR_E_DENIED:
        return "permission_error";
    case BR_E_TIMEOUT:
        return "timeout_error";
    default:
        return "api_error";
    }
}

static const char *type_of_status(uint32_t status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 529:
        return "overloaded_error";
    default:
        return status >= 400 && status < 500 ? "invalid_request_error" : "api_error";
    }
}

static void put(uint32_t route, bool sse, const char *type, const char *code, const char *text,
                size_t n, struct br_buf *out)
{
    BR_CLEANUP_BUF struct br_buf safe = BR_BUF_INIT(8 * BR_ERR_TEXT_MAX);
    br_buf_put_visible(&safe, text, n, true);
    bool messages = route == BR_ROUTE_MESSAGES;
    bool responses = route == BR_ROUTE_RESPONSES && sse;
    if (sse)
        br_buf_printf(out, messages || responses ? "event: error\ndata: " : "data: ");
    br_buf_printf(out, "{%s\"error\":{\"type\":\"%s\",\"code\":",
                  messages || responses ? "\"type\":\"error\"," : "", type);
    if (code)
        br_buf_put_json_str(out, code, strlen(code));
    else
        br_buf_printf(out, "null");
    br_buf_printf(out, ",\"param\":null,\"message\":");
    br_buf_put_json_str(out, (const char *)safe.data, safe.len);
    br_buf_printf(out, "}");
    if (responses) { /* where clients of that dialect look */
        br_buf_printf(out, ",\"code\":\"%s\",\"param\":null,\"message\":", code ? code : type);
        br_buf_put_json_str(out, (const char *)safe.data, safe.len);
    }
    br_buf_printf(out, sse ? "}\n\n" : "}");
}

void br_error_body(uint32_t route, bool sse, enum br_code code, const char *text,
                   struct br_buf *out)
{
    put(route, sse, type_of_code(code), br_code_name((int)code), text,
        strnlen(text, BR_ERR_TEXT_MAX), out);
}

/* A word of a provider's vocabulary, or nothing. */
static bool word(const struct br_slice *s, char *dst, size_t cap)
{
    int n = s->p ? br_slice_text(s, dst, cap) : -1;
    for (int i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", dst[i]))
            return false;
    return n > 0;
}

/* {"error": ...}, or {"message"|"detail": TEXT}, which some servers say. */
static bool read_error(const char *p, size_t n, struct br_said *said)
{
    static const struct br_scan_name names[] = {BR_NAME("error"), BR_NAME("message"),
                                                BR_NAME("detail")};
    static const struct br_scan_keys keys = {names, BR_ARRAY_LEN(names)};
    struct br_said other = {.is = false};
    struct br_scan_in in = {.seen = 0};
    struct br_scan j;
    int id;
    br_scan_init(&j, p, n, true);
    *said = (struct br_said){.is = false};
    if (!br_scan_open(&j, '{'))
        return false;
    while (br_scan_key(&j, &in, &keys, &id, NULL))
        if (!(id == 0  ? br_said_read(&j, said)
              : id > 0 ? br_said_read(&j, &other)
                       : br_scan_skip(&j, NULL)))
            return false;
    if (!said->is)
        *said = other;
    return j.state == BR_SCAN_OK && said->is;
}

void br_error_pass(uint32_t route, uint32_t status, const char *p, size_t n, struct br_buf *out)
{
    struct br_said said;
    char type[64], code[64], text[BR_ERR_TEXT_MAX];
    struct br_err err = {.code = BR_OK};
    bool is = read_error(p ? p : "", n, &said);
    /* such an answer may quote the credential */
    if (is && said.message.p && status != 401 && status != 403) {
        (void)br_said_error(&said, &err);
        (void)snprintf(text, sizeof(text), "%s", err.text);
    } else {
        (void)snprintf(text, sizeof(text), "the provider answered with status %u", status);
    }
    put(route, false, is && word(&said.type, type, sizeof(type)) ? type : type_of_status(status),
        is && word(&said.code, code, sizeof(code)) ? code : NULL, text, strlen(text), out);
}
