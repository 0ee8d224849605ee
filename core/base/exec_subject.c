/*
 * The subject of a command: the bytes that a policy matches, that a grant is bound to, and that the
 * sandbox checks again. One place, so that the session which asks and the pid 1 which runs cannot
 * build it differently. Called by the session, by bridle-script and by bridle-init; trusts nothing.
 */
#include <string.h>

#include "base/base.h"

static bool is_bare_word(const char *word)
{
    static const char bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                               "_@%+=:,./-";
    return *word && word[strspn(word, bare)] == 0;
}

int br_exec_subject(char *const *argv, uint32_t argc, struct br_buf *out)
{
    for (uint32_t i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (i)
            br_buf_put_u8(out, ' ');
        if (is_bare_word(word)) {
            br_buf_put(out, word, strlen(word));
            continue;
        }
        br_buf_put_u8(out, '\'');
        for (; *word; word++) {
            if (*word == '\'')
                br_buf_put(out, "'\\''", 4);
            else
                br_buf_put_u8(out, (uint8_t)*word);
        }
        br_buf_put_u8(out, '\'');
    }
    return out->failed ? -BR_E_LIMIT_EXCEEDED : 0;
}
