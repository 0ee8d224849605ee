/*
 * The settings of a service: bridle.lua (read here, evaluated by a bridle-script of its own), the
 * tokens, the certificate and its key. All of it is read into one place beside the settings that
 * count, and takes their place as a whole or not at all. Everything is the operator's; what others
 * could have written is refused. Called by service.c and standing.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/service.h"
#include "supervise/supervise_priv.h"

#define CONFIG_TIMEOUT_US (5u * 1000000u)
#define TOKENS_FILE "tokens"
#define TOKENS_BYTES_MAX (64u * 1024)
#define PEM_MAX (1024u * 1024)

static const char nothing[] = "return { api = 1, service = {} }\n";

void settings_free(struct service_settings **sp)
{
    struct service_settings *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    if (s->key.data)
        explicit_bzero(s->key.data, s->key.cap);
    struct br_buf *all[] = {&s->config, &s->scenario, &s->cert, &s->key, &s->ca};
    for (size_t i = 0; i < BR_ARRAY_LEN(all); i++)
        br_buf_free(all[i]);
    for (unsigned i = 0; i < s->nmodels; i++)
        free(s->models[i]);
    br_close(&s->root_fd);
    free(s);
}

void service_outcome(const struct service *sv, struct br_err *err)
{
    static const char *const said[] = {"not started", "nothing was started", "nothing has changed",
                                       " stays", "was reloaded"};
    char *wrong = sv->listening ? strstr(err->text, "the service was not started") : NULL;
    size_t n = strlen(err->text);
    if (wrong) { /* what is checked at the start is checked again; this one is the shorter word */
        static const char kept[] = "nothing has changed";
        char *behind = wrong + strlen("the service was not started");
        memcpy(wrong, kept, sizeof(kept) - 1);
        memmove(wrong + sizeof(kept) - 1, behind, strlen(behind) + 1);
    }
    for (size_t i = 0; i < BR_ARRAY_LEN(said); i++)
        if (strstr(err->text, said[i]))
            return;
    bool sentences = strstr(err->text, ". ") != NULL;
    const char *outcome = sv->listening ? "nothing has changed" : "the service was not started";
    if (n + 32 > sizeof(err->text))
        err->text[n = br_utf8_floor(err->text, sizeof(err->text) - 32)] = 0;
    snprintf(err->text + n, sizeof(err->text) - n, "%s%c%s", sentences ? ". " : "; ",
             sentences ? outcome[0] - 'a' + 'A' : outcome[0], outcome + 1);
}

/* ---- files ---- */

static int bad_file(struct br_err *err, const char *what, const char *path, const char *why)
{
    return br_err_set(err, BR_E_INVALID_CONFIG, "%s '%.512s' was not read: %s", what, path, why);
}

/* As the key of a provider is looked at. */
static int check_private(const struct stat *st, const char **why)
{
    *why = !S_ISREG(st->st_mode)                        ? "it is not a regular file"
           : st->st_nlink > 1                           ? "it has another name (a hard "
                                                          "link)"
           : st->st_uid != 0 && st->st_uid != geteuid() ? "it belongs to another user"
           : (st->st_mode & 077)                        ? "other users may use it; 'chmod "
                                                          "600' it"
                                                        : NULL;
    return *why ? -1 : 0;
}

static int read_pem(const char *what, const char *path, bool secret, struct br_buf *out,
                    struct br_err *err)
{
    struct stat st;
    const char *why = NULL;
    br_buf_init(out, PEM_MAX);
    if (!path[0])
        return 0;
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (secret ? O_NOFOLLOW : 0);
    BR_CLEANUP_FD int fd = open(path, flags);
    if (fd < 0 || fstat(fd, &st) < 0)
        return bad_file(err, what, path,
                        errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (secret && check_private(&st, &why) < 0)
        return bad_file(err, what, path, why);
    if (!S_ISREG(st.st_mode))
        return bad_file(err, what, path, "it is not a regular file");
    if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
        return bad_file(err, what, path, "others can write it");
    if (br_read_all(fd, out, path, err) < 0)
        return bad_file(err, what, path, "it is too large, or cannot be read");
    return out->len ? 0 : bad_file(err, what, path, "it is empty");
}

/* ---- tokens ---- */

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* NAME ACCESS sha256:HEX */
static bool read_token(char *line, struct br_token *t)
{
    static const char *const access[] = {"observe", "answer", "operate"};
    char *save = NULL, *name = strtok_r(line, " \t", &save), *what = strtok_r(NULL, " \t", &save),
         *hash = strtok_r(NULL, " \t", &save);
    memset(t, 0, sizeof(*t));
    if (!hash || strtok_r(NULL, " \t", &save) || !br_is_kebab(name, sizeof(t->name) - 1) ||
        strncmp(hash, "sha256:", 7) != 0 || strlen(hash) != 7 + 64)
        return false;
    snprintf(t->name, sizeof(t->name), "%s", name);
    for (unsigned i = 0; i < BR_ARRAY_LEN(access); i++)
        if (strcmp(what, access[i]) == 0)
            t->access = (uint8_t)(BR_ACCESS_OBSERVE + i);
    for (unsigned i = 0; i < 32; i++) {
        int high = hex_digit(hash[7 + 2 * i]), low = hex_digit(hash[8 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        t->sha256[i] = (uint8_t)(high << 4 | low);
    }
    return t->access != BR_ACCESS_NONE;
}

static int add_token(const char *path, unsigned number, char *line, struct br_token *t, unsigned *n,
                     struct br_err *err)
{
    struct br_token one;
    char why[64];
    line += strspn(line, " \t");
    if (!*line || *line == '#')
        return 0;
    snprintf(why, sizeof(why), "line %u is no NAME ACCESS sha256:HEX", number);
    if (!read_token(line, &one))
        return bad_file(err, "the file of tokens", path, why);
    if (*n >= BR_TOKENS_MAX)
        return bad_file(err, "the file of tokens", path, "there are more than 64");
    for (unsigned i = 0; i < *n; i++)
        if (strcmp(t[i].name, one.name) == 0)
            return bad_file(err, "the file of tokens", path, "two of them have the same name");
    t[(*n)++] = one;
    return 0;
}

int tokens_read(int state_fd, const char *state_dir, struct br_token *t, unsigned *n,
                struct br_err *err)
{
    char path[BR_PATH_MAX + 16];
    struct stat st;
    const char *why = NULL;
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(TOKENS_BYTES_MAX);
    *n = 0;
    snprintf(path, sizeof(path), "%s/" TOKENS_FILE, state_dir);
    BR_CLEANUP_FD int fd =
        openat(state_fd, TOKENS_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return bad_file(err, "the file of tokens", path,
                        errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (check_private(&st, &why) < 0)
        return bad_file(err, "the file of tokens", path, why);
    if (br_read_all(fd, &text, path, NULL) < 0 || (text.len && !br_buf_cstr(&text)) ||
        (text.len && strlen((char *)text.data) != text.len))
        return bad_file(err, "the file of tokens", path, "it is too large, or holds a NUL");
    unsigned number = 0;
    char *next = (char *)text.data;
    for (char *line; text.len && (line = strsep(&next, "\n"));) {
        int r = add_token(path, ++number, line, t, n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- who and where ---- */

int users_resolve(const char *passwd, struct br_service_config *c, struct br_err *err)
{
    for (uint32_t i = 0; i < c->nusers; i++) {
        BR_CLEANUP_FILE FILE *f = fopen(passwd, "re");
        struct passwd *p = NULL;
        while (f && (p = fgetpwent(f)) && strcmp(p->pw_name, c->users[i]) != 0)
            ;
        if (!f || !p)
            return br_err_set(err, BR_E_INVALID_CONFIG,
                              "'service.users': '%s' has no user '%s'. Write the number of one "
                              "that is known elsewhere",
                              passwd, c->users[i]);
        if (c->s.nuids >= BR_SERVICE_UIDS_MAX)
            return br_err_set(err, BR_E_INVALID_CONFIG, "'service.users' has more than %u entries",
                              BR_SERVICE_UIDS_MAX);
        c->s.uids[c->s.nuids++] = p->pw_uid;
    }
    return 0;
}

int listeners_check(const struct br_service *s, unsigned ntokens, struct br_err *err)
{
    char url[BR_NAME_MAX + 32];
    for (uint32_t i = 0; i < s->nlisteners; i++) {
        const struct br_listener *l = &s->listeners[i];
        if (l->kind == BR_LISTENER_UNIX || l->loopback)
            continue;
        listener_url(l, url, sizeof(url));
        if (!l->tls && !l->plaintext)
            return br_err_set(err, BR_E_INVALID_CONFIG,
                              "'%s' is reached from other machines and has no TLS; the service was "
                              "not started. Write { address = '%s:%u', tls = true } and 'tls' into "
                              "'service', or 'plaintext = true' if what is in between is trusted",
                              url, l->address, l->port);
        if (ntokens == 0 && s->nnames == 0)
            return br_err_set(
                err, BR_E_INVALID_CONFIG,
                "'%s' is reached from other machines, and nobody may come from there: "
                "there is no token and no name of a certificate; the service was not "
                "started. 'bridle token add NAME --access operate' makes a token",
                url);
    }
    return 0;
}

/* 127.0.0.1:8765 and a socket in the state directory; root's own is where the system's are. */
static void default_listeners(const struct service *sv, struct br_service *s)
{
    const char *state = sv->st->state_dir;
    char path[BR_PATH_MAX + 32];
    bool system = geteuid() == 0 && strcmp(state, "/var/lib/bridle") == 0;
    snprintf(path, sizeof(path), "%s/service.sock", system ? "/run/bridle" : state);
    (void)br_listener_parse("127.0.0.1:8765", &s->listeners[s->nlisteners++], NULL);
    if (br_listener_parse(path, &s->listeners[s->nlisteners], NULL) == 0)
        s->nlisteners++;
    else
        br_log(BR_LOG_WARN, "'%.512s' is too long for a socket; there is only the one of TCP",
               path);
}

static int open_root(const struct service *sv, struct service_settings *s, struct br_err *err)
{
    char cwd[BR_PATH_MAX] = "";
    const char *path = sv->args.root[0] ? sv->args.root : s->c.s.root;
    if (!path[0])
        path = getcwd(cwd, sizeof(cwd)) ? cwd : "";
    BR_CLEANUP_FREE char *real = path[0] ? realpath(path, NULL) : NULL;
    if (!real || strlen(real) >= sizeof(s->c.s.root))
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "the root '%.512s' of workspaces cannot be used", path);
    snprintf(s->c.s.root, sizeof(s->c.s.root), "%s", real);
    s->root_fd = open(real, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s->root_fd < 0)
        return br_err_errno(err, BR_E_INVALID_CONFIG,
                            "the root '%.512s' of workspaces cannot be used", real);
    return 0;
}

/* ---- models ---- */

/* A model of a provider, or "" for one that takes any. */
static void add_model(void *ctx, const char *provider, const char *model)
{
    struct service_settings *s = ctx;
    char name[2 * BR_NAME_MAX];
    size_t n = strlen(provider), used = strlen(s->providers);
    s->wanted_known |= strncmp(s->wanted, provider, n) == 0 && s->wanted[n] == '/' &&
                       (!*model || strcmp(s->wanted + n + 1, model) == 0);
    snprintf(name, sizeof(name), "'%s'", provider);
    if (!strstr(s->providers, name) && used + strlen(name) + 3 < sizeof(s->providers))
        snprintf(s->providers + used, sizeof(s->providers) - used, "%s%s", used ? ", " : "", name);
    snprintf(name, sizeof(name), "%s/%s", provider, model);
    if (*model && s->nmodels < SERVICE_MODELS_MAX && strlen(name) < BR_NAME_MAX &&
        (s->models[s->nmodels] = strdup(name)))
        s->nmodels++;
}

static bool offers(const struct service_settings *s, const char *model)
{
    for (unsigned i = 0; i < s->nmodels; i++)
        if (strcmp(s->models[i], model) == 0)
            return true;
    return false;
}

static void add_default(struct service_settings *s, const char *model)
{
    char provider[BR_NAME_MAX];
    const char *slash = strchr(model, '/');
    snprintf(s->default_model, sizeof(s->default_model), "%s", model);
    if (slash && !offers(s, model)) {
        snprintf(provider, sizeof(provider), "%.*s", (int)(slash - model), model);
        add_model(s, provider, slash + 1);
    }
    for (unsigned i = 1; i < s->nmodels; i++) /* clients take the first for it */
        if (strcmp(s->models[i], model) == 0) {
            char *own = s->models[i];
            memmove(s->models + 1, s->models, i * sizeof(s->models[0]));
            s->models[0] = own;
        }
}

/* The one that a session gets which names none, as the operator names it. */
static void name_wanted(const struct service *sv, struct service_settings *s, const char *fallback)
{
    const char *asked = sv->args.model;
    if (s->scenario.len)
        asked = strncmp(asked, "scripted/", 9) == 0 ? asked : "scripted/custom";
    else if (!asked[0])
        asked = fallback;
    snprintf(s->wanted, sizeof(s->wanted), "%s%s", asked[0] && !strchr(asked, '/') ? "openai/" : "",
             asked);
}

static bool has_environment(void)
{
    return getenv("OPENAI_API_KEY") || getenv("OPENAI_BASE_URL");
}

/* As a run takes it (provider.c): what none could use is not offered. */
static int check_wanted(const struct service_settings *s, struct br_err *err)
{
    char offered[512] = "";
    const char *name = s->wanted;
    if (strncmp(name, "scripted/", 9) == 0)
        return s->scenario.len || strcmp(name, "scripted/default") == 0 ||
                       strcmp(name, "scripted/demo") == 0
                   ? 0
                   : br_err_set(err, BR_E_INVALID_CONFIG,
                                "there is no scripted model '%.200s': there are scripted/default "
                                "and scripted/demo, and a scenario's with --scenario",
                                name);
    if (s->wanted_known || (!s->providers[0] && has_environment()))
        return 0;
    if (!s->providers[0])
        return br_err_set(err, BR_E_INVALID_CONFIG,
                          "no provider is configured for the model '%.200s'. Write one into "
                          "bridle.lua, or set OPENAI_API_KEY or OPENAI_BASE_URL",
                          name);
    for (unsigned i = 0; i < s->nmodels; i++) {
        size_t used = strlen(offered), more = strlen(s->models[i]) + 8;
        if (used + more >= sizeof(offered))
            break;
        snprintf(offered + used, sizeof(offered) - used, "%s'%s'", used ? ", " : "", s->models[i]);
    }
    return br_err_set(
        err, BR_E_INVALID_CONFIG,
        "no provider of '%.200s' has the model '%.128s'. The providers are %.300s%s%s",
        s->config_path, name, s->providers, offered[0] ? ", their models " : "", offered);
}

/* Without a name: the first that is offered, or the one that needs no provider. */
static int choose_models(struct service_settings *s, struct br_err *err)
{
    int r = s->wanted[0] ? check_wanted(s, err) : 0;
    if (r < 0)
        return r;
    if (s->wanted[0])
        add_default(s, s->wanted);
    else if (s->nmodels)
        add_default(s, s->models[0]);
    else if (!s->providers[0] && !has_environment())
        add_default(s, "scripted/default");
    return s->nmodels ? 0
                      : br_err_set(err, BR_E_INVALID_CONFIG,
                                   "the service has no model to offer; nothing was started. Name "
                                   "one with -m, or as 'default_model' or in the 'models' of a "
                                   "provider in bridle.lua");
}

/* ---- the answer of bridle-script ---- */

static int complete(struct service *sv, struct service_settings *s, struct br_err *err)
{
    struct br_service *b = &s->c.s;
    if (sv->args.nlisten) {
        memcpy(b->listeners, sv->args.listen, sizeof(b->listeners));
        b->nlisteners = sv->args.nlisten;
    }
    if (sv->notify.nfds == 0 && b->nlisteners == 0)
        default_listeners(sv, b);
    int r = users_resolve("/etc/passwd", &s->c, err);
    if (r == 0)
        r = open_root(sv, s, err);
    if (r == 0)
        r = choose_models(s, err);
    if (r == 0)
        r = tokens_read(sv->st->state_fd, sv->st->state_dir, s->tokens, &s->ntokens, err);
    if (r == 0)
        r = listeners_check(b, s->ntokens, err);
    if (r == 0)
        r = read_pem("the certificate", s->c.cert, false, &s->cert, err);
    if (r == 0)
        r = read_pem("the key", s->c.key, true, &s->key, err);
    if (r == 0)
        r = read_pem("the authorities", s->c.client_ca, false, &s->ca, err);
    return r;
}

static int on_configured(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct service *sv = ((struct kid *)ctx)->sv;
    struct service_settings *s = sv->next;
    static struct supervisor scratch;
    char fallback[BR_NAME_MAX], unused[BR_PATH_MAX];
    br_rd_str(&m->rd, fallback, sizeof(fallback));
    name_wanted(sv, s, fallback);
    provider_models(&m->rd, add_model, s);
    uint32_t images = br_rd_u32(&m->rd);
    for (uint32_t i = 0; i < 2 * images && !m->rd.failed; i++)
        br_rd_str(&m->rd, unused, sizeof(unused));
    harness_read_terms(&scratch, &m->rd);
    br_service_config_get(&m->rd, &s->c);
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed SCRIPT_CONFIGURED",
                          c->peer);
    s->answered = true;
    (void)complete(sv, s, &s->why);
    kid_kill(&sv->config);
    return 0;
}

static int on_failed(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct service_settings *s = ((struct kid *)ctx)->sv->next;
    char file[BR_PATH_MAX];
    uint32_t code = br_rd_u32(&m->rd);
    br_rd_str(&m->rd, s->why.text, sizeof(s->why.text));
    br_rd_str(&m->rd, file, sizeof(file));
    (void)br_rd_u32(&m->rd);
    if (br_rd_done(&m->rd) < 0 || code == 0 || code >= BR_CODE_COUNT_)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed SCRIPT_FAILED", c->peer);
    s->why.code = (enum br_code)code;
    s->answered = true;
    kid_kill((struct kid *)ctx);
    return 0;
}

static int on_ready(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c, (void)m, (void)ctx, (void)err;
    return 0;
}

static const struct br_msg_rule config_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_ready},
    {BR_MSG_SCRIPT_CONFIGURED, BR_PERMIT | BR_ONCE, 8, BR_MSG_MAX, 0, 0, on_configured},
    {BR_MSG_SCRIPT_FAILED, BR_PERMIT | BR_ONCE, 16, 8192, 0, 0, on_failed},
};

/* ---- the certificates, tried by a bridle-tls that nobody reaches ---- */

static int on_tls_tested(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    struct service_settings *s = ((struct kid *)ctx)->sv->next;
    char name[64], text[BR_ERR_TEXT_MAX];
    br_rd_str(&m->rd, name, sizeof(name));
    br_rd_str(&m->rd, text, sizeof(text));
    if (br_rd_done(&m->rd) < 0)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "'%s' sent a malformed ROLE_READY", c->peer);
    s->answered = true;
    if (strcmp(name, "OK") != 0)
        (void)br_err_set(&s->why, BR_E_INVALID_CONFIG,
                         "certificate '%.256s' and key '%.256s' cannot be used: %.400s", s->c.cert,
                         s->c.key, text);
    kid_kill((struct kid *)ctx);
    return 0;
}

static const struct br_msg_rule tls_rules[] = {
    {BR_MSG_ROLE_READY, BR_PERMIT | BR_ONCE, 8, 4096, 0, 0, on_tls_tested},
};

static void prepared(struct service *sv, const char *what)
{
    struct br_err why = sv->next->why;
    br_loop_timer_cancel(sv->loop, &sv->config_timer);
    if (!sv->next->answered && !why.code)
        (void)br_err_set(&why, BR_E_INVALID_CONFIG, "%s '%.512s' did not finish within %u seconds",
                         what, sv->next->config_path, CONFIG_TIMEOUT_US / 1000000u);
    standing_prepared(sv->st, why.code ? -(int)why.code : 0, &why);
}

static void on_tls_test_end(struct kid *k, int status)
{
    (void)status;
    prepared(k->sv, "the test of the certificates of");
}

static int test_certificates(struct service *sv, struct br_err *err)
{
    struct service_settings *s = sv->next;
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT, place = BR_OUT_INIT;
    int ends[2];
    if (br_chan_pair(ends) < 0)
        return br_err_errno(err, BR_E_IO, "no channel for 'bridle-tls'");
    br_buf_put_u8(&place.buf, 0); /* it wants somewhere to listen, and this is nowhere */
    br_out_fd(&place, ends[0], true);
    int r = kid_start_role(sv, &sv->tls_test, "bridle-tls", BR_UID_TLS, tls_rules,
                           BR_ARRAY_LEN(tls_rules), on_tls_test_end, err);
    put_certificates(&o, s);
    br_buf_put_u32(&o.buf, s->c.s.handshake_seconds);
    br_buf_put_u32(&o.buf, s->c.s.connections);
    br_out_fd(&o, ends[1], true);
    if (r == 0) { /* if it cannot be told, its end is heard of */
        (void)br_chan_send(&sv->tls_test.chan, BR_MSG_TLS_LISTEN, 0, &place, NULL);
        (void)br_chan_send(&sv->tls_test.chan, BR_MSG_TLS_START, 0, &o, NULL);
    }
    if (o.buf.data)
        explicit_bzero(o.buf.data, o.buf.len);
    s->answered = false;
    return r;
}

static void on_config_end(struct kid *k, int status)
{
    struct service *sv = k->sv;
    (void)status;
    if (sv->next->answered && !sv->next->why.code && sv->next->cert.len &&
        test_certificates(sv, &sv->next->why) == 0)
        return;
    prepared(sv, "the configuration");
}

static int on_config_timeout(void *ctx, struct br_err *err)
{
    struct service *sv = ctx;
    (void)err;
    sv->config_timer = 0;
    kid_kill(sv->tls_test.pid > 0 ? &sv->tls_test : &sv->config);
    return 0;
}

static int read_texts(struct service *sv, struct service_settings *s, struct br_err *err)
{
    const struct service_args *a = &sv->args;
    int r = 0;
    snprintf(s->config_path, sizeof(s->config_path), "%s", a->config);
    if (!a->config[0])
        r = document_find("configuration", BR_E_INVALID_CONFIG, "bridle.lua", s->config_path,
                          getenv, err);
    if (r == 0 && s->config_path[0])
        r = document_read("configuration", BR_E_INVALID_CONFIG, BR_CONFIG_MAX, s->config_path,
                          geteuid(), &s->config, err);
    if (r == 0 && a->scenario[0]) {
        snprintf(s->scenario_path, sizeof(s->scenario_path), "%s", a->scenario);
        r = document_read("scenario", BR_E_INVALID_CONFIG, BR_MANIFEST_MAX, a->scenario, geteuid(),
                          &s->scenario, err);
    }
    return r;
}

int service_prepare(struct service *sv, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out start = BR_OUT_INIT, config = BR_OUT_INIT;
    settings_free(&sv->next);
    struct service_settings *s = sv->next = calloc(1, sizeof(*s));
    if (!s)
        return br_err_set(err, BR_E_NOMEM, "no memory for the settings of the service");
    s->root_fd = -1;
    int r = read_texts(sv, s, err);
    if (r == 0)
        r = kid_start_role(sv, &sv->config, "bridle-script", BR_UID_SCRIPT, config_rules,
                           BR_ARRAY_LEN(config_rules), on_config_end, err);
    if (r < 0) {
        settings_free(&sv->next);
        return r;
    }
    br_buf_put_u8(&start.buf, BR_SCRIPT_CONFIG);
    br_buf_put_str(&config.buf, s->config_path);
    if (s->config.len)
        br_out_blob(&config, s->config.data, s->config.len);
    else
        br_out_blob(&config, nothing, sizeof(nothing) - 1);
    sv->config_timer = br_loop_timer(sv->loop, CONFIG_TIMEOUT_US, on_config_timeout, sv);
    /* if it cannot be told, its end is heard of */
    (void)br_chan_send(&sv->config.chan, BR_MSG_SCRIPT_START, 0, &start, NULL);
    (void)br_chan_send(&sv->config.chan, BR_MSG_SCRIPT_CONFIG, 1, &config, NULL);
    return 0;
}
