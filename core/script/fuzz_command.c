/*
 * Commands on their way to a decision: lines for a shell through the real parser, argvs, what a
 * parser that was taken over could say, and words that are known only in part. Each ends in an
 * answer with a rule; one more rule that denies or asks never loosens it; the order of the rules
 * changes nothing; a wrapper in front of a command does not, either; and what is known in part is
 * never answered less strictly than one of the things that it can become.
 */
#include <stdlib.h>
#include <string.h>

#include "script/command.h"
#include "script/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 600u
#define WORDS_MAX 24u

#define RULE(id, match, pattern, effect)                                                           \
    "{\"id\":\"" id "\",\"source\":0,\"action\":\"process.exec\",\"match\":\"" match               \
    "\",\"pattern\":\"" pattern "\",\"effect\":\"" effect "\"}"
#define COMMAND(id, command, effect)                                                               \
    "{\"id\":\"" id "\",\"source\":0,\"action\":\"process.exec\",\"match\":\"program\","           \
    "\"pattern\":\"" id "\",\"command\":{" command "},\"effect\":\"" effect "\"}"

static const char *const rules[] = {
    RULE("a", "command", "git *", "allow"),
    RULE("b", "command", "git push*", "ask"),
    RULE("c", "command", "rm -rf *", "deny"),
    RULE("d", "command", "ls*", "allow"),
    RULE("e", "command", "* --force*", "ask"),
    RULE("f", "command", "echo ?", "allow"),
    RULE("g", "command", "cat", "allow"),
    COMMAND("h", "\"program\":\"rm\",\"flags\":[[\"-r\",\"-R\"],[\"-f\",\"--force\"]]", "deny"),
    COMMAND("i", "\"program\":\"git\",\"words\":[[\"log\",\"diff\"]],\"without\":[\"-p\"]",
            "allow"),
    COMMAND("j", "\"program\":\"git\",\"words\":[[\"push\"]],\"arguments\":[\"origin*\"]", "deny"),
    COMMAND("k", "\"program\":\"make\"", "allow"),
    ("{\"id\":\"l\",\"source\":0,\"action\":\"fs.write\",\"match\":\"path\",\"pattern\":\"out/**\","
     "\"effect\":\"allow\"}"),
    "{\"id\":\"m\",\"source\":0,\"action\":\"fs.read\",\"match\":\"any\",\"effect\":\"allow\"}",
};
static const char *const added[] = {
    RULE("n", "command", "cat*", "deny"),
    RULE("n", "command", "?*a*", "ask"),
    COMMAND("n", "\"program\":\"ls\",\"flags\":[[\"-l\"]]", "deny"),
    COMMAND("n", "\"program\":\"*\",\"words\":[[\"x\",\"clean\"]]", "ask"),
    "{\"id\":\"n\",\"source\":0,\"action\":\"fs.write\",\"match\":\"any\",\"effect\":\"deny\"}",
};

static struct br_table *base, *mixed, *more[BR_ARRAY_LEN(added)];

static struct br_table *load(const char *extra, bool reversed)
{
    size_t n = BR_ARRAY_LEN(rules);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    struct br_table *t = NULL;
    struct br_err err = {.code = BR_OK};
    br_buf_printf(&b, "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"f\"}],\"rules\":[");
    for (size_t i = 0; i < n; i++)
        br_buf_printf(&b, "%s%s", i ? "," : "", rules[reversed ? n - 1 - i : i]);
    br_buf_printf(&b,
                  "%s%s],\"programs\":[{\"name\":\"git\",\"values\":[\"-C\",\"-c\"],\"unsafe\":"
                  "[\"-c\"]}],\"fallbacks\":[],\"predicates\":false}",
                  extra ? "," : "", extra ? extra : "");
    if (br_table_load(b.data, b.len, &t, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
    br_require(t != NULL);
    return t;
}

static void load_all(void)
{
    if (base)
        return;
    base = load(NULL, false);
    mixed = load(NULL, true);
    for (size_t i = 0; i < BR_ARRAY_LEN(added); i++)
        more[i] = load(added[i], false);
}

/* ---- decisions ---- */

/* What is decided: a line, or words; the parser is the real one, or says what `body` is. */
struct asked {
    const char *line;
    const char *const *words;
    size_t nwords;
    const uint8_t *body;
    size_t len;
};

static int parse(void *ctx, const char *line, size_t n, const void **body, size_t *len)
{
    const struct asked *a = ctx;
    static struct br_shell sh;
    static struct br_buf reply;
    *body = a->body;
    *len = a->len;
    if (a->body)
        return 0;
    if (!reply.max)
        br_buf_init(&reply, BR_MSG_MAX);
    br_buf_reset(&reply);
    br_shell_parse(&sh, line, n);
    br_shell_reply(&sh, &reply);
    br_shell_free(&sh);
    br_require(!reply.failed);
    *body = reply.data;
    *len = reply.len;
    return 0;
}

static enum br_effect decide(const struct br_table *t, const struct asked *a)
{
    const struct br_commander c = {.table = t, .ctx = (void *)(uintptr_t)a, .shell = parse};
    struct br_verdict v = {.effect = BR_EFFECT_NONE};
    if (a->line)
        br_command_line(&c, a->line, "", &v);
    else
        br_command_argv(&c, a->words, a->nwords, "", &v);
    enum br_effect e = v.effect;
    br_require(e >= BR_EFFECT_ALLOW && e <= BR_EFFECT_DENY);
    br_require(v.rule_id && v.rule_id[0] && v.source);
    br_require(!v.opaque || e > BR_EFFECT_ALLOW);
    br_verdict_free(&v);
    return e;
}

static enum br_effect check(const struct asked *a, uint8_t which)
{
    enum br_effect e = decide(base, a);
    br_require(decide(mixed, a) == e);
    br_require(decide(more[which % BR_ARRAY_LEN(added)], a) >= e);
    return e;
}

/* ---- the kinds of input ---- */

/* A copy of n bytes as a text; what is behind a NUL is not seen. */
static char *text_of(const uint8_t *p, size_t n)
{
    char *s = malloc(n + 1);
    br_require(s != NULL);
    memcpy(s, p, n);
    s[n] = 0;
    return s;
}

static void check_line(const uint8_t *p, size_t n, uint8_t which)
{
    char *line = text_of(p, n);
    check(&(struct asked){.line = line}, which);
    free(line);
}

static void check_body(const uint8_t *p, size_t n, uint8_t which)
{
    check(&(struct asked){.line = "ls -l | cat", .body = p, .len = n}, which);
}

static bool is_plain(const char *s)
{
    return *s && *s != '-' && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(s);
}

/* Words are separated by NUL bytes. */
static size_t split(char *s, size_t n, const char *words[WORDS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i <= n && count < WORDS_MAX; i += strlen(s + i) + 1)
        words[count++] = s + i;
    return count;
}

static void check_wrapped(const char *const *words, size_t n, enum br_effect alone, uint8_t which)
{
    static const char *const wrappers[][4] = {{"nice"},  {"timeout", "5"}, {"env", "A=1"},
                                              {"nohup"}, {"command"},      {"xargs"}};
    const char *const *w = wrappers[which % BR_ARRAY_LEN(wrappers)];
    const char *all[WORDS_MAX + 4];
    size_t k = 0;
    for (; w[k]; k++)
        all[k] = w[k];
    memcpy(all + k, words, n * sizeof(*words));
    br_require(decide(base, &(struct asked){.words = all, .nwords = k + n}) >= alone);
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    for (size_t i = 0; i < n; i++)
        br_buf_printf(&b, "%s%s", i ? " " : "", words[i]);
    br_require(decide(base, &(struct asked){.line = br_buf_cstr(&b)}) >= alone);
}

static void check_words(const uint8_t *p, size_t n, uint8_t which)
{
    const char *words[WORDS_MAX];
    char *s = text_of(p, n);
    size_t count = split(s, n, words);
    enum br_effect e = check(&(struct asked){.words = words, .nwords = count}, which);
    bool plain = is_plain(words[0]);
    for (size_t i = 1; i < count; i++)
        plain &= is_plain(words[i]) || (words[i][0] == '-' && is_plain(words[i] + 1));
    if (plain)
        check_wrapped(words, count, e, which);
    free(s);
}

/* Words with marks, and behind two NUL bytes what stands for the marks, one byte for each. */
static void check_marked(const uint8_t *p, size_t n, uint8_t which)
{
    const uint8_t *gap = memmem(p, n, "\0\0", 2);
    if (!gap)
        return;
    size_t len = (size_t)(gap - p), at = len + 2;
    char *marked = text_of(p, len), *known = text_of(p, len);
    for (size_t i = 0; i < len; i++) {
        if (!br_is_unknown(known[i]))
            continue;
        char c = at < n ? (char)p[at++] : 'a';
        bool bad = c == 0 || br_is_unknown(c) || (known[i] == BR_UNKNOWN_FILE && c == '/');
        known[i] = bad ? 'r' : c;
    }
    const char *a[WORDS_MAX], *b[WORDS_MAX];
    struct br_request q = {.action = "process.exec", .words = a, .unknown = true};
    struct br_decision part, whole;
    q.nwords = split(marked, len, a);
    const struct br_table *t = which & 1 ? base : more[which / 2 % BR_ARRAY_LEN(added)];
    br_table_decide(t, &q, &part);
    q = (struct br_request){
        .action = "process.exec", .words = b, .nwords = split(known, len, b), .unknown = false};
    br_table_decide(t, &q, &whole);
    br_require(part.effect >= whole.effect);
    free(marked);
    free(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const kinds[])(const uint8_t *, size_t, uint8_t) = {check_line, check_words,
                                                                      check_body, check_marked};
    if (size < 2 || size > INPUT_MAX)
        return 0;
    load_all();
    kinds[data[0] % BR_ARRAY_LEN(kinds)](data + 2, size - 2, data[1]);
    return 0;
}
