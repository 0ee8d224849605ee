/*
 * The body of SHELL_PARSED: what br_shell_parse() found, for the session, which reads it with
 * br_command_line() and believes none of it.
 */
#include "script/shell.h"

void br_shell_reply(const struct br_shell *sh, struct br_buf *out)
{
    br_buf_put_u8(out, (uint8_t)(sh->opaque | sh->moves << 1));
    br_buf_put_str(out, sh->why);
    br_buf_put_u32(out, sh->ncommands);
    for (unsigned i = 0; i < sh->ncommands; i++) {
        const struct br_shell_command *c = &sh->commands[i];
        br_buf_put_u32(out, c->env_count);
        for (unsigned k = 0; k < c->env_count; k++)
            br_buf_put_str(out, sh->words[c->env_first + k]);
        br_buf_put_u32(out, c->count);
        for (unsigned k = 0; k < c->count; k++)
            br_buf_put_str(out, sh->words[c->first + k]);
    }
    br_buf_put_u32(out, sh->nredirects);
    for (unsigned i = 0; i < sh->nredirects; i++) {
        br_buf_put_u8(out, (uint8_t)(sh->redirects[i].read | sh->redirects[i].write << 1));
        br_buf_put_str(out, sh->redirects[i].target);
    }
}
