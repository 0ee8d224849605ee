/*
 * core/supervise, private: durable sessions of harnesses. STATE/sessions/ID says what a session
 * was begun with; its private state is the state lease of the same name. A session goes on only
 * with all of it as it was.
 */
#ifndef BR_SUPERVISE_SESSIONS_H
#define BR_SUPERVISE_SESSIONS_H

#include "supervise/kept.h"

/* What must be the same in every run of a session. Text, so that a difference can be named. */
#define SESSION_FIELDS(X)                                                                          \
    X(adapter, "adapter")                                                                          \
    X(revision, "revision")                                                                        \
    X(profile, "profile")                                                                          \
    X(profile_version, "profile-version")                                                          \
    X(profile_text, "profile-text")                                                                \
    X(image, "image")                                                                              \
    X(workspace, "workspace")                                                                      \
    X(workspace_id, "workspace-identity")                                                          \
    X(policy, "policy")                                                                            \
    X(model, "model")                                                                              \
    X(model_policy, "model-policy")                                                                \
    X(provider_url, "provider-url")                                                                \
    X(provider_key, "provider-key")                                                                \
    X(provider_auth, "provider-auth")                                                              \
    X(provider_proxy, "provider-proxy")                                                            \
    X(provider_ca, "provider-ca")                                                                  \
    X(owner, "owner")

#define SESSION_VALUE_MAX BR_PATH_MAX
struct session_identity {
#define SESSION_MEMBER_(member, name) char member[SESSION_VALUE_MAX];
    SESSION_FIELDS(SESSION_MEMBER_)
#undef SESSION_MEMBER_
};

/* A new id: kebab-case, so that it can name a state lease. */
void session_id_make(char id[BR_ID_MAX]);
/* Write the record of a new session, and keep it locked: *fd is the lock. */
int session_create(int state_fd, const char *id, const struct session_identity *is,
                   uint64_t keep_seconds, int *fd, struct br_err *err);
/*
 * The same of one that exists, locked before it is read: -BR_E_NOT_FOUND; -BR_E_IN_USE;
 * -BR_E_DENIED naming the first field that differs with both values, nothing was changed. *fd is
 * the lock.
 */
int session_resume(int state_fd, const char *id, const struct session_identity *is, int *fd,
                   struct br_err *err);
/* It was used now. */
int session_touch(int state_fd, const char *id, struct br_err *err);

/*
 * Before the launch of a run whose adapter keeps sessions: a new one, or the one that is to go on,
 * which must be as it was; the plan gets its state disk. As session_resume(). A profile whose state
 * disk is in memory has no sessions that could be resumed: -BR_E_REQUIREMENT_MISSING.
 */
int session_open(struct supervisor *s, struct br_plan *plan, struct br_err *err);
/* After the end of the sandbox. A new one that never had a sandbox is forgotten. */
void session_close(struct supervisor *s);

/* For `bridle state`: 0 if the text is a record. */
int session_row(int dir, int leases, const char *id, const char *text, struct br_state_row *w);
/* Remove it with its state; if `expired`, only if its retention is over, as its record says while
 * it is locked: 0 as well if it is not. -BR_E_IN_USE, -BR_E_NOT_FOUND. */
int session_purge(struct supervisor *s, const char *id, bool expired, struct br_err *err);
/* Remove those whose retention is over. */
void sessions_sweep(struct supervisor *s);

#endif
