/*
 * The decomposer's parser: tree-sitter with its grammar of bash, inside of a budget of memory,
 * time and nodes. The text is a model's and the parser is foreign code: every leaf of its tree is
 * compared with the bytes by shell_walk.c and shell_word.c, and what they do not know is opaque.
 *
 * tree-sitter has no way to fail for want of memory, so its allocations are ours: over the budget
 * the parse is left with longjmp(), and parser and tree are freed with everything they had.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "script/shell_priv.h"

const TSLanguage *tree_sitter_bash(void);

/* ---- memory ---- */

struct block {
    struct block *next, *prev;
    size_t size;
    size_t pad; /* keeps what follows aligned to 16 */
};

static struct {
    struct block head;
    size_t used;
    jmp_buf out;
    bool armed; /* a parse is on: over the budget is out of it */
} heap;

static void *over(void)
{
    if (!heap.armed)
        abort();
    longjmp(heap.out, 1);
}

static void link_block(struct block *b)
{
    b->next = heap.head.next;
    b->prev = &heap.head;
    if (b->next)
        b->next->prev = b;
    heap.head.next = b;
}

static void *heap_alloc(size_t n)
{
    if (n > BR_SHELL_MEMORY_MAX - heap.used)
        return over();
    struct block *b = malloc(sizeof(*b) + n);
    if (!b)
        return over();
    b->size = n;
    heap.used += n;
    link_block(b);
    return b + 1;
}

static void *heap_calloc(size_t count, size_t n)
{
    size_t total;
    if (__builtin_mul_overflow(count, n, &total))
        return over();
    void *p = heap_alloc(total);
    memset(p, 0, total);
    return p;
}

static void heap_free(void *p)
{
    if (!p)
        return;
    struct block *b = (struct block *)p - 1;
    b->prev->next = b->next;
    if (b->next)
        b->next->prev = b->prev;
    heap.used -= b->size;
    free(b);
}

static void *heap_realloc(void *p, size_t n)
{
    if (!p)
        return heap_alloc(n);
    struct block *b = (struct block *)p - 1;
    if (n > b->size && n - b->size > BR_SHELL_MEMORY_MAX - heap.used)
        return over();
    struct block *moved = realloc(b, sizeof(*b) + n);
    if (!moved)
        return over();
    heap.used += n - moved->size;
    moved->size = n;
    moved->prev->next = moved;
    if (moved->next)
        moved->next->prev = moved;
    return moved + 1;
}

/* ---- the parser ---- */

static TSParser *parser;
static uint8_t kinds[1024]; /* enum kind by symbol */

static const struct {
    const char *name;
    uint8_t kind;
} names[] = {
    {"program", K_BLOCK},
    {"list", K_BLOCK},
    {"pipeline", K_BLOCK},
    {"subshell", K_BLOCK},
    {"compound_statement", K_BLOCK},
    {"negated_command", K_BLOCK},
    {"if_statement", K_BLOCK},
    {"elif_clause", K_BLOCK},
    {"else_clause", K_BLOCK},
    {"while_statement", K_BLOCK},
    {"do_group", K_BLOCK},
    {"comment", K_COMMENT},
    {"function_definition", K_FUNCTION},
    {"for_statement", K_FOR},
    {"case_statement", K_CASE},
    {"case_item", K_CASE_ITEM},
    {"command", K_COMMAND},
    {"command_name", K_COMMAND_NAME},
    {"redirected_statement", K_REDIRECTED},
    {"declaration_command", K_DECLARATION},
    {"test_command", K_TEST},
    {"variable_assignment", K_ASSIGNMENT},
    {"variable_assignments", K_ASSIGNMENTS},
    {"file_redirect", K_FILE_REDIRECT},
    {"heredoc_redirect", K_HERE_REDIRECT},
    {"herestring_redirect", K_HERE_STRING},
    {"heredoc_start", K_HERE_START},
    {"heredoc_body", K_HERE_BODY},
    {"heredoc_content", K_HERE_CONTENT},
    {"heredoc_end", K_HERE_END},
    {"file_descriptor", K_DESCRIPTOR},
    {"variable_name", K_NAME},
    {"word", K_WORD},
    {"number", K_WORD},
    {"string", K_STRING},
    {"string_content", K_CONTENT},
    {"raw_string", K_RAW_STRING},
    {"ansi_c_string", K_ANSI_STRING},
    {"concatenation", K_CONCATENATION},
    {"simple_expansion", K_VARIABLE},
    {"expansion", K_EXPANSION},
    {"arithmetic_expansion", K_ARITHMETIC},
    {"brace_expression", K_BRACES},
    {"extglob_pattern", K_PATTERN},
    {"regex", K_PATTERN},
    {"command_substitution", K_SUBSTITUTION},
    {"process_substitution", K_PROCESS},
};

static enum kind kind_of_name(const char *name)
{
    for (size_t i = 0; i < BR_ARRAY_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0)
            return (enum kind)names[i].kind;
    return K_OTHER;
}

static void learn_kinds(const TSLanguage *bash)
{
    uint32_t n = ts_language_symbol_count(bash);
    for (uint32_t i = 0; i < n && i < BR_ARRAY_LEN(kinds); i++) {
        TSSymbolType type = ts_language_symbol_type(bash, (TSSymbol)i);
        kinds[i] = type == TSSymbolTypeAnonymous ? K_TOKEN
                   : type == TSSymbolTypeRegular
                       ? kind_of_name(ts_language_symbol_name(bash, (TSSymbol)i))
                       : K_OTHER;
    }
}

enum kind shell_kind(TSNode node)
{
    TSSymbol s = ts_node_symbol(node);
    if (ts_node_is_missing(node) || s >= BR_ARRAY_LEN(kinds))
        return K_OTHER;
    return (enum kind)kinds[s];
}

static bool parser_ready(void)
{
    if (parser)
        return true;
    const TSLanguage *bash = tree_sitter_bash();
    ts_set_allocator(heap_alloc, heap_calloc, heap_realloc, heap_free);
    parser = ts_parser_new();
    if (!parser || !ts_parser_set_language(parser, bash))
        return false;
    ts_parser_set_timeout_micros(parser, BR_SHELL_PARSE_US);
    learn_kinds(bash);
    return true;
}

/* Everything that tree-sitter has, the parser too. */
static void parser_drop(void)
{
    while (heap.head.next)
        heap_free(heap.head.next + 1);
    parser = NULL;
}

/* ---- the result ---- */

bool shell_refuse(struct br_shell *sh, const char *why)
{
    if (!sh->opaque)
        sh->why = why;
    sh->opaque = true;
    return false;
}

void shell_put(struct br_shell *sh, char c)
{
    if (sh->text_len + 1 < sh->text_cap)
        sh->text[sh->text_len++] = c;
    else
        shell_refuse(sh, "its words are too long");
}

const char *shell_add_word(struct br_shell *sh, size_t start)
{
    if (sh->nwords == BR_SHELL_WORDS_MAX) {
        shell_refuse(sh, "it has too many words");
        return NULL;
    }
    if (sh->text_len + 1 >= sh->text_cap) {
        shell_refuse(sh, "its words are too long");
        return NULL;
    }
    sh->text[sh->text_len++] = '\0';
    sh->words[sh->nwords] = sh->text + start;
    return sh->words[sh->nwords++];
}

void br_shell_free(struct br_shell *sh)
{
    free(br_steal_ptr(&sh->text));
}

static bool has_control(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)p[i] < 0x20 && p[i] != '\t' && p[i] != '\n') || p[i] == 0x7f)
            return true;
    return false;
}

static void parse(struct walk *w)
{
    /* what is used behind longjmp() is in static memory or not changed before it */
    heap.armed = true;
    if (setjmp(heap.out) == 0) {
        TSTree *tree =
            parser_ready() ? ts_parser_parse_string(parser, NULL, w->text, w->len) : NULL;
        if (tree) {
            TSNode root = ts_tree_root_node(tree);
            w->cursor = ts_tree_cursor_new(root);
            shell_walk(w);
            ts_tree_cursor_delete(&w->cursor);
            ts_tree_delete(tree);
        } else {
            shell_refuse(w->sh, "it takes too long to be taken apart");
            w->broken = true;
            if (parser)
                ts_parser_reset(parser); /* it would go on with this text otherwise */
        }
    } else {
        shell_refuse(w->sh, "it needs too much memory to be taken apart");
        w->broken = true;
        parser_drop();
    }
    heap.armed = false;
}

void br_shell_parse(struct br_shell *sh, const void *text, size_t n)
{
    memset(sh, 0, offsetof(struct br_shell, commands));
    sh->text = NULL;
    sh->text_len = 0;
    if (n == 0) {
        shell_refuse(sh, "it has no command");
        return;
    }
    if (n > BR_SHELL_MAX) {
        shell_refuse(sh, "it is too long");
        return;
    }
    if (!br_utf8_valid(text, n) || memchr(text, 0, n)) {
        shell_refuse(sh, "it is not text");
        return;
    }
    sh->text_cap = 2 * n + BR_SHELL_WORDS_MAX + 16;
    sh->text = malloc(sh->text_cap);
    if (!sh->text) {
        shell_refuse(sh, "there is no memory to take it apart");
        return;
    }
    if (has_control(text, n))
        shell_refuse(sh, "it has a control character");
    static struct walk w;
    w = (struct walk){.sh = sh, .text = text, .len = (uint32_t)n};
    parse(&w);
    if (!sh->opaque && sh->ncommands == 0 && sh->nredirects == 0)
        shell_refuse(sh, w.variables ? "it only sets variables" : "it has no command");
    if (w.broken)
        shell_guess(sh, text, n);
}
