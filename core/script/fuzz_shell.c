/* The shell decomposer on any bytes: bounded, terminated words, valid in their encoding. */
#include <string.h>

#include "script/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_word(const struct br_shell *sh, const char *word)
{
    br_require(word >= sh->text && word < sh->text + sh->text_cap);
    br_require(word + strlen(word) < sh->text + sh->text_cap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_shell sh;
    br_shell_parse(&sh, data, size);
    br_require(sh.opaque == (sh.why != NULL));
    br_require(sh.opaque || sh.ncommands + sh.nredirects > 0);
    br_require(sh.ncommands <= BR_SHELL_COMMANDS_MAX && sh.nwords <= BR_SHELL_WORDS_MAX &&
               sh.nredirects <= BR_SHELL_REDIRECTS_MAX);
    for (unsigned i = 0; i < sh.nwords; i++)
        check_word(&sh, sh.words[i]);
    for (unsigned i = 0; i < sh.nredirects; i++)
        check_word(&sh, sh.redirects[i].target);
    for (unsigned c = 0; c < sh.ncommands; c++) {
        const struct br_shell_command *k = &sh.commands[c];
        br_require(k->count > 0 && k->first + k->count <= sh.nwords);
        br_require(k->env_first + k->env_count <= k->first);
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    br_shell_reply(&sh, &b);
    br_require(!b.failed); /* it fits into a message */
    br_shell_free(&sh);
    return 0;
}
