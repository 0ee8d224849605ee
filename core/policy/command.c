/*
 * Commands by what they mean: a program, its sub-command behind global options, flags wherever they
 * stand and however they are spelled, arguments. Loaded from the JSON of a table, matched against
 * the words of one simple command, which a model wrote. One walk over the words for each part of
 * the rule; nothing allocates or backtracks.
 *
 * What cannot be told from the words alone (an option that is not known, an abbreviation, a path of
 * a program) counts as a match for an ask or a deny and as none for an allow:
 *
 *   program    The last part of a path is the program; for an allow the path must lie in a
 *              directory of the system. A name with a '/' is compared as a whole.
 *   words      The sub-command: the first operands, in this order. The program's global options
 *              ("programs" of the table) are skipped with their arguments; an unknown option may
 *              have the next word as its argument. Behind an option that is unsafe no allow
 *              matches; where the value of one begins like an entry of "rewrites" (git -c
 * alias.x=), the sub-command can be any. flags      Of each group one is there, before a "--":
 * alone, in a cluster (-rf), with a value
 *              (--x=y), and, but for an allow, abbreviated (--recurs) or with another dash.
 *   without    None of these is there; for an ask or a deny only a certain one counts as there.
 *   arguments  For an ask or a deny: one of the arguments, or the value that is attached to an
 *              option, matches one of the patterns. For an allow: there are arguments, all of them
 *              match, and none with a ".." segment matches a pattern with a wildcard.
 */
#include <string.h>
#include <strings.h>

#include "policy/load_priv.h"

#define COMMAND_WORDS_MAX 8u
#define COMMAND_LIST_MAX 256u
#define OPTIONS_MAX 256u
#define NAME_BYTES_MAX 255u

struct br_names {
    const char **list;
    uint32_t n;
};

/* What is known of a program's global options. */
struct br_program {
    const char *name;
    struct br_names options;  /* without an argument */
    struct br_names values;   /* with one */
    struct br_names unsafe;   /* of these: what makes the program do something else */
    struct br_names rewrites; /* beginnings of their values that change what a sub-command is */
    bool anywhere;            /* they may stand behind the sub-command as well */
};

struct br_command {
    const struct br_program *info; /* NULL: nothing is known */
    const char *path;              /* the program with its path, NULL: a name alone */
    struct br_patterns words[COMMAND_WORDS_MAX];
    struct br_names *flags; /* groups */
    struct br_names without;
    struct br_patterns arguments;
    const char *key;
    size_t key_len;
    uint8_t nwords;
    uint8_t nflags;
};

/* ---- loading ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *without_dot(const char *path)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return path;
}

/* A list of 1 to max texts; with `option`, each begins with '-' and goes on. */
static int load_names(struct loader *l, const char *place, const char *name,
                      const struct br_tree *list, bool option, struct br_names *out)
{
    size_t n = br_tree_count(list);
    char expected[96];
    snprintf(expected, sizeof(expected), "a list of 1 to %u %s of at most %u bytes", OPTIONS_MAX,
             option ? "options, such as \"-x\" or \"--long\"," : "texts", NAME_BYTES_MAX);
    if (n == 0 || n > OPTIONS_MAX)
        return br_load_refuse(l, place, name, expected);
    out->list = br_arena_alloc(&l->t->arena, n * sizeof(out->list[0]));
    if (!out->list)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; out->n < n; out->n++) {
        v = br_tree_after(list, v);
        const char *s = br_tree_text(v);
        size_t len = br_tree_len(v);
        bool good = s && len > 0 && len <= NAME_BYTES_MAX;
        if (good && option)
            good = s[0] == '-' && len > 1 && strcmp(s, "--") != 0 && !strpbrk(s, "= ");
        if (!good)
            return br_load_refuse(l, place, name, expected);
        out->list[out->n] = br_arena_strndup(&l->t->arena, s, len);
        if (!out->list[out->n])
            return br_load_nomem(l);
    }
    return 0;
}

static int optional_names(struct loader *l, const char *place, const struct br_tree *o,
                          const char *name, bool option, struct br_names *out)
{
    const struct br_tree *list = br_tree_get(o, name);
    return list ? load_names(l, place, name, list, option, out) : 0;
}

static int load_program(struct loader *l, const char *place, const struct br_tree *o,
                        struct br_program *p)
{
    static const struct key keys[] = {
        {"name", VALUE_TEXT, false},    {"options", VALUE_LIST, true},
        {"values", VALUE_LIST, true},   {"unsafe", VALUE_LIST, true},
        {"rewrites", VALUE_LIST, true}, {"anywhere", VALUE_BOOLEAN, true}};
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = br_load_name(l, place, o, "name", NAME_BYTES_MAX, &p->name)) < 0 ||
        (e = optional_names(l, place, o, "options", true, &p->options)) < 0 ||
        (e = optional_names(l, place, o, "values", true, &p->values)) < 0 ||
        (e = optional_names(l, place, o, "unsafe", true, &p->unsafe)) < 0 ||
        (e = optional_names(l, place, o, "rewrites", false, &p->rewrites)) < 0)
        return e;
    if (strchr(p->name, '/'))
        return br_load_refuse(l, place, "name", "the name of a program, without a path");
    p->anywhere = br_tree_is(br_tree_get(o, "anywhere"), BR_TREE_TRUE);
    return 0;
}

int br_programs_load(struct loader *l, const struct br_tree *list)
{
    struct br_table *t = l->t;
    size_t n = br_tree_count(list);
    char place[PLACE_MAX];
    if (n > TABLE_PROGRAMS_MAX)
        return br_err_set(l->err, BR_E_INVALID_TABLE,
                          REFUSED "'programs' has %zu entries, more than %u", n,
                          TABLE_PROGRAMS_MAX);
    t->programs = br_arena_alloc(&t->arena, n * sizeof(t->programs[0]));
    if (!t->programs)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; t->nprograms < n; t->nprograms++) {
        v = br_tree_after(list, v);
        struct br_program *p = &t->programs[t->nprograms];
        snprintf(place, sizeof(place), "programs[%u]", t->nprograms);
        int e = load_program(l, place, v, p);
        for (const struct br_program *q = t->programs; e == 0 && q < p; q++)
            if (strcmp(q->name, p->name) == 0)
                e = br_load_refuse(l, place, "name", "a name that no other entry has");
        if (e < 0)
            return e;
    }
    return 0;
}

static int load_words(struct loader *l, const char *place, const struct br_tree *list,
                      struct br_command *c)
{
    size_t n = br_tree_count(list);
    char here[PLACE_MAX];
    if (list && (n == 0 || n > COMMAND_WORDS_MAX))
        return br_load_refuse(l, place, "words", "a list of 1 to 8 lists of patterns");
    const struct br_tree *v = NULL;
    for (; c->nwords < n; c->nwords++) {
        v = br_tree_after(list, v);
        snprintf(here, sizeof(here), "words[%u]", c->nwords);
        int e = br_load_pattern_list(l, place, here, v, COMMAND_LIST_MAX, &c->words[c->nwords]);
        if (e < 0)
            return e;
    }
    return 0;
}

static int load_flags(struct loader *l, const char *place, const struct br_tree *list,
                      struct br_command *c)
{
    size_t n = br_tree_count(list);
    char here[PLACE_MAX];
    if (!list)
        return 0;
    if (n == 0 || n > 64)
        return br_load_refuse(l, place, "flags", "a list of 1 to 64 lists of options");
    c->flags = br_arena_alloc(&l->t->arena, n * sizeof(c->flags[0]));
    if (!c->flags)
        return br_load_nomem(l);
    const struct br_tree *v = NULL;
    for (; c->nflags < n; c->nflags++) {
        v = br_tree_after(list, v);
        snprintf(here, sizeof(here), "flags[%u]", c->nflags);
        int e = load_names(l, place, here, v, true, &c->flags[c->nflags]);
        if (e < 0)
            return e;
    }
    return 0;
}

/* The program: a name or a pattern of names; or one path, which is compared as a whole. */
static int load_name(struct loader *l, const char *place, const struct br_tree *o,
                     struct br_rule *r, struct br_command *c)
{
    const char *program;
    int e = br_load_name(l, place, o, "program", NAME_BYTES_MAX, &program);
    if (e < 0)
        return e;
    const char *base = base_name(program);
    bool pattern = strpbrk(program, "*?") != NULL;
    if (!*base || *base == '-' || (base != program && pattern))
        return br_load_refuse(l, place, "program",
                              "a name or a pattern of names, or a path without wildcards");
    if (base != program)
        c->path = without_dot(program);
    e = br_pattern_compile(BR_MATCH_TEXT, base, strlen(base), &l->t->arena, &r->pattern);
    r->pattern.kind = BR_MATCH_PROGRAM;
    for (uint32_t i = 0; !pattern && i < l->t->nprograms; i++)
        if (strcmp(l->t->programs[i].name, base) == 0)
            c->info = &l->t->programs[i];
    if (e == -BR_E_NOMEM)
        return br_load_nomem(l);
    return e < 0 ? br_load_refuse(l, place, "program", "a name or a pattern of names") : 0;
}

/* See br_command_key(). */
static int make_key(struct loader *l, const struct br_rule *r, struct br_command *c)
{
    const struct br_pattern *p = &r->pattern;
    size_t n = p->plen + (p->form == BR_FORM_EXACT), used = 0;
    for (; p->form == BR_FORM_EXACT && used < c->nwords; used++) {
        const struct br_patterns *w = &c->words[used];
        if (w->n != 1 || w->list[0].form != BR_FORM_EXACT)
            break;
        n += w->list[0].plen + 1u;
    }
    char *key = br_arena_alloc(&l->t->arena, n + 1);
    if (!key)
        return br_load_nomem(l);
    c->key = key;
    c->key_len = n;
    key = (char *)mempcpy(key, p->prefix, p->plen) + 1;
    for (size_t i = 0; i < used; i++)
        key = (char *)mempcpy(key, c->words[i].list[0].prefix, c->words[i].list[0].plen) + 1;
    return 0;
}

int br_command_load(struct loader *l, const char *place, const struct br_tree *o, struct br_rule *r)
{
    static const struct key keys[] = {{"program", VALUE_TEXT, false},
                                      {"words", VALUE_LIST, true},
                                      {"flags", VALUE_LIST, true},
                                      {"without", VALUE_LIST, true},
                                      {"arguments", VALUE_LIST, true}};
    struct br_command *c = br_arena_alloc(&l->t->arena, sizeof(*c));
    if (!c)
        return br_load_nomem(l);
    int e = br_load_object(l, place, o, keys, BR_ARRAY_LEN(keys));
    if (e < 0 || (e = load_name(l, place, o, r, c)) < 0 ||
        (e = load_words(l, place, br_tree_get(o, "words"), c)) < 0 ||
        (e = load_flags(l, place, br_tree_get(o, "flags"), c)) < 0 ||
        (e = optional_names(l, place, o, "without", true, &c->without)) < 0 ||
        (e = br_load_patterns(l, place, o, "arguments", COMMAND_LIST_MAX, &c->arguments)) < 0)
        return e;
    r->command = c;
    return make_key(l, r, c);
}

/* ---- matching: the program ---- */

/* Directories of the image that nothing in a sandbox can write to. */
static bool in_system(const char *path, size_t dir)
{
    static const char *const dirs[] = {"/bin/",      "/sbin/",          "/usr/bin/",
                                       "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"};
    for (size_t i = 0; i < BR_ARRAY_LEN(dirs); i++)
        if (strlen(dirs[i]) == dir && memcmp(dirs[i], path, dir) == 0)
            return true;
    return false;
}

static bool program_matches(const struct br_command *c, const char *word, bool strict)
{
    const char *base = base_name(word);
    if (c->path)
        return strcmp(without_dot(word), c->path) == 0;
    return !strict || base == word || in_system(word, (size_t)(base - word));
}

/* ---- matching: options ---- */

static bool is_option(const char *w)
{
    return w[0] == '-' && w[1];
}

static bool is_end(const char *w)
{
    return strcmp(w, "--") == 0;
}

static bool same(const char *name, const char *w, size_t n)
{
    return strncmp(name, w, n) == 0 && !name[n];
}

static bool listed(const struct br_names *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->list[i], name) == 0)
            return true;
    return false;
}

enum option { OPTION_UNKNOWN, OPTION_FLAG, OPTION_ATTACHED, OPTION_NEXT };

/* Every letter of a cluster is an option without argument. */
static bool known_cluster(const struct br_program *p, const char *w)
{
    char option[3] = "-";
    if (w[1] == '-')
        return false;
    for (w++; *w; w++) {
        option[1] = *w;
        if (!listed(&p->options, option) || listed(&p->unsafe, option))
            return false;
    }
    return true;
}

/* A global option: of which kind, its name, and its value if that is attached. */
static enum option classify(const struct br_program *p, const char *w, const char **name,
                            const char **value)
{
    size_t n = strcspn(w, "=");
    *name = w;
    *value = NULL;
    if (!p)
        return OPTION_UNKNOWN;
    for (uint32_t i = 0; i < p->values.n; i++) {
        const char *v = p->values.list[i];
        bool shorter = v[1] != '-' && !v[2];
        *name = v;
        if (same(v, w, n)) {
            *value = w[n] ? w + n + 1 : NULL;
            return w[n] ? OPTION_ATTACHED : OPTION_NEXT;
        }
        if (shorter && w[1] == v[1]) {
            *value = w + 2;
            return OPTION_ATTACHED;
        }
    }
    for (uint32_t i = 0; i < p->options.n; i++) {
        *name = p->options.list[i];
        if (same(*name, w, n))
            return OPTION_FLAG;
    }
    *name = w;
    return known_cluster(p, w) ? OPTION_FLAG : OPTION_UNKNOWN;
}

static bool rewrites(const struct br_program *p, const char *name, const char *value)
{
    for (uint32_t i = 0; value && listed(&p->unsafe, name) && i < p->rewrites.n; i++)
        if (strncasecmp(p->rewrites.list[i], value, strlen(p->rewrites.list[i])) == 0)
            return true;
    return false;
}

/* ---- matching: the sub-command ---- */

/* It may become several words, or none. */
static bool splits(const char *word)
{
    return br_has_mark(word, BR_UNKNOWN_ANY) || br_has_mark(word, BR_UNKNOWN_FILE);
}

static unsigned advance(const struct br_command *c, unsigned states, const char *w)
{
    unsigned next = 0;
    for (unsigned k = 0; k < c->nwords; k++)
        if (states >> k & 1 && br_patterns_match(&c->words[k], w, strlen(w)))
            next |= 2u << k;
    return next;
}

/*
 * Where the arguments begin: behind the words of the sub-command; 0 if those are not there. States
 * are how many words were found, one bit each, since an unknown option may take the next word.
 */
static size_t find_arguments(const struct br_command *c, const char *const *words, size_t n,
                             bool strict)
{
    unsigned states = 1, found = 1u << c->nwords;
    bool open = false; /* the word before is an option that may take this one */
    for (size_t i = 1; i < n && !(states & found); i++) {
        const char *w = words[i], *name, *value;
        if (br_word_is_unknown(w))
            return strict ? 0 : 1;
        if (!is_option(w)) {
            states = advance(c, states, w) | (open ? states : 0);
            open = false;
            if (!states)
                return 0;
            if (states & found)
                return i + 1;
            continue;
        }
        bool global = states & 1 || (c->info && c->info->anywhere);
        enum option o = global && !is_end(w) ? classify(c->info, w, &name, &value) : OPTION_UNKNOWN;
        if (strict && (o == OPTION_UNKNOWN || listed(&c->info->unsafe, name)))
            return 0;
        if (o == OPTION_NEXT)
            value = i + 1 < n ? words[++i] : NULL;
        if (o != OPTION_UNKNOWN && value && splits(value))
            return strict ? 0 : 1;
        if (o != OPTION_UNKNOWN && rewrites(c->info, name, value))
            return 1;
        open = o == OPTION_UNKNOWN && !is_end(w) && !strchr(w, '=');
    }
    return states & found ? 1 : 0;
}

/* ---- matching: flags ---- */

/* Is `letter` one of the short flags that the rule speaks of. */
static bool speaks_of(const struct br_command *c, char letter)
{
    const char option[] = {'-', letter, 0};
    for (unsigned g = 0; g < c->nflags; g++)
        if (listed(&c->flags[g], option))
            return true;
    return listed(&c->without, option);
}

/* One letter among others; certain only if the rule knows them all, since one that it does not know
 * may take the rest as its argument. */
static bool in_cluster(const struct br_command *c, const char *w, char letter, bool certain)
{
    bool there = false;
    if (w[1] == '-')
        return false;
    for (w++; *w && *w != '='; w++) {
        there |= *w == letter;
        if (certain && !speaks_of(c, *w))
            return false;
    }
    return there;
}

static bool is_flag(const struct br_command *c, const char *w, const char *flag, bool certain)
{
    size_t n = strcspn(w, "=");
    if (same(flag, w, n))
        return true;
    if (flag[1] != '-' && !flag[2])
        return in_cluster(c, w, flag[1], certain);
    if (certain)
        return false;
    if (flag[1] != '-' || w[1] != '-') /* -delete and --delete */
        return n > 2 && same(flag + (flag[1] == '-'), w + (w[1] == '-'), n - (w[1] == '-'));
    return n > 2 && strncmp(flag, w, n) == 0; /* an abbreviation */
}

/* One of the names stands before a "--"; arguments of global options are no flags. */
static bool has_flag(const struct br_command *c, const struct br_names *names,
                     const char *const *words, size_t n, size_t begin, bool certain)
{
    bool anywhere = c->info && c->info->anywhere, operand = false;
    for (size_t i = 1; i < n && !is_end(words[i]); i++) {
        const char *name, *value;
        if (!is_option(words[i])) {
            operand = true;
            continue;
        }
        bool global = anywhere || (c->nwords ? i + 1 < begin : !operand);
        for (uint32_t k = 0; k < names->n; k++)
            if (is_flag(c, words[i], names->list[k], certain))
                return true;
        if (global && classify(c->info, words[i], &name, &value) == OPTION_NEXT)
            i++;
    }
    return false;
}

/* ---- matching: arguments ---- */

static bool has_parent_segment(const char *s)
{
    for (const char *p = strstr(s, ".."); p; p = strstr(p + 1, ".."))
        if ((p == s || p[-1] == '/') && (!p[2] || p[2] == '/'))
            return true;
    return false;
}

static bool argument_matches(const struct br_patterns *p, const char *s, bool strict)
{
    bool literal = strict && has_parent_segment(s);
    for (uint32_t i = 0; i < p->n; i++)
        if ((!literal || p->list[i].form == BR_FORM_EXACT) &&
            br_pattern_match(&p->list[i], s, strlen(s)))
            return true;
    return false;
}

/* What is attached to an option, NULL if nothing is. */
static const char *attached(const char *w)
{
    const char *equals = strchr(w, '=');
    if (equals)
        return equals + 1;
    return w[1] != '-' && w[2] ? w + 2 : NULL;
}

static bool arguments_match(const struct br_command *c, const char *const *words, size_t n,
                            size_t begin, bool strict)
{
    bool some = false, options = true;
    for (size_t i = begin; i < n; i++) {
        const char *w = words[i];
        if (options && is_end(w)) {
            options = false;
            continue;
        }
        bool option = options && is_option(w);
        if (option)
            w = attached(w);
        if (!w)
            continue;
        bool yes = argument_matches(&c->arguments, w, strict);
        if (!yes && strict && (!option || strpbrk(words[i], "=/")))
            return false;
        some |= yes && (!strict || !option);
        if (some && !strict)
            return true;
    }
    return some;
}

/* ---- matching: words that are known only in part ---- */

/* Can the word become an option? */
static bool may_be_option(const char *w)
{
    return br_is_unknown(w[0]) || (w[0] == '-' && br_word_is_unknown(w)) ||
           br_has_mark(w, BR_UNKNOWN_ANY);
}

/* Can it become something that begins like the pattern? */
static bool may_begin(const struct br_pattern *p, const char *w)
{
    if (w[0] == BR_UNKNOWN_FILE && p->plen && strchr(".~", p->prefix[0]))
        return false; /* no pattern of a shell begins with those by itself */
    for (size_t i = 0; i < p->plen; i++) {
        if (w[i] == BR_UNKNOWN_FILE && p->prefix[i] == '/' && w[i + 1] != '/')
            return false;
        if (br_is_unknown(w[i]))
            return true;
        if (w[i] != p->prefix[i])
            return br_has_mark(w, BR_UNKNOWN_ANY); /* the word behind the one that ends there */
    }
    return true;
}

static bool may_be_argument(const struct br_command *c, const char *w)
{
    for (uint32_t i = 0; i < c->arguments.n; i++)
        if (may_begin(&c->arguments.list[i], w))
            return true;
    return false;
}

/* What the unknown words are taken for: one that stays one word is an option or an argument. */
enum role { ROLE_BOTH, ROLE_OPTION, ROLE_ARGUMENT };

static bool could_match(const struct br_command *c, const char *const *words, size_t n,
                        enum role role)
{
    bool option = false, argument = false;
    size_t begin = c->nwords ? find_arguments(c, words, n, false) : 1;
    if (begin == 0)
        return false;
    for (size_t i = 1; i < n; i++) {
        if (!br_word_is_unknown(words[i]))
            continue;
        option |= role != ROLE_ARGUMENT && may_be_option(words[i]);
        argument |= role != ROLE_OPTION && may_be_argument(c, words[i]);
    }
    for (unsigned g = 0; g < c->nflags && !option; g++)
        if (!has_flag(c, &c->flags[g], words, n, begin, false))
            return false;
    if (c->without.n && has_flag(c, &c->without, words, n, begin, true))
        return false;
    return !c->arguments.n || argument || arguments_match(c, words, n, begin, false);
}

bool br_command_match_uncertain(const struct br_command *c, bool allow, const char *const *words,
                                size_t n)
{
    size_t first = 1;
    while (first < n && !br_word_is_unknown(words[first]))
        first++;
    if (first >= n)
        return br_command_match(c, allow, words, n);
    if (!program_matches(c, words[0], allow))
        return false;
    if (!allow) {
        bool one = !splits(words[first]);
        for (size_t i = first + 1; i < n; i++)
            one = one && !br_word_is_unknown(words[i]);
        return one ? could_match(c, words, n, ROLE_OPTION) ||
                         could_match(c, words, n, ROLE_ARGUMENT)
                   : could_match(c, words, n, ROLE_BOTH);
    }
    /* what is not known may be one of these */
    if (c->arguments.n || c->without.n || (c->info && c->info->anywhere))
        return false;
    size_t begin = c->nwords ? find_arguments(c, words, n, true) : 1;
    for (unsigned g = 0; begin && g < c->nflags; g++)
        if (!has_flag(c, &c->flags[g], words, first, begin, true))
            return false;
    return begin > 0;
}

/* ---- the index ---- */

const char *br_command_key(const struct br_command *c, size_t *n)
{
    *n = c->key_len;
    return c->key;
}

void br_command_probe(const struct br_table *t, const char *const *words, size_t n, char *buf,
                      size_t size, struct br_probe_subject *q)
{
    const char *base = base_name(words[0]), *name, *value;
    const struct br_program *p = NULL;
    size_t len = strlen(base) + 1;
    q->s = base;
    q->n = len;
    q->name = len - 1;
    q->open = true;
    if (len > size)
        return;
    for (uint32_t i = 0; i < t->nprograms && !p; i++)
        if (strcmp(t->programs[i].name, base) == 0)
            p = &t->programs[i];
    memcpy(buf, base, len);
    q->s = buf;
    bool global = true;
    for (size_t i = 1, operands = 0; i < n && operands < COMMAND_WORDS_MAX; i++) {
        if (!is_option(words[i])) {
            len = strlen(words[i]) + 1;
            if (len > size - q->n)
                return;
            memcpy(buf + q->n, words[i], len);
            q->n += len;
            global = p && p->anywhere;
            operands++;
            continue;
        }
        enum option o =
            global && !is_end(words[i]) ? classify(p, words[i], &name, &value) : OPTION_UNKNOWN;
        if (o == OPTION_UNKNOWN)
            return;
        if (o == OPTION_NEXT)
            value = i + 1 < n ? words[++i] : NULL;
        if (rewrites(p, name, value)) {
            q->n = q->name + 1; /* any sub-command */
            return;
        }
    }
    q->open = false;
}

bool br_command_match(const struct br_command *c, bool allow, const char *const *words, size_t n)
{
    if (n == 0 || !program_matches(c, words[0], allow))
        return false;
    size_t begin = c->nwords ? find_arguments(c, words, n, allow) : 1;
    if (begin == 0)
        return false;
    for (unsigned g = 0; g < c->nflags; g++)
        if (!has_flag(c, &c->flags[g], words, n, begin, allow))
            return false;
    if (c->without.n && has_flag(c, &c->without, words, n, begin, !allow))
        return false;
    return !c->arguments.n || arguments_match(c, words, n, begin, allow);
}
