/*
 * The two ends of a view: the header that says what is going to run under which rules, and the
 * summary. Also how quantities are written.
 */
#include <limits.h>
#include <stdlib.h>

#include "cli/view_priv.h"

#define CHANGES_SHOWN 12u

void view_put_duration(struct br_buf *b, uint64_t ms)
{
    unsigned long long v = ms;
    if (v < 1000)
        br_buf_printf(b, "%llu ms", v);
    else if (v < 60000)
        br_buf_printf(b, "%llu.%llu s", v / 1000, v % 1000 / 100);
    else if (v < 3600000)
        br_buf_printf(b, "%llu min %llu s", v / 60000, v % 60000 / 1000);
    else
        br_buf_printf(b, "%llu h %llu min", v / 3600000, v % 3600000 / 60000);
}

void view_put_bytes(struct br_buf *b, uint64_t n)
{
    if (n < 1024)
        br_buf_printf(b, "%llu bytes", (unsigned long long)n);
    else if (n < 1024 * 1024)
        br_buf_printf(b, "%.1f KiB", (double)n / 1024);
    else
        br_buf_printf(b, "%.1f MiB", (double)n / (1024 * 1024));
}

void view_put_count(struct br_buf *b, uint64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            br_buf_put_u8(b, ',');
        br_buf_put_u8(b, (uint8_t)digits[i]);
    }
}

static void head(struct br_cli_view *v, const char *label)
{
    br_buf_printf(&v->out, "  ");
    view_word(v, VIEW_DIM, label, 11);
}

static void head_line(struct br_cli_view *v, const char *label, const json_t *data, const char *key)
{
    size_t n;
    const char *s = view_str(data, key, &n);
    if (n == 0)
        return;
    head(v, label);
    br_cli_put_line(&v->out, s, n, v->width - 13);
    br_buf_printf(&v->out, "\n");
}

void view_run_header(struct br_cli_view *v, const json_t *data)
{
    size_t n, nm;
    const char *id = view_str(data, "runId", &n), *model = view_str(data, "model", &nm);
    snprintf(v->run_id, sizeof(v->run_id), "%.*s", (int)n, id);
    snprintf(v->model, sizeof(v->model), "%.*s", (int)nm, model);
    v->scripted = json_is_true(json_object_get(data, "scripted"));
    v->started = true;
    view_style_on(v, VIEW_BOLD);
    bool narrow = v->width < 64;
    if (!narrow)
        br_buf_printf(&v->out, v->exec ? "bridle exec  " : "bridle run  ");
    br_cli_put_line(&v->out, id, n, 48);
    view_style_off(v, VIEW_BOLD);
    br_buf_printf(&v->out, "\n");
    if (!v->exec) {
        head(v, "model");
        br_cli_put_line(&v->out, model, nm, 40);
        if (v->scripted)
            br_buf_printf(&v->out, v->width < 64 ? "  (scripted)"
                                                 : "  (scripted provider: no model is called)");
        br_buf_printf(&v->out, "\n");
    }
    head_line(v, "workspace", data, "workspace");
    head_line(v, "policy", data, "policy");
    head_line(v, "manifest", data, "manifest");
    head(v, "rules");
    view_put_count(&v->out, view_u64(data, "rules"));
    const char *sha = view_str(data, "tableSha256", &n);
    if (n >= 12 && !narrow) {
        br_buf_printf(&v->out, ", table ");
        br_cli_put_line(&v->out, sha, 12, 12);
    }
    if (view_u64(data, "policyGeneration") && !narrow) /* of bridle policy hold */
        br_buf_printf(&v->out, ", generation %llu",
                      (unsigned long long)view_u64(data, "policyGeneration"));
    const char *profile = view_str(data, "profile", &n);
    if (n) {
        br_buf_printf(&v->out, ", profile ");
        br_cli_put_line(&v->out, profile, n, 30);
    }
    br_buf_printf(&v->out, "\n");
    const char *goal = view_str(data, "goal", &n);
    if (n) {
        head(v, "goal");
        br_cli_put_line(&v->out, goal, n, v->width - 13);
        br_buf_printf(&v->out, "\n");
    }
}

static void put_changes(struct br_cli_view *v)
{
    const json_t *list = json_object_get(v->changes, "changed");
    size_t i, n, nc, total = json_array_size(list);
    json_t *e;
    head(v, "changed");
    bool cut = json_is_true(json_object_get(v->changes, "truncated"));
    if (total == 0)
        br_buf_printf(&v->out,
                      !v->changes && v->stopped && !v->sandboxed
                          ? v->width < 64 ? "nothing\n" : "nothing: no sandbox was started\n"
                      : !v->changes ? "not known\n"
                      : cut         ? "not known (the list was cut)\n"
                                    : "nothing in the workspace\n");
    json_array_foreach(list, i, e)
    {
        const char *path = view_str(e, "path", &n), *change = view_str(e, "change", &nc);
        if (i)
            br_buf_printf(&v->out, "%13s", "");
        if (i == CHANGES_SHOWN) {
            br_buf_printf(&v->out, "... and %zu more\n", total - i);
            break;
        }
        br_cli_put_line(&v->out, change, nc, 10);
        br_buf_printf(&v->out, "  ");
        br_cli_put_line(&v->out, path, n, view_room(v, 26));
        br_buf_printf(&v->out, "\n");
        const char *bit = view_str(e, "set_group", &n);
        if (n && i < CHANGES_SHOWN)
            br_buf_printf(&v->out, "%13s            its set-group-id bit was %s\n", "",
                          n == strlen("kept") && memcmp(bit, "kept", n) == 0 ? "kept" : "cleared");
    }
    if (cut && total)
        br_buf_printf(&v->out, "%13sthe list was cut: there is more\n", "");
}

static void put_asks(struct br_cli_view *v)
{
    if (v->asks == 0)
        return;
    head(v, "asks");
    const struct {
        unsigned n;
        const char *what;
    } parts[] = {{v->allowed, "allowed"}, {v->denied, "denied"}, {v->unanswered, "not answered"}};
    bool any = false;
    for (size_t i = 0; i < BR_ARRAY_LEN(parts); i++) {
        if (!parts[i].n)
            continue;
        br_buf_printf(&v->out, "%s%u %s", any ? ", " : "", parts[i].n, parts[i].what);
        any = true;
    }
    unsigned ended = v->allowed + v->denied + v->unanswered;
    if (v->asks > ended)
        br_buf_printf(&v->out, "%s%u open", any ? ", " : "", v->asks - ended);
    br_buf_printf(&v->out, "\n");
}

static void put_did(struct br_cli_view *v)
{
    bool narrow = v->width < 64;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(1024);
    head(v, "did");
    if (!v->exec) {
        view_put_count(&b, v->steps);
        br_buf_printf(&b, v->steps == 1 ? " step, " : " steps, ");
    }
    view_put_count(&b, v->tool_calls);
    br_buf_printf(&b, narrow ? " call%s" : " tool call%s", v->tool_calls == 1 ? "" : "s");
    if (!v->exec) {
        br_buf_printf(&b, ", ");
        view_put_count(&b, v->prompt_tokens + v->completion_tokens);
        br_buf_printf(&b, " tokens%s", v->scripted && !narrow ? " (scripted provider)" : "");
    }
    if (v->last_us > v->first_us) {
        br_buf_printf(&b, ", ");
        view_put_duration(&b, (v->last_us - v->first_us) / 1000);
    }
    br_cli_put_words(&v->out, (char *)b.data, b.len, 13, 13, v->width, "");
    br_buf_printf(&v->out, "\n");
}

/* A command to be copied: a narrow terminal gets it in lines that a shell joins again. */
static void put_record(struct br_cli_view *v)
{
    const char *how = v->record ? v->record : "bridle show";
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_VIEW_MAX);
    head(v, "record");
    br_cli_put_line(&b, how, strlen(how), (unsigned)strlen(how) + 16);
    br_buf_put_u8(&b, ' ');
    br_cli_put_line(&b, v->run_id, strlen(v->run_id), 48);
    br_cli_put_words(&v->out, (char *)b.data, b.len, 13, 4, v->width < 64 ? v->width : UINT_MAX / 2,
                     " \\");
    br_buf_printf(&v->out, "\n");
}

void br_cli_view_summary(struct br_cli_view *v)
{
    view_text_end(v);
    if (!v->started)
        return;
    bool good = strcmp(v->status, "completed") == 0;
    br_buf_printf(&v->out, "\n");
    view_word(v, good ? VIEW_GREEN : VIEW_RED, v->status[0] ? v->status : "no end was recorded", 0);
    br_buf_printf(&v->out, "\n");
    if (v->note[0] && strcmp(v->note, v->last_error) != 0)
        view_labeled(v, "  why", 13, v->note, strlen(v->note), 4);
    put_did(v);
    head(v, "decisions");
    br_buf_printf(&v->out, "%u allow, %u ask, %u deny\n", v->decisions[BR_EFFECT_ALLOW],
                  v->decisions[BR_EFFECT_ASK], v->decisions[BR_EFFECT_DENY]);
    put_asks(v);
    if (!v->promotion) /* what it was about is its receipt */
        put_changes(v);
    put_record(v);
}

bool br_cli_view_status(const struct br_cli_view *v, char *dst, size_t cap)
{
    if (!v->phase || v->in_text)
        return false;
    uint64_t ms = (br_now_us() - v->phase_since_us) / 1000;
    if (ms < 300)
        return false;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(512);
    br_buf_printf(&b, "  %s ", v->phase);
    br_cli_put_line(&b, v->phase_what, strlen(v->phase_what), 30);
    br_buf_printf(&b, "... ");
    view_put_duration(&b, ms);
    if (v->progress_bytes) {
        br_buf_printf(&b, ", ");
        view_put_bytes(&b, v->progress_bytes);
        br_buf_printf(&b, " of output");
    }
    const char *s = br_buf_cstr(&b);
    snprintf(dst, cap, "%s", s ? s : "");
    return s != NULL;
}
