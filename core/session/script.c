/*
 * Asking the policy's process (bridle-script), which runs the operator's Lua and may fail, hang or
 * die at any question. Whatever it does, the caller gets an answer of this question or a code, the
 * record a bridle.policy.error event with the file (and the line: what the process said, or where
 * the check begins), and nothing of a question that was given up is ever taken for the answer of
 * another.
 */
#include "script/question.h"
#include "session/session_priv.h"

#define SCRIPT_TIMEOUT_US (5u * 1000000u)

static const char *policy_name(const struct session *s)
{
    return s->policy_path[0] ? s->policy_path : "policy/default.lua (built in)";
}

int session_script_failed(struct session *s, int code, const char *text)
{
    struct reply *r = &s->scripted_reply;
    r->code = code;
    if (text && s->script_asked == BR_MSG_PREDICATE) { /* it cannot say where */
        snprintf(r->text, sizeof(r->text), "%s", s->check_file);
        r->n1 = s->check_line;
    }
    if (text)
        br_err_set(&r->err, (enum br_code) - code, "'%s': %s; it counts as a denial",
                   policy_name(s), text);
    if (!s->failed.code) {
        s->failed.code = code;
        s->failed.err = r->err;
        s->failed.line = r->n1;
        snprintf(s->failed.file, sizeof(s->failed.file), "%s", r->text);
    }
    json_t *data = json_pack("{s:s, s:s, s:s}", "code", br_code_name(code), "message", r->err.text,
                             "file", r->text[0] ? r->text : policy_name(s));
    if (r->n1)
        json_object_set_new(data, "line", json_integer((json_int_t)r->n1));
    int rec = session_record(s, "bridle.policy.error", "kernel", data);
    return rec < 0 ? rec : code;
}

int session_script(struct session *s, unsigned type, struct br_out *question)
{
    uint64_t id = session_expect(s, &s->scripted_reply);
    s->script_asked = type;
    if (s->script_given_up)
        return session_script_failed(s, -BR_E_TIMEOUT,
                                     "the policy is not asked any more since it gave no answer");
    int r = s->script.fd < 0 ? -BR_E_PROGRAM_DIED
                             : br_chan_send(&s->script, (enum br_msg_type)type, id, question, NULL);
    if (r == 0) {
        (void)br_chan_soon(&s->script, BR_ANSWER_SOON_US);
        r = session_wait(s, &s->scripted_reply.done, SCRIPT_TIMEOUT_US, false);
    }
    if (r == 0 && s->scripted_reply.code < 0)
        return session_script_failed(s, s->scripted_reply.code, NULL);
    if (r == 0)
        return 0;
    if (s->script.fd < 0 || (r != -BR_E_TIMEOUT && !s->stop_code))
        return session_script_failed(s, -BR_E_PROGRAM_DIED,
                                     "the policy's process ended before it answered");
    if (s->stop_code) { /* the run ends, for a reason that is not the policy's */
        s->scripted_reply.code = r;
        br_err_set(&s->scripted_reply.err, (enum br_code) - r, "%s", s->stop_err.text);
        return r;
    }
    /* an answer that comes now answers nothing; its channel stays, so that nobody thinks that it
     * has died */
    br_loop_unwatch_chan(s->loop, &s->script);
    s->script_given_up = true;
    return session_script_failed(s, r, "the policy did not answer in time");
}
