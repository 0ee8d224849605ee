/*
 * Redaction: what may not be stored or shown is replaced by [redacted:NAME]. One linear pass over
 * the text finds two kinds of things with one automaton:
 *
 *   shapes   a literal anchor ("ghp_", "Bearer ", "password") whose surroundings are then verified
 *            (boundary, character class, minimum length);
 *   secrets  values that this run really uses, registered with br_redact_secret(): matched exactly,
 *            raw, in base64 (three alignments, both alphabets), hex, percent-encoded and
 *            JSON-escaped, whole or split over the chunks of a stream.
 *
 * Nothing here reads a file, the environment or the clock.
 */
#ifndef BR_AUDIT_REDACT_H
#define BR_AUDIT_REDACT_H

#include <jansson.h>

#include "base/base.h"

/* A shorter secret is matched only as a whole word and only raw: everything else would destroy
 * ordinary text. */
#define BR_REDACT_SECRET_MIN 6u
/* One secret, and all of a run together: each byte costs up to ten states of the automaton. */
#define BR_REDACT_SECRET_MAX 4096u
#define BR_REDACT_SECRETS_MAX 32u
#define BR_REDACT_SECRET_TOTAL_MAX (16u * 1024)
/* A stream holds back at most this much more than the longest encoded secret: what a shape needs
 * to see before it can be told from ordinary text (a JWT header is the longest). */
#define BR_REDACT_LOOKAHEAD_MAX 2048u
/* Values of one JSON text: the data of the largest event. */
#define BR_REDACT_NODES_MAX 100000u

struct br_redact;
struct br_redact_stream;

/* A matcher with the built-in shapes; NULL without memory. Free with br_redact_free(), after its
 * streams. */
struct br_redact *br_redact_new(void);
/* Wipes the secrets and sets *r to NULL. */
void br_redact_free(struct br_redact **r);

/*
 * Register a secret of n bytes. `name` appears in the replacement (other characters than
 * [A-Za-z0-9_.-] become '_'; at most 64 are used). The bytes are copied. Streams that are open see
 * it from their next feed on. -BR_E_REDACTION_FAILED if it is empty, too long or one too many;
 * nothing was registered then.
 */
int br_redact_secret(struct br_redact *r, const char *name, const void *value, size_t n,
                     struct br_err *err);

/* Append the redacted text to `out`. -BR_E_REDACTION_FAILED if it does not fit or without memory;
 * `out` is then not to be used. */
int br_redact_text(const struct br_redact *r, const void *text, size_t n, struct br_buf *out,
                   struct br_err *err);
/* True: br_redact_text() would append the text as it is. */
bool br_redact_clean(const struct br_redact *r, const void *text, size_t n);
/* Changes with every secret that is registered; never 0. */
uint64_t br_redact_generation(const struct br_redact *r);
/* The same with "*" in place of [redacted:NAME]: never longer than the text was. */
int br_redact_text_brief(const struct br_redact *r, const void *text, size_t n, struct br_buf *out,
                         struct br_err *err);

/*
 * The same for text that arrives in chunks: what is appended after any number of feeds and the end
 * is exactly what br_redact_text() appends for the whole. Bytes that may belong to something
 * unfinished are held back until they are decided.
 */
struct br_redact_stream *br_redact_stream_new(const struct br_redact *r);
void br_redact_stream_free(struct br_redact_stream **s);
int br_redact_stream_feed(struct br_redact_stream *s, const void *chunk, size_t n,
                          struct br_buf *out, struct br_err *err);
/* Flush. The stream may be fed again afterwards, as a new text. */
int br_redact_stream_end(struct br_redact_stream *s, struct br_buf *out, struct br_err *err);
/* Bytes that are held back now. */
size_t br_redact_stream_held(const struct br_redact_stream *s);

/*
 * A redacted deep copy of a JSON value (new reference): strings and keys are redacted, and a string
 * under a key that looks like a credential is replaced whatever it says. NULL and
 * BR_E_REDACTION_FAILED beyond BR_JSON_DEPTH_MAX + 8 levels, BR_REDACT_NODES_MAX values, or
 * without memory. `brief`: as br_redact_text_brief(), for a value that has become too long.
 */
json_t *br_redact_json(const struct br_redact *r, const json_t *value, bool brief,
                       struct br_err *err);
/* The name for the replacement if this key names a credential ("password", "x-api-key",
 * "clientSecret"), else NULL ("max_tokens", "promptTokens"). */
const char *br_redact_key(const char *key);

#endif
