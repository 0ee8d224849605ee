/*
 * What one run is made of, as the operator gave it: workspace, manifest, policy, configuration,
 * scenario, goal. Read with files.c and sent to bridled as one CTL_RUN. Used by run, exec and
 * validate.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

#define DOCUMENT_INLINE_MAX 4096u

void br_cli_documents_free(struct br_cli_documents *d)
{
    br_cli_file_free(&d->manifest);
    br_cli_file_free(&d->policy);
    br_cli_file_free(&d->config);
    br_cli_file_free(&d->scenario);
    br_cli_file_free(&d->profile);
}

static const char *given(const struct br_cli_args *a, const char *name)
{
    for (unsigned i = 0; i < BR_CLI_OPTS_MAX && a->verb->opts[i].name; i++)
        if (strcmp(a->verb->opts[i].name, name) == 0)
            return a->value[i];
    return NULL;
}

/* The operator's policy, if one is named. */
static const char *policy_of(const struct br_cli_foreground *f)
{
    return f->policy || f->no_policy ? f->policy : given(f->args, "policy");
}

/* A path, by its look; any other word is the name of a built-in profile. */
static bool is_profile_file(const char *word)
{
    size_t n = strlen(word);
    return strchr(word, '/') || (n > 4 && strcmp(word + n - 4, ".lua") == 0);
}

/* The operator's word, so never a file that an agent could have written. */
static int read_profile(const struct br_cli_foreground *f, const char *word,
                        struct br_cli_documents *d, struct br_err *err)
{
    if (!word || !is_profile_file(word))
        return 0;
    int r = br_cli_file_read(&d->profile, word, "profile", BR_E_INVALID_PROFILE, BR_PROFILE_MAX - 1,
                             err);
    if (r < 0)
        return r;
    if (f->mode != BR_RUN_ACTIVATE && br_cli_path_below(word, d->workspace))
        return br_err_set(err, BR_E_INVALID_PROFILE,
                          "the profile '%.512s' lies inside of the workspace, where the agent "
                          "could have written it; nothing was started. Keep it elsewhere",
                          word);
    if (memchr(d->profile.text.data, 0, d->profile.text.len))
        return br_err_set(err, BR_E_INVALID_PROFILE,
                          "the profile '%.512s' holds a NUL byte; nothing was started", word);
    return 0;
}

/* The names of policy/, from CMake, each behind a space. */
bool br_cli_is_shipped(const char *word)
{
    size_t n = strlen(word);
    for (const char *p = BRIDLE_SHIPPED; n && p && !strchr(word, ' '); p = strchr(p + 1, ' '))
        if (strncmp(p + 1, word, n) == 0 && (p[1 + n] == ' ' || !p[1 + n]))
            return true;
    return false;
}

/* A shipped bundle by its name is a bundle that adds nothing to it. A word may not be both. */
static int read_policy(const char *word, struct br_cli_documents *d, struct br_err *err)
{
    if (!word || !br_cli_is_shipped(word)) {
        int r = br_cli_file_config(&d->policy, word, "policy.lua", "policy", BR_E_INVALID_POLICY,
                                   BR_POLICY_MAX, err);
        if (r == -BR_E_NOT_FOUND && word && !strpbrk(word, "/.") && err)
            br_err_set(
                err, BR_E_NOT_FOUND,
                "the policy '%.512s' does not exist: there is no such file here, and the shipped "
                "ones are default, strict, review-only and ci; nothing was started",
                word);
        return r;
    }
    struct stat st; /* a directory is no policy, and 'ci' is a common one */
    if (stat(word, &st) == 0 && !S_ISDIR(st.st_mode))
        return br_err_set(err, BR_E_INVALID_POLICY,
                          "'%s' is a shipped policy and a file here; nothing was started. Write "
                          "'./%s' for the file, or go elsewhere for the shipped one",
                          word, word);
    char text[256];
    int n =
        snprintf(text, sizeof(text),
                 "return require('bridle.policy').bundle { api = 1, name = '%s', extend = '%s', "
                 "rules = {} }\n",
                 word, word);
    snprintf(d->policy.path, sizeof(d->policy.path), "%s", word);
    br_buf_init(&d->policy.text, BR_POLICY_MAX);
    if (n < 0 || (size_t)n >= sizeof(text) || br_buf_put(&d->policy.text, text, (size_t)n) < 0)
        return br_err_set(err, BR_E_NOMEM, "no memory for the policy");
    return 0;
}

static void put_choice(const struct br_cli_foreground *f, const struct br_cli_documents *d,
                       struct br_out *o)
{
    struct br_profile_choice c = {.name = ""};
    const char *word = f->profile ? f->profile : given(f->args, "profile");
    const char *image = given(f->args, "image"), *backend = given(f->args, "backend");
    bool own = d->profile.path[0] != 0;
    snprintf(c.name, sizeof(c.name), "%s", own || !word ? "" : word);
    snprintf(c.path, sizeof(c.path), "%s", d->profile.path);
    snprintf(c.image, sizeof(c.image), "%s", image ? image : "");
    for (uint8_t i = 1; backend && br_backend_names[i]; i++)
        if (strcmp(backend, br_backend_names[i]) == 0)
            c.backend = i;
    BR_CLEANUP_FREE char *text =
        own ? strndup((char *)d->profile.text.data, d->profile.text.len) : NULL;
    c.source = text;
    o->failed |= own && !text;
    br_profile_choice_put(&o->buf, &c);
}

int br_cli_documents_read(const struct br_cli_foreground *f, struct br_cli_documents *d,
                          struct br_err *err)
{
    memset(d, 0, sizeof(*d));
    int r = br_cli_workspace(d->workspace, f->dir ? f->dir : ".", err);
    if (r == 0 && f->manifest)
        r = br_cli_file_read(&d->manifest, f->manifest, "manifest", BR_E_INVALID_MANIFEST,
                             BR_MANIFEST_MAX, err);
    if (r == 0 && !(f->policy && !f->policy[0]))
        r = read_policy(policy_of(f), d, err);
    /* models are called by an agent only; a profile may need the image that is named there */
    const char *profile = f->profile ? f->profile : given(f->args, "profile");
    if (r == 0 && (f->mode == BR_RUN_AGENT || (profile && strcmp(profile, "run-v1") != 0)))
        r = br_cli_file_config(&d->config, given(f->args, "config"), "bridle.lua", "configuration",
                               BR_E_INVALID_CONFIG, BR_CONFIG_MAX, err);
    const char *scenario = given(f->args, "scenario");
    if (r == 0 && scenario)
        r = br_cli_file_read(&d->scenario, scenario, "scenario", BR_E_INVALID_CONFIG,
                             BR_MANIFEST_MAX, err);
    if (r == 0)
        r = read_profile(f, profile, d, err);
    if (r == 0 && f->manifest)
        d->manifest_inside = br_cli_path_below(f->manifest, d->workspace);
    return r;
}

/* Only a small document travels inside the message: paths and the command need the room. */
static void put_blob(struct br_out *o, const void *p, size_t n)
{
    size_t max = o->buf.len + DOCUMENT_INLINE_MAX;
    o->buf.max = max < BR_MSG_MAX ? max : BR_MSG_MAX;
    br_out_blob(o, p, n);
    o->buf.max = BR_MSG_MAX;
}

/* Where there is a standing bridled, what was only found in the configuration gives way to it. */
static uint8_t policy_from(const struct br_cli_foreground *f)
{
    if (f->policy && !f->policy[0])
        return BR_POLICY_BUILT_IN;
    return policy_of(f) || f->as_read ? BR_POLICY_NAMED : BR_POLICY_FOUND;
}

int br_cli_documents_send(const struct br_cli_foreground *f, const struct br_cli_documents *d,
                          bool can_ask, struct br_cli_client *c, struct br_err *err)
{
    BR_CLEANUP_OUT struct br_out o = BR_OUT_INIT;
    const char *model = f->model ? f->model : given(f->args, "model");
    br_buf_put_u8(&o.buf, (uint8_t)f->mode);
    br_buf_put_str(&o.buf, d->workspace);
    br_buf_put_str(&o.buf, d->manifest.path);
    br_buf_put_u8(&o.buf, d->manifest_inside);
    put_blob(&o, d->manifest.text.data, d->manifest.text.len);
    br_buf_put_str(&o.buf, d->policy.path);
    put_blob(&o, d->policy.text.data, d->policy.text.len);
    br_buf_put_u8(&o.buf, policy_from(f));
    br_buf_put_str(&o.buf, d->config.path);
    put_blob(&o, d->config.text.data, d->config.text.len);
    br_buf_put_str(&o.buf, model ? model : "");
    br_buf_put_str(&o.buf, d->scenario.path);
    put_blob(&o, d->scenario.text.data, d->scenario.text.len);
    put_blob(&o, f->goal ? f->goal : "", f->goal ? strlen(f->goal) : 0);
    br_buf_put_u32(&o.buf, f->wall_seconds);
    br_buf_put_u8(&o.buf, can_ask);
    put_choice(f, d, &o);
    br_buf_put_u32(&o.buf, f->argc);
    for (unsigned i = 0; i < f->argc; i++)
        br_buf_put_str(&o.buf, f->argv[i]);
    br_buf_put_str(&o.buf, f->adapter ? f->adapter : "");
    br_buf_put_str(&o.buf, f->resume ? f->resume : "");
    put_blob(&o, f->schema ? f->schema : "", f->schema ? strlen(f->schema) : 0);
    br_buf_put_str(&o.buf, ""); /* any id, and as much as the manifest says */
    br_ceilings_put(&o.buf, &(struct br_ceilings){.tokens = 0});
    br_buf_put_str(&o.buf, "");
    if (o.buf.failed || o.failed)
        return br_err_set(err, BR_E_USAGE,
                          "the command and the paths are too long to send; nothing was started");
    return br_cli_client_send(c, BR_MSG_CTL_RUN, &o, err);
}
