/*
 * Waiting. The session has one thread and one loop; a wait serves every channel until its own
 * condition holds. The first reason to stop wins and ends every wait but those that write the end
 * of the record.
 */
#include <string.h>

#include "session/session_priv.h"

void session_stop(struct session *s, int code, const char *fmt, ...)
{
    s->kick = true;
    if (s->stop_code)
        return;
    va_list ap;
    va_start(ap, fmt);
    s->stop_code = code < 0 ? code : -code;
    s->stop_err.code = (enum br_code)(-s->stop_code);
    vsnprintf(s->stop_err.text, sizeof(s->stop_err.text), fmt, ap);
    va_end(ap);
}

int session_wait(struct session *s, const bool *done, uint64_t timeout_us, bool even_if_stopping)
{
    br_require(!s->nevents); /* nothing goes on that is not recorded */
    uint64_t deadline = timeout_us == UINT64_MAX ? UINT64_MAX : br_now_us() + timeout_us;
    while (!*done) {
        if (s->audit_lost || (s->stop_code && !even_if_stopping))
            return s->stop_code ? s->stop_code : -BR_E_STORE_FAILED;
        uint64_t until = deadline;
        if (!even_if_stopping && s->budget.deadline_us && s->budget.deadline_us < until)
            until = s->budget.deadline_us;
        s->kick = false;
        struct br_err err = {.code = BR_OK};
        int r = br_loop_run_until(s->loop, &s->kick, until, &err);
        if (r == -BR_E_TIMEOUT && until < deadline) {
            session_stop(s, BR_E_TIMEOUT, "the run reached its time limit of %u seconds",
                         s->wall_seconds);
            continue;
        }
        if (r == -BR_E_TIMEOUT)
            return r;
        if (r < 0) {
            session_stop(s, r, "%s", err.code ? err.text : br_code_name(r));
            s->audit_lost |= even_if_stopping; /* the loop itself is broken: do not spin */
        }
    }
    return 0;
}

uint64_t session_expect(struct session *s, struct reply *r)
{
    reply_free(r);
    memset(r, 0, sizeof(*r));
    r->id = ++s->next_id;
    return r->id;
}

void reply_free(struct reply *r)
{
    br_buf_free(&r->data);
    br_buf_free(&r->data2);
}
