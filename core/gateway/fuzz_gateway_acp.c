/*
 * A client of the Agent Client Protocol that says anything, while its runs go on: each line of the
 * input is a message of the client, or, after '@', something that happens to the last run. What is
 * sent is JSON (test_acp_rig.c looks), a question is answered once, for the run only where that was
 * offered, and never by anything but an answer to it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/test_acp_rig.h"

#define ASKS_MAX 32u

static struct {
    bool run, answered;
} asks[ASKS_MAX];
static unsigned nasks, nseen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct gw_session *last(void)
{
    struct gw_session *s = rig.nsessions ? &rig.sessions[rig.nsessions - 1] : NULL;
    return s && s->state == GW_RUNNING && s->sink ? s : NULL;
}

static void ask(struct gw_session *s, bool run)
{
    char data[512];
    if (nasks == ASKS_MAX)
        return;
    snprintf(data, sizeof(data),
             "{'permissionId':'%u','callId':'c','action':'fs.write','subject':'a','scope':'%s',"
             "'ruleId':'r','source':'operator','opaque':false,'touches':{'writes':['a']}}",
             nasks, run ? "run" : "once");
    asks[nasks].run = run;
    asks[nasks++].answered = false;
    rig_event(s, "bridle.ask", data);
}

static void resolve(struct gw_session *s)
{
    char data[64];
    snprintf(data, sizeof(data), "{'permissionId':'%u','callId':'c','decision':'deny'}",
             nasks ? nasks - 1 : 0);
    if (nasks)
        asks[nasks - 1].answered = true;
    rig_event(s, "permission.resolved", data);
}

static void happen(char what)
{
    struct gw_session *s = last();
    if (what == 'h')
        rig.hold = !rig.hold;
    else if (what == 'k')
        rig_created(0);
    else if (what == 'f')
        rig_created(-BR_E_INVALID_WORKSPACE);
    else if (what == 'w')
        gw_acp.writable(&rig.c);
    else if (!s)
        return;
    else if (what == 'a' || what == 'r')
        ask(s, what == 'r');
    else if (what == 'd')
        resolve(s);
    else if (what == 'c')
        rig_event(s, "tool.call",
                  "{'callId':'c','tool':'fs_write','input':{'path':'a','content':'b'}}");
    else if (what == 't')
        rig_event(s, "tool.result", "{'callId':'c','tool':'fs_write','ok':true,'output':{}}");
    else if (what == 'x')
        rig_event(s, "bridle.text", "{'text':'x','final':true}");
    else if (what == 'e')
        rig_end(s, GW_COMPLETED, "completed");
    else if (what == 'n')
        rig_end(s, GW_FAILED, "failed");
}

static void check_answers(void)
{
    for (; nseen < rig.nanswers; nseen++) {
        const struct rig_answer *a = &rig.answers[nseen % BR_ARRAY_LEN(rig.answers)];
        unsigned i = (unsigned)strtoul(a->permission, NULL, 10);
        br_require(i < nasks && !asks[i].answered);
        br_require(a->scope < 2 || asks[i].run);
        asks[i].answered = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rig_open();
    nasks = nseen = 0;
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) - at : size - at;
        if (n == 2 && data[at] == '@') {
            happen((char)data[at + 1]);
        } else if (n) {
            char *exact = malloc(n); /* so that a sanitizer sees a byte too far */
            br_require(exact);
            memcpy(exact, data + at, n);
            unsigned before = rig.nanswers;
            gw_acp.message(&rig.c, exact, n);
            br_require(rig.nanswers <= before + 1);
            free(exact);
        }
        check_answers();
        at += n + 1;
    }
    rig_close();
    check_answers();
    return 0;
}
