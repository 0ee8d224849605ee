/*
 * core/session, private: one session of bridle-session. The program is a sequence of waits over one
 * loop: a wait ends when its condition holds, when the run is cancelled, or when a peer it needs is
 * lost. Everything that a model or a tool said is untrusted and is only ever parsed by jansson
 * after br_json_scan().
 */
#ifndef BR_SESSION_PRIV_H
#define BR_SESSION_PRIV_H

#include <jansson.h>

#include "base/base.h"
#include "policy/policy.h"
#include "session/profile.h"
#include "wire/adapter.h"
#include "wire/service.h"
#include "wire/types.h"
#include "wire/wire.h"

/* A tool call as the model asked for it. Strings are owned. */
struct call {
    char id[BR_NAME_MAX];
    char name[BR_NAME_MAX];
    char *arguments;   /* a JSON object; {"unparsed": ...} if what the model said is none */
    struct br_err bad; /* why the arguments cannot be used; the model is told; BR_OK if they can */
};

struct response {
    char *text;
    struct call *calls; /* ncalls of them */
    size_t ncalls;
    char finish[16];
    uint64_t prompt_tokens, completion_tokens;
};

/* What a tool call would do, once its arguments passed the schema. */
struct effect {
    const char *action;
    const char *tool; /* static; NULL: unknown */
    char *subject;    /* owned; the exact bytes that are decided, asked, granted */
    struct br_init_call op;
    bool shell; /* op.argv is /bin/sh -c STRING */
};

/* Votes that an event names. */
#define SESSION_VOTES_MAX 64u

/* The decision of a whole call: the strictest of its parts. Strings are owned. */
struct verdict {
    enum br_effect effect;
    char *rule_id, *source, *reason;
    bool opaque;
    bool files; /* the shell opens a file for it */
    json_t *votes;
    json_t *pieces; /* of a command: {action, subject, effect, ruleId?, source?} */
    json_t *asking; /* those of them that are not allowed */
    unsigned more;  /* of those, that are not in it */
    json_t *env;    /* changes of the environment, as text */
};

/* One call on its way: decided, asked about, run. See attempt.c. */
struct attempt {
    const char *call_id;
    const struct effect *e;
    int code; /* 0: it may run; else a negative code, and err says why */
    struct br_err err;
    struct verdict v;
    struct br_context context; /* of its decision; only the counters are used */
    int64_t minute;            /* of its decision */
    uint8_t environment[BR_ENVIRONMENT_BYTES];
    enum br_scope scope;        /* the widest that an answer may have */
    char permission[BR_ID_MAX]; /* opened for it; "" if none */
    char grant[BR_ID_MAX];      /* an earlier one that covers it; "" if none */
    bool resolved;              /* the answer is recorded */
    enum br_ask_end end;
    char *note;           /* of the answer; owned, may be NULL */
    char who[BR_WHO_MAX]; /* who answered; "": the operator at bridled's own terminal */
};

struct budget {
    uint64_t tokens_max, tokens;
    uint32_t calls_max, calls;
    uint32_t steps_max, steps;
    uint64_t deadline_us;
    bool warned_tokens, warned_calls;
};

/* What the broker says of a guest's requests, until the session has recorded it. */
struct guest_event {
    enum br_msg_type type; /* GUEST_REQUEST, GUEST_RESPONSE, GUEST_REFUSED */
    uint64_t at_us;        /* when it came */
    uint64_t serial;
    uint32_t route, messages, code, status, repairs, calls;
    uint64_t tokens, bytes, prompt, completion;
    char finish[32];
    bool settled;
    char text[BR_ERR_TEXT_MAX];
};
/* More of them that wait at one time end the run: a session is as fast as its record. */
#define GUEST_EVENTS_MAX 4096u
/* Requests in flight, of which is kept when they began and how large they are. */
#define GUEST_SENT_MAX 256u

/* A run of an adapter (harness.c); of other runs `is` is false. */
struct harness {
    bool is;
    struct br_harness it;
    struct br_buf schema;       /* JSON Schema of the artifact; empty: none */
    int sockets[2];             /* of the provider and of the gate, as pid 1 made them; or -1 */
    struct guest_event *events; /* owned; a ring of the next ones */
    size_t nevents, first;
    struct guest_event *sent; /* owned; by serial */
    struct gate *gate;        /* gate.c; owned; NULL: it is not served */
    bool *withdrawn;          /* true: nobody waits any more for the answer to the open question */
    unsigned open;            /* requests that were sent and have no answer yet */
    uint64_t tokens;          /* that were charged, by what the broker says */
};

/* The one answer that a session waits for from each peer. */
struct reply {
    bool done;
    uint64_t id; /* of the request; an answer with another id is a violation */
    int code;    /* 0 or a negative code */
    struct br_err err;
    struct br_buf data;  /* the main body */
    struct br_buf data2; /* a second one */
    char text[BR_NAME_MAX];
    uint64_t n1;
};

struct session {
    struct br_loop *loop;
    bool kick; /* something changed that a wait may care about */

    /* the start message */
    char run_id[BR_ID_MAX];
    enum br_run_mode mode;
    bool manifest_in_workspace, scripted, has_terminal, streaming;
    char workspace[BR_PATH_MAX], manifest_path[BR_PATH_MAX], policy_path[BR_PATH_MAX];
    char model[BR_NAME_MAX];
    uint32_t wall_seconds;
    struct br_ceilings ceilings; /* that a client of the service asked for */
    bool wall_given;             /* the operator said so */
    struct br_buf manifest, policy, goal;
    struct br_policy_pin pin; /* which text `policy` is */
    struct br_profile_choice choice;
    uint8_t own_backend; /* the profile's, whatever `choice` says */
    struct {
        char profile[64], image[BR_NAME_MAX];
    } images[16]; /* that bridle.lua gives to profiles */
    uint32_t nimages;
    char **argv;
    uint32_t argc;
    char **defaults; /* allowed paths of a run without a manifest */
    uint32_t ndefaults;

    struct br_chan sup, client, audit, script, adapter, broker, init;
    bool started;

    /* why the run must end before it is finished; 0 while it need not */
    int stop_code;
    struct br_err stop_err;
    bool audit_lost;
    struct br_out events; /* nevents that go to the audit with the next one */
    unsigned nevents;
    bool script_given_up; /* the policy's process left a question unanswered */

    struct harness harness;
    struct reply audited, scripted_reply, adapted, launched, stopped, provided, inited, promoted;
    uint64_t next_id;

    struct br_buf launch_json; /* of COMPILED, until it is read */
    struct profile profile;
    char check_file[BR_NAME_MAX]; /* where the policy's one check is; "" if there is none */
    uint32_t check_line;
    unsigned script_asked; /* the type of the last question */
    struct {               /* the first time that the policy's process failed; code 0: never */
        int code;
        struct br_err err;
        char file[BR_NAME_MAX];
        uint64_t line;
    } failed;
    struct br_table *table;
    struct br_ledger *ledger;
    json_t *task; /* the normalised manifest */
    char task_id[129];
    bool task_given;
    json_t *messages;
    json_t *tools;
    bool trace_cut; /* there was more than fits */
    json_t *trace;  /* mode policy: why, of every decision by the table; else NULL */
    struct {
        bool is, table;
        uint64_t id;
        struct br_buf text;
    } asked; /* mode policy: what waits to be answered */
    struct {
        int64_t unix_time; /* 0: now */
        uint64_t asks;
        const char *tool;       /* NULL: that of the call */
        const char *const *env; /* what the call changes, nenv of them */
        size_t nenv;
    } as_of; /* mode policy: decide as it was then; calls and tokens are in `budget` */
    struct budget budget;
    struct br_context context; /* of the call that is decided */

    char stream_id[BR_ID_MAX];
    bool text_shown;          /* the turn's text came in pieces while the answer arrived */
    struct attempt *attempts; /* that may wait for an answer now; nattempts of them */
    size_t nattempts;
    struct br_redact *redact; /* for what a model is told of a denial; made when needed */
    bool unrecorded;          /* modes plan and activate: there is no audit */
    bool sandbox_up;
    bool notices_given; /* about allowed paths that stay read-only */
    bool host_lacks;    /* of the last SUP_REFUSED: another profile may be possible */
    uint64_t
        effect_started_us; /* of the present call; 0 before, and while it is decided and asked */
    uint64_t launched_us;
    char sandbox_name[BR_NAME_MAX], sandbox_image[BR_NAME_MAX], sandbox_network[16];
    uint32_t sandbox_mounts;

    /* one HTTP exchange */
    uint32_t http_status;
    uint64_t request_bytes, response_bytes;
    char provider_request_id[BR_NAME_MAX], content_type[BR_NAME_MAX];
    bool http_headed;
    bool *body_kick; /* set to true when the exchange moves on; NULL if nobody waits for it */

    bool *init_kick;        /* set to true when pid 1 said something; NULL if nobody waits for it */
    struct br_buf warnings; /* of the compiler, each NUL-terminated */
    struct br_buf errors;   /* the same, if there are several */
    struct br_buf init_ready;
    bool init_is_ready;
    bool progress_new;
    uint64_t progress_out, progress_err, progress_ms;
    bool sandbox_recorded;
    bool stopping_sandbox;
    uint8_t stop_verified;
    uint32_t stop_status;
    uint64_t stop_ms;
    char stop_detail[BR_NAME_MAX];
};

/* ---- wait.c: waiting ---- */

/* Wait until *done. 0, or a negative code: the stop code of the run, or -BR_E_TIMEOUT after
 * timeout_us. With `even_if_stopping` only a lost audit, a lost supervisor or the timeout end it.
 */
int session_wait(struct session *s, const bool *done, uint64_t timeout_us, bool even_if_stopping);
/* Note why the run must end (the first reason wins) and wake the wait. */
void session_stop(struct session *s, int code, const char *fmt, ...) BR_PRINTF(3, 4);
uint64_t session_expect(struct session *s, struct reply *r);
void reply_free(struct reply *r);

/* ---- record.c: events; what returns after audit has stored them is followed by what they say ----
 */

/* Steals `data`. 0 or a negative code, after which the run must end. */
int session_record(struct session *s, const char *type, const char *actor, json_t *data);
/* The same for one that goes with the next, or with session_record_flush(): until then nothing may
 * be waited for. After a failure there is none left that waits. */
int session_record_ahead(struct session *s, const char *type, const char *actor, json_t *data);
/* Store what went ahead; nothing if there is none. */
int session_record_flush(struct session *s);
/* Streamed text of the agent; audit makes bridle.text events of it. */
int session_text(struct session *s, const char *p, size_t n, bool final);
/* table.c: the table (JSON) in bridle.table events, ahead of the next; none if a part of it is too
 * large. */
int session_record_table(struct session *s, const struct br_buf *text);

/* ---- peers.c: channels and their tables ---- */

/* Serve the supervision channel until SESSION_START has opened the others. */
int session_serve(struct session *s, struct br_err *err);
/* There is a ledger: from now on the client may answer what it is asked. */
void session_permit_answers(struct session *s);
/* Mode policy: the client may ask, or not now. */
void session_permit_policy(struct session *s, bool yes);
/* Put the channel to pid 1 into service; takes the descriptor over. */
void session_adopt_init(struct session *s, int fd);

/* ---- turn.c: one model turn ---- */

int session_turn(struct session *s, struct response *out, struct br_err *err);
void response_free(struct response *r);

/* ---- tools.c: what the model may call ---- */

/* The tools as the adapter wants them: [{name, description, schema}]; new reference. */
json_t *tools_describe(void);
/* Check the arguments of a call and say what it would do. -BR_E_UNKNOWN_TOOL or
 * -BR_E_INVALID_ARGUMENTS with a sentence for the model. */
int tools_resolve(const char *name, json_t *args, struct effect *out, struct br_err *err);
int tools_resolve_argv(char *const *argv, uint32_t argc, struct effect *out, struct br_err *err);
void effect_free(struct effect *e);

/* ---- script.c: asking the policy's process ---- */

/*
 * Ask a question (SHELL, PREDICATE) and wait for its answer. 0 with s->scripted_reply the answer;
 * or a negative code, with s->scripted_reply.err saying why: a failure of the policy, which is
 * recorded as bridle.policy.error by then, or the end of the run. Either counts as a denial.
 */
int session_script(struct session *s, unsigned type, struct br_out *question);
/* The answer cannot be used (or, text NULL, is a failure that says why itself): record it. Returns
 * `code`, or that of the record if that failed. */
int session_script_failed(struct session *s, int code, const char *text);

/* ---- decide.c: decision ---- */

void verdict_init(struct verdict *v);
void verdict_free(struct verdict *v);
/* Decide; nothing is recorded but a failure of the policy. `before` (may be NULL): with the
 * counters of then. v is initialised. A negative code ends the run. */
int session_decide(struct session *s, const char *call_id, const struct effect *e,
                   const struct br_context *before, struct verdict *v);
/* policy.decision and bridle.votes; `grant` (may be NULL, ""): the permission that covers it. */
int session_record_decision(struct session *s, const struct verdict *v, const char *call_id,
                            const struct effect *e, const char *grant);
/* -BR_E_DENIED with the sentence for a verdict of deny. */
int session_denied(const struct verdict *v, const struct effect *e, struct br_err *err);

/* ---- attempt.c, ask.c: decision, question, answer, effect ---- */

/*
 * Decide and record; where the answer is "ask" and no grant covers it, open the question. a->code
 * says what came out, with -BR_E_DENIED for a denial. Returns 0, or a negative code if the run must
 * end. Free with attempt_free() in any case.
 */
int attempt_open(struct session *s, struct attempt *a, const char *call_id, const struct effect *e);
/* Put the open questions of n attempts, together, and wait for each one's answer. */
int attempts_answer(struct session *s, struct attempt *a, size_t n);
/* The grant for it, if that is what the decision and the answer say: 0, or a->code. */
int attempt_mint(struct session *s, struct attempt *a, struct br_grant_ref *grant);
/* Run it with that grant: 0 with *output, or a->code. */
int attempt_run(struct session *s, struct attempt *a, json_t **output);
void attempt_free(struct attempt *a);

/* ask.c: open the question of an attempt whose verdict is "ask"; as attempt_open(). */
int ask_open(struct session *s, struct attempt *a);
/* The client's answer to a permission: 0, or a negative code and a sentence, and nothing changed.
 * scope 0: deny; `who`: see BR_WHO_MAX. */
int ask_answer(struct session *s, const char *permission, unsigned scope, const char *note,
               const char *who, struct br_err *err);

/* environment.c: what a run-scoped allow is bound to beside action and subject. */
void session_environment(struct session *s, const struct attempt *a,
                         uint8_t out[BR_ENVIRONMENT_BYTES]);

/* prompt.c: the data of bridle.ask: what is asked, what it would touch, which rule asks, and how
 * that is changed. New reference; NULL without memory. */
json_t *prompt_data(struct session *s, const struct attempt *a);

/* instead.c: of an attempt that was denied, for the model: {action, effect, answer?, rule, reason?,
 * allowed}, redacted. New reference; NULL if there is nothing to say. */
json_t *instead_json(struct session *s, const struct attempt *a);

/* A decision without consequences: nothing is recorded, nobody is asked. *decision says what came
 * out (new reference). 0 for allow and ask; -BR_E_DENIED with the sentence that a run would give.
 */
int session_foresee(struct session *s, const char *call_id, const struct effect *e,
                    enum br_effect *decided, json_t **decision, struct br_err *err);

/*
 * Take out of the result of a search what it found in files that the policy does not allow to be
 * read as they are ("ask" included: nobody was asked about that file); "withheld" counts it.
 */
void session_withhold(struct session *s, const char *call_id, json_t *output);

/* ---- context.c: what a decision knows beside action and subject ---- */

/* Everything but changes of the environment that a command line makes by itself. Valid as long as
 * `s` and `e`. */
void session_context(const struct session *s, const struct effect *e, struct br_context *c);

/* ---- effect.c: the only way to the sandbox ---- */

/*
 * Redeem the grant and, only if the ledger accepts it for exactly this call, run the operation in
 * the sandbox. *output is the result object of bridle-init (new reference) when 0 is returned.
 */
int session_effect(struct session *s, const struct br_grant_ref *g, const char *call_id,
                   const struct effect *e, json_t **output, struct br_err *err);

/* ---- compile.c, launch.c ---- */

int session_compile(struct session *s, struct br_err *err);
/* The budget is not larger than what was asked for. */
void session_clamp(struct session *s);
int session_launch(struct session *s, struct br_err *err);
/* The same without a record, and without the look at the workspace that one begins with. */
int session_launch_bare(struct session *s, struct br_err *err);
/*
 * Ask whether a plan made of `from` is possible; nothing is started. 0 with s->launched.data the
 * plan as rendered, and s->launched.err.text why a run would be refused all the same ("" if not);
 * or the launcher's refusal.
 */
int session_resolve(struct session *s, const struct br_plan *from, struct br_err *err);
/* The host lacks something (err says what): add those offered profiles that are possible to the
 * text, and their names to `names`. */
void session_offer(struct session *s, json_t *names, struct br_err *err);
/* End the sandbox and record that it is gone; `outcome` of the run: 0 or a negative code. */
int session_unlaunch(struct session *s, int outcome);
/* Record what the run changed in the workspace. */
int session_changes(struct session *s);

/* ---- agent.c, plan.c: the modes ---- */

/* Each runs to the end and says what bridled should be told. */
struct outcome {
    int code; /* 0 or a positive enum br_code */
    int exit_code;
    char text[BR_ERR_TEXT_MAX];
};
void session_run_agent(struct session *s, struct outcome *o);
void session_run_exec(struct session *s, struct outcome *o);
void session_run_validate(struct session *s, struct outcome *o);
void session_run_plan(struct session *s, struct outcome *o);
void session_run_activate(struct session *s, struct outcome *o);
/* promote.c */
void session_run_promote(struct session *s, struct outcome *o);

/* ---- policy.c: mode policy ---- */

void session_run_policy(struct session *s, struct outcome *o);
/* Decide one request as POLICY_ASK has it, without consequences; a new reference. */
json_t *session_policy_answer(struct session *s, json_t *q);
/* selftest.c: mode selftest. */
void session_run_selftest(struct session *s, struct outcome *o);
/* br_table_decide() by the session's table; where s->trace is an array, what every rule said is
 * added to it. `against`: only what is stricter than the rest of the call's decision counts. */
void session_table_decide(struct session *s, const struct br_request *q, bool against,
                          struct br_decision *d);

/* ---- harness.c, guest.c: a run of an adapter ---- */

void session_run_harness(struct session *s, struct outcome *o);
/*
 * observe.c: a run whose adapter gives back one value of the operator's schema. Before the sandbox
 * is asked for: can the schema be promised? And of the value: does it fit? Without a schema both
 * do.
 */
int observe_schema(struct session *s, struct br_err *err);
int observe_value(struct session *s, const json_t *value, struct br_err *err);

/* Before the sandbox is asked for: does the profile have what an adapter needs? */
int harness_check(struct session *s, struct br_err *err);
/* The guest is about to be started. */
int harness_started(struct session *s);
/* What has come since the last time, while the guest runs: recorded, answered. */
int harness_serve(struct session *s);
/* guest.c: note what the broker said; false if there is no room. */
bool guest_note(struct session *s, const struct guest_event *e);
/* Record what was noted. 0 or a negative code, after which the run must end. */
int guest_record(struct session *s);
/* The guest has ended: wait for the answers of its requests, and record them. */
int guest_drain(struct session *s);

/* gate.c: serve the gate on this descriptor, which is taken over. */
int gate_open(struct session *s, int fd, struct br_err *err);
/* Answer what was asked since the last time. 0 or a negative code, after which the run must end. */
int gate_serve(struct session *s);
void gate_close(struct session *s);

/* What comes before the first turn and after the last one, of every run that has a record. */
int session_begin(struct session *s, struct br_err *err);
/* The same without a sandbox. */
int session_begin_record(struct session *s, struct br_err *err);
void session_end(struct session *s, int code, const char *text, const char *note);
void outcome_set(struct outcome *o, int code, const char *text);
/* What the agent is to do: the goal, the task, when it is done. NULL if it is not usable as text.
 */
char *session_prompt(struct session *s, struct br_buf *text);

/* ---- call.c: one tool call from intent to result ---- */

/*
 * Take over name and arguments as the model wrote them, whatever they are: what cannot be used is
 * noted in c->bad and answered to the model by session_call(). Only a lack of memory is an error.
 */
int session_call_read(struct call *c, const char *name, const char *arguments, struct br_err *err);
/* Run one call and add its answer to `reply_text` (JSON for the model). 0 to go on, or a negative
 * code that ends the run. */
int session_call(struct session *s, const struct call *c, char **reply_text);
/* Record tool.result (started_us 0: nothing was run): `output` (borrowed) of a call that went well,
 * else code and err. */
int session_record_result(struct session *s, const char *call_id, const char *tool,
                          uint64_t started_us, json_t *output, int code, const struct br_err *err);
/* Run the n calls of a turn, in their order, after all questions about them were put together.
 * `replies` has room for n; each is to be freed. */
int session_calls(struct session *s, const struct call *calls, size_t n, char **replies);
/* Decide, ask, grant, run: what is between tool.call and tool.result. Of a denial *output is
 * {"denied": ...}. */
int session_call_effect(struct session *s, const char *call_id, struct effect *e, json_t **output,
                        struct br_err *err);

#endif
