/*
 * The runs of a service's sessions, and the readings of its store: each is a `bridled --private`,
 * told what to do as `bridle run` and `bridle show` tell it. What a run shows and asks goes past
 * here: its two descriptors are passed on. A run is over when its sandbox is gone and its record
 * closed; one whose bridled died is swept first. Called by service_gate.c and service.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "supervise/service.h"

#define DOCUMENT_INLINE_MAX 4096u
/* How long what a killed bridled left may take to end by itself, */
#define ORPHANS_US (20u * 1000000u)
/* and one that has said how its run ended to leave. */
#define LEAVE_US (20u * 1000000u)
/* One that was let go of ends its run at once; if it hangs, it is ended, and swept. */
#define HUNG_US (60u * 1000000u)
#define TICK_US 50000u

/* ---- the list ---- */

struct run *run_new(struct service *sv)
{
    struct run *r = calloc(1, sizeof(*r)), **at = &sv->runs;
    if (!r)
        return NULL;
    r->sv = sv;
    r->kid.chan.fd = r->kid.pidfd = -1;
    br_buf_init(&r->manifest, BR_MANIFEST_MAX);
    br_buf_init(&r->content, BR_GOAL_MAX);
    br_id_make(r->id, "run");
    r->since_us = br_now_us();
    while (*at)
        at = &(*at)->next;
    *at = r;
    sv->nruns++;
    return r;
}

void run_free(struct run *r)
{
    struct service *sv = r->sv;
    for (struct run **at = &sv->runs; *at; at = &(*at)->next) {
        if (*at != r)
            continue;
        *at = r->next;
        sv->nruns--;
        break;
    }
    sv->manifest_bytes -= r->counted;
    if (r->state == RUN_CHECKING && r->kid.pid > 0) {
        kid_discard(&r->kid);
        sv->ntasks--;
    }
    if (r->kid.pid > 0) /* a run is brought to its end by its own bridled */
        kid_release(&r->kid);
    br_buf_free(&r->manifest);
    br_buf_free(&r->content);
    free(r->workspace);
    free(r->root);
    free(r->manifest_path);
    free(r);
}

struct run *run_find(struct service *sv, const char *id)
{
    struct run *r = sv->runs;
    while (r && strcmp(r->id, id) != 0)
        r = r->next;
    return r;
}

static bool has_process(const struct run *r)
{
    return r->state == RUN_RUNNING || r->state == RUN_SWEEPING || r->state == RUN_ENDING;
}

unsigned runs_live(const struct service *sv)
{
    unsigned n = 0;
    for (const struct run *r = sv->runs; r; r = r->next)
        n += has_process(r) || r->state == RUN_WAITING;
    return n;
}

/* ---- the end ---- */

static void set_end(struct run *r, enum br_code code, const char *text)
{
    r->code = code;
    r->exit_code = (uint32_t)br_code_exit((int)code);
    snprintf(r->text, sizeof(r->text), "%s", text);
}

static void run_over(struct run *r)
{
    struct service *sv = r->sv;
    gate_ended(r);
    run_free(r);
    runs_advance(sv);
    service_check_end(sv);
}

/* Its bridled has left, in whatever way. */
static void on_run_end(struct kid *k, int status)
{
    struct run *r = (struct run *)((char *)k - offsetof(struct run, kid));
    (void)orphans_reap(r->sv);
    if (!r->ended && r->hung_up && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        set_end(r, r->cause.code, r->cause.text); /* it could not say so any more */
        r->ended = true;
    }
    if (r->ended) {
        run_over(r);
        return;
    }
    br_log(BR_LOG_ERROR, "the bridled of the run '%s' died; what it left is ended", r->id);
    set_end(r, BR_E_PROGRAM_DIED,
            "'bridled' died before it said how the run ended; the run has failed");
    r->state = RUN_SWEEPING;
    r->since_us = br_now_us();
    r->sv->sweep_wanted = true;
    service_tick(r->sv, TICK_US);
}

void runs_tick(struct service *sv)
{
    uint64_t now = br_now_us();
    bool left = sv->sweep_wanted && orphans_reap(sv), more = false;
    for (struct run *r = sv->runs, *next; r; r = next) {
        next = r->next;
        if (r->state == RUN_ENDING && now - r->since_us > LEAVE_US)
            kid_kill(&r->kid);
        bool hangs = r->state == RUN_RUNNING && r->hung_up;
        if (hangs && now - r->since_us > HUNG_US)
            kid_kill(&r->kid);
        if (r->state == RUN_CHECKING && r->kid.pid > 0 && now - r->since_us >= SERVICE_TASK_US)
            kid_kill(&r->kid);
        if (r->state == RUN_SWEEPING && left && now - r->since_us > ORPHANS_US)
            orphans_kill(sv);
        more |= hangs || r->state == RUN_ENDING || r->state == RUN_SWEEPING;
    }
    if (more)
        service_tick(sv, TICK_US);
}

/* ---- what its bridled says ---- */

static int on_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = (struct run *)((char *)ctx - offsetof(struct run, kid));
    char id[BR_ID_MAX], model[BR_NAME_MAX];
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_rd_str(&m->rd, id, sizeof(id));
    br_rd_str(&m->rd, model, sizeof(model));
    (void)br_rd_u8(&m->rd);
    if (br_rd_done(&m->rd) < 0 || strcmp(id, r->id) != 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_STARTED", c->peer);
    br_buf_put_str(&o.buf, r->id);
    br_buf_put_str(&o.buf, model);
    br_out_fd(&o, br_msg_take_fd(m), true);
    br_out_fd(&o, br_msg_take_fd(m), true);
    /* a session without a client ends; a gateway that came after it does not know it */
    if (r->told || !gate_send(r->sv, BR_MSG_GATE_STARTED, 0, &o))
        run_cancel(r, false, BR_E_CANCELED, "the gateway ended");
    return 0;
}

static int on_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct run *r = (struct run *)((char *)ctx - offsetof(struct run, kid));
    r->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, r->text, sizeof(r->text));
    r->exit_code = br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || r->code >= BR_CODE_COUNT_)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_ENDED", c->peer);
    r->ended = true;
    r->state = RUN_ENDING;
    r->since_us = br_now_us();
    gate_ended(r);
    service_tick(r->sv, LEAVE_US + TICK_US);
    return 0;
}

static const struct br_msg_rule run_rules[] = {
    {BR_MSG_CTL_STARTED, BR_PERMIT | BR_ONCE, 9, 2048, 2, 2, on_started},
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_ended},
};

/* ---- the beginning ---- */

/* Only a small document travels inside of the message. */
static void put_blob(struct br_out *o, const struct br_buf *b)
{
    size_t max = o->buf.len + DOCUMENT_INLINE_MAX;
    o->buf.max = max < BR_MSG_MAX ? max : BR_MSG_MAX;
    br_out_blob(o, b->data, b->len);
    o->buf.max = BR_MSG_MAX;
}

static int send_run(struct run *r, struct br_err *err)
{
    const struct service_settings *s = r->sv->now;
    const struct br_buf none = BR_BUF_INIT(0);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    r->ceilings.ask_seconds = s->c.s.ask_seconds;
    br_buf_put_u8(&o.buf, BR_RUN_AGENT);
    br_buf_put_str(&o.buf, r->workspace);
    br_buf_put_str(&o.buf, r->manifest_path ? r->manifest_path : "");
    br_buf_put_u8(&o.buf, r->manifest_path != NULL);
    put_blob(&o, &r->manifest);
    /* the policy is the one that is held here; where that is for nobody else, it is sent */
    const struct standing *st = r->sv->st;
    br_buf_put_str(&o.buf, st->beside ? st->current.path : "");
    put_blob(&o, st->beside ? &st->text : &none);
    br_buf_put_u8(&o.buf, st->beside && st->asked_path[0] ? BR_POLICY_NAMED : BR_POLICY_FOUND);
    br_buf_put_str(&o.buf, s->config_path);
    put_blob(&o, &s->config);
    br_buf_put_str(&o.buf, r->model);
    br_buf_put_str(&o.buf, s->scenario_path);
    put_blob(&o, &s->scenario);
    put_blob(&o, &r->content);
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_u8(&o.buf, r->resolver);
    br_profile_choice_put(&o.buf, &(struct br_profile_choice){.name = ""});
    br_buf_put_u32(&o.buf, 0);
    br_buf_put_str(&o.buf, ""); /* what the manifest declares, or Bridle's own agent */
    br_buf_put_str(&o.buf, "");
    put_blob(&o, &none);
    br_buf_put_str(&o.buf, r->id);
    br_ceilings_put(&o.buf, &r->ceilings);
    br_buf_put_str(&o.buf, r->root);
    return br_chan_send(&r->kid.chan, BR_MSG_CTL_RUN, 0, &o, err);
}

static void run_start(struct run *r)
{
    struct br_err err = {.code = BR_OK};
    r->state = RUN_RUNNING;
    r->since_us = br_now_us();
    int k = kid_start_private(r->sv, &r->kid, run_rules, BR_ARRAY_LEN(run_rules), on_run_end, &err);
    if (k == 0 && send_run(r, &err) < 0) {
        kid_kill(&r->kid); /* its end is heard of */
        br_log(BR_LOG_ERROR, "the run '%s' could not be started: %s", r->id, err.text);
    }
    br_buf_free(&r->content);
    if (k == 0)
        return;
    set_end(r, err.code, err.text);
    gate_ended(r);
    run_free(r);
}

void runs_advance(struct service *sv)
{
    unsigned running = 0;
    if (sv->holding)
        return;
    for (const struct run *r = sv->runs; r; r = r->next)
        running += has_process(r);
    for (struct run *r = sv->runs, *next; r && running < sv->now->c.s.running; r = next) {
        next = r->next;
        if (r->state != RUN_WAITING)
            continue;
        run_start(r);
        running++;
    }
}

void run_queue(struct run *r)
{
    struct service *sv = r->sv;
    r->state = RUN_WAITING;
    r->since_us = br_now_us();
    runs_advance(sv);
}

/* Its bridled writes the cause into the record, also when it is let go of right after. */
static void tell_cancel(struct run *r)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, (uint32_t)r->cause.code);
    br_buf_put_str(&o.buf, r->cause.text);
    if (r->kid.chan.fd >= 0)
        (void)br_chan_send(&r->kid.chan, BR_MSG_CTL_CANCEL, 0, &o, NULL);
}

void run_cancel(struct run *r, bool now, enum br_code code, const char *why)
{
    bool first = !r->cause.code;
    if (first)
        (void)br_err_set(&r->cause, code, "%s", why);
    switch (r->state) {
    case RUN_WAITING:
        set_end(r, r->cause.code, r->cause.text);
        run_over(r);
        break;
    case RUN_RUNNING:
        if (first)
            tell_cancel(r);
        if (now && !r->hung_up) {
            r->hung_up = true;
            r->since_us = br_now_us();
            kid_hang_up(&r->kid);
            service_tick(r->sv, HUNG_US + TICK_US);
        }
        break;
    case RUN_CHECKED:
        if (r->sv->draining && !r->told)
            break; /* the gateway may have sent GATE_RUN already */
        run_free(r);
        break;
    case RUN_CHECKING:
        run_free(r);
        break;
    default:
        break; /* it ends already */
    }
}

void runs_cancel(struct service *sv, bool now, const char *why)
{
    sv->holding = true; /* one that is over makes room, which nobody is to have */
    for (struct run *r = sv->runs, *next; r; r = next) {
        next = r->next;
        run_cancel(r, now, BR_E_CANCELED, why);
    }
    sv->holding = false;
    service_check_end(sv);
}

/* ---- reading the store ---- */

struct reading {
    struct reading *next;
    struct service *sv;
    uint64_t id;
    struct br_show show;
    struct kid kid;
    bool answered;
    uint32_t code;
    char text[BR_ERR_TEXT_MAX];
};

static void answer_reading(struct reading *d, int fd, uint32_t code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    if (d->answered) {
        br_close(&fd);
        return;
    }
    d->answered = true;
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    if (fd >= 0)
        br_out_fd(&o, fd, true);
    (void)gate_send(d->sv, BR_MSG_GATE_READING, d->id, &o);
}

static int on_read_started(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct reading *d = (struct reading *)((char *)ctx - offsetof(struct reading, kid));
    (void)c, (void)err;
    answer_reading(d, br_msg_take_fd(m), 0, "");
    return 0;
}

static int on_read_ended(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct reading *d = (struct reading *)((char *)ctx - offsetof(struct reading, kid));
    d->code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, d->text, sizeof(d->text));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || d->code >= BR_CODE_COUNT_)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed CTL_ENDED", c->peer);
    return 0;
}

static const struct br_msg_rule read_rules[] = {
    {BR_MSG_CTL_STARTED, BR_PERMIT | BR_ONCE, 9, 2048, 1, 1, on_read_started},
    {BR_MSG_CTL_ENDED, BR_PERMIT | BR_ONCE, 12, 4096, 0, 0, on_read_ended},
};

static void reading_free(struct reading *d)
{
    struct service *sv = d->sv;
    for (struct reading **at = &sv->readings; *at; at = &(*at)->next) {
        if (*at != d)
            continue;
        *at = d->next;
        sv->nreadings--;
        break;
    }
    if (d->kid.pid > 0) {
        kid_release(&d->kid);
        sv->nreaders--;
    }
    free(d);
}

static void reads_advance(struct service *sv);

static void on_reader_end(struct kid *k, int status)
{
    struct reading *d = (struct reading *)((char *)k - offsetof(struct reading, kid));
    struct service *sv = d->sv;
    (void)status;
    sv->nreaders--;
    answer_reading(d, -1, d->code ? d->code : (uint32_t)BR_E_PROGRAM_DIED,
                   d->code ? d->text : "the store could not be read: its reader died");
    reading_free(d);
    reads_advance(sv);
}

static void reads_advance(struct service *sv)
{
    for (struct reading *d = sv->readings, *next; d && sv->nreaders < SERVICE_READERS_MAX;
         d = next) {
        struct br_err err = {.code = BR_OK};
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        next = d->next;
        if (d->kid.pid > 0)
            continue;
        int k = kid_start_private(sv, &d->kid, read_rules, BR_ARRAY_LEN(read_rules), on_reader_end,
                                  &err);
        if (k < 0) {
            answer_reading(d, -1, (uint32_t)err.code, err.text);
            reading_free(d);
            continue;
        }
        sv->nreaders++;
        br_show_put(&o.buf, &d->show);
        (void)br_chan_send(&d->kid.chan, BR_MSG_CTL_SHOW, 0, &o, NULL);
    }
}

void read_refuse(struct service *sv, uint64_t id, enum br_code code, const char *why)
{
    struct reading none = {.sv = sv, .id = id};
    answer_reading(&none, -1, (uint32_t)code, why);
}

void read_queue(struct service *sv, uint64_t id, const struct br_show *w)
{
    struct reading *d = calloc(1, sizeof(*d)), **at = &sv->readings;
    if (!d || sv->nreadings >= SERVICE_READS_MAX) {
        free(d);
        read_refuse(sv, id, BR_E_LIMIT_EXCEEDED,
                    "too many read the history at this time; nothing was read. Try again");
        return;
    }
    *d = (struct reading){.sv = sv, .id = id, .show = *w};
    d->kid.chan.fd = d->kid.pidfd = -1;
    while (*at)
        at = &(*at)->next;
    *at = d;
    sv->nreadings++;
    reads_advance(sv);
}

void reads_drop(struct service *sv)
{
    while (sv->readings)
        reading_free(sv->readings);
}

bool service_is_own(const struct service *sv, pid_t pid)
{
    for (const struct run *r = sv->runs; r; r = r->next)
        if (r->kid.pid == pid)
            return true;
    for (const struct reading *d = sv->readings; d; d = d->next)
        if (d->kid.pid == pid)
            return true;
    return false;
}
