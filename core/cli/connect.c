/*
 * bridle connect: a client of a service, at a terminal or in a script. It starts a session and
 * shows it, follows one that runs, or lists them. What the service sends is checked as strictly as
 * if it were anybody's (stream.c), and shown through the view alone.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/connect.h"

/* ---- what was given ------------------------------------------------------------------------- */

/* A word that looks like a URL is one, so that a wrong one is not taken for a prompt. */
static bool is_url(const char *word)
{
    return strncmp(word, "unix:", 5) == 0 || strstr(word, "://") != NULL;
}

/* The operands behind the URL, joined by blanks. */
static int join_words(const struct connect *c, struct br_buf *out, struct br_err *err)
{
    for (unsigned i = c->url_text[0] ? 1 : 0; i < c->args->noperands; i++)
        br_buf_printf(out, "%s%s", out->len ? " " : "", c->args->operands[i]);
    if (out->failed || !br_buf_cstr(out))
        return br_err_set(err, BR_E_USAGE, "the prompt is longer than %u bytes; nothing was sent",
                          CONNECT_PROMPT_MAX);
    if (!br_utf8_valid(out->data, out->len))
        return br_err_set(err, BR_E_USAGE, "the prompt is not valid UTF-8; nothing was sent");
    return 0;
}

/* HOST:PORT; `sure`: it can be nothing else, as a file with a line can. */
static bool is_address(const char *word, bool *sure)
{
    const char *colon = strrchr(word, ':');
    size_t host = colon ? (size_t)(colon - word) : 0, port = colon ? strlen(colon + 1) : 0;
    if (!host || !port || port > 5 || strspn(colon + 1, "0123456789") != port)
        return false;
    bool brackets = word[0] == '[' && word[host - 1] == ']';
    *sure = brackets || strspn(word, "0123456789.") == host ||
            (host == strlen("localhost") && strncmp(word, "localhost", host) == 0);
    return brackets || strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    ".-") == host;
}

/* What says nothing together. */
static int check_pairs(const struct connect *c, struct br_err *err)
{
    static const char *const of_runs[] = {"detach", "dir", "task", "model", "tokens", "calls"};
    static const char *const of_tls[] = {"ca-file", "cert", "key"};
    const char *mode = br_cli_opt(c->args, "list")     ? "list"
                       : br_cli_opt(c->args, "watch")  ? "watch"
                       : br_cli_opt(c->args, "resume") ? "resume"
                                                       : NULL;
    for (size_t i = 0; mode && i < BR_ARRAY_LEN(of_runs); i++)
        if (br_cli_opt(c->args, of_runs[i]))
            return br_err_set(err, BR_E_USAGE,
                              "--%s is for a new run, and --%s starts none; nothing was connected",
                              of_runs[i], mode);
    unsigned first = c->url_text[0] ? 1 : 0;
    if (mode && strcmp(mode, "list") != 0 && c->args->noperands > first)
        return br_err_set(err, BR_E_USAGE,
                          "'%.80s' is one word too many: --%s takes no prompt; nothing was "
                          "connected",
                          c->args->operands[first], mode);
    for (size_t i = 0; !c->url.tls && i < BR_ARRAY_LEN(of_tls); i++)
        if (br_cli_opt(c->args, of_tls[i]))
            return br_err_set(err, BR_E_USAGE,
                              "--%s is for a wss:// URL, and this connection has no TLS; nothing "
                              "was connected",
                              of_tls[i]);
    bool sure = false;
    if (!first && !mode && c->args->noperands && is_address(c->args->operands[0], &sure) && sure)
        return br_err_set(err, BR_E_USAGE,
                          "'%.80s' is no URL, and would be a part of the prompt; nothing was "
                          "connected. Is it ws://%.80s? A prompt that begins so goes into quotes",
                          c->args->operands[0], c->args->operands[0]);
    return 0;
}

/* Nobody listens; was the first word meant to say where? */
static void hint_address(const struct connect *c, struct br_err *err)
{
    bool sure;
    char text[BR_ERR_TEXT_MAX];
    if (err->code != BR_E_PEER_GONE || c->url_text[0] || !c->args->noperands ||
        !is_address(c->args->operands[0], &sure))
        return;
    snprintf(text, sizeof(text), "%s", err->text);
    (void)br_err_set(err, BR_E_PEER_GONE,
                     "%.600s. '%.80s' is a part of the prompt; as a URL it is wss://%.80s", text,
                     c->args->operands[0], c->args->operands[0]);
}

static int read_options(struct connect *c, struct br_err *err)
{
    const char *timeout = br_cli_opt(c->args, "timeout"), *tokens = br_cli_opt(c->args, "tokens");
    const char *calls = br_cli_opt(c->args, "calls");
    unsigned modes = (br_cli_opt(c->args, "list") != NULL) +
                     (br_cli_opt(c->args, "watch") != NULL) +
                     (br_cli_opt(c->args, "resume") != NULL);
    uint32_t seconds = BR_CLI_REMOTE_SECONDS;
    int r = 0;
    if (modes > 1)
        return br_err_set(err, BR_E_USAGE,
                          "--list, --watch and --resume exclude each other; nothing was connected");
    if (!br_cli_opt(c->args, "cert") != !br_cli_opt(c->args, "key"))
        return br_err_set(err, BR_E_USAGE,
                          "--cert and --key belong together; nothing was connected");
    if (timeout)
        r = br_cli_number("--timeout", timeout, 1, 3600, &seconds, err);
    if (r == 0 && tokens)
        r = br_cli_number("--tokens", tokens, 1, UINT32_MAX, &c->tokens, err);
    if (r == 0 && calls)
        r = br_cli_number("--calls", calls, 1, UINT32_MAX, &c->calls, err);
    c->seconds = seconds;
    c->url_text = c->args->noperands && is_url(c->args->operands[0]) ? c->args->operands[0] : "";
    if (r == 0)
        r = br_cli_url_parse(c->url_text, &c->url, err);
    return r == 0 ? check_pairs(c, err) : r;
}

/* Is the service on this machine, where this directory is the same one? */
static bool is_here(const struct connect *c)
{
    return c->url.local || strcmp(c->url.host, "localhost") == 0 ||
           strcmp(c->url.host, "::1") == 0 || strncmp(c->url.host, "127.", 4) == 0;
}

static int put_workspace(const struct connect *c, struct br_buf *b, struct br_err *err)
{
    char path[BR_PATH_MAX];
    const char *dir = br_cli_opt(c->args, "dir");
    if (is_here(c)) {
        int r = br_cli_workspace(path, dir ? dir : ".", err);
        if (r < 0)
            return r;
        dir = path;
    }
    if (!dir)
        dir = "."; /* the service's root */
    br_buf_printf(b, "{\"workspace\":");
    br_buf_put_json_str(b, dir, strlen(dir));
    return 0;
}

/* ---- one session ---------------------------------------------------------------------------- */

static int new_session(struct connect *c, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(16 * BR_PATH_MAX);
    const char *task = br_cli_opt(c->args, "task"), *model = br_cli_opt(c->args, "model");
    json_t *result;
    c->session[0] = '\0';
    int r = put_workspace(c, &b, err);
    if (r < 0)
        return r;
    if (task) {
        br_buf_printf(&b, ",\"taskId\":");
        br_buf_put_json_str(&b, task, strlen(task));
    }
    if (model) {
        br_buf_printf(&b, ",\"model\":");
        br_buf_put_json_str(&b, model, strlen(model));
    }
    br_buf_printf(&b, "}");
    r = connect_call(c, BR_STREAM_NEW, &b, false, &result, err);
    if (r == 0 && !result)
        r = br_err_set(err, BR_E_CANCELED, "left before a session was created");
    if (r == 0)
        snprintf(c->session, sizeof(c->session), "%s",
                 json_string_value(json_object_get(result, "sessionId")));
    json_decref(result);
    return r;
}

/* A server without the extension streams no text; it is in the result. */
static void show_final_text(struct connect *c, const json_t *result)
{
    const json_t *text = json_object_get(result, "finalText");
    if (c->json || c->extended || json_string_length(text) == 0)
        return;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    br_buf_put_visible(&b, json_string_value(text), json_string_length(text), false);
    br_buf_printf(&b, "\n");
    br_cli_term_write(&c->term, "\n", 1);
    br_cli_term_write(&c->term, b.data, b.len);
}

static int run(struct connect *c, const char *prompt, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(8 * CONNECT_PROMPT_MAX);
    json_t *result;
    int r = new_session(c, err);
    if (r < 0)
        return r;
    br_buf_printf(&b, "{\"sessionId\":");
    br_buf_put_json_str(&b, c->session, strlen(c->session));
    br_buf_printf(&b, ",\"content\":");
    br_buf_put_json_str(&b, prompt, strlen(prompt));
    if (c->tokens)
        br_buf_printf(&b, ",\"maxModelTokens\":%u", c->tokens);
    if (c->calls)
        br_buf_printf(&b, ",\"maxToolCalls\":%u", c->calls);
    br_buf_printf(&b, "}");
    connect_show_begin(c);
    c->running = c->mine = true;
    c->asking.guest = false;
    c->watching = false;
    c->detach_soon = br_cli_opt(c->args, "detach") != NULL;
    r = connect_call(c, BR_STREAM_PROMPT, &b, true, &result, err);
    if (r < 0) {
        br_cli_asking_end(&c->asking);
        br_cli_term_clear_status(&c->term);
        if (r == -BR_E_PEER_GONE && !c->json && c->extended) {
            connect_say(c, "what became of it: ");
            connect_say(c, c->record);
            connect_say(c, " ");
            connect_say(c, c->session);
            connect_say(c, "\n");
        }
        return r;
    }
    show_final_text(c, result);
    json_decref(result);
    return connect_show_end(c, err);
}

/* `last` is the newest one that this client may see. */
static int find_last(struct connect *c, char id[BR_NAME_MAX + 1], struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64);
    json_t *result;
    br_buf_printf(&b, "{\"limit\":1}");
    int r = connect_call(c, BR_STREAM_LIST, &b, false, &result, err);
    const json_t *row = json_array_get(json_object_get(result, "sessions"), 0);
    const char *found = json_string_value(json_object_get(row, "sessionId"));
    if (r == 0 && !found)
        r = br_err_set(err, c->left ? BR_E_CANCELED : BR_E_NOT_FOUND, "there are no sessions");
    if (r == 0)
        snprintf(id, BR_NAME_MAX + 1, "%s", found);
    json_decref(result);
    return r;
}

/* One that exists: what happened, and what happens. */
static int attend(struct connect *c, const char *id, bool mine, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    json_t *result;
    if (!*id || strlen(id) > BR_NAME_MAX || !br_utf8_valid(id, strlen(id)))
        return br_err_set(err, BR_E_NOT_FOUND, "'%.80s' is no id of a session; --list lists them",
                          id);
    if (!c->extended)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this service keeps no sessions to look at (it has no 'bridle/1')");
    char last[BR_NAME_MAX + 1];
    if (strcmp(id, "last") == 0) {
        int found = find_last(c, last, err);
        if (found < 0)
            return found;
        id = last;
    }
    snprintf(c->session, sizeof(c->session), "%s", id);
    br_buf_printf(&b, "{\"sessionId\":");
    br_buf_put_json_str(&b, id, strlen(id));
    br_buf_printf(&b, "}");
    connect_show_begin(c);
    c->running = c->watching = c->asking.hold = true;
    c->lost = false;
    c->mine = mine;
    c->asking.guest = !mine;
    if (strcmp(c->access, "observe") == 0)
        c->asking.can_ask = false;
    int r = connect_call(c, mine ? BR_STREAM_RESUME : BR_STREAM_LOAD, &b, true, &result, err);
    bool live = json_is_true(json_object_get(result, "live"));
    json_decref(result);
    if (r == 0 && live && !c->left && !c->detached) {
        br_cli_asking_release(&c->asking);
        r = connect_follow(c, err);
    }
    if (r < 0) {
        br_cli_asking_end(&c->asking);
        br_cli_term_clear_status(&c->term);
        return r;
    }
    return connect_show_end(c, err);
}

static int list(struct connect *c, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf words = BR_BUF_INIT(4096), b = BR_BUF_INIT(32768);
    json_t *result;
    int r = join_words(c, &words, err);
    if (r < 0)
        return r;
    if (!c->extended)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "this service keeps no list of sessions (it has no 'bridle/1')");
    br_buf_printf(&b, "{\"limit\":%u", CONNECT_LIST_MAX);
    if (words.len) {
        br_buf_printf(&b, ",\"query\":");
        br_buf_put_json_str(&b, (char *)words.data, words.len);
    }
    br_buf_printf(&b, "}");
    connect_show_begin(c);
    r = connect_call(c, BR_STREAM_LIST, &b, false, &result, err);
    if (r == 0 && result)
        connect_show_list(c, result, (char *)words.data);
    json_decref(result);
    return r;
}

/* ---- prompts -------------------------------------------------------------------------------- */

static int talk(struct connect *c, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf hello = BR_BUF_INIT(4096);
    struct connect_edit *e = connect_edit_open(c);
    const char *prompt;
    int r, last = 0;
    if (!e)
        return br_err_set(err, BR_E_NOMEM, "no memory for a prompt");
    br_buf_printf(&hello, "connected");
    if (c->name[0]) {
        br_buf_printf(&hello, " as ");
        br_cli_put_line(&hello, c->name, strlen(c->name), 60);
    }
    if (c->model[0]) {
        br_buf_printf(&hello, ", model ");
        br_cli_put_line(&hello, c->model, strlen(c->model), 40);
    }
    br_buf_printf(&hello, ". Each prompt is a run; Ctrl-D leaves.");
    BR_CLEANUP_BUF struct br_buf folded = BR_BUF_INIT(2 * 4096);
    br_cli_put_words(&folded, (char *)hello.data, hello.len, 0, 0, c->term.width, "");
    br_buf_printf(&folded, "\n");
    br_cli_term_write(&c->term, folded.data, folded.len);
    while ((r = connect_edit_read(e, &prompt, err)) > 0) {
        last = run(c, prompt, err);
        bool over = last == -BR_E_PEER_GONE || last == -BR_E_PEER_PROTOCOL ||
                    last == -BR_E_TIMEOUT || last == -BR_E_IO || c->left || c->detached;
        if (over)
            break;
        if (last < 0) {
            (void)br_cli_fail(err);
            *err = (struct br_err){.code = BR_OK};
        }
    }
    connect_edit_close(&e);
    if (r < 0)
        return r;
    return err->code ? -(int)err->code : last;
}

/* The prompt: operands, or what stdin holds. */
static int get_prompt(struct connect *c, struct br_buf *out, struct br_err *err)
{
    int r = join_words(c, out, err);
    if (r == 0 && out->len == 0 && !c->term.tty_in)
        r = br_read_all(STDIN_FILENO, out, "the prompt on stdin", err);
    if (r < 0)
        return r;
    const char *text = br_buf_cstr(out);
    if (!text || out->len > CONNECT_PROMPT_MAX || strlen(text) != out->len ||
        !br_utf8_valid(text, out->len))
        return br_err_set(err, BR_E_USAGE,
                          "the prompt is longer than %u bytes, or not text; nothing was sent",
                          CONNECT_PROMPT_MAX);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return br_err_set(err, BR_E_USAGE,
                          "there is no prompt; say what the agent should do, or pipe it in");
    return 0;
}

static int serve(struct connect *c, struct br_err *err)
{
    const char *watch = br_cli_opt(c->args, "watch"), *resume = br_cli_opt(c->args, "resume");
    bool at_terminal = c->term.tty_in && c->term.tty_out && !c->json;
    BR_CLEANUP_BUF struct br_buf prompt = BR_BUF_INIT(CONNECT_PROMPT_MAX + 1);
    bool listing = br_cli_opt(c->args, "list") != NULL;
    bool prompting = !listing && !watch && !resume &&
                     !(at_terminal && c->args->noperands == (c->url_text[0] ? 1u : 0u));
    int r = prompting ? get_prompt(c, &prompt, err) : 0;
    if (r == 0 && (r = connect_open(c, err)) < 0)
        hint_address(c, err);
    if (r == 0 && br_cli_opt(c->args, "detach") && !c->detachable)
        r = br_err_set(err, BR_E_DENIED,
                       "the service's operator does not let a session go on without its client; "
                       "nothing was started");
    if (r < 0)
        return r;
    if (c->left)
        return br_err_set(err, BR_E_CANCELED, "left before anything was started");
    if (listing)
        return list(c, err);
    if (watch || resume)
        return attend(c, watch ? watch : resume, resume != NULL, err);
    return prompting ? run(c, (char *)prompt.data, err) : talk(c, err);
}

int br_cli_connect(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct connect *c = calloc(1, sizeof(*c));
    br_require(c);
    c->args = a;
    c->signals = -1;
    c->url_text = "";
    c->json = br_cli_opt(a, "json") != NULL;
    br_cli_term_init(&c->term, STDIN_FILENO, STDOUT_FILENO);
    br_cli_term_init(&c->asker, STDIN_FILENO, c->json ? STDERR_FILENO : STDOUT_FILENO);
    int r = read_options(c, &err);
    if (r == 0)
        r = serve(c, &err);
    br_cli_term_clear_status(&c->term);
    connect_close(c, r);
    int code = err.code ? br_cli_fail(&err) : 0;
    if (c->term.broken && code == 0)
        code = br_cli_lost_output(c->term.error);
    free(c);
    return code;
}
