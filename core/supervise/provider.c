/*
 * Which model a run talks to, and the programs on the way there. The supervisor learns names and
 * addresses; the credential stays in an environment variable that only bridle-egress is given.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "image/image.h"
#include "supervise/supervise_priv.h"
#include "wire/service.h"

#define CONFIG_TIMEOUT_US (5u * 1000000u)
#define DEFAULT_TIMEOUT_S 120u
#define CONNECT_TIMEOUT_S 10u
#define PROVIDERS_MAX 64u
#define MODELS_MAX 128u
#define SCRIPTED_BACKLOG 4

extern const char br_scenario_default[], br_scenario_demo[];
extern const unsigned br_scenario_default_len, br_scenario_demo_len;

/* ---- choosing ---- */

static void provider_default(struct provider *p)
{
    p->streaming = true;
    p->auth = BR_AUTH_BEARER;
    p->routes = BR_ROUTE_CHAT | BR_ROUTE_RESPONSES | BR_ROUTE_MODELS;
    p->answers = BR_ANSWERS_STRICT;
    p->connect_s = CONNECT_TIMEOUT_S;
    p->first_byte_s = p->idle_s = DEFAULT_TIMEOUT_S;
    p->total_s = 5 * DEFAULT_TIMEOUT_S;
}

static int choose_scripted(struct supervisor *s, const char *model, struct br_err *err)
{
    static const struct {
        const char *model, *text;
        const unsigned *len;
    } embedded[] = {
        {"scripted/default", br_scenario_default, &br_scenario_default_len},
        {"scripted/demo", br_scenario_demo, &br_scenario_demo_len},
    };
    struct provider *p = &s->provider;
    p->scripted = true;
    provider_default(p);
    snprintf(p->base_url, sizeof(p->base_url), "http://localhost/v1");
    snprintf(p->model, sizeof(p->model), "%s", model);
    if (s->req.scenario.len)
        return 0;
    for (size_t i = 0; i < BR_ARRAY_LEN(embedded); i++)
        if (strcmp(model, embedded[i].model) == 0)
            return br_buf_put(&s->req.scenario, embedded[i].text, *embedded[i].len);
    return br_err_set(err, BR_E_NOT_FOUND,
                      "there is no scripted model '%s'; there are scripted/default and "
                      "scripted/demo, or give a scenario file with --scenario",
                      model);
}

static int run_config(struct supervisor *s, struct br_err *err)
{
    int r = program_start(s, P_CONFIG, err);
    BR_CLEANUP_OUT struct br_out start = BR_OUT_INIT, config = BR_OUT_INIT;
    struct br_chan *c = &s->programs[P_CONFIG].chan;
    br_buf_put_u8(&start.buf, BR_SCRIPT_CONFIG);
    br_buf_put_str(&config.buf, s->req.config_path);
    br_out_blob(&config, s->req.config.data, s->req.config.len);
    if (r == 0)
        r = br_chan_send(c, BR_MSG_SCRIPT_START, 0, &start, err);
    if (r == 0)
        r = br_chan_send(c, BR_MSG_SCRIPT_CONFIG, 1, &config, err);
    if (r == 0)
        r = sup_wait(s, &s->configured, CONFIG_TIMEOUT_US, false);
    if (r == -BR_E_TIMEOUT)
        r = br_err_set(err, BR_E_INVALID_CONFIG,
                       "'%s' did not finish within %u seconds; nothing was started",
                       s->req.config_path, CONFIG_TIMEOUT_US / 1000000u);
    else if (r < 0 && s->fail_code)
        *err = s->fail_err;
    else if (r == 0 && s->config_code < 0) {
        *err = s->config_err;
        r = s->config_code;
    }
    program_stop(s, P_CONFIG, 0);
    return r;
}

static void read_key(struct br_rd *r, struct provider *p)
{
    char at[BR_PATH_MAX];
    p->key_from = br_rd_u8(r);
    br_rd_str(r, p->key_name, sizeof(p->key_name));
    br_rd_str(r, at, sizeof(at));
    p->nkey_command = br_rd_u32(r);
    if (p->nkey_command > KEY_WORDS_MAX || p->key_from > BR_KEY_COMMAND ||
        (p->key_from == BR_KEY_COMMAND) != (p->nkey_command > 0))
        r->failed = true;
    for (uint32_t i = 0; i < p->nkey_command && !r->failed; i++)
        br_rd_str(r, p->key_command[i], sizeof(p->key_command[i]));
    p->key_command_s = br_rd_u32(r);
    if (p->key_from == BR_KEY_ENV && strlen(at) < sizeof(p->key_env)) {
        memcpy(p->key_env, at, strlen(at) + 1);
        memcpy(p->key_name, at, strlen(at) + 1); /* what a person is to look at */
    } else if (p->key_from == BR_KEY_FILE) {
        memcpy(p->key_file, at, sizeof(at));
    }
}

/* One provider of the reply; true if it is the wanted one and offers the model. */
static bool read_provider(struct br_rd *r, const char *want, const char *model,
                          struct provider *out, bool *named, provider_model_fn *offers, void *ctx)
{
    static struct provider p;
    char name[BR_NAME_MAX], offered[BR_NAME_MAX];
    memset(&p, 0, sizeof(p));
    br_rd_str(r, name, sizeof(name));
    br_rd_str(r, p.base_url, sizeof(p.base_url));
    read_key(r, &p);
    br_rd_str(r, p.ca_file, sizeof(p.ca_file));
    br_rd_str(r, p.proxy, sizeof(p.proxy));
    p.auth = br_rd_u8(r);
    p.routes = br_rd_u32(r);
    p.answers = br_rd_u8(r);
    p.connect_s = br_rd_u32(r);
    p.first_byte_s = br_rd_u32(r);
    p.idle_s = br_rd_u32(r);
    p.total_s = br_rd_u32(r);
    p.streaming = br_rd_u8(r);
    uint32_t n = br_rd_u32(r);
    bool has = n == 0;
    if (n > MODELS_MAX)
        r->failed = true;
    if (offers && has && !r->failed)
        offers(ctx, name, "");
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        br_rd_str(r, offered, sizeof(offered));
        has |= strcmp(offered, model) == 0;
        if (offers && !r->failed)
            offers(ctx, name, offered);
    }
    if (r->failed || strcmp(name, want) != 0)
        return false;
    *named = true;
    snprintf(p.model, sizeof(p.model), "%s/%s", name, model);
    *out = p;
    return has;
}

void provider_models(struct br_rd *r, provider_model_fn *fn, void *ctx)
{
    static struct provider unused;
    bool named = false;
    uint32_t n = br_rd_u32(r);
    if (n > PROVIDERS_MAX)
        r->failed = true;
    for (uint32_t i = 0; i < n && !r->failed; i++)
        (void)read_provider(r, "", "", &unused, &named, fn, ctx);
}

static int malformed_config(struct br_err *err)
{
    return br_err_set(err, BR_E_PEER_PROTOCOL, "the config script gave a malformed answer");
}

/* Read the whole answer: the images of profiles, and the provider that is wanted. *n is how many
 * there are. */
static int read_config(struct supervisor *s, const char *want, const char *model, uint32_t *n,
                       bool *found, bool *named, struct br_err *err)
{
    static struct br_service_config service;
    struct br_rd r;
    char fallback[BR_NAME_MAX];
    br_rd_init(&r, s->config_reply.data, s->config_reply.len);
    br_rd_str(&r, fallback, sizeof(fallback));
    *n = br_rd_u32(&r);
    *found = *named = false;
    if (r.failed || *n > PROVIDERS_MAX)
        return malformed_config(err);
    for (uint32_t i = 0; i < *n && !r.failed; i++)
        *found |= read_provider(&r, want, model, &s->provider, named, NULL, NULL);
    s->nimages = br_rd_u32(&r);
    if (s->nimages > PROFILE_IMAGES_MAX) {
        s->nimages = 0;
        r.failed = true;
    }
    for (uint32_t i = 0; i < s->nimages && !r.failed; i++) {
        br_rd_str(&r, s->images[i].profile, sizeof(s->images[i].profile));
        br_rd_str(&r, s->images[i].image, sizeof(s->images[i].image));
    }
    harness_read_terms(s, &r);
    br_service_config_get(&r, &service); /* a run has nothing of it */
    return br_rd_done(&r) < 0 ? malformed_config(err) : 0;
}

static int choose_configured(struct supervisor *s, struct br_err *err)
{
    struct br_rd r;
    char fallback[BR_NAME_MAX], provider[BR_NAME_MAX];
    uint32_t n;
    bool found, named;
    br_rd_init(&r, s->config_reply.data, s->config_reply.len);
    br_rd_str(&r, fallback, sizeof(fallback));
    const char *want = s->req.model[0] ? s->req.model : fallback;
    const char *slash = strchr(want, '/');
    if (!slash || slash == want)
        return br_err_set(err, BR_E_USAGE,
                          "name a model as PROVIDER/MODEL, with -m or as default_model in '%s'; "
                          "'%s' is not one",
                          s->req.config_path, want);
    snprintf(provider, sizeof(provider), "%.*s", (int)(slash - want), want);
    int code = read_config(s, provider, slash + 1, &n, &found, &named, err);
    if (code < 0 || found)
        return code;
    return br_err_set(err, BR_E_NOT_FOUND,
                      named ? "the provider of '%s' does not list that model in '%s'; nothing was "
                              "started"
                            : "there is no provider for '%s' in '%s'; nothing was started",
                      want, s->req.config_path);
}

static int choose_environment(struct supervisor *s, struct br_err *err)
{
    struct provider *p = &s->provider;
    const char *model = s->req.model;
    if (strncmp(model, "openai/", 7) == 0)
        model += 7;
    if (!*model)
        return br_err_set(err, BR_E_USAGE,
                          "OPENAI_API_KEY or OPENAI_BASE_URL is set, but no model is named: add "
                          "-m MODEL");
    snprintf(p->model, sizeof(p->model), "openai/%s", model);
    if (getenv("OPENAI_API_KEY")) {
        p->key_from = BR_KEY_ENV;
        snprintf(p->key_env, sizeof(p->key_env), "OPENAI_API_KEY");
        snprintf(p->key_name, sizeof(p->key_name), "OPENAI_API_KEY");
    }
    provider_default(p);
    return 0;
}

/* Is the file needed for anything? The default profile needs no image. */
static bool needs_config(const struct supervisor *s)
{
    const struct br_profile_choice *c = &s->req.choice;
    bool own = c->source && c->source[0], scripted = strncmp(s->req.model, "scripted/", 9) == 0;
    if (!s->req.config.len)
        return false;
    if (s->req.adapter[0])
        return true;
    return (((c->name[0] && strcmp(c->name, "run-v1") != 0) || own) && !c->image[0]) ||
           (s->req.mode == BR_RUN_AGENT && !scripted && !s->req.scenario.len);
}

int provider_choose(struct supervisor *s, struct br_err *err)
{
    const char *model = s->req.model;
    uint32_t nproviders = 0;
    if (needs_config(s)) {
        bool found, named;
        int r = run_config(s, err);
        if (r == 0)
            r = read_config(s, "", "", &nproviders, &found, &named, err);
        if (r < 0)
            return r;
    }
    if (s->req.mode != BR_RUN_AGENT) {
        snprintf(s->provider.model, sizeof(s->provider.model), "none");
        return 0;
    }
    if (s->req.scenario.len && strncmp(model, "scripted/", 9) != 0)
        return choose_scripted(s, "scripted/custom", err);
    if (strncmp(model, "scripted/", 9) == 0)
        return choose_scripted(s, model, err);
    if (nproviders)
        return choose_configured(s, err);
    if (getenv("OPENAI_API_KEY") || getenv("OPENAI_BASE_URL"))
        return choose_environment(s, err);
    if (*model)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "no provider is configured for the model '%s'; nothing was started. "
                          "Write a bridle.lua, or set OPENAI_API_KEY or OPENAI_BASE_URL",
                          model);
    return choose_scripted(s, "scripted/default", err);
}

int provider_speaks(const struct supervisor *s, struct br_err *err)
{
    uint32_t asks = s->req.adapter[0] ? s->harness.adapter.routes : (uint32_t)BR_ROUTE_CHAT;
    if (s->req.mode != BR_RUN_AGENT || (s->provider.routes & asks & ~(uint32_t)BR_ROUTE_MODELS))
        return 0;
    return br_err_set(err, BR_E_INVALID_CONFIG,
                      "the provider of '%s' speaks none of the dialects of '%s' ('api' and "
                      "'dialects' in '%s'); nothing was started",
                      s->provider.model, s->req.adapter[0] ? s->req.adapter : "Bridle's own agent",
                      s->req.config_path);
}

int images_resolve(struct supervisor *s, struct br_err *err)
{
    char *image = s->req.choice.image, id[BR_IMAGE_ID_MAX];
    if (s->req.mode == BR_RUN_VALIDATE || s->req.mode == BR_RUN_POLICY ||
        s->req.mode == BR_RUN_SELFTEST)
        return 0;
    for (uint32_t i = 0; i < s->nimages; i++) /* of one that is not used nothing need be there */
        if (s->state_fd >= 0 && br_image_resolve(s->state_fd, s->images[i].image, id, NULL) == 0)
            snprintf(s->images[i].image, sizeof(s->images[i].image), "%s", id);
    int k = harness_image(s, err);
    if (k < 0)
        return k;
    if (!image[0] || strcmp(image, BR_IMAGE_HOST) == 0 || br_image_is_id(image))
        return 0;
    if (s->state_fd < 0)
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no image '%.80s'; nothing was started. 'bridle image list' "
                          "shows those that there are",
                          image);
    int r = br_image_resolve(s->state_fd, image, id, err);
    if (r == 0)
        snprintf(image, sizeof(s->req.choice.image), "%s", id);
    return r;
}

/* ---- starting ---- */

/*
 * An abstract socket leaves no file behind, whoever is killed; its name is random, and the server
 * turns away everybody but egress.
 */
static int scripted_socket(char path[64], struct br_err *err)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    uint8_t raw[16];
    br_random(raw, sizeof(raw));
    size_t n = (size_t)snprintf(path, 64, "@bridle-");
    br_hex(path + n, raw, sizeof(raw));
    n += 2 * sizeof(raw);
    memcpy(sa.sun_path + 1, path + 1, n - 1);
    BR_CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, SCRIPTED_BACKLOG) < 0)
        return br_err_errno(err, BR_E_IO, "the socket of the scripted provider could not be made");
    return br_steal_fd(&fd);
}

static int start_scripted(struct supervisor *s, char path[64], struct br_err *err)
{
    BR_CLEANUP_FD int sock = scripted_socket(path, err);
    if (sock < 0)
        return sock;
    int r = program_start(s, P_SCRIPTED, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_out_blob(&o, s->req.scenario.data, s->req.scenario.len);
    br_out_fd(&o, br_steal_fd(&sock), true);
    return r < 0 ? r
                 : br_chan_send(&s->programs[P_SCRIPTED].chan, BR_MSG_SCRIPTED_START, 0, &o, err);
}

static int start_egress(struct supervisor *s, const char *socket_path, int broker, int audit,
                        struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    const struct provider *p = &s->provider;
    int key_fd = -1, ca_fd = -1;
    br_out_fd(&o, broker, true);
    br_out_fd(&o, audit, true);
    int r = key_open(s, &key_fd, err);
    if (key_fd >= 0)
        br_out_fd(&o, key_fd, true);
    if (r == 0)
        r = key_open_ca(s, &ca_fd, err);
    if (ca_fd >= 0)
        br_out_fd(&o, ca_fd, true);
    br_buf_put_str(&o.buf, p->base_url);
    br_buf_put_str(&o.buf, p->key_name);
    br_buf_put_u8(&o.buf, p->key_from);
    br_buf_put_u8(&o.buf, p->auth);
    br_buf_put_str(&o.buf, socket_path);
    br_buf_put_str(&o.buf, p->proxy);
    br_buf_put_u32(&o.buf, p->connect_s);
    br_buf_put_u32(&o.buf, p->first_byte_s);
    br_buf_put_u32(&o.buf, p->idle_s);
    br_buf_put_u32(&o.buf, p->total_s);
    br_buf_put_u8(&o.buf, BR_EGRESS_FD_AUDIT | (key_fd >= 0 ? BR_EGRESS_FD_KEY : 0) |
                              (ca_fd >= 0 ? BR_EGRESS_FD_CA : 0));
    if (r == 0)
        r = program_start(s, P_EGRESS, err);
    char *key = p->key_env[0] ? getenv(p->key_env) : NULL;
    if (key) /* egress has it; here it would only stay readable in /proc/PID/environ */
        explicit_bzero(key, strlen(key));
    return r < 0 ? r : br_chan_send(&s->programs[P_EGRESS].chan, BR_MSG_EGRESS_START, 0, &o, err);
}

static int start_broker(struct supervisor *s, int session, int egress, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    /* the session's own requests, one after the other; its budget of tokens is the manifest's */
    struct br_lease lease = {
        .max_requests = BR_STEPS_MAX,
        .max_request_bytes = 1ull << 30,
        .max_response_bytes = 1ull << 30,
        .max_tokens = BR_MODEL_TOKENS_MAX,
        .seconds = s->req.wall_seconds ? s->req.wall_seconds : br_limits_default.wall_seconds,
        .max_answer_tokens = BR_MODEL_TOKENS_MAX,
        .max_in_flight = 1,
        .routes = BR_ROUTE_CHAT,
        .answers = BR_ANSWERS_STRICT,
        .any_tools = 1,
    };
    harness_lease(s, &lease);
    BR_CLEANUP_FD int page = account_open(s, err);
    if (page < 0)
        return page;
    br_buf_put_str(&o.buf, s->run_id);
    br_buf_put_str(&o.buf, strchr(s->provider.model, '/') + 1);
    br_lease_put(&o.buf, &lease);
    br_out_fd(&o, session, true);
    br_out_fd(&o, egress, true);
    br_out_fd(&o, page, false);
    int r = program_start(s, P_BROKER, err);
    return r < 0 ? r : br_chan_send(&s->programs[P_BROKER].chan, BR_MSG_BROKER_START, 0, &o, err);
}

int provider_start(struct supervisor *s, int session_fd, int audit_fd, struct br_err *err)
{
    BR_CLEANUP_FD int session = session_fd, audit = audit_fd;
    char path[64] = "";
    int ends[2];
    if (s->provider.scripted) {
        int r = start_scripted(s, path, err);
        if (r < 0)
            return r;
    }
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel between broker and egress");
    BR_CLEANUP_FD int broker_end = ends[0], egress_end = ends[1];
    int r = start_egress(s, path, br_steal_fd(&egress_end), br_steal_fd(&audit), err);
    return r < 0 ? r : start_broker(s, br_steal_fd(&session), br_steal_fd(&broker_end), err);
}
