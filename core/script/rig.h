/* For tests: a real bridle-script process and the two channels that it is started with. */
#ifndef BR_SCRIPT_RIG_H
#define BR_SCRIPT_RIG_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <jansson.h>

#include "wire/wire.h"

struct rig_answer {
    unsigned type; /* of the last message; 0: none came in time; 1: the peer has gone */
    uint64_t id;
    uint32_t code, line; /* SCRIPT_FAILED; of COMPILED, file and line of the check */
    char text[BR_ERR_TEXT_MAX];
    char file[BR_PATH_MAX];
    json_t *table, *manifest, *launch; /* COMPILED */
    json_t *warnings, *errors;         /* arrays of text; errors: before SCRIPT_FAILED, or NULL */
    json_t *commands;                  /* SHELL_PARSED: array of arrays of text */
    uint8_t flag;                      /* SHELL_PARSED opaque; PREDICATE_VOTE effect */
    struct br_buf body; /* SHELL_PARSED as it came, ADAPT_BUILT, ADAPT_DELTA, ADAPT_RESPONSE,
                           SCRIPT_CONFIGURED */
};

struct rig {
    pid_t pid;
    struct br_chan sup, peer;
    const char *profile_path, *profile; /* for COMPILE; NULL: the default one */
    struct rig_answer a;
};

/* Start for a purpose and wait for ROLE_READY. */
void rig_start(struct rig *g, enum br_script_purpose purpose);
/* The same as another user; only root can. */
void rig_start_as(struct rig *g, enum br_script_purpose purpose, uid_t uid);
/* Close the channels; the process must then end by itself. Returns its wait status. */
int rig_stop(struct rig *g);
/* Wait for one message on the peer's channel (supervision for purpose config). */
void rig_wait(struct rig *g, unsigned timeout_ms);
/* The process must end within the time; its wait status. Channels are closed afterwards. */
int rig_ended(struct rig *g, unsigned timeout_ms);
/* Send COMPILE and wait. NULL policy: the default one; NULL manifest: the goal alone. */
void rig_compile(struct rig *g, const char *policy, const char *manifest);
void rig_compile_n(struct rig *g, const void *policy, size_t policy_len, const void *manifest,
                   size_t manifest_len, bool in_workspace);
void rig_shell(struct rig *g, const char *text);
void rig_predicate(struct rig *g, const char *request);
/* The rule of the compiled table with this id, or NULL. */
const json_t *rig_rule(const struct rig *g, const char *id);
#define rig_code(g, name)                                                                          \
    do {                                                                                           \
        if ((g)->a.type != BR_MSG_SCRIPT_FAILED)                                                   \
            fail_msg("expected SCRIPT_FAILED, got 0x%x", (g)->a.type);                             \
        assert_string_equal(br_code_name((int)(g)->a.code), name);                                 \
    } while (0)
#define rig_says(g, part)                                                                          \
    do {                                                                                           \
        if (!strstr((g)->a.text, part))                                                            \
            fail_msg("'%s' is not in: %s", part, (g)->a.text);                                     \
    } while (0)

#endif
