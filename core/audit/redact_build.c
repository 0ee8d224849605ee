/*
 * The automaton of the redactor: Aho and Corasick's, as a dense table over byte classes, so that
 * scanning costs one lookup per byte whatever is registered. Built anew for every secret (there are
 * a handful in a run). Everything that holds bytes of a secret is wiped before it is freed.
 *
 * Called by the audit process and by tests. Trusts its arguments to be what redact.h says.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "audit/redact_priv.h"

/* A longer secret is registered as overlapping pieces, so that an encoded one stays short enough
 * to be held back. The overlap makes neighbours touch in base64, where up to four bits at each end
 * of a piece depend on what surrounds it. */
#define PIECE_WHOLE_MAX 256u
#define PIECE_STEP 128u
#define PIECE_OVERLAP 2u

struct literal {
    uint8_t *bytes;
    size_t len;
    uint16_t pattern;
};

struct redact_builder {
    struct literal *literals;
    size_t nliterals, cap_literals;
    struct redact_pattern *patterns;
    size_t npatterns, cap_patterns;
    size_t total; /* bytes of all literals */
};

static void wipe_free(void *p, size_t n)
{
    if (p)
        explicit_bzero(p, n);
    free(p);
}

static bool grow(void **p, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return true;
    size_t want = *cap ? *cap * 2 : 128;
    void *q = realloc(*p, want * size);
    if (!q)
        return false;
    *p = q;
    *cap = want;
    return true;
}

int redact_add(struct redact_builder *b, const void *literal, size_t n, struct redact_pattern p)
{
    p.len = (uint16_t)n;
    if (b->npatterns >= UINT16_MAX - 1 ||
        !grow((void **)&b->literals, &b->cap_literals, b->nliterals + 1, sizeof(*b->literals)) ||
        !grow((void **)&b->patterns, &b->cap_patterns, b->npatterns + 1, sizeof(*b->patterns)))
        return -BR_E_NOMEM;
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        return -BR_E_NOMEM;
    memcpy(copy, literal, n);
    b->literals[b->nliterals++] =
        (struct literal){.bytes = copy, .len = n, .pattern = (uint16_t)b->npatterns};
    b->patterns[b->npatterns++] = p;
    b->total += n;
    return 0;
}

static void builder_free(struct redact_builder *b)
{
    for (size_t i = 0; i < b->nliterals; i++)
        wipe_free(b->literals[i].bytes, b->literals[i].len);
    free(b->literals);
    free(b->patterns);
}

/* ---- the encodings of a secret ---- */

static int add_hex(struct redact_builder *b, const uint8_t *v, size_t n, struct redact_pattern p)
{
    int r = 0;
    for (int upper = 0; upper < 2 && r == 0; upper++) {
        const char *digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
        char *text = malloc(2 * n);
        if (!text)
            return -BR_E_NOMEM;
        for (size_t i = 0; i < n; i++) {
            text[2 * i] = digits[v[i] >> 4];
            text[2 * i + 1] = digits[v[i] & 15];
        }
        r = redact_add(b, text, 2 * n, p);
        wipe_free(text, 2 * n);
    }
    return r;
}

/*
 * Base64 of a text in which the secret follows `lead` (0 to 2) unknown bytes: the characters that
 * depend on the secret alone; and, for a secret that ends the text, the last one too.
 */
static int add_base64(struct redact_builder *b, const uint8_t *v, size_t n, unsigned lead, bool url,
                      struct redact_pattern p)
{
    static const char common[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t bits = 8 * (lead + n), first = (8 * lead + 5) / 6, whole = bits / 6;
    size_t all = (bits + 5) / 6;
    char *text = malloc(all);
    if (!text)
        return -BR_E_NOMEM;
    for (size_t i = first; i < all; i++) {
        unsigned six = 0;
        for (size_t k = 6 * i; k < 6 * i + 6; k++) {
            size_t at = k / 8;
            unsigned bit = at >= lead && at < lead + n ? v[at - lead] >> (7 - k % 8) & 1u : 0u;
            six = six << 1 | bit;
        }
        text[i] = six < 62 ? common[six] : six == 62 ? (url ? '-' : '+') : (url ? '_' : '/');
    }
    int r = redact_add(b, text + first, whole - first, p);
    if (r == 0 && all > whole)
        r = redact_add(b, text + first, all - first, p);
    wipe_free(text, all);
    return r;
}

/* Form encoding writes a blank as '+'. */
static int add_plus(struct redact_builder *b, const uint8_t *v, size_t n, struct redact_pattern p)
{
    if (!memchr(v, ' ', n))
        return 0;
    uint8_t *text = malloc(n);
    if (!text)
        return -BR_E_NOMEM;
    for (size_t i = 0; i < n; i++)
        text[i] = v[i] == ' ' ? '+' : v[i];
    int r = redact_add(b, text, n, p);
    wipe_free(text, n);
    return r;
}

static int add_piece(struct redact_builder *b, const uint8_t *v, size_t n, const char *name)
{
    struct redact_pattern p = {.kind = KIND_SECRET, .name = name};
    int r = redact_add(b, v, n, p);
    if (r == 0)
        r = add_hex(b, v, n, p);
    if (r == 0)
        r = add_plus(b, v, n, p);
    for (unsigned lead = 0; lead < 3 && r == 0; lead++) {
        r = add_base64(b, v, n, lead, false, p);
        if (r == 0)
            r = add_base64(b, v, n, lead, true, p);
    }
    return r;
}

static int add_secret(struct redact_builder *b, const struct redact_secret *s)
{
    size_t n;
    const uint8_t *v = br_secret_bytes(&s->value, &n);
    if (n < BR_REDACT_SECRET_MIN)
        return redact_add(b, v, n, (struct redact_pattern){.kind = KIND_SHORT, .name = s->name});
    int r = 0;
    for (size_t at = 0; at < n && r == 0;) {
        size_t left = n - at;
        size_t len = left <= PIECE_WHOLE_MAX ? left : PIECE_STEP + PIECE_OVERLAP;
        r = add_piece(b, v + at, len, s->name);
        at += left <= PIECE_WHOLE_MAX ? left : PIECE_STEP;
    }
    return r;
}

/* ---- the table ---- */

struct table {
    uint32_t *next; /* plain state numbers while building */
    uint32_t *fail;
    struct redact_state *states;
    struct redact_link *chain;
    size_t n, cap, nchain, cap_chain;
    uint32_t columns;
};

static void table_free(struct table *t)
{
    wipe_free(t->next, t->cap * t->columns * sizeof(*t->next));
    free(t->fail);
    free(t->states);
    free(t->chain);
}

static int table_insert(struct table *t, const struct redact_builder *b, const struct literal *l,
                        const uint8_t class_of[256])
{
    uint32_t s = 0;
    for (size_t i = 0; i < l->len; i++) {
        uint32_t *edge = &t->next[s * t->columns + class_of[l->bytes[i]]];
        if (!*edge) {
            *edge = (uint32_t)t->n;
            t->states[t->n++].depth = (uint16_t)(i + 1);
        }
        s = *edge;
    }
    const struct redact_pattern *p = &b->patterns[l->pattern];
    if (p->kind == KIND_ESCAPE) {
        t->states[s].escape = true;
    } else if (p->kind == KIND_SECRET) {
        t->states[s].secret = (uint16_t)(l->pattern + 1);
    } else {
        if (!grow((void **)&t->chain, &t->cap_chain, t->nchain + 1, sizeof(*t->chain)))
            return -BR_E_NOMEM;
        t->chain[t->nchain++] =
            (struct redact_link){.pattern = l->pattern, .next = t->states[s].anchors};
        t->states[s].anchors = (uint16_t)t->nchain;
    }
    return 0;
}

/* What ends at the longest proper suffix ends here too. Of the secrets only the longest counts: it
 * covers the others. */
static void inherit(struct table *t, uint32_t s, uint32_t suffix)
{
    struct redact_state *st = &t->states[s];
    const struct redact_state *from = &t->states[suffix];
    st->escape |= from->escape;
    if (!st->secret)
        st->secret = from->secret;
    if (!st->anchors) {
        st->anchors = from->anchors;
        return;
    }
    struct redact_link *last = &t->chain[st->anchors - 1];
    while (last->next)
        last = &t->chain[last->next - 1];
    last->next = from->anchors;
}

/* Breadth first: every missing edge becomes the edge of the suffix. */
static int table_close(struct table *t)
{
    BR_CLEANUP_FREE uint32_t *queue = malloc(t->n * sizeof(*queue));
    if (!queue)
        return -BR_E_NOMEM;
    size_t head = 0, tail = 0;
    for (uint32_t c = 0; c < t->columns; c++)
        if (t->next[c])
            queue[tail++] = t->next[c];
    while (head < tail) {
        uint32_t s = queue[head++], f = t->fail[s];
        inherit(t, s, f);
        for (uint32_t c = 0; c < t->columns; c++) {
            uint32_t *edge = &t->next[s * t->columns + c];
            uint32_t other = t->next[f * t->columns + c];
            if (*edge) {
                t->fail[*edge] = other;
                queue[tail++] = *edge;
            } else {
                *edge = other;
            }
        }
    }
    return 0;
}

/* Renumber: ordinary states first, then those where something ends; edges become row offsets. */
static int table_finish(struct table *t, struct br_redact *r)
{
    BR_CLEANUP_FREE uint32_t *to = malloc(t->n * sizeof(*to));
    size_t bytes = t->n * t->columns * sizeof(*r->next);
    r->next = malloc(bytes);
    r->states = calloc(t->n, sizeof(*r->states));
    if (!to || !r->next || !r->states)
        return -BR_E_NOMEM;
    if (r->nsecrets)
        (void)mlock(r->next, bytes); /* best effort: RLIMIT_MEMLOCK may be 0 */
    uint32_t at = 0;
    for (int special = 0; special < 2; special++) {
        if (special)
            r->special = at * t->columns;
        for (size_t s = 0; s < t->n; s++) {
            const struct redact_state *st = &t->states[s];
            if ((st->secret || st->anchors || st->escape) == (special == 1))
                to[s] = at++;
        }
    }
    for (size_t s = 0; s < t->n; s++) {
        r->states[to[s]] = t->states[s];
        if (t->states[s].depth > r->max_depth)
            r->max_depth = t->states[s].depth;
        for (uint32_t c = 0; c < t->columns; c++)
            r->next[to[s] * t->columns + c] = to[t->next[s * t->columns + c]] * t->columns;
    }
    r->nstates = t->n;
    r->columns = t->columns;
    r->chain = br_steal_ptr(&t->chain);
    r->nchain = t->nchain;
    return 0;
}

static void matcher_drop(struct br_redact *r)
{
    size_t bytes = r->nstates * r->columns * sizeof(*r->next);
    if (r->next) {
        explicit_bzero(r->next, bytes);
        if (r->nsecrets)
            (void)munlock(r->next, bytes);
    }
    free(r->next);
    free(r->states);
    free(r->chain);
    free(r->patterns);
    r->next = NULL;
    r->states = NULL;
    r->chain = NULL;
    r->patterns = NULL;
    r->nstates = r->npatterns = r->nchain = r->max_depth = 0;
}

/* Column 0 is every byte that no literal contains. */
static uint32_t number_columns(const struct redact_builder *b, uint8_t class_of[256])
{
    uint32_t columns = 1;
    memset(class_of, 0, 256);
    for (size_t i = 0; i < b->nliterals; i++)
        for (size_t k = 0; k < b->literals[i].len; k++)
            if (!class_of[b->literals[i].bytes[k]] && columns < 256)
                class_of[b->literals[i].bytes[k]] = (uint8_t)columns++;
    return columns;
}

static int build_table(struct br_redact *r, struct redact_builder *b)
{
    uint8_t class_of[256];
    struct table t = {.n = 1, .cap = b->total + 1};
    t.columns = number_columns(b, class_of);
    t.next = calloc(t.cap * t.columns, sizeof(*t.next));
    t.fail = calloc(t.cap, sizeof(*t.fail));
    t.states = calloc(t.cap, sizeof(*t.states));
    int ret = t.next && t.fail && t.states ? 0 : -BR_E_NOMEM;
    for (size_t i = 0; i < b->nliterals && ret == 0; i++)
        ret = table_insert(&t, b, &b->literals[i], class_of);
    if (ret == 0)
        ret = table_close(&t);
    if (ret == 0) {
        matcher_drop(r);
        ret = table_finish(&t, r);
        memcpy(r->class_of, class_of, sizeof(class_of));
        r->npatterns = b->npatterns;
        r->patterns = br_steal_ptr(&b->patterns);
    }
    table_free(&t);
    return ret;
}

static int rebuild(struct br_redact *r)
{
    struct redact_builder b = {.nliterals = 0};
    int ret = redact_add_shapes(&b);
    for (unsigned i = 0; i < r->nsecrets && ret == 0; i++)
        ret = add_secret(&b, &r->secrets[i]);
    if (ret == 0 && r->nsecrets) {
        struct redact_pattern p = {.kind = KIND_ESCAPE};
        ret = redact_add(&b, "%", 1, p);
        if (ret == 0)
            ret = redact_add(&b, "\\", 1, p);
    }
    if (ret == 0)
        ret = build_table(r, &b);
    builder_free(&b);
    return ret;
}

struct br_redact *br_redact_new(void)
{
    redact_classes_init();
    struct br_redact *r = calloc(1, sizeof(*r));
    if (r && rebuild(r) < 0)
        br_redact_free(&r);
    return r;
}

void br_redact_free(struct br_redact **r)
{
    if (!*r)
        return;
    matcher_drop(*r);
    for (unsigned i = 0; i < (*r)->nsecrets; i++)
        br_secret_wipe(&(*r)->secrets[i].value);
    free(*r);
    *r = NULL;
}

static void copy_name(char dst[REDACT_NAME_MAX + 1], const char *name)
{
    size_t n = 0;
    for (; n < REDACT_NAME_MAX && name[n]; n++)
        dst[n] = redact_is((uint8_t)name[n], CLASS_DOTTED) ? name[n] : '_';
    dst[n] = 0;
    if (n == 0)
        memcpy(dst, "secret", sizeof("secret"));
}

int br_redact_secret(struct br_redact *r, const char *name, const void *value, size_t n,
                     struct br_err *err)
{
    if (n == 0 || n > BR_REDACT_SECRET_MAX)
        return br_err_set(err, BR_E_REDACTION_FAILED,
                          "the secret '%.64s' has %zu bytes, not 1 to %u; it is not registered",
                          name, n, BR_REDACT_SECRET_MAX);
    if (r->nsecrets == BR_REDACT_SECRETS_MAX || r->secret_bytes + n > BR_REDACT_SECRET_TOTAL_MAX)
        return br_err_set(err, BR_E_REDACTION_FAILED,
                          "the secret '%.64s' is one too many: at most %u with %u bytes in all",
                          name, BR_REDACT_SECRETS_MAX, BR_REDACT_SECRET_TOTAL_MAX);
    struct redact_secret *s = &r->secrets[r->nsecrets];
    *s = (struct redact_secret){.value = {.bytes_ = NULL}};
    copy_name(s->name, name);
    int ret = br_secret_set(&s->value, value, n);
    if (ret == 0) {
        r->nsecrets++;
        ret = rebuild(r);
    }
    if (ret < 0) {
        if (r->nsecrets && s == &r->secrets[r->nsecrets - 1])
            r->nsecrets--;
        br_secret_wipe(&s->value);
        return br_err_set(err, BR_E_REDACTION_FAILED,
                          "no memory to register the secret '%.64s'; nothing may be recorded",
                          name);
    }
    r->secret_bytes += n;
    r->generation++;
    return 0;
}
