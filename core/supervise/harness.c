/*
 * A run of an adapter, as the supervisor sees it: whether the operator allows the pair of adapter
 * and profile, what the adapter is, and what its guest may ask of the provider. The one text that
 * is read here, an adapter.lua that bridle.lua names, is run by bridle-script like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/image.h"
#include "supervise/sessions.h"
#include "supervise/supervise_priv.h"

#define ADAPTER_TIMEOUT_US (5u * 1000000u)

void harness_read_terms(struct supervisor *s, struct br_rd *r)
{
    uint32_t n = br_rd_u32(r);
    if (n > BR_ADAPTERS_MAX)
        r->failed = true;
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        struct br_adapter_terms t;
        br_adapter_terms_get(r, &t);
        if (!r->failed && strcmp(t.ref, s->req.adapter) == 0)
            s->harness.terms = t;
    }
}

/* The name of the profile: a built-in one's, or of a file NAME.lua of the operator's. That the
 * profile itself says so is checked by the session, which reads it. */
static void profile_name(const struct br_profile_choice *c, char dst[64])
{
    const char *slash = strrchr(c->path, '/'), *base = slash ? slash + 1 : c->path;
    size_t n = strlen(base);
    bool own = c->source && c->source[0];
    if (own && n > 4 && strcmp(base + n - 4, ".lua") == 0)
        n -= 4;
    if (own)
        snprintf(dst, 64, "%.*s", (int)n, base);
    else
        snprintf(dst, 64, "%s", c->name[0] ? c->name : "run-v1");
}

static bool is_observer(const char *ref)
{
    return strcmp(ref, "observer@1") == 0;
}

/* 'bridle observe' is the operator's own word for this pair: one request, to which bridle.lua need
 * not say anything. Whatever it says, it is one. */
static void observer_terms(struct br_adapter_terms *t, const char *ref, const char *profile)
{
    if (!t->ref[0]) {
        *t = (struct br_adapter_terms){.tokens = 200000,
                                       .request_bytes = 2u << 20,
                                       .response_bytes = 4u << 20,
                                       .answer_tokens = 16384,
                                       .nprofiles = 1};
        snprintf(t->ref, sizeof(t->ref), "%s", ref);
        snprintf(t->profiles[0], sizeof(t->profiles[0]), "%s", profile);
    }
    t->requests = t->in_flight = 1;
}

static int check_pair(const struct supervisor *s, const char *profile, struct br_err *err)
{
    const struct br_adapter_terms *t = &s->harness.terms;
    const char *config = s->req.config_path[0] ? s->req.config_path : "bridle.lua";
    if (!t->ref[0])
        return br_err_set(
            err, BR_E_DENIED,
            "the adapter '%s' is not allowed: '%.512s' does not name it; nothing was "
            "started. To allow it: adapters = { [\"%s\"] = { profiles = { \"%s\" } } }",
            s->req.adapter, config, s->req.adapter, profile);
    if (!br_adapter_allows(t, profile))
        return br_err_set(
            err, BR_E_DENIED,
            "the adapter '%s' is not allowed with the profile '%s': '%.512s' does not "
            "name that pair; nothing was started",
            s->req.adapter, profile, config);
    return 0;
}

/* Only what the operator alone can have written, and never a file of the workspace. */
static int read_file(const struct supervisor *s, struct br_buf *text, struct br_err *err)
{
    const char *path = s->harness.terms.file;
    char real[PATH_MAX], workspace[PATH_MAX];
    struct stat st;
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return br_err_errno(err, errno == ENOENT ? BR_E_NOT_FOUND : BR_E_INVALID_CONFIG,
                            "the adapter file '%.512s' could not be read; nothing was started",
                            path);
    if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & 022)
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the adapter file '%.512s' is not a file that only its owner (you, or "
                          "root) can write; nothing was started",
                          path);
    size_t n = realpath(s->req.workspace, workspace) ? strlen(workspace) : 0;
    if (n && realpath(path, real) && strncmp(real, workspace, n) == 0 && (real[n] == '/' || n == 1))
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "the adapter file '%.512s' lies inside of the workspace, where an agent "
                          "could have written it; nothing was started",
                          path);
    br_buf_init(text, BR_ADAPTER_TEXT_MAX);
    int r = br_read_all(fd, text, path, err);
    if (r == 0 && text->len == 0)
        r = br_err_set(err, BR_E_INVALID_CONFIG, "the adapter file '%.512s' is empty", path);
    return r;
}

/* One question to a config script of its own; its answer is noted by roles.c. `about` names what it
 * reads. */
static int ask_script(struct supervisor *s, enum br_msg_type type, const struct br_out *o,
                      const char *about, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out start = BR_OUT_INIT;
    struct br_chan *c = &s->programs[P_CONFIG].chan;
    int r = program_start(s, P_CONFIG, err);
    br_buf_put_u8(&start.buf, BR_SCRIPT_CONFIG);
    s->configured = false; /* it may have said something else before */
    if (r == 0)
        r = br_chan_send(c, BR_MSG_SCRIPT_START, 0, &start, err);
    if (r == 0)
        r = br_chan_send(c, type, 1, o, err);
    if (r == 0)
        r = sup_wait(s, &s->configured, ADAPTER_TIMEOUT_US, false);
    if (r == -BR_E_TIMEOUT)
        r = br_err_set(err, BR_E_INVALID_CONFIG,
                       "'%s' could not be read within %u seconds; nothing was started", about,
                       ADAPTER_TIMEOUT_US / 1000000u);
    else if (r < 0 && s->fail_code)
        *err = s->fail_err;
    else if (r == 0 && s->config_code < 0) {
        *err = s->config_err;
        r = s->config_code;
    }
    program_stop(s, P_CONFIG, 0);
    s->configured = false;
    s->config_code = 0;
    return r;
}

static int ask_adapter(struct supervisor *s, const char *profile, const struct br_buf *text,
                       struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, s->req.adapter);
    br_buf_put_str(&o.buf, profile);
    br_buf_put_str(&o.buf, s->harness.terms.file);
    br_out_blob(&o, text->data, text->len);
    int r = ask_script(s, BR_MSG_SCRIPT_ADAPTER, &o, s->req.adapter, err);
    return r == 0 && !s->adapted
               ? br_err_set(err, BR_E_PEER_PROTOCOL, "the config script gave no adapter")
               : r;
}

/* Only whether it may declare one: who reads a manifest is a script. */
static bool may_declare(const struct request *q)
{
    return q->mode == BR_RUN_AGENT && q->manifest.len &&
           memmem(q->manifest.data, q->manifest.len, "harness", 7) != NULL;
}

int harness_declared(struct supervisor *s, struct br_err *err)
{
    struct request *q = &s->req;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    char named[64];
    if (!may_declare(q))
        return 0;
    br_buf_put_str(&o.buf, q->manifest_path);
    br_out_blob(&o, q->manifest.data, q->manifest.len);
    int r = ask_script(s, BR_MSG_SCRIPT_MANIFEST, &o, q->manifest_path, err);
    if (r < 0 || !s->declared.adapter[0])
        return r;
    bool chosen = q->choice.name[0] || (q->choice.source && q->choice.source[0]);
    profile_name(&q->choice, named);
    if ((q->adapter[0] && strcmp(q->adapter, s->declared.adapter) != 0) ||
        (chosen && strcmp(named, s->declared.profile) != 0))
        return br_err_set(
            err, BR_E_USAGE,
            "'%.512s' declares the adapter '%s' with the profile '%s', and another one "
            "was named; nothing was started",
            q->manifest_path, s->declared.adapter, s->declared.profile);
    /* what lies in the workspace an agent may have written: it can only agree */
    if (q->manifest_in_workspace && !(q->adapter[0] && chosen))
        return br_err_set(err, BR_E_INVALID_MANIFEST,
                          "'%.512s': a manifest inside the workspace cannot choose a harness; "
                          "nothing was started. Name both: -a %s --profile %s",
                          q->manifest_path, s->declared.adapter, s->declared.profile);
    snprintf(q->adapter, sizeof(q->adapter), "%s", s->declared.adapter);
    if (!chosen)
        snprintf(q->choice.name, sizeof(q->choice.name), "%s", s->declared.profile);
    return 0;
}

int harness_choose(struct supervisor *s, struct br_err *err)
{
    struct br_harness *h = &s->harness;
    char profile[64];
    uint8_t raw[32];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    if (!s->req.adapter[0])
        return 0;
    profile_name(&s->req.choice, profile);
    if (is_observer(s->req.adapter) && s->req.schema.len)
        observer_terms(&h->terms, s->req.adapter, profile);
    int r = check_pair(s, profile, err);
    if (r == 0 && h->terms.file[0])
        r = read_file(s, &text, err);
    if (r == 0)
        r = ask_adapter(s, profile, &text, err);
    if (r < 0)
        return r;
    h->adapter.routes &= s->provider.routes | BR_ROUTE_MODELS; /* the guest is told of no other */
    if (h->terms.gate && !h->adapter.gate)
        return br_err_set(
            err, BR_E_INVALID_CONFIG,
            "the adapter '%s' cannot ask before its calls, and 'gate' of its entry in "
            "'%.512s' is 'ask'; nothing was started",
            s->req.adapter, s->req.config_path);
    if (s->req.resume[0] && !h->adapter.session)
        return br_err_set(err, BR_E_USAGE,
                          "the adapter '%s' keeps no sessions, so none can be resumed; nothing was "
                          "started",
                          s->req.adapter);
    br_random(raw, sizeof(raw));
    br_hex(h->token, raw, sizeof(raw));
    h->resume = s->req.resume[0] != 0;
    if (h->resume)
        snprintf(h->session_id, sizeof(h->session_id), "%s", s->req.resume);
    else if (h->adapter.session)
        session_id_make(h->session_id);
    return 0;
}

int harness_image(struct supervisor *s, struct br_err *err)
{
    struct br_adapter_terms *t = &s->harness.terms;
    char id[BR_IMAGE_ID_MAX];
    if (!t->image[0] || s->req.choice.image[0] || br_image_is_id(t->image))
        return 0;
    if (s->state_fd < 0 || br_image_resolve(s->state_fd, t->image, id, NULL) < 0)
        return br_err_set(
            err, BR_E_REQUIREMENT_MISSING,
            "the image '%.80s' of the adapter '%s' is not there; nothing was started. "
            "'bridle image build' or 'bridle image import' makes it",
            t->image, s->req.adapter);
    snprintf(t->image, sizeof(t->image), "%s", id);
    return 0;
}

void harness_lease(const struct supervisor *s, struct br_lease *lease)
{
    const struct br_adapter_terms *t = &s->harness.terms;
    const struct br_adapter *a = &s->harness.adapter;
    lease->answers = s->provider.answers;
    if (!s->req.adapter[0])
        return;
    lease->max_requests = t->requests;
    lease->max_request_bytes = t->request_bytes;
    lease->max_response_bytes = t->response_bytes;
    lease->max_tokens = t->tokens;
    if (t->seconds && t->seconds < lease->seconds)
        lease->seconds = t->seconds;
    lease->max_answer_tokens = t->answer_tokens;
    lease->max_in_flight = t->in_flight;
    lease->routes = a->routes & s->provider.routes; /* provider_speaks() says that there are some */
    lease->any_tools = 0;
    lease->ntools = a->ntools;
    memcpy(lease->tools, a->tools, sizeof(lease->tools));
    memcpy(lease->token, s->harness.token, sizeof(lease->token));
}
