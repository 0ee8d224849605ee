/*
 * The peers of a session under test. See test_rig.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/redact.h"
#include "script/shell.h"
#include "session/test_rig.h"

static const char allow_all[] =
    "{\"v\":2,\"sources\":[{\"kind\":\"operator\",\"name\":\"test\"}],\"rules\":["
    "{\"id\":\"all\",\"source\":0,\"action\":\"*\",\"match\":\"any\",\"pattern\":\"\","
    "\"effect\":\"allow\"}],\"fallbacks\":[],\"predicates\":false}";

static const char task[] = "{\"id\":\"test\",\"allowed_paths\":[\"src/**\",\".git/**\"],"
                           "\"generated\":true,\"goal\":\"g\",\"acceptance\":[\"a\"]}";

static const char launch[] =
    "{\"name\":\"test-v1\",\"version\":1,\"backend\":\"native\",\"image\":\"host\","
    "\"identity\":\"dedicated\",\"landlock\":\"required\",\"workspace\":\"bind\",\"noexec\":[],"
    "\"sockets\":[],\"alone\":false,"
    "\"limits\":{\"memory_bytes\":1048576,\"pids\":10,\"cpu_percent\":100,\"nofile\":64,"
    "\"fsize_bytes\":4096,\"tmp_bytes\":4096,\"tmp_inodes\":10,\"output_bytes\":4096,"
    "\"exec_seconds\":10,\"wall_seconds\":60},\"disks\":{},\"offers\":[]}";

#define RIG_ASKS_MAX 128u

struct peers {
    const struct session_rig_options *o;
    struct session_rig_seen *seen;
    struct br_chan sup, client, audit, script, init;
    struct {
        char id[BR_ID_MAX];
        bool run;
    } asks[RIG_ASKS_MAX];
    unsigned nasks, nletters;
    uint64_t row;
    bool done;
};

static const char *table_of(const struct session_rig_options *o)
{
    return o->table ? o->table : allow_all;
}

/* ---- the child ---- */

static int send_compiled(struct peers *p, uint64_t id, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, table_of(p->o), strlen(table_of(p->o)));
    br_out_blob(&o, task, strlen(task));
    br_out_blob(&o, launch, strlen(launch));
    br_buf_put_u32(&o.buf, p->o->warnings);
    for (unsigned i = 0; i < p->o->warnings; i++)
        br_buf_put_str(&o.buf, "a warning that is long enough to be an allocation of its own");
    br_buf_put_str(&o.buf, "policy.lua");
    br_buf_put_u32(&o.buf, 3);
    return br_chan_send(&p->script, BR_MSG_COMPILED, id, &o, err);
}

static int on_compile(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    return send_compiled(ctx, m->id, err);
}

static int on_shell(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    struct br_shell *sh = calloc(1, sizeof(*sh));
    (void)ctx;
    if (!sh || br_msg_blob(m, BR_TOOL_JSON_MAX, &text, err) < 0)
        _exit(1);
    br_shell_parse(sh, text.data, text.len);
    br_shell_reply(sh, &o.buf);
    br_shell_free(sh);
    free(sh);
    return br_chan_send(c, BR_MSG_SHELL_PARSED, m->id, &o, err);
}

static int on_predicate(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (br_msg_blob(m, BR_TOOL_JSON_MAX + BR_SUBJECT_MAX, &text, err) < 0)
        _exit(1);
    p->seen->asked++;
    enum session_rig_predicate how = PREDICATE_ANSWERS;
    if (p->o->always || memmem(text.data, text.len, "bad", 3))
        how = p->o->predicate;
    if (how == PREDICATE_SILENT)
        return 0;
    if (how == PREDICATE_DIES) {
        (void)shutdown(c->fd, SHUT_RDWR);
        return 0;
    }
    if (how == PREDICATE_FAILS) {
        br_buf_put_u32(&o.buf, BR_E_POLICY_ERROR);
        br_buf_put_str(&o.buf, "policy.lua:7: boo");
        br_buf_put_str(&o.buf, "policy.lua");
        br_buf_put_u32(&o.buf, 7);
        return br_chan_send(c, BR_MSG_SCRIPT_FAILED, m->id, &o, err);
    }
    br_buf_put_u8(&o.buf, how == PREDICATE_GARBAGE ? 77 : BR_EFFECT_NONE);
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, "");
    return br_chan_send(c, BR_MSG_PREDICATE_VOTE, m->id, &o, err);
}

static void send_ask(struct peers *p)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, "{}", 2);
    (void)br_chan_send(&p->client, BR_MSG_POLICY_ASK, 1, &o, NULL);
}

static int send_answer(struct peers *p)
{
    BR_CLEANUP_OUT struct br_out answer = BR_OUT_INIT;
    br_buf_put_str(&answer.buf, "perm_00000000000000000000000000");
    br_buf_put_u8(&answer.buf, 1);
    br_buf_put_str(&answer.buf, "");
    br_buf_put_str(&answer.buf, "");
    return br_chan_send(&p->client, BR_MSG_ANSWER, 0, &answer, NULL);
}

/* More than the buffers of a socket hold; given up when the session reads no more. */
static void flood(struct peers *p)
{
    (void)fcntl(p->client.fd, F_SETFL, O_NONBLOCK);
    for (unsigned n = 0, tries = 0; n < 4000 && tries < 200;) {
        if (send_answer(p) == 0) {
            n++;
            tries = 0;
        } else {
            tries++;
            (void)usleep(10000);
        }
    }
}

static void answer_as(struct peers *p, const char *id, unsigned scope)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, id);
    br_buf_put_u8(&o.buf, (uint8_t)scope);
    br_buf_put_str(&o.buf, "");
    br_buf_put_str(&o.buf, p->o->who ? p->o->who : "");
    (void)br_chan_send(&p->client, BR_MSG_ANSWER, 0, &o, NULL);
}

static void answer_one(struct peers *p, const char *id, bool run)
{
    char letter = p->o->answers[p->nletters];
    if (p->o->answers[p->nletters + 1])
        p->nletters++;
    switch (letter) {
    case 'y':
        answer_as(p, id, BR_SCOPE_ONCE);
        break;
    case 'r':
        answer_as(p, id, run ? BR_SCOPE_RUN : BR_SCOPE_ONCE);
        break;
    case 'w':
        answer_as(p, id, BR_SCOPE_RUN);
        answer_as(p, id, 0);
        break;
    case 'u':
        answer_as(p, "perm_00000000000000000000000000", BR_SCOPE_RUN);
        answer_as(p, "", BR_SCOPE_ONCE);
        answer_as(p, id, BR_SCOPE_ONCE);
        break;
    case 'd':
        answer_as(p, id, BR_SCOPE_ONCE);
        answer_as(p, id, BR_SCOPE_RUN);
        answer_as(p, id, 0);
        break;
    case 's':
        (void)br_chan_send(&p->client, BR_MSG_CANCEL, 0, NULL, NULL);
        break;
    case 'x':
        break;
    default:
        answer_as(p, id, 0);
    }
}

static void keep(char *to, size_t size, const struct br_buf *data)
{
    snprintf(to, size, "%.*s", (int)data->len, (const char *)data->data);
}

/* What tests of questions look at. */
static void look_at(struct peers *p, const char *type, const struct br_buf *bytes)
{
    struct session_rig_seen *seen = p->seen;
    json_t *data = json_loadb((const char *)bytes->data, bytes->len, 0, NULL);
    const char *id = json_string_value(json_object_get(data, "permissionId"));
    const char *call = json_string_value(json_object_get(data, "callId"));
    const char *effect = json_string_value(json_object_get(data, "effect"));
    const char *decision = json_string_value(json_object_get(data, "decision"));
    const char *scope = json_string_value(json_object_get(data, "scope"));
    size_t at = strlen(seen->order);
    snprintf(seen->order + at, sizeof(seen->order) - at, "%s %s\n", type, call ? call : "-");
    if (strcmp(type, "policy.decision") == 0) {
        seen->asks += strcmp(effect, "ask") == 0;
    } else if (strcmp(type, "permission.requested") == 0) {
        seen->requested++;
    } else if (strcmp(type, "bridle.votes") == 0) {
        seen->covered += json_object_get(data, "grant") != NULL;
    } else if (strcmp(type, "bridle.grant") == 0) {
        seen->granted++;
    } else if (strcmp(type, "bridle.answered") == 0) {
        keep(seen->answered, sizeof(seen->answered), bytes);
    } else if (strcmp(type, "permission.resolved") == 0) {
        seen->resolved_allow += strcmp(decision, "allow") == 0;
        seen->resolved_deny += strcmp(decision, "deny") == 0;
        keep(seen->resolved, sizeof(seen->resolved), bytes);
    } else if (strcmp(type, "tool.result") == 0) {
        keep(seen->result, sizeof(seen->result), bytes);
    } else if (strcmp(type, "bridle.ask") == 0 && p->nasks < RIG_ASKS_MAX) {
        keep(seen->ask, sizeof(seen->ask), bytes);
        snprintf(p->asks[p->nasks].id, BR_ID_MAX, "%s", id);
        p->asks[p->nasks++].run = strcmp(scope, "run") == 0;
    } else if (strcmp(type, "bridle.asks") == 0) {
        seen->prompts++;
        for (unsigned i = 0; i < p->nasks && p->o->answers; i++)
            answer_one(p, p->asks[i].id, p->asks[i].run);
        p->nasks = 0;
    }
    json_decref(data);
}

static int on_answered(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    (void)c, (void)err;
    if (br_rd_u8(&m->rd))
        p->seen->accepted++;
    else
        p->seen->refused++;
    return 0;
}

static int on_init_call(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    p->seen->effects++;
    br_buf_put_u8(&o.buf, 1);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "{}", 2);
    return br_chan_send(c, BR_MSG_INIT_RESULT, m->id, &o, err);
}

static void take_event(struct peers *p, struct br_msg *m)
{
    char type[64];
    br_rd_str(&m->rd, type, sizeof(type));
    size_t at = strlen(p->seen->types);
    snprintf(p->seen->types + at, sizeof(p->seen->types) - at, "%s\n", type);
    p->seen->events++;
    char actor[64];
    BR_CLEANUP_BUF struct br_buf data = BR_BUF_INIT(0);
    br_rd_str(&m->rd, actor, sizeof(actor));
    if (br_msg_blob(m, BR_EVENT_MAX, &data, NULL) < 0)
        _exit(1);
    look_at(p, type, &data);
    if (strcmp(type, "bridle.policy.error") == 0) {
        at = strlen(p->seen->errors);
        snprintf(p->seen->errors + at, sizeof(p->seen->errors) - at, "%.*s\n", (int)data.len,
                 (const char *)data.data);
    }
    if (p->o->compiled_again && strcmp(type, "bridle.notice") == 0) {
        (void)send_compiled(p, 9999, NULL);
        (void)usleep(50000); /* the session reads that one first */
    }
    if (p->o->answer_flood && strcmp(type, "agent.started") == 0)
        flood(p);
    p->row++;
}

static int on_append(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    p->seen->appends++;
    do {
        take_event(p, m);
    } while (m->rd.off < m->rd.len);
    return br_chan_send_fixed(c, BR_MSG_APPENDED, m->id, p->row, NULL, 0, err);
}

static int on_launch(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    struct br_plan plan;
    br_plan_get(&m->rd, &plan);
    for (uint32_t i = 0; i < plan.nallowed; i++) {
        size_t at = strlen(p->seen->launched);
        snprintf(p->seen->launched + at, sizeof(p->seen->launched) - at, "%s\n",
                 plan.allowed_paths[i]);
    }
    br_plan_free(&plan);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, BR_E_REQUIREMENT_MISSING);
    br_buf_put_str(&o.buf, "there is no sandbox in this test");
    br_buf_put_u8(&o.buf, 0);
    return br_chan_send(c, BR_MSG_SUP_REFUSED, 0, &o, err);
}

static int on_nothing(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static int on_tested(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct session_rig_seen *seen = ((struct peers *)ctx)->seen;
    (void)c, (void)err;
    br_rd_str(&m->rd, seen->tested_table, sizeof(seen->tested_table));
    seen->rules = br_rd_u32(&m->rd);
    seen->warnings = br_rd_u32(&m->rd);
    seen->probes = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, seen->tested_file, sizeof(seen->tested_file));
    seen->line = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0)
        _exit(1);
    seen->tested++;
    return 0;
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_SUP_TESTED, BR_PERMIT, 24, 4096, 0, 0, on_tested},
    {BR_MSG_SUP_LAUNCH, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_launch},
    {BR_MSG_SUP_STOP, BR_PERMIT, 0, 0, 0, 0, on_nothing},
};
static const struct br_msg_rule client_rules[] = {
    {BR_MSG_ANSWERED, BR_PERMIT, 0, BR_MSG_MAX, 0, 0, on_answered},
    {BR_MSG_REPORT, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_nothing},
};
static const struct br_msg_rule init_rules[] = {
    {BR_MSG_INIT_CALL, BR_PERMIT, 0, BR_MSG_MAX, 0, 3, on_init_call},
};
static const struct br_msg_rule audit_rules[] = {
    {BR_MSG_APPEND, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_append},
};
static const struct br_msg_rule script_rules[] = {
    {BR_MSG_COMPILE, BR_PERMIT, 0, BR_MSG_MAX, 0, 3, on_compile},
    {BR_MSG_SHELL, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_shell},
    {BR_MSG_PREDICATE, BR_PERMIT, 0, BR_MSG_MAX, 0, 1, on_predicate},
};

static int on_end(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct peers *p = ctx;
    (void)code, (void)err;
    p->done |= c == &p->sup;
    return 0;
}

static void send_start(struct peers *p, int client, int audit, int script)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    bool record = p->o->mode != BR_RUN_VALIDATE && p->o->mode != BR_RUN_POLICY &&
                  p->o->mode != BR_RUN_SELFTEST;
    br_buf_put_str(&o.buf, "run-1");
    br_buf_put_u8(&o.buf, (uint8_t)p->o->mode);
    br_buf_put_u8(&o.buf, 0);
    br_buf_put_str(&o.buf, "/workspace");
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "", 0); /* manifest */
    br_buf_put_str(&o.buf, "");
    br_out_blob(&o, "", 0); /* policy */
    br_policy_pin_put(&o.buf, &(struct br_policy_pin){.sha256 = ""});
    br_buf_put_str(&o.buf, "none");
    br_buf_put_u8(&o.buf, 0); /* not scripted */
    br_buf_put_u8(&o.buf, p->o->answers != NULL);
    br_buf_put_u8(&o.buf, 0); /* not streaming */
    br_buf_put_u32(&o.buf, 60);
    br_ceilings_put(&o.buf, &p->o->ceilings);
    br_profile_choice_put(&o.buf, &(struct br_profile_choice){.name = ""});
    br_buf_put_u32(&o.buf, 0); /* images */
    br_out_blob(&o, "go", 2);
    br_allowed_put(&o.buf, (char *[]){(char *)(uintptr_t) "true"}, 1);
    br_allowed_put(&o.buf, NULL, 0);
    br_buf_put_u8(&o.buf, 0); /* no adapter */
    br_out_fd(&o, client, true);
    if (record)
        br_out_fd(&o, audit, true);
    else
        br_close(&audit);
    br_out_fd(&o, script, true);
    if (br_chan_send(&p->sup, BR_MSG_SESSION_START, 0, &o, NULL) < 0)
        _exit(1);
}

static _Noreturn void be_peers(const struct session_rig_options *o, struct session_rig_seen *seen,
                               int sup, int init)
{
    struct peers p = {.o = o, .seen = seen};
    struct br_loop *loop = br_loop_new();
    int client[2], audit[2], script[2];
    if (!loop || br_chan_pair(client) < 0 || br_chan_pair(audit) < 0 || br_chan_pair(script) < 0)
        _exit(1);
    br_chan_init(&p.sup, sup, "session", sup_rules, BR_ARRAY_LEN(sup_rules), &p);
    br_chan_init(&p.client, client[0], "session", client_rules, BR_ARRAY_LEN(client_rules), &p);
    br_chan_init(&p.audit, audit[0], "session", audit_rules, BR_ARRAY_LEN(audit_rules), &p);
    br_chan_init(&p.script, script[0], "session", script_rules, BR_ARRAY_LEN(script_rules), &p);
    br_chan_init(&p.init, init, "session", init_rules, BR_ARRAY_LEN(init_rules), &p);
    if (o->answer_at_start)
        (void)send_answer(&p);
    if (o->ask_at_start)
        send_ask(&p);
    send_start(&p, client[1], audit[1], script[1]);
    struct br_chan *all[] = {&p.sup, &p.client, &p.audit, &p.script, &p.init};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        if ((all[i] != &p.client || !o->answer_flood) &&
            br_loop_watch_chan(loop, all[i], on_end, &p) < 0)
            _exit(1);
    (void)br_loop_run(loop, &p.done, NULL);
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        br_chan_close(all[i]);
    br_loop_free(&loop);
    _exit(0);
}

/* ---- the test's side ---- */

void session_rig_open(struct session_rig *r, const struct session_rig_options *o)
{
    int ends[2], init[2];
    struct br_err err = {.code = BR_OK};
    memset(r, 0, sizeof(*r));
    r->seen =
        mmap(NULL, sizeof(*r->seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r->seen != MAP_FAILED);
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(br_chan_pair(ends), 0);
    assert_int_equal(br_chan_pair(init), 0);
    r->peers = fork();
    assert_true(r->peers >= 0);
    if (r->peers == 0) {
        close(ends[0]);
        close(init[0]);
        be_peers(o, r->seen, ends[1], init[1]);
    }
    close(ends[1]);
    close(init[1]);
    r->init = fcntl(init[0], F_DUPFD_CLOEXEC, 10); /* 3 is for the supervisor */
    close(init[0]);
    if (ends[0] != 3) {
        assert_int_equal(dup2(ends[0], 3), 3);
        close(ends[0]);
    }
    r->s.loop = br_loop_new();
    assert_non_null(r->s.loop);
    if (session_serve(&r->s, &err) < 0)
        fail_msg("%s", err.text);
}

void session_rig_load(struct session_rig *r, const struct session_rig_options *o)
{
    struct br_err err = {.code = BR_OK};
    if (br_table_load(table_of(o), strlen(table_of(o)), &r->s.table, &err) < 0)
        fail_msg("%s", err.text);
    br_plan_default(&r->s.profile.plan);
    r->s.ledger = br_ledger_new("run-1");
    assert_non_null(r->s.ledger);
    if (o->sandbox) {
        session_adopt_init(&r->s, r->init);
        r->init = -1;
    }
    if (o->answers)
        session_permit_answers(&r->s);
}

int session_rig_authorize(struct session_rig *r, const struct effect *e, enum br_effect *decided,
                          struct br_err *err)
{
    struct attempt a;
    if (attempt_open(&r->s, &a, "call-1", e) == 0)
        (void)attempts_answer(&r->s, &a, 1);
    *decided = a.v.effect;
    if (a.code < 0)
        *err = a.err;
    int code = a.code;
    attempt_free(&a);
    return code;
}

void session_rig_close(struct session_rig *r)
{
    struct session *s = &r->s;
    int status;
    struct br_chan *all[] = {&s->sup, &s->client, &s->audit, &s->script, &s->init};
    struct reply *replies[] = {&s->audited, &s->scripted_reply, &s->launched, &s->stopped,
                               &s->inited};
    struct br_buf *bufs[] = {&s->manifest, &s->policy, &s->goal, &s->warnings, &s->errors};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        br_chan_close(all[i]);
    br_close(&r->init);
    assert_int_equal(waitpid(r->peers, &status, 0), r->peers);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < BR_ARRAY_LEN(replies); i++)
        reply_free(replies[i]);
    for (size_t i = 0; i < BR_ARRAY_LEN(bufs); i++)
        br_buf_free(bufs[i]);
    for (uint32_t i = 0; i < s->argc; i++)
        free(s->argv[i]);
    free(s->argv);
    free(s->defaults);
    br_profile_choice_free(&s->choice);
    br_buf_free(&s->launch_json);
    json_decref(s->task);
    br_table_free(&s->table);
    br_ledger_free(&s->ledger);
    br_redact_free(&s->redact);
    br_loop_free(&s->loop);
    munmap(r->seen, sizeof(*r->seen));
}
