/*
 * Inside the view: what its files share. Everything that somebody else wrote goes
 * through br_cli_put_line(), view_block() or view_text(), and through nothing else.
 */
#ifndef BR_CLI_VIEW_PRIV_H
#define BR_CLI_VIEW_PRIV_H

#include <string.h>

#include "cli/cli.h"

enum view_style { VIEW_PLAIN, VIEW_BOLD, VIEW_DIM, VIEW_GREEN, VIEW_YELLOW, VIEW_RED };

void view_style_on(struct br_cli_view *v, enum view_style s);
void view_style_off(struct br_cli_view *v, enum view_style s);
/* A word of ours in a style, padded to `width` columns. */
void view_word(struct br_cli_view *v, enum view_style s, const char *word, unsigned width);
enum view_style view_effect_style(const char *effect);

/* A string member; "" if it is missing or something else. */
const char *view_str(const json_t *o, const char *key, size_t *n);
uint64_t view_u64(const json_t *o, const char *key);

/* Columns that are left of a line, and at least ten. */
unsigned view_room(const struct br_cli_view *v, unsigned used);
/* Columns that text takes on a terminal: wide characters count twice, combining ones nothing. */
unsigned view_columns(const char *s, size_t n);
/*
 * Lines of somebody's text, each after `gutter`, folded to the width, at most `max_lines` and then
 * how much more there is. 0 lines: all. What follows a fold has a dot in place of the gutter's
 * mark, so that it cannot be taken for a line. Returns false if not all was shown.
 */
bool view_block(struct br_cli_view *v, const char *gutter, const char *s, size_t n,
                unsigned max_lines);
/* All of the text, also empty lines at its end. `first` is the gutter of the first line, `next`, of
 * the same width and with a mark, of every other one. */
void view_whole(struct br_cli_view *v, const char *first, const char *next, const char *s,
                size_t n);
/* Lines as with view_block() behind a label of ours, which stands in the gutter of the first line.
 */
void view_labeled(struct br_cli_view *v, const char *label, unsigned width, const char *s, size_t n,
                  unsigned max_lines);
/* Streamed text of the agent; view_text_end() closes an unfinished line. */
void view_text(struct br_cli_view *v, const char *s, size_t n);
void view_text_end(struct br_cli_view *v);

void view_put_duration(struct br_buf *b, uint64_t ms);
void view_put_bytes(struct br_buf *b, uint64_t n);
void view_put_count(struct br_buf *b, uint64_t n); /* 12,345 */

void view_tool_call(struct br_cli_view *v, const json_t *data);
/* What was not shown of the call that an ask with this subject is about. */
void view_asked_call(struct br_cli_view *v, const char *call_id, const char *subject);
/* view_ask.c: permission.requested, bridle.ask, bridle.asks, permission.resolved, bridle.answered,
 * bridle.grant. */
void view_requested(struct br_cli_view *v, const json_t *data);
void view_ask(struct br_cli_view *v, json_t *data);
void view_asks(struct br_cli_view *v, const json_t *data);
void view_resolved(struct br_cli_view *v, const json_t *event, const json_t *data);
void view_grant(struct br_cli_view *v, const json_t *data);
void view_answered(struct br_cli_view *v, const json_t *data);
void view_tool_result(struct br_cli_view *v, const json_t *data);
/* bridle.harness.*; false: it is none of them. */
bool view_harness(struct br_cli_view *v, const char *type, const json_t *data);
/* Of a bridle.launch event. */
void view_receipt(struct br_cli_view *v, const json_t *data);
void view_run_header(struct br_cli_view *v, const json_t *data);

#endif
