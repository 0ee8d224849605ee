/*
 * The YAML of a manifest, by libyaml's events: one document of mappings, sequences and scalars.
 * Anchors, aliases, tags, directives, merge keys, duplicate keys, further documents and NUL are
 * refused where they stand, before anything is built from them. Scalars are those of the YAML 1.2
 * core schema as far as a manifest has use for them: quoted ones are text; plain true, false, null
 * and decimal integers are what they look like; any other is text (so `no` and `1.10` are).
 *
 * The result is a JSON tree, and, for messages, the line of every value by its path.
 */
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "script/script.h"

#define YAML_DEPTH_MAX 16u
#define YAML_NODES_MAX 4096u
#define YAML_KEY_MAX 1100u
/* Longer paths get no line: many values below one long path would multiply its length. */
#define YAML_MARK_MAX 512u

struct open {
    json_t *node;    /* borrowed */
    char *key;       /* of a mapping whose value is awaited; owned */
    size_t path_len; /* of this container */
};

struct builder {
    yaml_parser_t parser;
    struct open stack[YAML_DEPTH_MAX];
    unsigned depth, nodes;
    json_t *root, *marks;
    struct br_buf path;
    unsigned *line;
    struct br_err *err;
};

static int refuse(struct builder *b, yaml_mark_t at, const char *what)
{
    *b->line = (unsigned)at.line + 1;
    return br_err_set(b->err, BR_E_INVALID_MANIFEST, "line %u, column %u: %s", *b->line,
                      (unsigned)at.column + 1, what);
}

static bool is_name(const char *s)
{
    if (!*s || strspn(s, "0123456789") > 0)
        return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] == '\0';
}

/* Extend the path by the place of the next value; how lua/bridle/manifest.lua writes it too. */
static void push_path(struct builder *b)
{
    if (b->depth == 0)
        return;
    const struct open *o = &b->stack[b->depth - 1];
    b->path.len = o->path_len;
    if (!o->key)
        br_buf_printf(&b->path, "[%zu]", json_array_size(o->node) + 1);
    else if (is_name(o->key))
        br_buf_printf(&b->path, "%s%s", o->path_len ? "." : "", o->key);
    else
        br_buf_printf(&b->path, "['%s']", o->key);
}

/* Put a value where the document is now. Takes the value. */
static int place(struct builder *b, json_t *v, yaml_mark_t at)
{
    if (!v)
        return refuse(b, at, "this value cannot be stored");
    if (++b->nodes > YAML_NODES_MAX) {
        json_decref(v);
        return refuse(b, at, "the document has too many values");
    }
    push_path(b);
    if (b->path.len <= YAML_MARK_MAX && !b->path.failed)
        json_object_set_new(b->marks, br_buf_cstr(&b->path), json_integer((json_int_t)at.line + 1));
    if (b->depth == 0) {
        b->root = v;
        return 0;
    }
    struct open *o = &b->stack[b->depth - 1];
    if (json_is_array(o->node))
        return json_array_append_new(o->node, v) ? refuse(b, at, "no memory") : 0;
    int r = json_object_set_new(o->node, o->key, v);
    free(br_steal_ptr(&o->key));
    return r ? refuse(b, at, "no memory") : 0;
}

static int open_container(struct builder *b, json_t *v, yaml_mark_t at)
{
    if (b->depth == YAML_DEPTH_MAX) {
        json_decref(v);
        return refuse(b, at, "the document is nested too deeply");
    }
    int r = place(b, v, at);
    if (r < 0)
        return r;
    b->stack[b->depth++] = (struct open){.node = v, .path_len = b->path.len};
    return 0;
}

static json_t *plain_value(const char *s, size_t n)
{
    if (n == 0 || strcmp(s, "~") == 0 || strcmp(s, "null") == 0 || strcmp(s, "Null") == 0 ||
        strcmp(s, "NULL") == 0)
        return json_null();
    if (strcmp(s, "true") == 0 || strcmp(s, "True") == 0 || strcmp(s, "TRUE") == 0)
        return json_true();
    if (strcmp(s, "false") == 0 || strcmp(s, "False") == 0 || strcmp(s, "FALSE") == 0)
        return json_false();
    size_t sign = *s == '-' || *s == '+';
    if (n > sign && n <= 18 && strspn(s + sign, "0123456789") == n - sign)
        return json_integer(strtoll(s, NULL, 10));
    return json_stringn(s, n);
}

static int on_key(struct builder *b, struct open *o, const char *s, size_t n, bool plain,
                  yaml_mark_t at)
{
    if (plain && strcmp(s, "<<") == 0)
        return refuse(b, at, "a merge key '<<' is not used in a manifest");
    if (n == 0)
        return refuse(b, at, "a key is empty");
    if (n > YAML_KEY_MAX)
        return refuse(b, at, "a key is too long");
    if (json_object_get(o->node, s))
        return refuse(b, at, "this key is in the mapping already");
    o->key = strdup(s);
    return o->key ? 0 : refuse(b, at, "no memory");
}

static int on_scalar(struct builder *b, const yaml_event_t *e)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t n = e->data.scalar.length;
    bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (e->data.scalar.anchor)
        return refuse(b, e->start_mark, "an anchor ('&') is not used in a manifest");
    if (e->data.scalar.tag)
        return refuse(b, e->start_mark, "a tag ('!') is not used in a manifest");
    if (memchr(s, 0, n) || !br_utf8_valid(s, n))
        return refuse(b, e->start_mark, "the text holds a NUL or invalid UTF-8");
    struct open *o = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (o && json_is_object(o->node) && !o->key)
        return on_key(b, o, s, n, plain, e->start_mark);
    return place(b, plain ? plain_value(s, n) : json_stringn(s, n), e->start_mark);
}

static int on_start(struct builder *b, const yaml_event_t *e, const void *anchor, const void *tag,
                    json_t *(*make)(void))
{
    if (anchor)
        return refuse(b, e->start_mark, "an anchor ('&') is not used in a manifest");
    if (tag)
        return refuse(b, e->start_mark, "a tag ('!') is not used in a manifest");
    const struct open *o = b->depth ? &b->stack[b->depth - 1] : NULL;
    if (o && json_is_object(o->node) && !o->key)
        return refuse(b, e->start_mark, "a key must be a text");
    return open_container(b, make(), e->start_mark);
}

/* 1: the stream is over. */
static int on_event(struct builder *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_STREAM_START_EVENT:
        return 0;
    case YAML_STREAM_END_EVENT:
        return b->root ? 1 : refuse(b, e->start_mark, "the document is empty");
    case YAML_DOCUMENT_START_EVENT:
        if (b->root)
            return refuse(b, e->start_mark, "a manifest is one document");
        if (e->data.document_start.version_directive ||
            e->data.document_start.tag_directives.start !=
                e->data.document_start.tag_directives.end)
            return refuse(b, e->start_mark, "a directive ('%') is not used in a manifest");
        return 0;
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    case YAML_ALIAS_EVENT:
        return refuse(b, e->start_mark, "an alias ('*') is not used in a manifest");
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, e, e->data.sequence_start.anchor, e->data.sequence_start.tag,
                        json_array);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, e, e->data.mapping_start.anchor, e->data.mapping_start.tag, json_object);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return 0;
    default:
        return refuse(b, e->start_mark, "this is not used in a manifest");
    }
}

static int run(struct builder *b)
{
    for (;;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&b->parser, &e)) {
            char text[256];
            snprintf(text, sizeof(text), "%s%s%s",
                     b->parser.problem ? b->parser.problem : "the YAML is malformed",
                     b->parser.context ? ", " : "", b->parser.context ? b->parser.context : "");
            return refuse(b, b->parser.problem_mark, text);
        }
        int r = on_event(b, &e);
        yaml_event_delete(&e);
        if (r != 0)
            return r < 0 ? r : 0;
    }
}

int br_yaml_parse(const void *text, size_t n, json_t **tree, json_t **marks, unsigned *line,
                  struct br_err *err)
{
    *line = 0;
    *tree = *marks = NULL;
    if (!br_utf8_valid(text, n))
        return br_err_set(err, BR_E_INVALID_MANIFEST, "the text is not valid UTF-8");
    /* the mark that some editors begin a file with; libyaml, told the encoding, would not skip it
     */
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text = (const char *)text + 3;
        n -= 3;
    }
    struct builder b = {.marks = json_object(), .line = line, .err = err};
    br_buf_init(&b.path, YAML_DEPTH_MAX * (YAML_KEY_MAX + 8));
    if (!b.marks || !yaml_parser_initialize(&b.parser)) {
        json_decref(b.marks);
        return br_err_set(err, BR_E_NOMEM, "no memory for a YAML document");
    }
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, text, n);
    int r = run(&b);
    yaml_parser_delete(&b.parser);
    for (unsigned i = 0; i < b.depth; i++)
        free(b.stack[i].key);
    br_buf_free(&b.path);
    if (r < 0) {
        json_decref(b.root);
        json_decref(b.marks);
        return r;
    }
    *tree = b.root;
    *marks = b.marks;
    return 0;
}
