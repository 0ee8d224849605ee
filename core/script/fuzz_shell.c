/* The shell splitter on any bytes: bounded, terminated words, and no words when it is opaque. */
#include <string.h>

#include "script/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const struct br_shell *sh, size_t size)
{
    size_t words = 0, bytes = 0;
    for (unsigned c = 0; c < sh->ncommands; c++) {
        br_require(sh->count[c] > 0 && sh->first[c] == words);
        for (unsigned w = 0; w < sh->count[c]; w++)
            bytes += strlen(sh->words[sh->first[c] + w]);
        words += sh->count[c];
    }
    br_require(words == sh->nwords && words <= BR_SHELL_WORDS_MAX && bytes <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct br_shell sh;
    br_shell_parse(&sh, data, size);
    br_require(sh.opaque == (sh.why != NULL));
    br_require(sh.opaque ? sh.ncommands == 0 && sh.nwords == 0 : sh.ncommands > 0);
    check_words(&sh, size);
    if (sh.opaque) {
        br_shell_guess(&sh, data, size);
        br_require(sh.opaque);
        check_words(&sh, size);
    }
    br_shell_free(&sh);
    return 0;
}
