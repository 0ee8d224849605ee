/*
 * Lines of 'bridle repl' and events of a record: whatever the bytes are, a line is a verb with
 * words of at most its length or else Lua, and an event is joined or refused.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/repl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void line(const char *text)
{
    struct repl_line l;
    uint64_t from, to;
    (void)repl_line_meant(text);
    const struct br_word *w = repl_line_verb(text);
    if (w)
        br_require(w->kinds & BR_WORD_VERB);
    if (repl_line_split(text, &l, NULL) == 0) {
        size_t n = 0;
        for (unsigned i = 0; i < l.n; i++) {
            n += strlen(l.words[i]);
            if (repl_line_range(l.words[i], &from, &to))
                br_require(!to || from <= to);
        }
        br_require(n <= strlen(text) && (!w || l.n > 0));
    }
    repl_line_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 65536)
        return 0;
    char *text = calloc(1, size + 1);
    struct br_cli_row row = {.run_id = "run_x", .goal = (char *)""};
    struct repl_join j;
    br_require(text && repl_join_open(&j, &row, NULL) == 0);
    if (size)
        memcpy(text, data, size);
    line(text);
    uint64_t n = 0;
    for (size_t at = 0; at < size;) {
        const char *nl = memchr(text + at, '\n', size - at);
        size_t len = nl ? (size_t)(nl - text) - at : size - at;
        (void)repl_join_event(&j, ++n, text + at, len, NULL);
        at += len + 1;
    }
    br_require(json_is_object(j.session) && json_is_array(j.decisions) && json_is_array(j.leases));
    repl_join_free(&j);
    free(text);
    return 0;
}
