/*
 * One attack: against the real sandbox, then its control, and what the two together say. Called by
 * main() of bridle-selftest.
 */
#include <string.h>

#include "attack/attack.h"

const char *const attack_class_names[CLASSES] = {
    "filesystem", "proc",   "namespaces", "terminal",  "signals",  "network",
    "sockets",    "broker", "resources",  "arguments", "handover",
};
#define CONTROL_TRIES 3u

const char *const verdict_names[] = {"blocked", "expected", "breakout", "inconclusive"};

/* Most attacks: launch, run it inside, and look outside. */
static enum outcome run_inside(struct stage *s)
{
    struct exec_result r;
    int k = stage_launch(s, -1);
    if (k > 0)
        return s->attack->flags & A_REFUSED ? OUT_BLOCKED : OUT_UNDONE;
    if (k < 0)
        return OUT_UNDONE;
    if (s->attack->flags & A_VICTIM && stage_victim(s) < 0) {
        stage_note(s, "no process of the sandbox's user could be started");
        return OUT_UNDONE;
    }
    k = stage_attack(s, s->attack->inside, 15000, &r);
    enum outcome o = k < 0 ? OUT_UNDONE : stage_judge(s, &r);
    if (stage_harmed(s))
        return OUT_THROUGH;
    return o == OUT_UNDONE || stage_end(s) == 0 ? o : OUT_UNDONE;
}

static enum outcome run_operation(struct stage *s)
{
    if (s->attack->flags & A_VICTIM && stage_victim(s) < 0)
        return OUT_UNDONE;
    return stage_operation(s, s->attack->inside);
}

static enum outcome one(const struct attack *a, bool control, char note[512])
{
    struct stage s;
    enum outcome o = OUT_UNDONE;
    if (stage_open(&s, a, control) == 0) {
        if (control && a->flags & A_OPERATION)
            o = run_operation(&s);
        else
            o = a->run ? a->run(&s) : run_inside(&s);
        if (o == OUT_BLOCKED && stage_harmed(&s))
            o = OUT_THROUGH;
    }
    memcpy(note, s.note, 512);
    stage_close(&s);
    return o;
}

void attack_try(const struct attack *a, struct verdict_row *out)
{
    uint64_t from = br_now_us();
    *out = (struct verdict_row){.attack = a, .control = OUT_UNDONE};
    out->strong = one(a, false, out->strong_note);
    bool not_a_boundary = a->flags & A_EXPECTED;
    /* a control may lose its race, or its sandbox to the sweep of another launcher on this host */
    for (unsigned i = 0;
         out->strong != OUT_UNDONE && !not_a_boundary && i < CONTROL_TRIES && !stage_interrupted;
         i++)
        if ((out->control = one(a, true, out->control_note)) == OUT_THROUGH)
            break;
    if (out->strong == OUT_UNDONE)
        out->verdict = VERDICT_INCONCLUSIVE;
    else if (not_a_boundary)
        out->verdict = VERDICT_EXPECTED;
    else if (out->strong == OUT_THROUGH)
        out->verdict = VERDICT_BREAKOUT;
    else
        out->verdict = out->control == OUT_THROUGH ? VERDICT_BLOCKED : VERDICT_INCONCLUSIVE;
    out->us = br_now_us() - from;
}
