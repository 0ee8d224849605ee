/*
 * bridle-script: one process, one purpose (configuration, policy or adapter), one Lua state.
 * Started by bridled with its supervision channel on fd 3; after SCRIPT_START it holds that and its
 * peer's channel, and can make no system call beyond those of a poll loop and its own timer.
 *
 * It trusts nobody: the texts it runs are the operator's, the documents a workspace's, the requests
 * come from a session that may have been taken over. A peer must treat silence as failure: a call
 * that overruns its CPU time and cannot be stopped inside Lua ends this process (SIGPROF).
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "script/serve.h"
#include "wire/service.h"
#include "wire/types.h"

static const int script_calls[] = {SYS_timer_create, SYS_timer_settime, SYS_timer_delete};

int br_serve_fresh(struct serve *s, struct br_err *err)
{
    br_script_free(&s->script);
    s->predicates = false;
    s->script = br_script_new(BR_SCRIPT_MEMORY_MAX);
    if (!s->script)
        return br_err_set(err, BR_E_NOMEM, "no memory for a Lua state");
    static const unsigned purposes[] = {[BR_SCRIPT_CONFIG] = BR_API_CONFIG,
                                        [BR_SCRIPT_POLICY] = BR_API_POLICY,
                                        [BR_SCRIPT_ADAPTER] = BR_API_ADAPTER,
                                        [BR_SCRIPT_INSPECT] = 0};
    s->script->purpose = purposes[s->purpose];
    s->script->hard_timer = true;
    s->script->polled = s->purpose == BR_SCRIPT_INSPECT; /* a signal interrupts it */
    return 0;
}

int br_serve_document(struct serve *s, struct br_msg *m, size_t max, char *path,
                      struct br_buf *text, struct br_err *err)
{
    br_rd_str(&m->rd, path, BR_PATH_MAX);
    int r = br_msg_blob(m, max, text, err);
    if (r == 0)
        r = br_rd_done(&m->rd);
    return r == 0 ? br_serve_fresh(s, err) : r;
}

int br_serve_fail(struct br_chan *c, uint64_t id, const struct br_err *why, const char *file,
                  unsigned line, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_u32(&o.buf, why->code ? why->code : BR_E_INTERNAL);
    br_buf_put_str(&o.buf, why->text);
    br_buf_put_str(&o.buf, file);
    br_buf_put_u32(&o.buf, line);
    return br_chan_send(c, BR_MSG_SCRIPT_FAILED, id, &o, err);
}

/* ---- purpose config ---- */

static void put_text(struct br_buf *b, const json_t *object, const char *key)
{
    br_buf_put_str(b, json_string_value(json_object_get(object, key)));
}

static uint32_t get_u32(const json_t *object, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(object, key));
}

static void put_texts(struct br_buf *b, const json_t *list)
{
    br_buf_put_u32(b, (uint32_t)json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        br_buf_put_str(b, json_string_value(json_array_get(list, i)));
}

static bool is_text(const json_t *object, const char *key, const char *text)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s && strcmp(s, text) == 0;
}

/* Which of the words a text is, from 0. */
static uint8_t which(const json_t *object, const char *key, const char *const *words, uint8_t n)
{
    uint8_t i = 0;
    while (i < n - 1 && !is_text(object, key, words[i]))
        i++;
    return i;
}

static uint32_t route_bits(const json_t *dialects)
{
    uint32_t bits = BR_ROUTE_MODELS;
    for (size_t i = 0; i < json_array_size(dialects); i++) {
        const char *s = json_string_value(json_array_get(dialects, i));
        bits |= strcmp(s, "chat") == 0        ? BR_ROUTE_CHAT
                : strcmp(s, "responses") == 0 ? BR_ROUTE_RESPONSES
                                              : BR_ROUTE_MESSAGES;
    }
    return bits;
}

static void put_provider(struct br_buf *b, const json_t *p)
{
    static const char *const from[] = {"none", "env", "file", "command"}; /* enum br_key_from */
    static const char *const auth[] = {"bearer", "x-api-key"};
    static const char *const answers[] = {"strict", "normalize"};
    const json_t *key = json_object_get(p, "key"), *t = json_object_get(p, "timeouts");
    put_text(b, p, "name");
    put_text(b, p, "base_url");
    br_buf_put_u8(b, which(key, "from", from, 4));
    put_text(b, key, "name");
    put_text(b, key, "at");
    put_texts(b, json_object_get(key, "words"));
    br_buf_put_u32(b, get_u32(key, "timeout"));
    put_text(b, p, "ca_file");
    put_text(b, p, "proxy");
    br_buf_put_u8(b, BR_AUTH_BEARER + which(p, "auth", auth, 2));
    br_buf_put_u32(b, route_bits(json_object_get(p, "dialects")));
    br_buf_put_u8(b, BR_ANSWERS_STRICT + which(p, "answers", answers, 2));
    br_buf_put_u32(b, get_u32(t, "connect"));
    br_buf_put_u32(b, get_u32(t, "first_byte"));
    br_buf_put_u32(b, get_u32(t, "idle"));
    br_buf_put_u32(b, get_u32(t, "total"));
    br_buf_put_u8(b, json_is_true(json_object_get(p, "streaming")));
    put_texts(b, json_object_get(p, "models"));
}

static uint8_t access_of(const json_t *o)
{
    static const char *const words[] = {"observe", "answer", "operate"};
    return BR_ACCESS_OBSERVE + which(o, "access", words, 3);
}

/* A list of texts that the document's check has bounded already. */
static void get_texts(const json_t *list, void *to, size_t each, uint32_t most, uint32_t *n)
{
    for (*n = 0; *n < json_array_size(list) && *n < most; ++*n)
        snprintf((char *)to + *n * each, each, "%s", json_string_value(json_array_get(list, *n)));
}

static void get_flag(const json_t *o, const char *key, uint8_t *to)
{
    const json_t *v = json_object_get(o, key);
    if (v)
        *to = json_is_true(v);
}

static void get_limits(const json_t *o, struct br_service *s)
{
    const struct {
        const char *name;
        uint32_t *to;
    } rows[] = {{"message_bytes", &s->message_bytes},
                {"fragments", &s->fragments},
                {"frame_seconds", &s->frame_seconds},
                {"handshake_seconds", &s->handshake_seconds},
                {"queue_bytes", &s->queue_bytes},
                {"connections", &s->connections},
                {"connections_per_peer", &s->connections_per_peer},
                {"sessions_per_connection", &s->sessions_per_connection},
                {"unprompted_seconds", &s->unprompted_seconds},
                {"ask_seconds", &s->ask_seconds},
                {"running", &s->running},
                {"requests_per_second", &s->requests_per_second}};
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++)
        if (json_object_get(o, rows[i].name))
            *rows[i].to = get_u32(o, rows[i].name);
}

static void get_text(const json_t *o, const char *key, char *dst, size_t cap)
{
    const char *s = json_string_value(json_object_get(o, key));
    snprintf(dst, cap, "%s", s ? s : "");
}

static int get_listeners(const json_t *list, struct br_service *s, struct br_err *err)
{
    for (size_t i = 0; i < json_array_size(list) && i < BR_LISTENERS_MAX; i++) {
        const json_t *o = json_array_get(list, i);
        struct br_listener *l = &s->listeners[s->nlisteners++];
        int r = br_listener_parse(json_string_value(json_object_get(o, "address")), l, err);
        if (r < 0)
            return br_err_wrap(err, "'service.listen[%zu]'", i + 1);
        get_flag(o, "tls", &l->tls);
        get_flag(o, "plaintext", &l->plaintext);
    }
    return 0;
}

/* What is not said has its default. */
static int get_service(const json_t *o, struct br_service_config *c, struct br_err *err)
{
    struct br_service *s = &c->s;
    const json_t *list = json_object_get(o, "uids"), *tls = json_object_get(o, "tls");
    br_service_config_default(c);
    c->given = o != NULL;
    int r = get_listeners(json_object_get(o, "listen"), s, err);
    get_text(o, "root", s->root, sizeof(s->root));
    get_texts(json_object_get(o, "origins"), s->origins, sizeof(s->origins[0]), BR_ORIGINS_MAX,
              &s->norigins);
    get_texts(json_object_get(o, "hosts"), s->hosts, sizeof(s->hosts[0]), BR_ORIGINS_MAX,
              &s->nhosts);
    for (; s->nuids < json_array_size(list) && s->nuids < BR_SERVICE_UIDS_MAX; s->nuids++)
        s->uids[s->nuids] = (uint32_t)json_integer_value(json_array_get(list, s->nuids));
    get_texts(json_object_get(o, "users"), c->users, sizeof(c->users[0]), BR_SERVICE_UIDS_MAX,
              &c->nusers);
    list = json_object_get(o, "certificates");
    for (; s->nnames < json_array_size(list) && s->nnames < BR_SERVICE_NAMES_MAX; s->nnames++) {
        const json_t *one = json_array_get(list, s->nnames);
        get_text(one, "name", s->names[s->nnames].name, sizeof(s->names[0].name));
        s->names[s->nnames].access = access_of(one);
    }
    get_flag(o, "token_in_url", &s->token_in_url);
    get_flag(o, "board", &s->board);
    get_flag(o, "board_remote", &s->board_remote);
    get_flag(o, "metrics", &s->metrics);
    get_flag(o, "detach", &s->detach);
    get_limits(json_object_get(o, "limits"), s);
    get_text(o, "otlp", s->otlp, sizeof(s->otlp));
    get_text(tls, "cert", c->cert, sizeof(c->cert));
    get_text(tls, "key", c->key, sizeof(c->key));
    get_text(tls, "client_ca", c->client_ca, sizeof(c->client_ca));
    get_flag(tls, "require", &c->require_client_cert);
    if (json_object_get(o, "drain"))
        c->drain_seconds = get_u32(o, "drain");
    return r;
}

static void put_config(struct br_buf *b, const json_t *config)
{
    const json_t *providers = json_object_get(config, "providers");
    put_text(b, config, "default_model");
    br_buf_put_u32(b, (uint32_t)json_array_size(providers));
    for (size_t i = 0; i < json_array_size(providers); i++)
        put_provider(b, json_array_get(providers, i));
    const json_t *images = json_object_get(config, "images");
    br_buf_put_u32(b, (uint32_t)json_array_size(images));
    for (size_t i = 0; i < json_array_size(images); i++) {
        put_text(b, json_array_get(images, i), "profile");
        put_text(b, json_array_get(images, i), "image");
    }
    br_serve_put_terms(b, json_object_get(config, "adapters"));
}

static int on_task(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char path[BR_PATH_MAX];
    struct br_compile_task task;
    struct br_err why = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_serve_document(s, m, BR_MANIFEST_MAX, path, &text, err);
    if (r < 0)
        return r;
    r = br_compile_task(s->script, path, text.data, text.len, &task, &why);
    if (r < 0)
        return br_serve_fail(c, m->id, &why, path, 0, err);
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, task.id);
    br_buf_put_u64(&o.buf, task.tokens);
    br_buf_put_u64(&o.buf, task.tool_calls);
    return br_chan_send(c, BR_MSG_SCRIPT_TASKED, m->id, &o, err);
}

static int on_config(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    char path[BR_PATH_MAX];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(0);
    int r = br_serve_document(s, m, BR_CONFIG_MAX, path, &text, err);
    if (r < 0)
        return r;
    struct br_err why = {.code = BR_OK};
    json_t *config = NULL;
    r = br_compile_config(s->script, path, text.data, text.len, &config, &why);
    if (r < 0)
        return br_serve_fail(c, m->id, &why, path, s->script->error_line, err);
    static struct br_service_config service;
    r = get_service(json_object_get(config, "service"), &service, &why);
    if (r < 0) {
        json_decref(config);
        return br_serve_fail(c, m->id, &why, path, 0, err);
    }
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    put_config(&o.buf, config);
    br_service_config_put(&o.buf, &service);
    json_decref(config);
    return br_chan_send(c, BR_MSG_SCRIPT_CONFIGURED, m->id, &o, err);
}

/* ---- start ---- */

static int peer_ended(struct br_chan *c, int code, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    br_chan_close(c);
    if (code != -BR_E_PEER_GONE) {
        br_log(BR_LOG_ERROR, "%s", err ? err->text : br_code_name(code));
        return code;
    }
    br_loop_stop(s->loop); /* nobody is left to answer */
    return 0;
}

static int enter_role(struct serve *s, int peer, struct br_err *err)
{
    static const uint64_t cpu_seconds[] = {[BR_SCRIPT_CONFIG] = 10,
                                           [BR_SCRIPT_POLICY] = 3600,
                                           [BR_SCRIPT_ADAPTER] = 3600,
                                           [BR_SCRIPT_INSPECT] = 3600};
    /* jansson would open /dev/urandom for it, which is not permitted later */
    uint32_t seed;
    br_random(&seed, sizeof(seed));
    json_object_seed(seed | 1);
    br_close_from(4, &peer, peer >= 0);
    struct br_role role = {.name = "bridle-script",
                           .uid = BR_UID_SCRIPT,
                           .max_nofile = 32,
                           .max_as = BR_SCRIPT_AS_MAX,
                           .max_cpu_s = cpu_seconds[s->purpose] * BR_SCRIPT_SLOW,
                           .no_fork = true,
                           .syscalls = script_calls,
                           .nsyscalls = BR_ARRAY_LEN(script_calls)};
    return br_role_enter(&role, err);
}

static int on_start(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct serve *s = ctx;
    s->purpose = br_rd_u8(&m->rd);
    BR_CLEANUP_FD int peer = br_msg_take_fd(m);
    bool known = s->purpose >= BR_SCRIPT_CONFIG && s->purpose <= BR_SCRIPT_INSPECT;
    bool alone = s->purpose == BR_SCRIPT_CONFIG || s->purpose == BR_SCRIPT_INSPECT;
    if (br_rd_done(&m->rd) < 0 || !known || (peer >= 0) == alone)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "the start message is malformed");
    int r = enter_role(s, peer, err);
    if (r == 0)
        r = br_serve_fresh(s, err);
    if (r < 0)
        return r;
    if (s->purpose == BR_SCRIPT_CONFIG) {
        br_chan_permit(c, BR_MSG_SCRIPT_CONFIG);
        br_chan_permit(c, BR_MSG_SCRIPT_ADAPTER);
        br_chan_permit(c, BR_MSG_SCRIPT_MANIFEST);
        br_chan_permit(c, BR_MSG_SCRIPT_TASK);
    } else if (s->purpose == BR_SCRIPT_INSPECT) {
        r = br_serve_inspect_start(s, err);
        if (r < 0)
            return r;
    } else {
        bool policy = s->purpose == BR_SCRIPT_POLICY;
        br_chan_init(&s->peer, br_steal_fd(&peer), "session",
                     policy ? br_serve_policy_rules : br_serve_adapter_rules,
                     policy ? br_serve_policy_nrules : br_serve_adapter_nrules, s);
        r = br_loop_watch_chan(s->loop, &s->peer, peer_ended, s);
        if (r < 0)
            return r;
    }
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    br_buf_put_str(&o.buf, br_code_name(BR_OK));
    br_buf_put_str(&o.buf, "");
    return br_chan_send(c, BR_MSG_ROLE_READY, m->id, &o, err);
}

static const struct br_msg_rule sup_rules[] = {
    {BR_MSG_SCRIPT_START, BR_PERMIT | BR_ONCE, 1, 1, 0, 1, on_start},
    {BR_MSG_SCRIPT_CONFIG, 0, 9, BR_MSG_MAX, 0, 1, on_config},
    {BR_MSG_SCRIPT_ADAPTER, 0, 17, BR_MSG_MAX, 0, 1, br_serve_harness},
    {BR_MSG_SCRIPT_MANIFEST, 0, 9, BR_MSG_MAX, 0, 1, br_serve_declared},
    {BR_MSG_SCRIPT_TASK, 0, 9, BR_MSG_MAX, 0, 1, on_task},
    {BR_MSG_INSPECT_EVAL, 0, 29, BR_MSG_MAX, 0, 1, br_serve_inspect_eval},
    {BR_MSG_INSPECT_DATA, BR_ONCE, 13, BR_MSG_MAX, 0, 1, br_serve_inspect_data},
    {BR_MSG_INSPECT_NAMES, 0, 4, BR_NAME_MAX, 0, 0, br_serve_inspect_names},
};

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGPROF, SIG_DFL);
    br_log_init("bridle-script", BR_LOG_WARN);
    struct serve s = {.loop = br_loop_new(), .peer = {.fd = -1}};
    if (!s.loop)
        return 1;
    br_chan_init(&s.sup, 3, "bridled", sup_rules, BR_ARRAY_LEN(sup_rules), &s);
    struct br_err err = {.code = BR_OK};
    int r = br_loop_watch_chan(s.loop, &s.sup, NULL, NULL);
    if (r == 0)
        r = br_loop_run(s.loop, NULL, &err);
    if (r < 0 && r != -BR_E_PEER_GONE && err.text[0])
        br_log(BR_LOG_ERROR, "%s", err.text);
    br_chan_close(&s.peer);
    br_chan_close(&s.sup);
    br_script_free(&s.script);
    br_loop_free(&s.loop);
    return r < 0 && r != -BR_E_PEER_GONE;
}
