/*
 * A bridled for the client's tests: speaks the control channel on fd 3 and plays the lines of the
 * manifest that it is given, in the places of session and audit:
 *
 *   EVENT json | ROW skip | ASK id | RESOLVED json-with-@DECISION@-and-@ACTOR@ | SLEEP ms
 *   WAIT (for a cancel) | REPORT json | DIE | END code exit text
 *   TABLE json (report and table with it) | SAID json (once the client has asked)
 *
 * What it receives is appended to the file $BRIDLE_FAKE_LOG. CTL_SHOW and CTL_DOCTOR have fixed
 * answers. Never installed.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/service.h"
#include "wire/types.h"
#include "wire/wire.h"

static struct br_loop *loop;
static struct br_chan ctl, session, audit;
static uint64_t row;
static bool canceled, answered, allow;
static char *play;

static void note(const char *fmt, ...) BR_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
    const char *path = getenv("BRIDLE_FAKE_LOG");
    FILE *f = path ? fopen(path, "ae") : NULL;
    if (!f)
        return;
    va_list ap;
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fputc('\n', f);
    fclose(f);
}

static int on_answer(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char id[BR_ID_MAX], text[256];
    (void)c;
    (void)ctx;
    (void)err;
    br_rd_str(&m->rd, id, sizeof(id));
    uint8_t scope = br_rd_u8(&m->rd);
    allow = scope == 1 || scope == 2;
    br_rd_str(&m->rd, text, sizeof(text));
    char who[BR_WHO_MAX];
    br_rd_str(&m->rd, who, sizeof(who));
    br_require(br_rd_done(&m->rd) == 0 && !who[0]);
    note("ANSWER %s %s %s", id, scope == 2 ? "run" : allow ? "allow" : "deny", text);
    answered = true;
    br_loop_stop(loop);
    return 0;
}

static int on_cancel(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    (void)err;
    note("%s", br_msg_name(m->type));
    canceled = true;
    br_loop_stop(loop);
    return 0;
}

static int on_policy_ask(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_buf blob;
    (void)c;
    (void)ctx;
    br_require(br_msg_blob(m, BR_EVENT_MAX, &blob, err) == 0);
    note("POLICY_ASK %s", br_buf_cstr(&blob));
    br_buf_free(&blob);
    answered = true;
    br_loop_stop(loop);
    return 0;
}

static const struct br_msg_rule session_rules[] = {
    {BR_MSG_POLICY_ASK, BR_PERMIT, 1, BR_MSG_MAX, 0, 1, on_policy_ask},
    {BR_MSG_ANSWER, BR_PERMIT, 1, 4096, 0, 0, on_answer},
    {BR_MSG_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

static void started(unsigned nfds)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    int a[2], b[2];
    br_require(br_chan_pair(a) == 0 && br_chan_pair(b) == 0);
    br_buf_put_str(&o.buf, "run_00000000000000000000000001");
    br_buf_put_str(&o.buf, "fake");
    br_buf_put_u8(&o.buf, 1);
    if (nfds == 2) {
        br_chan_init(&session, a[0], "cli", session_rules, BR_ARRAY_LEN(session_rules), NULL);
        br_require(br_loop_watch_chan(loop, &session, NULL, NULL) == 0);
        br_out_fd(&o, a[1], true);
    }
    br_chan_init(&audit, b[0], "cli", NULL, 0, NULL);
    br_out_fd(&o, b[1], true);
    (void)br_chan_send(&ctl, BR_MSG_CTL_STARTED, 0, &o, NULL);
}

static void event(const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u64(&o.buf, ++row);
    br_out_blob(&o, text, strlen(text));
    (void)br_chan_send(&audit, BR_MSG_EVENT, 0, &o, NULL);
}

static void ended(unsigned code, unsigned exit_code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT, end = BR_OUT_INIT;
    br_buf_put_u32(&end.buf, 0);
    br_buf_put_str(&end.buf, "");
    (void)br_chan_send(&audit, BR_MSG_EVENTS_END, 0, &end, NULL); /* as the audit ends a record */
    br_chan_close(&audit);
    br_loop_unwatch_chan(loop, &session);
    br_chan_close(&session);
    br_buf_put_u32(&o.buf, code);
    br_buf_put_str(&o.buf, text);
    br_buf_put_u32(&o.buf, exit_code);
    (void)br_chan_send(&ctl, BR_MSG_CTL_ENDED, 0, &o, NULL);
}

static void serve(const bool *done, uint64_t ms)
{
    uint64_t until = ms ? br_now_us() + ms * 1000 : UINT64_MAX;
    struct br_err err = {.code = BR_OK};
    int r;
    do {
        r = br_loop_run_until(loop, done, until, &err);
    } while (r == 0 && done && !*done && !canceled);
    if (r < 0 && r != -BR_E_TIMEOUT) {
        note("EOF");
        exit(1);
    }
}

static void resolved(const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    for (const char *p = text; *p;) {
        if (strncmp(p, "@DECISION@", 10) == 0) {
            br_buf_printf(&b, "%s", answered && allow && !canceled ? "allow" : "deny");
            p += 10;
        } else if (strncmp(p, "@ACTOR@", 7) == 0) {
            br_buf_printf(&b, "%s", answered ? "operator" : "kernel");
            p += 7;
        } else {
            br_buf_put_u8(&b, (uint8_t)*p++);
        }
    }
    event(br_buf_cstr(&b));
}

static void report(const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, text, strlen(text));
    (void)br_chan_send(&session, BR_MSG_REPORT, 0, &o, NULL);
}

static void said(const char *text, bool table)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    answered = false;
    if (!table)
        serve(&answered, 0);
    br_out_blob(&o, text, strlen(text));
    if (table)
        br_out_blob(&o, text, strlen(text));
    (void)br_chan_send(&session, table ? BR_MSG_POLICY_TABLE : BR_MSG_POLICY_SAID, 0, &o, NULL);
}

/* One line; true when the play is over. */
static bool play_line(char *line)
{
    unsigned code, exit_code;
    int at = 0;
    if (strncmp(line, "EVENT ", 6) == 0) {
        event(line + 6);
    } else if (strncmp(line, "ROW ", 4) == 0) {
        row += strtoul(line + 4, NULL, 10);
    } else if (strncmp(line, "ASK ", 4) == 0) {
        answered = false;
        serve(&answered, 0);
    } else if (strncmp(line, "EXPIRE ", 7) == 0) {
        answered = false;
        serve(&answered, strtoul(line + 7, NULL, 10));
    } else if (strncmp(line, "RESOLVED ", 9) == 0) {
        resolved(line + 9);
    } else if (strncmp(line, "SLEEP ", 6) == 0) {
        serve(NULL, strtoul(line + 6, NULL, 10));
    } else if (strcmp(line, "WAIT") == 0) {
        serve(&canceled, 0);
    } else if (strcmp(line, "HANG") == 0) {
        bool never = false;
        do {
            canceled = false;
            serve(&never, 0);
        } while (!never);
    } else if (strncmp(line, "REPORT ", 7) == 0) {
        report(line + 7);
    } else if (strncmp(line, "TABLE ", 6) == 0) {
        said(line + 6, true);
    } else if (strncmp(line, "SAID ", 5) == 0) {
        said(line + 5, false);
    } else if (strcmp(line, "DIE") == 0) {
        _exit(3);
    } else if (sscanf(line, "END %u %u %n", &code, &exit_code, &at) == 2) {
        ended(code, exit_code, line + at);
        return true;
    }
    return false;
}

static int on_run(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char s[BR_PATH_MAX];
    struct br_buf blob;
    (void)c;
    (void)ctx;
    note("mode=%u", br_rd_u8(&m->rd));
    br_rd_str(&m->rd, s, sizeof(s));
    note("workspace=%s", s);
    br_rd_str(&m->rd, s, sizeof(s));
    note("manifest_path=%s", s);
    note("inside=%u", br_rd_u8(&m->rd));
    br_require(br_msg_blob(m, BR_MANIFEST_MAX, &blob, err) == 0);
    play = strdup(br_buf_cstr(&blob));
    br_buf_free(&blob);
    static const char *const names[] = {"policy", "config"};
    for (int i = 0; i < 2; i++) {
        br_rd_str(&m->rd, s, sizeof(s));
        br_require(br_msg_blob(m, BR_POLICY_MAX, &blob, err) == 0);
        note("%s_path=%s bytes=%zu", names[i], s, blob.len);
        br_buf_free(&blob);
        if (i == 0)
            note("policy_from=%u", br_rd_u8(&m->rd));
    }
    br_rd_str(&m->rd, s, sizeof(s));
    note("model=%s", s);
    br_rd_str(&m->rd, s, sizeof(s));
    br_require(br_msg_blob(m, BR_BLOB_MAX, &blob, err) == 0);
    note("scenario_path=%s bytes=%zu", s, blob.len);
    br_buf_free(&blob);
    br_require(br_msg_blob(m, BR_GOAL_MAX, &blob, err) == 0);
    note("goal=%.200s", blob.len ? br_buf_cstr(&blob) : "");
    br_buf_free(&blob);
    note("seconds=%u", br_rd_u32(&m->rd));
    note("terminal=%u", br_rd_u8(&m->rd));
    struct br_profile_choice choice = {.name = ""};
    br_profile_choice_get(&m->rd, &choice);
    if (choice.name[0] || choice.path[0] || choice.image[0])
        note("profile=%s path=%s bytes=%zu image=%s", choice.name, choice.path,
             strlen(choice.source), choice.image);
    br_profile_choice_free(&choice);
    uint32_t n = br_rd_u32(&m->rd);
    for (uint32_t i = 0; i < n && !m->rd.failed; i++) {
        br_rd_str(&m->rd, s, sizeof(s));
        note("argv=%s", s);
    }
    br_rd_str(&m->rd, s, sizeof(s));
    if (s[0])
        note("adapter=%s", s);
    br_rd_str(&m->rd, s, sizeof(s));
    if (s[0])
        note("resume=%s", s);
    br_require(br_msg_blob(m, BR_SCHEMA_MAX, &blob, err) == 0);
    if (blob.len)
        note("schema=%.200s", br_buf_cstr(&blob));
    br_buf_free(&blob);
    struct br_ceilings less;
    br_rd_str(&m->rd, s, sizeof(s));
    br_ceilings_get(&m->rd, &less);
    char root[BR_PATH_MAX];
    br_rd_str(&m->rd, root, sizeof(root));
    br_require(br_rd_done(&m->rd) == 0 && !s[0] && !less.tokens && !less.tool_calls &&
               !less.ask_seconds && !root[0]);
    br_loop_stop(loop);
    return 0;
}

static int on_show(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct br_show w;
    (void)c;
    (void)ctx;
    (void)err;
    br_show_get(&m->rd, &w);
    br_require(br_rd_done(&m->rd) == 0 && !w.row && !w.limit && !w.before[0] && !w.words[0]);
    const char *id = w.run_id;
    note("show=%s", id);
    BR_CLEANUP_OUT struct br_out end = BR_OUT_INIT;
    started(1);
    for (int i = 1; i <= 2 && !id[0]; i++) {
        BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
        br_buf_printf(&o.buf, "%c%c%c%c", 30, 0, 0, 0);
        br_buf_printf(&o.buf, "run_%026d", i);
        br_buf_put_u64(&o.buf, 1767225600000000u);
        br_buf_put_u64(&o.buf, i == 1 ? 1767225601000000u : 0);
        br_buf_put_str(&o.buf, i == 1 ? "completed" : "");
        br_buf_put_str(&o.buf, "fake");
        br_buf_put_str(&o.buf, "/w");
        br_buf_put_str(&o.buf, "a \033[31mgoal");
        br_buf_put_u64(&o.buf, 3);
        (void)br_chan_send(&audit, BR_MSG_RUN_ROW, 0, &o, NULL);
    }
    if (id[0])
        event("{\"v\":1,\"type\":\"bridle.run\",\"eventId\":\"e\",\"at\":"
              "\"2026-01-01T00:00:00.000+00:00\",\"data\":{\"runId\":\"r1\",\"model\":\"fake\","
              "\"scripted\":true,\"goal\":\"g\",\"rules\":3}}");
    ended(0, 0, "");
    return 0;
}

static int on_doctor(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    static const struct br_probe probes[] = {
        {"user namespaces", BR_PROBE_OK, 1, "uid_map was written", ""},
        {"landlock", BR_PROBE_DEGRADED, 0, "ABI 1", "use a newer kernel"},
        {"memory limit", BR_PROBE_MISSING, 1, "no memory controller", "boot with cgroup_enable"},
    };
    (void)m;
    (void)ctx;
    (void)err;
    const char *healthy = getenv("BRIDLE_FAKE_HEALTHY");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_probes_put(&o.buf, probes, !healthy ? 3 : strcmp(healthy, "1") == 0 ? 2 : 0);
    (void)br_chan_send(c, BR_MSG_CTL_PROBED, 0, &o, NULL);
    ended(healthy ? 0 : BR_E_REQUIREMENT_MISSING, healthy ? 0 : 6, "");
    return 0;
}

/* What becomes of a reload is what its file is called. */
static int on_reload(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    static struct br_policy_row held;
    char path[BR_PATH_MAX];
    (void)ctx;
    (void)err;
    br_rd_str(&m->rd, path, sizeof(path));
    br_require(br_rd_done(&m->rd) == 0);
    note("reload=%s", path);
    held = (struct br_policy_row){.kind = BR_POLICY_CURRENT, .rules = 1, .probes = 30};
    held.pin = (struct br_policy_pin){.generation = 2, .at_us = 1767225600000000u};
    held.pin.by = strstr(path, "odd") ? 77 : BR_POLICY_BY_REQUEST;
    snprintf(held.path, sizeof(held.path), "a \033[31mfile");
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_policy_row_put(&o.buf, &held);
    if (strstr(path, "good") || strstr(path, "odd"))
        (void)br_chan_send(c, BR_MSG_CTL_POLICY, 0, &o, NULL);
    if (strstr(path, "bad"))
        ended(BR_E_INVALID_POLICY, 5, "bad.lua:1: no");
    else
        ended(0, 0, "");
    return 0;
}

static const struct br_msg_rule ctl_rules[] = {
    {BR_MSG_CTL_RELOAD, BR_PERMIT | BR_ONCE, 4, BR_PATH_MAX + 4, 0, 0, on_reload},
    {BR_MSG_CTL_RUN, BR_PERMIT | BR_ONCE, 1, BR_MSG_MAX, 0, 8, on_run},
    {BR_MSG_CTL_SHOW, BR_PERMIT | BR_ONCE, 24, 512, 0, 0, on_show},
    {BR_MSG_CTL_DOCTOR, BR_PERMIT | BR_ONCE, 0, 0, 0, 0, on_doctor},
    {BR_MSG_CTL_CANCEL, BR_PERMIT, 0, 0, 0, 0, on_cancel},
};

int main(void)
{
    loop = br_loop_new();
    session.fd = audit.fd = -1;
    br_chan_init(&ctl, 3, "cli", ctl_rules, BR_ARRAY_LEN(ctl_rules), NULL);
    br_require(br_loop_watch_chan(loop, &ctl, NULL, NULL) == 0);
    serve(NULL, 0);
    bool over = false;
    if (play) {
        started(2);
        char *save = NULL;
        for (char *l = strtok_r(play, "\n", &save); l && !over; l = strtok_r(NULL, "\n", &save))
            over = play_line(l);
    }
    for (;;) /* until the client goes */
        serve(NULL, 0);
}
