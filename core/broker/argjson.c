/*
 * Is the text of a tool call's arguments one JSON object? It arrives in pieces cut anywhere, so
 * this is a machine that takes bytes and keeps no text. Called by the inspection of answers, on
 * what a model wrote. The text is valid UTF-8 already: it was in a JSON string.
 */
#include <string.h>

#include "broker/dialect_priv.h"

enum {
    S_VALUE, /* also the start, where only an object may be */
    S_FIRST_KEY,
    S_KEY,
    S_COLON,
    S_FIRST_ELEMENT,
    S_MEMBER_END,
    S_STRING,
    S_ESCAPE,
    S_HEX, /* and three more: how many digits are missing */
    S_HEX3,
    S_HEX2,
    S_HEX1,
    S_MINUS,
    S_ZERO,
    S_DIGITS,
    S_POINT,
    S_FRACTION,
    S_E,
    S_E_SIGN,
    S_EXPONENT,
    S_WORD,
    S_END,
    S_BAD,
};

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_white(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int open_bracket(struct br_argjson *t, bool object)
{
    if (t->depth >= BR_JSON_DEPTH_MAX)
        return S_BAD;
    uint64_t bit = 1ull << t->depth++;
    t->objects = object ? t->objects | bit : t->objects & ~bit;
    return object ? S_FIRST_KEY : S_FIRST_ELEMENT;
}

static bool in_object(const struct br_argjson *t)
{
    return t->objects >> (t->depth - 1) & 1;
}

static int close_bracket(struct br_argjson *t, bool object)
{
    if (!t->depth || in_object(t) != object)
        return S_BAD;
    return --t->depth ? S_MEMBER_END : S_END;
}

static int begin_value(struct br_argjson *t, unsigned char c)
{
    if (!t->depth)
        return c == '{' ? open_bracket(t, true) : S_BAD;
    if (++t->nodes > BR_JSON_NODES_MAX)
        return S_BAD;
    switch (c) {
    case '{':
    case '[':
        return open_bracket(t, c == '{');
    case '"':
        t->key = false;
        return S_STRING;
    case '-':
        return S_MINUS;
    case '0':
        return S_ZERO;
    case 't':
        t->word = "rue";
        return S_WORD;
    case 'f':
        t->word = "alse";
        return S_WORD;
    case 'n':
        t->word = "ull";
        return S_WORD;
    default:
        return is_digit(c) ? S_DIGITS : S_BAD;
    }
}

static int after_member(struct br_argjson *t, unsigned char c)
{
    if (is_white(c))
        return S_MEMBER_END;
    if (c == ',')
        return in_object(t) ? S_KEY : S_VALUE;
    return c == '}' || c == ']' ? close_bracket(t, c == '}') : S_BAD;
}

static int in_number(struct br_argjson *t, unsigned char c)
{
    switch (t->state) {
    case S_MINUS:
        return c == '0' ? S_ZERO : is_digit(c) ? S_DIGITS : S_BAD;
    case S_POINT:
        return is_digit(c) ? S_FRACTION : S_BAD;
    case S_E:
        return c == '+' || c == '-' ? S_E_SIGN : is_digit(c) ? S_EXPONENT : S_BAD;
    case S_E_SIGN:
        return is_digit(c) ? S_EXPONENT : S_BAD;
    default:
        break;
    }
    if (is_digit(c) && t->state != S_ZERO)
        return t->state;
    if (c == '.' && (t->state == S_ZERO || t->state == S_DIGITS))
        return S_POINT;
    if ((c | 0x20) == 'e' && t->state != S_EXPONENT)
        return S_E;
    return after_member(t, c);
}

static int in_string(struct br_argjson *t, unsigned char c)
{
    switch (t->state) {
    case S_STRING:
        if (c == '"')
            return t->key ? S_COLON : S_MEMBER_END;
        return c == '\\' ? S_ESCAPE : c < 0x20 ? S_BAD : S_STRING;
    case S_ESCAPE:
        return c == 'u' ? S_HEX : c && strchr("\"\\/bfnrt", c) ? S_STRING : S_BAD;
    default: /* a hex digit */
        if (!is_digit(c) && !((c | 0x20) >= 'a' && (c | 0x20) <= 'f'))
            return S_BAD;
        return t->state == S_HEX1 ? S_STRING : t->state + 1;
    }
}

static int step(struct br_argjson *t, unsigned char c)
{
    if (t->state >= S_STRING && t->state <= S_HEX1)
        return in_string(t, c);
    if (t->state >= S_MINUS && t->state <= S_EXPONENT)
        return in_number(t, c);
    if (t->state == S_WORD) {
        if (c != (unsigned char)*t->word)
            return S_BAD;
        return *++t->word ? S_WORD : S_MEMBER_END;
    }
    if (t->state == S_BAD || is_white(c))
        return t->state;
    switch (t->state) {
    case S_FIRST_KEY:
    case S_KEY:
        if (c == '"') {
            t->key = true;
            return S_STRING;
        }
        return c == '}' && t->state == S_FIRST_KEY ? close_bracket(t, true) : S_BAD;
    case S_COLON:
        return c == ':' ? S_VALUE : S_BAD;
    case S_FIRST_ELEMENT:
        return c == ']' ? close_bracket(t, false) : begin_value(t, c);
    case S_VALUE:
        return begin_value(t, c);
    case S_MEMBER_END:
        return after_member(t, c);
    default: /* something behind the end */
        return S_BAD;
    }
}

void br_argjson_put(struct br_argjson *t, const char *p, size_t n)
{
    const char *end = p + n;
    if (n && t->size <= BR_TOOL_JSON_MAX)
        t->size += n;
    for (; p < end; p++) {
        if (t->state == S_STRING)
            while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\')
                p++;
        if (p == end)
            break;
        unsigned char c = (unsigned char)*p;
        if (!t->begun && !is_white(c))
            t->begun = true;
        t->state = (uint8_t)step(t, c);
    }
}

bool br_argjson_ok(const struct br_argjson *t)
{
    return !t->begun || t->state == S_END;
}
