/*
 * Arguments of a verb: long and short options anywhere before `--`, operands, and, for a verb that
 * runs a command, everything after `--` untouched. The table of verbs.c says what there is; a word
 * that is not understood is an error that names the nearest one that would be.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define NEAREST_WORD_MAX 40u

/* Optimal string alignment distance of two short words. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned d[NEAREST_WORD_MAX + 1][NEAREST_WORD_MAX + 1];
    for (unsigned i = 0; i <= na; i++)
        d[i][0] = i;
    for (unsigned j = 0; j <= nb; j++)
        d[0][j] = j;
    for (unsigned i = 1; i <= na; i++) {
        for (unsigned j = 1; j <= nb; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *br_cli_nearest(const char *word, const char *const *names, size_t n)
{
    size_t len = strnlen(word, NEAREST_WORD_MAX + 1);
    if (len == 0 || len > NEAREST_WORD_MAX)
        return NULL;
    /* a third of the word may be wrong, or the word is the beginning of a name */
    unsigned best = (unsigned)(len + 2) / 3 + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t nlen = strlen(names[i]);
        if (nlen > NEAREST_WORD_MAX)
            continue;
        unsigned d = distance(word, len, names[i], nlen);
        if (len >= 2 && strncmp(word, names[i], len) == 0)
            d = 1;
        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    return nearest;
}

static int opt_long(const struct br_cli_verb *verb, const char *name, size_t n)
{
    for (int i = 0; i < (int)BR_CLI_OPTS_MAX && verb->opts[i].name; i++)
        if (strlen(verb->opts[i].name) == n && memcmp(verb->opts[i].name, name, n) == 0)
            return i;
    return -1;
}

static int opt_letter(const struct br_cli_verb *verb, char letter)
{
    for (int i = 0; i < (int)BR_CLI_OPTS_MAX && verb->opts[i].name; i++)
        if (verb->opts[i].letter == letter)
            return i;
    return -1;
}

static int unknown_option(const struct br_cli_verb *verb, const char *word, struct br_err *err)
{
    const char *names[BR_CLI_OPTS_MAX + 1];
    size_t n = 0;
    for (unsigned i = 0; i < BR_CLI_OPTS_MAX && verb->opts[i].name; i++)
        names[n++] = verb->opts[i].name;
    names[n++] = "help";
    char bare[NEAREST_WORD_MAX + 2];
    size_t skip = strspn(word, "-");
    size_t len = strcspn(word + skip, "=");
    snprintf(bare, sizeof(bare), "%.*s", (int)len, word + skip);
    const char *near = word[1] == '-' ? br_cli_nearest(bare, names, n) : NULL;
    return br_err_set(err, BR_E_USAGE,
                      near ? "'bridle %s' has no option '%.80s'; did you mean '--%s'?"
                           : "'bridle %s' has no option '%.80s'; 'bridle help %s' lists them",
                      verb->name, word, near ? near : verb->name);
}

static int set_value(struct br_cli_args *a, int i, const char *value, struct br_err *err)
{
    bool many = a->verb->opts[i].many;
    if (a->value[i] && !many)
        return br_err_set(err, BR_E_USAGE, "'--%s' was given twice", a->verb->opts[i].name);
    if (many && a->nmany == BR_CLI_MANY_MAX)
        return br_err_set(err, BR_E_USAGE, "'--%s' was given more than %u times",
                          a->verb->opts[i].name, BR_CLI_MANY_MAX);
    if (a->verb->opts[i].arg && !value[0])
        return br_err_set(err, BR_E_USAGE,
                          "the value of '--%s' is empty; give it one, or leave the option out",
                          a->verb->opts[i].name);
    if (many)
        a->many[a->nmany++] = value;
    if (!a->value[i])
        a->value[i] = value;
    return 0;
}

/* One option word; *next is the following word, and is cleared if it was used up as a value. */
static int parse_option(struct br_cli_args *a, const char *word, const char **next,
                        struct br_err *err)
{
    bool is_long = word[1] == '-';
    const char *name = is_long ? word + 2 : word + 1;
    const char *inline_value = NULL;
    int i;
    if (is_long) {
        const char *eq = strchr(name, '=');
        i = opt_long(a->verb, name, eq ? (size_t)(eq - name) : strlen(name));
        inline_value = eq ? eq + 1 : NULL;
    } else {
        i = opt_letter(a->verb, name[0]);
        inline_value = name[1] ? name + 1 : NULL;
    }
    if (i < 0)
        return unknown_option(a->verb, word, err);
    const struct br_cli_opt *o = &a->verb->opts[i];
    if (!o->arg) {
        if (inline_value)
            return br_err_set(err, BR_E_USAGE, "'--%s' takes no value, but '%.80s' gives one",
                              o->name, word);
        return set_value(a, i, "", err);
    }
    if (inline_value)
        return set_value(a, i, inline_value, err);
    if (!*next)
        return br_err_set(err, BR_E_USAGE, "'--%s' needs a value: --%s %s", o->name, o->name,
                          o->arg);
    int r = set_value(a, i, *next, err);
    *next = NULL;
    return r;
}

static int check_operands(const struct br_cli_args *a, bool dashes, struct br_err *err)
{
    const struct br_cli_verb *v = a->verb;
    if (v->tail && (!dashes || a->ntail == 0))
        return br_err_set(err, BR_E_USAGE, "there is no command; write it after '--': bridle %s %s",
                          v->name, v->synopsis);
    if (v->tail && !a->tail[0][0])
        return br_err_set(err, BR_E_USAGE,
                          "the command's first word, the program, is empty: bridle %s %s", v->name,
                          v->synopsis);
    for (unsigned i = 0; i < a->noperands; i++)
        if (!a->operands[i][0] && !(v->words && i >= 2))
            return br_err_set(err, BR_E_USAGE, "a word is empty: bridle %s %s", v->name,
                              v->synopsis);
    if (a->noperands < v->operands_min)
        return br_err_set(err, BR_E_USAGE, "something is missing: bridle %s %s", v->name,
                          v->synopsis);
    if (a->noperands > v->operands_max)
        return br_err_set(err, BR_E_USAGE, "'%.80s' is one word too many: bridle %s %s",
                          a->operands[v->operands_max], v->name, v->synopsis);
    return 0;
}

int br_cli_parse(const struct br_cli_verb *verb, int argc, char **argv, struct br_cli_args *a,
                 struct br_err *err)
{
    *a = (struct br_cli_args){.verb = verb, .operands = argv};
    int out = 0, i = 0;
    bool dashes = false;
    for (; i < argc && !dashes && !(verb->words && verb->words(argv, (unsigned)out)); i++) {
        char *word = argv[i];
        if (strcmp(word, "--") == 0) {
            dashes = true;
        } else if (strcmp(word, "--help") == 0 || (strcmp(word, "-h") == 0)) {
            a->help = true;
        } else if (word[0] == '-' && word[1]) {
            const char *next = i + 1 < argc ? argv[i + 1] : NULL;
            bool had = next != NULL;
            int r = parse_option(a, word, &next, err);
            if (r < 0)
                return r;
            i += had && !next;
        } else {
            argv[out++] = word;
        }
    }
    if (a->help)
        return 0;
    if (verb->tail && dashes) {
        a->tail = argv + i;
        a->ntail = (unsigned)(argc - i);
    } else {
        if (!dashes && i < argc && strcmp(argv[i], "--") == 0)
            i++;
        for (; i < argc; i++)
            argv[out++] = argv[i];
    }
    a->noperands = (unsigned)out;
    return check_operands(a, dashes, err);
}

const char *br_cli_opt(const struct br_cli_args *a, const char *name)
{
    int i = opt_long(a->verb, name, strlen(name));
    br_require(i >= 0);
    return a->value[i];
}

int br_cli_number(const char *what, const char *s, uint32_t min, uint32_t max, uint32_t *out,
                  struct br_err *err)
{
    uint64_t v = 0;
    size_t n = strlen(s);
    bool ok = n > 0 && n <= 10;
    for (size_t i = 0; ok && i < n; i++) {
        ok = s[i] >= '0' && s[i] <= '9';
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    if (!ok || v < min || v > max)
        return br_err_set(err, BR_E_USAGE, "'%s' must be a number from %u to %u, not '%.40s'", what,
                          min, max, s);
    *out = (uint32_t)v;
    return 0;
}
