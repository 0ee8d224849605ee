/*
 * The built-in shapes: which literals make the redactor look closer, and what must follow for them
 * to be taken for a credential. Each check looks at a bounded number of bytes around its anchor;
 * runs are measured once per class, so that a pass stays linear on any input. The checks err on the
 * side of hiding: a password that is shown cannot be taken back.
 *
 * Sources: the token formats that their issuers document; RFC 6750 (Bearer), RFC 7519 (JWT), RFC
 * 7468 (PEM), RFC 3986 (user information in a URI).
 */
#include <ctype.h>
#include <string.h>

#include "audit/redact_priv.h"

#define LOOK_NEAR 64u  /* where a digit must be, how long a value is looked at */
#define LOOK_URL 512u  /* user information of a URL */
#define LOOK_LABEL 40u /* "-----BEGIN ... PRIVATE KEY" */

uint16_t redact_class_of[256];

void redact_classes_init(void)
{
    if (redact_class_of['a'])
        return;
    for (unsigned c = 0; c < 256; c++) {
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool upper = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
        bool line = c != '\n' && c != '\r';
        bool value = c > ' ' && c != 0x7f && !strchr("\"'`<>,;&|(){}[]\\", (int)c);
        bool in[CLASS_COUNT] = {
            [CLASS_ALNUM] = alnum,
            [CLASS_WORD] = alnum || c == '_',
            [CLASS_DASH] = alnum || c == '-',
            [CLASS_URLSAFE] = alnum || c == '_' || c == '-',
            [CLASS_DOTTED] = alnum || c == '_' || c == '-' || c == '.',
            [CLASS_UPPER] = upper,
            [CLASS_TOKEN68] = alnum || (c && strchr("-._~+/=", (int)c)),
            [CLASS_PATH] = alnum || c == '/',
            [CLASS_VALUE] = value,
            [CLASS_NOT_DQ] = line && c != '"',
            [CLASS_NOT_SQ] = line && c != '\'',
            [CLASS_NOT_BT] = line && c != '`',
            [CLASS_LINE] = line && !(c && strchr("\"'`\\", (int)c)),
        };
        for (unsigned k = 0; k < CLASS_COUNT; k++)
            if (in[k])
                redact_class_of[c] |= (uint16_t)(1u << k);
    }
}

/* ---- the table ---- */

#define B SHAPE_BOUNDARY
#define D (SHAPE_BOUNDARY | SHAPE_DIGIT)

static const struct {
    const char *literal, *name;
    uint8_t kind, class, flags;
    uint16_t min;
} shapes[] = {
    {"sk-", "api-key", KIND_RUN, CLASS_URLSAFE, D, 20},
    {"sk-ant-", "anthropic-key", KIND_RUN, CLASS_URLSAFE, B, 16},
    {"ghp_", "github-token", KIND_RUN, CLASS_ALNUM, B, 20},
    {"gho_", "github-token", KIND_RUN, CLASS_ALNUM, B, 20},
    {"ghu_", "github-token", KIND_RUN, CLASS_ALNUM, B, 20},
    {"ghs_", "github-token", KIND_RUN, CLASS_ALNUM, B, 20},
    {"ghr_", "github-token", KIND_RUN, CLASS_ALNUM, B, 20},
    {"github_pat_", "github-token", KIND_RUN, CLASS_WORD, B, 20},
    {"glpat-", "gitlab-token", KIND_RUN, CLASS_URLSAFE, B, 16},
    {"xoxb-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xoxp-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xoxa-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xoxr-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xoxs-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xoxe-", "slack-token", KIND_RUN, CLASS_DASH, D, 10},
    {"xapp-", "slack-token", KIND_RUN, CLASS_DASH, D, 16},
    {"hooks.slack.com/services/", "slack-webhook", KIND_RUN, CLASS_PATH, 0, 20},
    {"AKIA", "aws-key-id", KIND_FIXED, CLASS_UPPER, B, 16},
    {"ASIA", "aws-key-id", KIND_FIXED, CLASS_UPPER, B, 16},
    {"AIza", "google-key", KIND_RUN, CLASS_URLSAFE, B, 35},
    {"ya29.", "google-token", KIND_RUN, CLASS_URLSAFE, B, 20},
    {"npm_", "npm-token", KIND_RUN, CLASS_ALNUM, D, 30},
    {"hf_", "hf-token", KIND_RUN, CLASS_ALNUM, B, 30},
    {"pypi-", "pypi-token", KIND_RUN, CLASS_URLSAFE, D | SHAPE_UPPER, 32},
    {"rk_live_", "stripe-key", KIND_RUN, CLASS_ALNUM, B, 16},
    {"rk_test_", "stripe-key", KIND_RUN, CLASS_ALNUM, B, 16},
    {"sk_live_", "stripe-key", KIND_RUN, CLASS_ALNUM, B, 16},
    {"sk_test_", "stripe-key", KIND_RUN, CLASS_ALNUM, B, 16},
    {"whsec_", "stripe-key", KIND_RUN, CLASS_TOKEN68, D, 24},
    {"dop_v1_", "digitalocean-token", KIND_RUN, CLASS_ALNUM, B, 40},
    {"AGE-SECRET-KEY-1", "private-key", KIND_RUN, CLASS_UPPER, B, 40},
    {"SG.", "sendgrid-key", KIND_SENDGRID, CLASS_URLSAFE, B, 16},
    {"eyJ", "jwt", KIND_JWT, CLASS_DOTTED, B, 10},
    {"Bearer ", "bearer", KIND_BEARER, CLASS_TOKEN68, B, 8},
    {"bearer ", "bearer", KIND_BEARER, CLASS_TOKEN68, B, 8},
    {"BEARER ", "bearer", KIND_BEARER, CLASS_TOKEN68, B, 8},
    {"authorization", "authorization", KIND_AUTHORIZATION, 0, 0, 0},
    {"Authorization", "authorization", KIND_AUTHORIZATION, 0, 0, 0},
    {"AUTHORIZATION", "authorization", KIND_AUTHORIZATION, 0, 0, 0},
    {"cookie", "cookie", KIND_COOKIE, 0, 0, 0},
    {"Cookie", "cookie", KIND_COOKIE, 0, 0, 0},
    {"COOKIE", "cookie", KIND_COOKIE, 0, 0, 0},
    {"://", "url-credential", KIND_URL, 0, 0, 0},
    {"-----BEGIN ", "private-key", KIND_PEM, 0, 0, 0},
};
#undef B
#undef D

/* Names on the left of an assignment, by their end: "DB_PASSWORD", "aws_secret_access_key". */
static const struct {
    const char *word, *name;
    uint8_t flags;
} assigned[] = {
    {"password", "password", SHAPE_PASSWORD},
    {"Password", "password", SHAPE_PASSWORD},
    {"PASSWORD", "password", SHAPE_PASSWORD},
    {"passWord", "password", SHAPE_PASSWORD},
    {"passwd", "password", SHAPE_PASSWORD},
    {"Passwd", "password", SHAPE_PASSWORD},
    {"PASSWD", "password", SHAPE_PASSWORD},
    {"passphrase", "password", SHAPE_PASSWORD},
    {"Passphrase", "password", SHAPE_PASSWORD},
    {"PASSPHRASE", "password", SHAPE_PASSWORD},
    {"secret", "secret", 0},
    {"Secret", "secret", 0},
    {"SECRET", "secret", 0},
    {"token", "token", 0},
    {"Token", "token", 0},
    {"TOKEN", "token", 0},
    {"api_key", "api-key", 0},
    {"api-key", "api-key", 0},
    {"API_KEY", "api-key", 0},
    {"API-KEY", "api-key", 0},
    {"Api-Key", "api-key", 0},
    {"API-Key", "api-key", 0},
    {"Api_Key", "api-key", 0},
    {"apikey", "api-key", 0},
    {"apiKey", "api-key", 0},
    {"ApiKey", "api-key", 0},
    {"APIKey", "api-key", 0},
    {"APIKEY", "api-key", 0},
    {"access_key", "access-key", 0},
    {"access-key", "access-key", 0},
    {"ACCESS_KEY", "access-key", 0},
    {"AccessKey", "access-key", 0},
    {"accessKey", "access-key", 0},
    {"secret_key", "secret", 0},
    {"secret-key", "secret", 0},
    {"SECRET_KEY", "secret", 0},
    {"SecretKey", "secret", 0},
    {"secretKey", "secret", 0},
    {"private_key", "private-key", 0},
    {"PRIVATE_KEY", "private-key", 0},
    {"privateKey", "private-key", 0},
    {"AccountKey", "access-key", 0},
    {"account_key", "access-key", 0},
    {"ACCOUNT_KEY", "access-key", 0},
};

int redact_add_shapes(struct redact_builder *b)
{
    int r = 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(shapes) && r == 0; i++)
        r = redact_add(b, shapes[i].literal, strlen(shapes[i].literal),
                       (struct redact_pattern){.kind = shapes[i].kind,
                                               .class = shapes[i].class,
                                               .flags = shapes[i].flags,
                                               .min = shapes[i].min,
                                               .name = shapes[i].name});
    for (size_t i = 0; i < BR_ARRAY_LEN(assigned) && r == 0; i++)
        r = redact_add(b, assigned[i].word, strlen(assigned[i].word),
                       (struct redact_pattern){.kind = KIND_ASSIGN,
                                               .flags = assigned[i].flags,
                                               .name = assigned[i].name});
    return r;
}

/* ---- what the checks share ---- */

/* Is the byte before `at` outside a word? The last character of an escape (\n, %3D, \u0022) is not
 * part of a word, though it looks like one. */
static bool boundary_before(const struct redact_scan *s, uint64_t at)
{
    int c[6];
    for (unsigned i = 0; i < 6; i++)
        c[i] = at > i ? redact_peek(s, at - 1 - i) : PEEK_END;
    if (!redact_is(c[0], CLASS_WORD))
        return true;
    if (c[1] == '\\' && strchr("nrtbf", c[0]))
        return true;
    if (c[2] == '%' && isxdigit(c[0]) && isxdigit(c[1]))
        return true;
    return c[5] == '\\' && c[4] == 'u' && isxdigit(c[3]) && isxdigit(c[2]) && isxdigit(c[1]) &&
           isxdigit(c[0]);
}

/* Does the run that starts at `at` have, within its first LOOK_NEAR bytes, what the flags want? */
static enum redact_verdict run_has(struct redact_scan *s, uint64_t at, unsigned class,
                                   unsigned flags)
{
    for (unsigned i = 0; i < LOOK_NEAR && (flags & (SHAPE_DIGIT | SHAPE_UPPER)); i++) {
        int c = redact_peek(s, at + i);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (!redact_is(c, class))
            break;
        if (c >= '0' && c <= '9')
            flags &= ~(unsigned)SHAPE_DIGIT;
        if (c >= 'A' && c <= 'Z')
            flags &= ~(unsigned)SHAPE_UPPER;
    }
    return flags & (SHAPE_DIGIT | SHAPE_UPPER) ? VERDICT_NO : VERDICT_YES;
}

/* Is the run that starts at `at` at least min long? */
static enum redact_verdict run_long(struct redact_scan *s, uint64_t at, unsigned class,
                                    uint64_t min)
{
    bool open;
    uint64_t n = redact_run_end(s, class, at, &open) - at;
    return n >= min ? VERDICT_YES : open ? VERDICT_MORE : VERDICT_NO;
}

/* Skip at most `max` bytes of `set`; MORE if the window ends before it is clear. */
static enum redact_verdict skip(const struct redact_scan *s, uint64_t *at, const char *set,
                                unsigned max, unsigned *skipped)
{
    for (unsigned i = 0; i < max; i++) {
        int c = redact_peek(s, *at);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (c <= 0 || !strchr(set, c))
            return VERDICT_YES;
        ++*at;
        ++*skipped;
    }
    return VERDICT_YES;
}

/* ---- the checks ---- */

static enum redact_verdict check_run(struct redact_scan *s, const struct redact_pattern *p)
{
    uint64_t start = s->pos - p->len;
    enum redact_verdict v = run_long(s, s->pos, p->class, p->min);
    if (v == VERDICT_YES)
        v = run_has(s, s->pos, p->class, p->flags);
    if (v == VERDICT_YES)
        redact_mark_run(s, p->kind == KIND_BEARER ? s->pos : start, p->class, s->pos, p);
    return v;
}

static enum redact_verdict check_bearer(struct redact_scan *s, const struct redact_pattern *p)
{
    /* a word of prose may follow ("Bearer authentication"): a token has a digit, or is long */
    struct redact_pattern any = *p;
    any.flags = SHAPE_DIGIT;
    enum redact_verdict v = check_run(s, &any);
    if (v != VERDICT_NO)
        return v;
    any.flags = 0;
    any.min = 24;
    return check_run(s, &any);
}

static enum redact_verdict check_fixed(struct redact_scan *s, const struct redact_pattern *p)
{
    for (unsigned i = 0; i <= p->min; i++) {
        int c = redact_peek(s, s->pos + i);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (i < p->min ? !redact_is(c, p->class) : redact_is(c, CLASS_WORD))
            return VERDICT_NO;
    }
    redact_mark(s, s->pos - p->len, s->pos + p->min, p->name, 1);
    return VERDICT_YES;
}

static enum redact_verdict check_short(struct redact_scan *s, const struct redact_pattern *p)
{
    uint64_t start = s->pos - p->len;
    int next = redact_peek(s, s->pos);
    if (!boundary_before(s, start))
        return VERDICT_NO;
    if (next == PEEK_MORE)
        return VERDICT_MORE;
    if (redact_is(next, CLASS_WORD))
        return VERDICT_NO;
    redact_mark(s, start, s->pos, p->name, 0);
    return VERDICT_YES;
}

/* run, '.', run: the first run at least `min`, at most `max` */
static enum redact_verdict two_runs(struct redact_scan *s, uint64_t at, uint64_t min, uint64_t max,
                                    uint64_t min2)
{
    bool open;
    uint64_t end = redact_run_end(s, CLASS_URLSAFE, at, &open);
    if (end - at > max)
        return VERDICT_NO;
    if (open)
        return VERDICT_MORE;
    if (end - at < min || redact_peek(s, end) != '.')
        return VERDICT_NO;
    return run_long(s, end + 1, CLASS_URLSAFE, min2);
}

static enum redact_verdict check_dotted(struct redact_scan *s, const struct redact_pattern *p)
{
    bool jwt = p->kind == KIND_JWT;
    enum redact_verdict v =
        two_runs(s, s->pos, p->min, jwt ? BR_REDACT_LOOKAHEAD_MAX - 64 : LOOK_NEAR, p->min);
    if (v == VERDICT_YES)
        redact_mark_run(s, s->pos - p->len, CLASS_DOTTED, s->pos, p);
    return v;
}

/* What stands between a name and its value: quotes of the name, blanks, the separator, blanks, an
 * opening quote. */
struct assignment {
    uint64_t value;
    int quote;  /* of the value; 0: none */
    bool tight; /* nothing but '=' in between, as in a shell or a URL */
};

static enum redact_verdict find_value(struct redact_scan *s, struct assignment *a)
{
    uint64_t at = s->pos;
    unsigned skipped = 0;
    if (skip(s, &at, "\\\"'`", 4, &skipped) == VERDICT_MORE ||
        skip(s, &at, " \t", 8, &skipped) == VERDICT_MORE)
        return VERDICT_MORE;
    int sep = redact_peek(s, at);
    if (sep == PEEK_MORE)
        return VERDICT_MORE;
    bool element = sep == '>' && skipped == 0; /* <password>...</password> */
    if (sep != ':' && sep != '=' && !element)
        return VERDICT_NO;
    at++;
    int second = redact_peek(s, at);
    if (second == PEEK_MORE)
        return VERDICT_MORE;
    if (!element && (second == '=' || second == '>')) { /* := == => */
        at++;
        skipped++;
    }
    if (skip(s, &at, " \t", 8, &skipped) == VERDICT_MORE)
        return VERDICT_MORE;
    unsigned slashes = 0;
    uint64_t before = at;
    if (skip(s, &at, "\\", 3, &slashes) == VERDICT_MORE)
        return VERDICT_MORE;
    int quote = redact_peek(s, at);
    if (quote == PEEK_MORE)
        return VERDICT_MORE;
    bool quoted = quote == '"' || quote == '\'' || quote == '`';
    *a = (struct assignment){.value = quoted ? at + 1 : before,
                             .quote = quoted ? quote : 0,
                             .tight = sep == '=' && skipped == 0};
    return VERDICT_YES;
}

static enum redact_verdict begins(const struct redact_scan *s, uint64_t at, const char *word,
                                  bool whole)
{
    size_t i = 0;
    for (; word[i]; i++) {
        int c = redact_peek(s, at + i);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (c < 0 || tolower(c) != word[i])
            return VERDICT_NO;
    }
    int c = whole ? redact_peek(s, at + i) : PEEK_END;
    return c == PEEK_MORE ? VERDICT_MORE : redact_is(c, CLASS_VALUE) ? VERDICT_NO : VERDICT_YES;
}

/* A value that only names a secret: ${VAR}, <password>, ****, null, or what was redacted before. */
static enum redact_verdict is_placeholder(struct redact_scan *s, uint64_t at)
{
    static const char *const words[] = {"null", "none", "nil", "true", "false", "undefined"};
    int c = redact_peek(s, at);
    if (c == PEEK_MORE)
        return VERDICT_MORE;
    if (c <= 0 || c == '<' || c == '{')
        return VERDICT_YES;
    if (c == '$' || c == '*' || c == '%') {
        int second = redact_peek(s, at + 1);
        if (second == PEEK_MORE)
            return VERDICT_MORE;
        bool names = c == '$'   ? second == '{' || second == '(' || second == '_' || isupper(second)
                     : c == '*' ? second == '*'
                                : second == 's' || second == '(' || second == '{';
        return names ? VERDICT_YES : VERDICT_NO;
    }
    enum redact_verdict v = begins(s, at, "[redacted:", false);
    for (size_t i = 0; i < BR_ARRAY_LEN(words) && v == VERDICT_NO; i++)
        v = begins(s, at, words[i], true);
    return v;
}

static enum redact_verdict check_quoted(struct redact_scan *s, const struct redact_pattern *p,
                                        const struct assignment *a)
{
    unsigned class = a->quote == '"'    ? CLASS_NOT_DQ
                     : a->quote == '\'' ? CLASS_NOT_SQ
                                        : CLASS_NOT_BT;
    bool password = p->flags & SHAPE_PASSWORD;
    enum redact_verdict v = run_long(s, a->value, class, password ? 4 : 6);
    /* prose in quotes is not a key */
    for (unsigned i = 0; v == VERDICT_YES && !password && i < LOOK_NEAR; i++) {
        int c = redact_peek(s, a->value + i);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (!redact_is(c, class))
            break;
        if (c == ' ')
            v = VERDICT_NO;
    }
    if (v == VERDICT_YES)
        redact_mark_run(s, a->value, class, a->value, p);
    return v;
}

static enum redact_verdict check_unquoted(struct redact_scan *s, const struct redact_pattern *p,
                                          const struct assignment *a)
{
    bool password = p->flags & SHAPE_PASSWORD;
    unsigned n = 0;
    bool digit = false, letter = false;
    int c = 0;
    for (; n < LOOK_NEAR; n++) {
        c = redact_peek(s, a->value + n);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (!redact_is(c, CLASS_VALUE))
            break;
        digit |= c >= '0' && c <= '9';
        letter |= isalpha(c) != 0;
    }
    bool call = n < LOOK_NEAR && (c == '(' || c == '[');
    bool taken;
    if (a->tight)
        taken = password ? n >= 4 : n >= 20 || (n >= 6 && digit);
    else
        taken = password ? n >= 6 && digit : n >= 8 && digit && letter;
    if (!taken || call)
        return VERDICT_NO;
    redact_mark_run(s, a->value, CLASS_VALUE, a->value, p);
    return VERDICT_YES;
}

static enum redact_verdict check_assign(struct redact_scan *s, const struct redact_pattern *p)
{
    struct assignment a;
    enum redact_verdict v = find_value(s, &a);
    if (v != VERDICT_YES)
        return v;
    v = is_placeholder(s, a.value);
    if (v != VERDICT_NO)
        return v == VERDICT_YES ? VERDICT_NO : v;
    return a.quote ? check_quoted(s, p, &a) : check_unquoted(s, p, &a);
}

static enum redact_verdict check_authorization(struct redact_scan *s,
                                               const struct redact_pattern *p)
{
    static const char *const schemes[] = {"bearer ", "basic ",     "token ",           "digest ",
                                          "apikey ", "negotiate ", "aws4-hmac-sha256 "};
    struct assignment a;
    enum redact_verdict v = find_value(s, &a);
    if (v != VERDICT_YES)
        return v;
    for (size_t i = 0; i < BR_ARRAY_LEN(schemes); i++) {
        v = begins(s, a.value, schemes[i], false);
        if (v == VERDICT_MORE)
            return v;
        if (v == VERDICT_NO)
            continue;
        uint64_t at = a.value + strlen(schemes[i]);
        v = is_placeholder(s, at);
        if (v != VERDICT_NO)
            return v == VERDICT_YES ? VERDICT_NO : v;
        v = run_long(s, at, CLASS_VALUE, 4);
        if (v == VERDICT_YES)
            redact_mark_run(s, at, CLASS_LINE, at, p);
        return v;
    }
    return check_assign(s, p);
}

static enum redact_verdict check_cookie(struct redact_scan *s, const struct redact_pattern *p)
{
    struct assignment a;
    enum redact_verdict v = find_value(s, &a);
    if (v != VERDICT_YES)
        return v;
    for (unsigned i = 0; i < LOOK_NEAR; i++) {
        int c = redact_peek(s, a.value + i);
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (c == '=' && i > 0) {
            v = run_long(s, a.value + i + 1, CLASS_VALUE, 4);
            if (v == VERDICT_YES)
                redact_mark_run(s, a.value, CLASS_LINE, a.value, p);
            return v;
        }
        if (!redact_is(c, CLASS_DOTTED))
            break;
    }
    return VERDICT_NO;
}

/* scheme://user:password@host: the password; scheme://token@host: the token if it looks like one */
static enum redact_verdict check_url(struct redact_scan *s, const struct redact_pattern *p)
{
    uint64_t colon = 0, at = 0;
    bool digit = false;
    for (uint64_t i = s->pos;; i++) {
        int c = i - s->pos < LOOK_URL ? redact_peek(s, i) : PEEK_END;
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (c <= ' ' || strchr("/\"'`<>?#\\", c))
            break;
        if (c == ':' && !colon && !at)
            colon = i;
        if (c == '@')
            at = i;
        digit |= !at && c >= '0' && c <= '9';
    }
    uint64_t start = colon ? colon + 1 : s->pos;
    if (!at || at <= start || (!colon && (!digit || at - start < 20)))
        return VERDICT_NO;
    enum redact_verdict v = begins(s, s->pos, "[redacted:", false);
    if (v == VERDICT_NO)
        v = is_placeholder(s, start);
    if (v == VERDICT_NO)
        redact_mark(s, start, at, p->name, 1);
    return v == VERDICT_YES ? VERDICT_NO : v == VERDICT_NO ? VERDICT_YES : v;
}

uint8_t redact_pem_step(uint8_t state, uint8_t byte, bool *belongs)
{
    /* 0 body, 1..4 dashes seen, 5 "-----" seen (BEGIN or END line), 6 label, 7..10 its dashes */
    bool dash = byte == '-';
    *belongs = true;
    if (state < 5)
        state = dash ? (uint8_t)(state + 1) : 0;
    else if (state == 5)
        state = dash ? 5 : 6;
    else if (state < 10)
        state = dash ? (uint8_t)(state + 1) : 6;
    else if (dash)
        return PEM_DONE;
    else
        state = 6;
    if (redact_is(byte, CLASS_TOKEN68) ? byte != '.' && byte != '~' && byte != '_'
                                       : byte && strchr("\r\n\t \\:,", byte))
        return state;
    *belongs = false;
    return PEM_DONE;
}

static enum redact_verdict check_pem(struct redact_scan *s, const struct redact_pattern *p)
{
    char label[LOOK_LABEL + 1] = {0};
    unsigned n = 0;
    int c;
    while ((c = redact_peek(s, s->pos + n)) != '-' && n < LOOK_LABEL) {
        if (c == PEEK_MORE)
            return VERDICT_MORE;
        if (c != ' ' && !redact_is(c, CLASS_UPPER))
            return VERDICT_NO;
        label[n++] = (char)c;
    }
    if (!strstr(label, "PRIVATE KEY"))
        return VERDICT_NO;
    uint64_t at = s->pos + n;
    unsigned skipped = 0;
    if (skip(s, &at, "-", 5, &skipped) == VERDICT_MORE)
        return VERDICT_MORE;
    if (skipped != 5)
        return VERDICT_NO;
    skipped = 0;
    if (skip(s, &at, " \t\r\n\\", 8, &skipped) == VERDICT_MORE)
        return VERDICT_MORE;
    /* a key, not a sentence about keys: base64, or the headers of an encrypted one. The n or r of
     * an escaped line end is part of what follows. */
    enum redact_verdict v = run_long(s, at, CLASS_TOKEN68, 20);
    if (v == VERDICT_NO)
        v = begins(s, at, "proc-type:", false);
    if (v == VERDICT_NO)
        v = begins(s, at, "nproc-type:", false);
    if (v == VERDICT_NO)
        v = begins(s, at, "version:", false);
    if (v == VERDICT_YES)
        redact_mark_run(s, s->pos - p->len, CLASS_PEM, at, p);
    return v;
}

enum redact_verdict redact_verify(struct redact_scan *s, const struct redact_pattern *p)
{
    uint64_t start = s->pos - p->len;
    if ((p->flags & SHAPE_BOUNDARY) && !boundary_before(s, start))
        return VERDICT_NO;
    switch (p->kind) {
    case KIND_SHORT:
        return check_short(s, p);
    case KIND_RUN:
        return check_run(s, p);
    case KIND_FIXED:
        return check_fixed(s, p);
    case KIND_JWT:
    case KIND_SENDGRID:
        return check_dotted(s, p);
    case KIND_BEARER:
        return check_bearer(s, p);
    case KIND_AUTHORIZATION:
        return check_authorization(s, p);
    case KIND_COOKIE:
        return check_cookie(s, p);
    case KIND_ASSIGN:
        return check_assign(s, p);
    case KIND_URL:
        return check_url(s, p);
    case KIND_PEM:
        return check_pem(s, p);
    default:
        return VERDICT_NO;
    }
}
