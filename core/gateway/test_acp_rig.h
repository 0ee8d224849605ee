/*
 * A connection and sessions that a test plays: what gw_acp sends is kept, what it asks of a session
 * is written down, and the events of a run are what the test says they are.
 */
#ifndef BR_GATEWAY_TEST_ACP_RIG_H
#define BR_GATEWAY_TEST_ACP_RIG_H

#include "gateway/gateway_priv.h"

struct gw_session {
    char id[BR_ID_MAX], workspace[BR_PATH_MAX];
    enum gw_state state;
    struct conn *owner;
    struct gw_sink *sink;
    struct gw_result result;
    uint64_t rows;
    char content[1024]; /* of session_run(); cut */
    size_t ncontent;
    bool forgotten;
};

struct rig_answer {
    char permission[64], note[128], who[BR_WHO_MAX];
    unsigned scope;
};

struct conn {
    void *state;
    struct gw_who who;
    json_t *sent; /* an array */
    bool full, closed;
};

struct rig {
    struct conn c;
    struct br_service settings;
    struct gw_session sessions[300];
    unsigned nsessions;
    struct rig_answer answers[16];
    unsigned nanswers;
    unsigned canceled, disowned, released;
    bool hold;        /* session_create() answers later: rig_created() */
    bool hold_replay; /* the store too: rig_replay() */
    bool draining, too_often;
    bool reads_too_often; /* conn_may_read() says no */
    unsigned replays, reads, more_rows;
};
extern struct rig rig;

void rig_open(void);
void rig_close(void);
/* One message of the client: JSON in which ' stands for ". */
void rig_say(const char *fmt, ...) BR_PRINTF(1, 2);
/* The result of the answer to this id, or NULL: none, or an error. */
json_t *rig_result(const char *id);
/* The code of the error that this id was answered with; 0: none. *name (may be NULL): data.code. */
int rig_error(const char *id, const char **name);
bool rig_answered(const char *id);
/* The nth update of this kind, or NULL. */
json_t *rig_update(const char *kind, unsigned nth);
/* The nth message with this method, or NULL. */
json_t *rig_sent(const char *method, unsigned nth);
/* Text at a path, "a.b.0.c"; "" if there is none. */
const char *rig_text(const json_t *o, const char *path);
/* initialize, and one session in /w whose name is returned. */
const char *rig_ready(void);
/* An event of the run, data as in rig_say(). */
void rig_event(struct gw_session *s, const char *type, const char *data);
void rig_end(struct gw_session *s, enum gw_state state, const char *stopped);
/* The last session, which runs. */
struct gw_session *rig_run(void);
/* What was held is answered. */
void rig_created(int code);
void rig_replay(int code);

#endif
