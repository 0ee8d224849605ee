/*
 * Help, errors and shell completion: everything that this program says about itself, made from the
 * table of verbs.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

int br_cli_fail(const struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16 * BR_ERR_TEXT_MAX);
    br_buf_printf(&b, "bridle: ");
    br_buf_put_visible(&b, err->text, strlen(err->text), false);
    if (err->code && err->code != BR_E_USAGE && err->code != BR_E_FAILED)
        br_buf_printf(&b, " (%s)", br_code_name((int)err->code));
    br_buf_put_u8(&b, '\n');
    if (!b.failed)
        (void)br_write_all(STDERR_FILENO, b.data, b.len);
    return br_code_exit((int)err->code);
}

int br_cli_lost_output(int e)
{
    struct br_err err = {.code = BR_OK};
    errno = e;
    (void)br_err_errno(&err, BR_E_IO, "the output could not be written");
    return e == EPIPE ? 1 : br_cli_fail(&err); /* who closed the pipe knows */
}

int br_cli_flush(void)
{
    bool lost = ferror(stdout) != 0;
    errno = lost ? EIO : 0;
    return fflush(stdout) == 0 && !lost ? 0 : br_cli_lost_output(errno);
}

static void print_option(const struct br_cli_opt *o)
{
    char left[64];
    int n = o->letter ? snprintf(left, sizeof(left), "  -%c, --%s", o->letter, o->name)
                      : snprintf(left, sizeof(left), "      --%s", o->name);
    if (o->arg)
        snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->arg);
    const char *text = o->text;
    bool first = true;
    while (*text) {
        size_t len = strcspn(text, "\n");
        printf("%-26s%.*s\n", first ? left : "", (int)len, text);
        first = false;
        text += len + (text[len] == '\n');
    }
}

static void help_verb(const struct br_cli_verb *v)
{
    printf("usage: bridle %s %s\n\n%s\n", v->name, v->synopsis, v->details);
    printf("\noptions:\n");
    for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++)
        print_option(&v->opts[i]);
    print_option(&(struct br_cli_opt){"help", 'h', NULL, "this text", BR_COMPLETE_NONE});
    printf(strcmp(v->name, "help") == 0 ? "\nManual: man bridle\n" : "\nManual: man bridle-%s\n",
           v->name);
}

void br_cli_help(const struct br_cli_verb *verb)
{
    if (verb) {
        help_verb(verb);
        return;
    }
    printf("Bridle runs AI agents in a sandbox, under authority that you can check.\n\n"
           "usage: bridle VERB [options]\n\n");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++)
        printf("  %-10s%s\n", v->name, v->summary);
    printf("\n'bridle VERB --help' explains a verb; 'bridle --version' says which this is.\n"
           "Try 'bridle demo'.\n");
}

/* ---- completion ----------------------------------------------------------------------------- */

/* The built-in ones; a test compares them with the files of profiles/. */
#define PROFILES                                                                                   \
    "run-v1 run-owner-v1 run-nolandlock-v1 workspace-v1 workspace-tmpfs-v1 observer-v1 "           \
    "observer-native-v1"
#define POLICY_ACTIONS "check show why replay diff test hold reload"
#define BACKENDS "native bwrap docker"
#define TOKEN_ACTIONS "add list remove"
#define ACCESSES "observe answer operate"

static const char *bash_action(enum br_cli_complete c)
{
    return c == BR_COMPLETE_DIR       ? "_bridle_dirs"
           : c == BR_COMPLETE_FILE    ? "_bridle_files"
           : c == BR_COMPLETE_VERB    ? "_bridle_words \"$verbs\""
           : c == BR_COMPLETE_PROFILE ? "_bridle_profiles"
           : c == BR_COMPLETE_BACKEND ? "_bridle_words \"" BACKENDS "\""
           : c == BR_COMPLETE_POLICY  ? "_bridle_policy"
           : c == BR_COMPLETE_TOKEN   ? "_bridle_words \"" TOKEN_ACTIONS "\""
           : c == BR_COMPLETE_ACCESS  ? "_bridle_words \"" ACCESSES "\""
                                      : ":";
}

static void completion_bash(void)
{
    printf("# bash completion for bridle; made by 'bridle help --completion bash'\n\n"
           "_bridle_files() { mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); }\n"
           "_bridle_dirs() { mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); }\n"
           "_bridle_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
           "_bridle_profiles() {\n"
           "  mapfile -t COMPREPLY < <(compgen -W \"" PROFILES "\" -f -- \"$cur\")\n}\n"
           "_bridle_policy() {\n"
           "  mapfile -t COMPREPLY < <(compgen -W \"" POLICY_ACTIONS "\" -f -- \"$cur\")\n}\n\n"
           "_bridle() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "  local verb=${COMP_WORDS[1]}\n"
           "  local verbs=\"");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++)
        printf("%s%s", v == br_cli_verbs ? "" : " ", v->name);
    printf("\"\n"
           "  COMPREPLY=()\n"
           "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "    _bridle_words \"$verbs --help --version\"\n"
           "    return\n"
           "  fi\n"
           "  case $verb in\n");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++) {
        printf("    %s)\n      case $prev in\n", v->name);
        for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++) {
            const struct br_cli_opt *o = &v->opts[i];
            if (!o->arg)
                continue;
            if (o->letter)
                printf("        -%c | --%s) %s ;;\n", o->letter, o->name, bash_action(o->complete));
            else
                printf("        --%s) %s ;;\n", o->name, bash_action(o->complete));
        }
        printf("        *)\n          case $cur in\n            -*) _bridle_words \"");
        for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++)
            printf("--%s ", v->opts[i].name);
        printf("--help\" ;;\n            *) %s ;;\n          esac\n          ;;\n      esac\n"
               "      ;;\n",
               bash_action(v->complete));
    }
    printf("  esac\n}\ncomplete -F _bridle bridle ./bridle\n");
}

static void zsh_text(const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            printf("'\\''");
        else if (*s == '[' || *s == ']' || *s == ':')
            printf("\\%c", *s);
        else
            putchar(*s == '\n' ? ' ' : *s);
    }
}

static const char *zsh_action(enum br_cli_complete c)
{
    return c == BR_COMPLETE_DIR       ? "_files -/"
           : c == BR_COMPLETE_FILE    ? "_files"
           : c == BR_COMPLETE_VERB    ? "_bridle_verbs"
           : c == BR_COMPLETE_PROFILE ? "_bridle_profiles"
           : c == BR_COMPLETE_BACKEND ? "(" BACKENDS ")"
           : c == BR_COMPLETE_POLICY  ? "_bridle_policy"
           : c == BR_COMPLETE_TOKEN   ? "(" TOKEN_ACTIONS ")"
           : c == BR_COMPLETE_ACCESS  ? "(" ACCESSES ")"
                                      : " ";
}

static void zsh_option(const struct br_cli_opt *o)
{
    if (o->letter)
        printf("        '(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter, o->name);
    else
        printf("        '--%s[", o->name);
    zsh_text(o->text);
    printf("]");
    if (o->arg)
        printf(":%s:%s", o->arg, zsh_action(o->complete));
    printf("' \\\n");
}

static void completion_zsh(void)
{
    printf("#compdef bridle\n"
           "# zsh completion for bridle; made by 'bridle help --completion zsh'\n\n"
           "_bridle_verbs() {\n  local -a verbs\n  verbs=(\n");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++) {
        printf("    '%s:", v->name);
        zsh_text(v->summary);
        printf("'\n");
    }
    printf("  )\n  _describe verb verbs\n}\n\n"
           "_bridle_profiles() {\n"
           "  _alternative 'profiles:profile:(" PROFILES ")' 'files:file:_files'\n}\n\n"
           "_bridle_policy() {\n"
           "  _alternative 'actions:action:(" POLICY_ACTIONS ")' 'files:file:_files'\n}\n\n"
           "_bridle() {\n"
           "  if (( CURRENT == 2 )); then\n    _bridle_verbs\n    return\n  fi\n"
           "  local verb=${words[2]}\n  (( CURRENT-- ))\n  shift words\n"
           "  case $verb in\n");
    for (const struct br_cli_verb *v = br_cli_verbs; v->name; v++) {
        printf("    %s)\n      _arguments \\\n", v->name);
        for (unsigned i = 0; i < BR_CLI_OPTS_MAX && v->opts[i].name; i++)
            zsh_option(&v->opts[i]);
        printf(
            "        '(-h --help)'{-h,--help}'[this text]' \\\n        '*:operand:%s'\n      ;;\n",
            zsh_action(v->complete));
    }
    printf("  esac\n}\n\n_bridle \"$@\"\n");
}

int br_cli_help_verb(const struct br_cli_args *a)
{
    const char *shell = br_cli_opt(a, "completion");
    struct br_err err = {.code = BR_OK};
    if (shell && strcmp(shell, "bash") == 0) {
        completion_bash();
    } else if (shell && strcmp(shell, "zsh") == 0) {
        completion_zsh();
    } else if (shell) {
        (void)br_err_set(&err, BR_E_USAGE,
                         "there is no completion for '%.40s'; bash and zsh have one", shell);
        return br_cli_fail(&err);
    } else if (a->noperands) {
        const struct br_cli_verb *v = br_cli_verb_find(a->operands[0]);
        if (!v) {
            (void)br_err_set(&err, BR_E_USAGE, "there is no verb '%.80s'; 'bridle help' lists them",
                             a->operands[0]);
            return br_cli_fail(&err);
        }
        br_cli_help(v);
    } else {
        br_cli_help(NULL);
    }
    return br_cli_flush();
}
