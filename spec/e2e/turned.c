/*
 * A session that was taken over, for test_turned: it asks at once for a sandbox, and ends when it
 * is refused or has it. Which sandbox is told by a word of the command line, "claim=WORD", that
 * the start message holds: the one of run-v1, or a weaker one under the same name.
 */
#include <string.h>
#include <unistd.h>

#include "session/profile_texts.h"
#include "wire/types.h"
#include "wire/wire.h"

static bool over;

/* Everything that a session can say of a sandbox, in its own favour. */
static void weaken(struct br_plan *p, const char *word)
{
    struct {
        const char *name;
        uint64_t *at64;
        uint32_t *at;
        uint64_t to;
    } limits[] = {
        {"memory", &p->limits.memory_bytes, NULL, 3ull << 30},
        {"pids", NULL, &p->limits.pids, 257},
        {"cpu", NULL, &p->limits.cpu_percent, 300},
        {"nofile", NULL, &p->limits.nofile, 1025},
        {"fsize", &p->limits.fsize_bytes, NULL, (1ull << 30) + 1},
        {"tmp", &p->limits.tmp_bytes, NULL, 257ull << 20},
        {"inodes", &p->limits.tmp_inodes, NULL, 20001},
        {"exec", NULL, &p->limits.exec_seconds, 1801},
        {"less", NULL, &p->limits.pids, 255},
        {"time", NULL, &p->limits.wall_seconds, 7}, /* --timeout: that is permitted */
    };
    for (size_t i = 0; i < BR_ARRAY_LEN(limits); i++)
        if (strcmp(word, limits[i].name) == 0 && limits[i].at)
            *limits[i].at = (uint32_t)limits[i].to;
        else if (strcmp(word, limits[i].name) == 0)
            *limits[i].at64 = limits[i].to;
    if (strcmp(word, "landlock") == 0)
        p->flags |= BR_PLAN_NO_LANDLOCK;
    else if (strcmp(word, "identity") == 0)
        p->identity = BR_IDENTITY_OWNER;
    else if (strcmp(word, "workspace") == 0)
        p->workspace = BR_WORKSPACE_NONE;
    else if (strcmp(word, "scratch") == 0)
        p->disks[BR_DISK_SCRATCH] =
            (struct br_quota){.kind = BR_QUOTA_TMPFS, .bytes = 64u << 20, .inodes = 1000};
    else if (strcmp(word, "bwrap") == 0 || strcmp(word, "other") == 0)
        p->flags |= BR_PLAN_NO_LANDLOCK;
    if (strcmp(word, "bwrap") == 0)
        p->backend = BR_BACKEND_BWRAP;
}

/* "other": one that is activated as well, but was not chosen. "text": of a text of its own. */
static void ask(struct br_chan *sup, const char *word)
{
    struct br_plan plan;
    struct br_sha256 s;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_plan_default(&plan);
    plan.limits.exec_seconds = 1800;
    plan.limits.wall_seconds = 86400;
    plan.limits.output_bytes = 64u << 10;
    if (strcmp(word, "other") == 0)
        snprintf(plan.profile, sizeof(plan.profile), "run-nolandlock-v1");
    for (const struct br_profile_text *t = br_profile_texts; t->name; t++)
        if (strcmp(t->name, plan.profile) == 0) {
            br_sha256_init(&s);
            br_sha256_put(&s, t->text, *t->len);
            br_sha256_end(&s, plan.profile_sha256);
        }
    if (strcmp(word, "text") == 0)
        plan.profile_sha256[0] ^= 1;
    weaken(&plan, word);
    br_plan_put(&o.buf, &plan);
    br_chan_permit(sup, BR_MSG_SUP_LAUNCHED);
    br_chan_permit(sup, BR_MSG_SUP_REFUSED);
    (void)br_chan_send(sup, BR_MSG_SUP_LAUNCH, 0, &o, NULL);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    static const char key[] = "claim=";
    char word[32] = "";
    const uint8_t *at = memmem(m->rd.p, m->rd.len, key, sizeof(key) - 1);
    (void)ctx, (void)err;
    for (size_t i = 0; at && i < sizeof(word) - 1; i++) {
        char b = (char)at[sizeof(key) - 1 + i];
        if (b < 'a' || b > 'z')
            break;
        word[i] = b;
    }
    while (br_msg_take_fd(m) >= 0) /* its peers are not to notice anything */
        ;
    ask(c, word);
    return 0;
}

static void done(struct br_chan *c, uint32_t code, uint32_t exit_code, const char *text)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, code);
    br_buf_put_u32(&o.buf, exit_code);
    br_buf_put_str(&o.buf, text);
    (void)br_chan_send(c, BR_MSG_SESSION_DONE, 0, &o, NULL);
    over = true;
}

static int on_launched(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)m, (void)ctx, (void)err;
    done(c, BR_E_FAILED, 77, "the sandbox was started");
    return 0;
}

static int on_refused(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    char text[BR_ERR_TEXT_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    (void)ctx, (void)err;
    br_rd_str(&m->rd, text, sizeof(text));
    done(c, code, 78, text);
    return 0;
}

int main(void)
{
    const struct br_msg_rule rules[] = {
        {BR_MSG_SESSION_START, BR_PERMIT, 0, BR_MSG_MAX, 0, 8, on_start},
        {BR_MSG_SUP_LAUNCHED, 0, 0, BR_MSG_MAX, 0, 8, on_launched},
        {BR_MSG_SUP_REFUSED, 0, 0, BR_MSG_MAX, 0, 8, on_refused},
    };
    struct br_chan sup;
    br_chan_init(&sup, 3, "bridled", rules, BR_ARRAY_LEN(rules), NULL);
    while (br_chan_dispatch(&sup, NULL) >= 0)
        if (over)
            (void)pause(); /* bridled ends it */
    br_chan_close(&sup);
    return 1;
}
