/*
 * Encoders and decoders of the structures that cross channels. One place, so that both ends of a
 * channel cannot disagree.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/types.h"
#include "wire/wire.h"

const struct br_limits br_limits_ceiling = {
    .memory_bytes = 64ull << 30,
    .pids = 4096,
    .cpu_percent = 6400,
    .nofile = 65536,
    .fsize_bytes = 64ull << 30,
    .tmp_bytes = 8ull << 30,
    .tmp_inodes = 1000000,
    .output_bytes = BR_EXEC_OUTPUT_MAX,
    .exec_seconds = 3600,
    .wall_seconds = BR_RUN_SECONDS_MAX,
};

const struct br_limits br_limits_default = {
    .memory_bytes = 2ull << 30,
    .pids = 256,
    .cpu_percent = 200,
    .nofile = 1024,
    .fsize_bytes = 1ull << 30,
    .tmp_bytes = 256ull << 20,
    .tmp_inodes = 20000,
    .output_bytes = BR_EXEC_OUTPUT_MAX,
    .exec_seconds = 120,
    .wall_seconds = 1800,
};

/* X(member, u32 or u64) */
#define LIMIT_MEMBERS(X)                                                                           \
    X(memory_bytes, 64)                                                                            \
    X(pids, 32)                                                                                    \
    X(cpu_percent, 32)                                                                             \
    X(nofile, 32)                                                                                  \
    X(fsize_bytes, 64)                                                                             \
    X(tmp_bytes, 64)                                                                               \
    X(tmp_inodes, 64)                                                                              \
    X(output_bytes, 64)                                                                            \
    X(exec_seconds, 32)                                                                            \
    X(wall_seconds, 32)

void br_limits_put(struct br_buf *b, const struct br_limits *l)
{
#define PUT_(name, bits) br_buf_put_u##bits(b, l->name);
    LIMIT_MEMBERS(PUT_)
#undef PUT_
}

void br_limits_get(struct br_rd *r, struct br_limits *l)
{
#define GET_(name, bits) l->name = br_rd_u##bits(r);
    LIMIT_MEMBERS(GET_)
#undef GET_
}

int br_limits_check(const struct br_limits *l, struct br_err *err)
{
#define CHECK_(name, bits)                                                                         \
    if (l->name == 0 || l->name > br_limits_ceiling.name)                                          \
        return br_err_set(                                                                         \
            err, BR_E_LIMIT_EXCEEDED, "the limit '" #name "' is %llu; it must be 1 to %llu",       \
            (unsigned long long)l->name, (unsigned long long)br_limits_ceiling.name);
    LIMIT_MEMBERS(CHECK_)
#undef CHECK_
    return 0;
}

void br_allowed_put(struct br_buf *b, char *const *paths, uint32_t n)
{
    br_buf_put_u32(b, n);
    for (uint32_t i = 0; i < n; i++)
        br_buf_put_str(b, paths[i]);
}

void br_allowed_get(struct br_rd *r, struct br_plan *p)
{
    uint32_t n = br_rd_u32(r);
    if (n > BR_ALLOWED_PATHS_MAX - p->nallowed)
        r->failed = true;
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        char *s = br_rd_strdup(r, BR_PATH_MAX - 1);
        if (s)
            p->allowed_paths[p->nallowed++] = s;
    }
}

const char *const br_disk_names[BR_DISKS] = {"workspace", "state", "scratch"};
const char *const br_disk_points[BR_DISKS] = {"/workspace", "/state", "/scratch"};
const uint32_t br_disk_noexec[BR_DISKS] = {BR_PLAN_WORKSPACE_NOEXEC, BR_PLAN_STATE_NOEXEC,
                                           BR_PLAN_SCRATCH_NOEXEC};

void br_plan_default(struct br_plan *p)
{
    *p = (struct br_plan){
        .profile = "run-v1",
        .profile_version = 1,
        .backend = BR_BACKEND_NATIVE,
        .identity = BR_IDENTITY_DEDICATED,
        .workspace = BR_WORKSPACE_BIND,
        .image = "host",
        .limits = br_limits_default,
    };
}

const char *const br_backend_names[] = {"", "native", "bwrap", "docker", NULL};
const char *const br_identity_names[] = {"", "dedicated", "owner", NULL};
const char *const br_workspace_names[] = {"", "none", "bind", "lease", NULL};
const char *const br_quota_names[] = {"none", "tmpfs", "ext4", NULL};

void br_profile_choice_put(struct br_buf *b, const struct br_profile_choice *c)
{
    br_buf_put_str(b, c->name);
    br_buf_put_str(b, c->path);
    br_buf_put_str(b, c->source ? c->source : "");
    br_buf_put_str(b, c->image);
    br_buf_put_u8(b, c->backend);
}

void br_profile_choice_get(struct br_rd *r, struct br_profile_choice *c)
{
    br_rd_str(r, c->name, sizeof(c->name));
    br_rd_str(r, c->path, sizeof(c->path));
    c->source = br_rd_strdup(r, BR_PROFILE_MAX);
    br_rd_str(r, c->image, sizeof(c->image));
    c->backend = br_rd_u8(r);
    if (c->backend > BR_BACKEND_DOCKER)
        r->failed = true;
}

void br_profile_choice_free(struct br_profile_choice *c)
{
    free(c->source);
    c->source = NULL;
}

static void source_put(struct br_buf *b, const struct br_fingerprint *s)
{
    br_buf_put_u64(b, s->ino);
    br_buf_put_u64(b, s->mnt_id);
    br_buf_put_u32(b, s->dev_major);
    br_buf_put_u32(b, s->dev_minor);
    br_buf_put_u32(b, s->mode);
    br_buf_put_u32(b, s->uid);
    br_buf_put_u32(b, s->gid);
    br_buf_put_u64(b, s->ctime_ns);
    br_buf_put_u32(b, s->entries);
    br_buf_put(b, s->tree_sha256, sizeof(s->tree_sha256));
}

void br_plan_put(struct br_buf *b, const struct br_plan *p)
{
    br_buf_put_str(b, p->profile);
    br_buf_put_u32(b, p->profile_version);
    br_buf_put(b, p->profile_sha256, sizeof(p->profile_sha256));
    br_buf_put_u8(b, p->backend);
    br_buf_put_u8(b, p->identity);
    br_buf_put_u8(b, p->workspace);
    br_buf_put_u32(b, p->flags);
    br_buf_put_str(b, p->image);
    for (unsigned i = 0; i < BR_DISKS; i++) {
        br_buf_put_u8(b, p->disks[i].kind);
        br_buf_put_u64(b, p->disks[i].bytes);
        br_buf_put_u64(b, p->disks[i].inodes);
    }
    br_buf_put_str(b, p->state);
    br_buf_put_str(b, p->keep);
    br_limits_put(b, &p->limits);
    br_allowed_put(b, p->allowed_paths, p->nallowed);
    br_buf_put_u32(b, p->nsources);
    for (uint32_t i = 0; i < p->nsources; i++)
        source_put(b, &p->sources[i]);
}

static void rd_fixed(struct br_rd *r, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = br_rd_u8(r);
}

static void source_get(struct br_rd *r, struct br_fingerprint *s)
{
    s->ino = br_rd_u64(r);
    s->mnt_id = br_rd_u64(r);
    s->dev_major = br_rd_u32(r);
    s->dev_minor = br_rd_u32(r);
    s->mode = br_rd_u32(r);
    s->uid = br_rd_u32(r);
    s->gid = br_rd_u32(r);
    s->ctime_ns = br_rd_u64(r);
    s->entries = br_rd_u32(r);
    rd_fixed(r, s->tree_sha256, sizeof(s->tree_sha256));
}

void br_plan_get(struct br_rd *r, struct br_plan *p)
{
    *p = (struct br_plan){.nallowed = 0};
    br_rd_str(r, p->profile, sizeof(p->profile));
    p->profile_version = br_rd_u32(r);
    rd_fixed(r, p->profile_sha256, sizeof(p->profile_sha256));
    p->backend = br_rd_u8(r);
    p->identity = br_rd_u8(r);
    p->workspace = br_rd_u8(r);
    p->flags = br_rd_u32(r);
    br_rd_str(r, p->image, sizeof(p->image));
    for (unsigned i = 0; i < BR_DISKS; i++) {
        p->disks[i].kind = br_rd_u8(r);
        p->disks[i].bytes = br_rd_u64(r);
        p->disks[i].inodes = br_rd_u64(r);
    }
    br_rd_str(r, p->state, sizeof(p->state));
    br_rd_str(r, p->keep, sizeof(p->keep));
    br_limits_get(r, &p->limits);
    br_allowed_get(r, p);
    p->nsources = br_rd_u32(r);
    if (p->nsources != 0 && p->nsources != p->nallowed) {
        r->failed = true;
        p->nsources = 0;
    }
    for (uint32_t i = 0; i < p->nsources && !r->failed; i++)
        source_get(r, &p->sources[i]);
}

/* The largest lease: what a host with one disk can plausibly spare for a run. */
#define DISK_BYTES_MIN (1ull << 20)
#define DISK_BYTES_MAX (64ull << 30)
#define DISK_INODES_MIN 16u
#define DISK_INODES_MAX 10000000u

static int check_disk(const struct br_plan *p, enum br_disk i, struct br_err *err)
{
    const struct br_quota *q = &p->disks[i];
    if (q->kind > BR_QUOTA_EXT4)
        return br_err_set(err, BR_E_INVALID_PROFILE, "the lease '%s' has no known kind",
                          br_disk_names[i]);
    if (q->kind == BR_QUOTA_NONE)
        return 0;
    if (q->bytes < DISK_BYTES_MIN || q->bytes > DISK_BYTES_MAX)
        return br_err_set(
            err, BR_E_LIMIT_EXCEEDED, "the lease '%s' has %llu bytes; it must have %llu to %llu",
            br_disk_names[i], (unsigned long long)q->bytes, DISK_BYTES_MIN, DISK_BYTES_MAX);
    if (q->inodes < DISK_INODES_MIN || q->inodes > DISK_INODES_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "the lease '%s' has %llu inodes; it must have %u to %u", br_disk_names[i],
                          (unsigned long long)q->inodes, DISK_INODES_MIN, DISK_INODES_MAX);
    return 0;
}

static bool image_ok(const char *id)
{
    if (strcmp(id, "host") == 0 || strcmp(id, "none") == 0)
        return true;
    if (strncmp(id, "sha256:", 7) != 0 || strlen(id) != 7 + 64)
        return false;
    return strspn(id + 7, "0123456789abcdef") == 64;
}

/* As br_id_make() makes them: no '/', no '.', so that it can be a part of a file's name. */
static bool is_id(const char *s)
{
    return strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") ==
           strlen(s);
}

/* No program to run but pid 1's, nobody's files, and room for pid 1 and the one process (and for
 * bubblewrap's own, which waits outside). */
static bool alone_ok(const struct br_plan *p)
{
    return strcmp(p->image, "none") == 0 && p->workspace == BR_WORKSPACE_NONE &&
           !(p->flags & BR_PLAN_GATE) &&
           p->limits.pids <= (p->backend == BR_BACKEND_BWRAP ? 3u : 2u);
}

int br_plan_check(const struct br_plan *p, struct br_err *err)
{
    const char *what = NULL;
    if (!br_is_kebab(p->profile, sizeof(p->profile) - 1) || p->profile_version == 0)
        what = "profile";
    else if (p->backend < BR_BACKEND_NATIVE || p->backend > BR_BACKEND_DOCKER)
        what = "backend";
    else if (p->identity < BR_IDENTITY_DEDICATED || p->identity > BR_IDENTITY_OWNER)
        what = "identity";
    else if (p->workspace < BR_WORKSPACE_NONE || p->workspace > BR_WORKSPACE_LEASE)
        what = "workspace";
    else if (p->flags & ~BR_PLAN_FLAGS_ALL)
        what = "flags";
    else if (!image_ok(p->image))
        what = "image";
    else if (p->state[0] && (!br_is_kebab(p->state, sizeof(p->state) - 1) ||
                             p->disks[BR_DISK_STATE].kind != BR_QUOTA_EXT4))
        what = "state";
    else if (p->keep[0] && (!is_id(p->keep) || p->disks[BR_DISK_WORKSPACE].kind != BR_QUOTA_EXT4))
        what = "keep";
    else if ((p->workspace == BR_WORKSPACE_LEASE) != (p->disks[BR_DISK_WORKSPACE].kind != 0))
        what = "workspace lease";
    else if (p->nallowed && p->workspace != BR_WORKSPACE_BIND)
        what = "allowed paths";
    else if ((p->flags & BR_PLAN_ALONE) && !alone_ok(p))
        what = "promise that a process is alone";
    if (what)
        return br_err_set(err, BR_E_INVALID_PROFILE,
                          "the launch plan's %s is not one that exists or fits the others", what);
    int r = br_limits_check(&p->limits, err);
    for (unsigned i = 0; r == 0 && i < BR_DISKS; i++)
        r = check_disk(p, (enum br_disk)i, err);
    return r;
}

void br_plan_free(struct br_plan *p)
{
    for (uint32_t i = 0; i < p->nallowed; i++)
        free(p->allowed_paths[i]);
    p->nallowed = 0;
}

void br_policy_pin_put(struct br_buf *b, const struct br_policy_pin *p)
{
    br_buf_put_str(b, p->sha256);
    br_buf_put_u64(b, p->generation);
    br_buf_put_u64(b, p->at_us);
    br_buf_put_u32(b, p->uid);
    br_buf_put_u8(b, p->by);
}

void br_policy_pin_get(struct br_rd *r, struct br_policy_pin *p)
{
    br_rd_str(r, p->sha256, sizeof(p->sha256));
    p->generation = br_rd_u64(r);
    p->at_us = br_rd_u64(r);
    p->uid = br_rd_u32(r);
    p->by = br_rd_u8(r);
    size_t n = strlen(p->sha256);
    if ((n && n != 64) || strspn(p->sha256, "0123456789abcdef") != n ||
        (p->by == 0) != (p->generation == 0) || p->by > BR_POLICY_BY_REQUEST)
        r->failed = true;
}

const char *br_policy_by_name(uint8_t by)
{
    static const char *const names[] = {"", "start", "signal", "request"};
    return by < BR_ARRAY_LEN(names) ? names[by] : "";
}

void br_state_row_put(struct br_buf *b, const struct br_state_row *w)
{
    br_buf_put_u8(b, w->kind);
    br_buf_put_str(b, w->id);
    br_buf_put_u32(b, w->owner);
    br_buf_put_str(b, w->adapter);
    br_buf_put_str(b, w->profile);
    br_buf_put_str(b, w->image);
    br_buf_put_str(b, w->workspace);
    br_buf_put_u64(b, w->created);
    br_buf_put_u64(b, w->used);
    br_buf_put_u64(b, w->expires);
    br_buf_put_u64(b, w->bytes);
    br_buf_put_u8(b, w->in_use);
    br_buf_put_u8(b, w->interrupted);
}

void br_state_row_get(struct br_rd *r, struct br_state_row *w)
{
    *w = (struct br_state_row){.kind = br_rd_u8(r)};
    br_rd_str(r, w->id, sizeof(w->id));
    w->owner = br_rd_u32(r);
    br_rd_str(r, w->adapter, sizeof(w->adapter));
    br_rd_str(r, w->profile, sizeof(w->profile));
    br_rd_str(r, w->image, sizeof(w->image));
    br_rd_str(r, w->workspace, sizeof(w->workspace));
    w->created = br_rd_u64(r);
    w->used = br_rd_u64(r);
    w->expires = br_rd_u64(r);
    w->bytes = br_rd_u64(r);
    w->in_use = br_rd_u8(r);
    w->interrupted = br_rd_u8(r);
    if (w->kind < BR_STATE_SESSION || w->kind > BR_STATE_WORKSPACE)
        r->failed = true;
}

void br_policy_row_put(struct br_buf *b, const struct br_policy_row *w)
{
    br_buf_put_u8(b, w->kind);
    br_policy_pin_put(b, &w->pin);
    br_buf_put_str(b, w->path);
    br_buf_put_str(b, w->table);
    br_buf_put_u32(b, w->rules);
    br_buf_put_u32(b, w->warnings);
    br_buf_put_u32(b, w->probes);
    br_buf_put_u32(b, w->code);
    br_buf_put_str(b, w->text);
    br_buf_put_u32(b, w->runs);
    br_buf_put_u32(b, w->nids);
    for (uint32_t i = 0; i < w->nids; i++)
        br_buf_put_str(b, w->ids[i]);
}

void br_policy_row_get(struct br_rd *r, struct br_policy_row *w)
{
    w->kind = br_rd_u8(r);
    br_policy_pin_get(r, &w->pin);
    br_rd_str(r, w->path, sizeof(w->path));
    br_rd_str(r, w->table, sizeof(w->table));
    w->rules = br_rd_u32(r);
    w->warnings = br_rd_u32(r);
    w->probes = br_rd_u32(r);
    w->code = br_rd_u32(r);
    br_rd_str(r, w->text, sizeof(w->text));
    w->runs = br_rd_u32(r);
    w->nids = br_rd_u32(r);
    if (w->kind < BR_POLICY_CURRENT || w->kind > BR_POLICY_REFUSED || w->code >= BR_CODE_COUNT_ ||
        (w->kind == BR_POLICY_REFUSED) != (w->code != 0) || w->nids > BR_POLICY_RUNS_MAX ||
        w->nids > w->runs)
        r->failed = true;
    if (r->failed)
        w->nids = 0;
    for (uint32_t i = 0; i < w->nids; i++)
        br_rd_str(r, w->ids[i], sizeof(w->ids[i]));
}

void br_lease_put(struct br_buf *b, const struct br_lease *l)
{
    br_buf_put_u32(b, l->max_requests);
    br_buf_put_u64(b, l->max_request_bytes);
    br_buf_put_u64(b, l->max_response_bytes);
    br_buf_put_u64(b, l->max_tokens);
    br_buf_put_u32(b, l->seconds);
    br_buf_put_u32(b, l->max_answer_tokens);
    br_buf_put_u32(b, l->max_in_flight);
    br_buf_put_u32(b, l->routes);
    br_buf_put_u8(b, l->answers);
    br_buf_put_u8(b, l->any_tools);
    br_buf_put_u32(b, l->ntools);
    for (uint32_t i = 0; i < l->ntools; i++)
        br_buf_put_str(b, l->tools[i]);
    br_buf_put_str(b, l->token);
}

void br_lease_get(struct br_rd *r, struct br_lease *l)
{
    l->max_requests = br_rd_u32(r);
    l->max_request_bytes = br_rd_u64(r);
    l->max_response_bytes = br_rd_u64(r);
    l->max_tokens = br_rd_u64(r);
    l->seconds = br_rd_u32(r);
    l->max_answer_tokens = br_rd_u32(r);
    l->max_in_flight = br_rd_u32(r);
    l->routes = br_rd_u32(r);
    l->answers = br_rd_u8(r);
    l->any_tools = br_rd_u8(r);
    l->ntools = br_rd_u32(r);
    if (l->ntools > BR_LEASE_TOOLS_MAX) {
        r->failed = true;
        l->ntools = 0;
    }
    for (uint32_t i = 0; i < l->ntools; i++)
        br_rd_str(r, l->tools[i], sizeof(l->tools[i]));
    br_rd_str(r, l->token, sizeof(l->token));
    if (l->routes & ~BR_ROUTES_ALL || l->answers > BR_ANSWERS_NORMALIZE || l->any_tools > 1)
        r->failed = true;
}

static bool header_ok(const char *name, const char *value)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (n == 0 || name[n])
        return false;
    while (*value >= ' ' && *value <= '~')
        value++;
    return *value == 0;
}

void br_headers_put(struct br_buf *b, const struct br_headers *h)
{
    br_buf_put_u32(b, h->n);
    for (uint32_t i = 0; i < h->n; i++) {
        br_buf_put_str(b, h->h[i].name);
        br_buf_put_str(b, h->h[i].value);
    }
}

void br_headers_get(struct br_rd *r, struct br_headers *h)
{
    uint32_t n = br_rd_u32(r);
    h->n = 0;
    if (n > BR_HEADERS_MAX)
        r->failed = true;
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        br_rd_str(r, h->h[i].name, sizeof(h->h[i].name));
        br_rd_str(r, h->h[i].value, sizeof(h->h[i].value));
        if (r->failed || !header_ok(h->h[i].name, h->h[i].value))
            r->failed = true;
        else
            h->n++;
    }
}

bool br_headers_add(struct br_headers *h, const char *name, const char *value)
{
    if (h->n == BR_HEADERS_MAX || strlen(name) >= BR_HEADER_NAME_MAX ||
        strlen(value) >= BR_HEADER_VALUE_MAX || !header_ok(name, value))
        return false;
    snprintf(h->h[h->n].name, sizeof(h->h[h->n].name), "%s", name);
    snprintf(h->h[h->n].value, sizeof(h->h[h->n].value), "%s", value);
    h->n++;
    return true;
}

const char *br_headers_find(const struct br_headers *h, const char *name)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (strcmp(h->h[i].name, name) == 0)
            return h->h[i].value;
    return "";
}

void br_grant_ref_put(struct br_buf *b, const struct br_grant_ref *g)
{
    br_buf_put_u64(b, g->serial);
    br_buf_put(b, g->token, sizeof(g->token));
    br_buf_put_str(b, g->call_id);
    br_buf_put_str(b, g->action);
    br_buf_put(b, g->subject_sha256, sizeof(g->subject_sha256));
}

void br_grant_ref_get(struct br_rd *r, struct br_grant_ref *g)
{
    g->serial = br_rd_u64(r);
    rd_fixed(r, g->token, sizeof(g->token));
    br_rd_str(r, g->call_id, sizeof(g->call_id));
    br_rd_str(r, g->action, sizeof(g->action));
    rd_fixed(r, g->subject_sha256, sizeof(g->subject_sha256));
}

/* argv travels as one blob of NUL-terminated words, so that a long command line fits. */
static void put_argv(struct br_out *o, const struct br_init_call *c)
{
    BR_CLEANUP_BUF struct br_buf words = BR_BUF_INIT(BR_BLOB_MAX);
    for (uint32_t i = 0; i < c->argc; i++)
        br_buf_put(&words, c->argv[i], strlen(c->argv[i]) + 1);
    o->failed |= words.failed;
    br_buf_put_u32(&o->buf, c->argc);
    br_out_blob(o, words.data, words.len);
}

static int get_argv(struct br_msg *m, struct br_init_call *c, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf words;
    uint32_t argc = br_rd_u32(&m->rd);
    int r = br_msg_blob(m, BR_TOOL_JSON_MAX, &words, err);
    if (r < 0)
        return r;
    size_t off = 0;
    while (c->argc < argc && c->argc < BR_EXEC_ARGS_MAX && off < words.len) {
        const char *word = (const char *)words.data + off;
        size_t n = strnlen(word, words.len - off);
        if (n == words.len - off)
            break; /* not terminated */
        c->argv[c->argc] = strdup(word);
        if (!c->argv[c->argc])
            return br_err_set(err, BR_E_NOMEM, "no memory for an argument list");
        c->argc++;
        off += n + 1;
    }
    if (c->argc != argc || off != words.len)
        return br_err_set(err, BR_E_PEER_PROTOCOL, "an argument list is malformed");
    return 0;
}

void br_init_call_put(struct br_out *o, const struct br_init_call *c)
{
    br_buf_put_u8(&o->buf, c->op);
    br_buf_put_str(&o->buf, c->path);
    br_buf_put_u64(&o->buf, c->offset);
    br_buf_put_u64(&o->buf, c->limit);
    br_buf_put_u8(&o->buf, c->flag);
    br_buf_put_u32(&o->buf, c->timeout_ms);
    br_buf_put_u64(&o->buf, c->output_max);
    br_out_blob(o, c->text.data, c->text.len);
    br_out_blob(o, c->text2.data, c->text2.len);
    put_argv(o, c);
}

int br_init_call_get(struct br_msg *m, struct br_init_call *c, struct br_err *err)
{
    *c = (struct br_init_call){.op = br_rd_u8(&m->rd)};
    br_rd_str(&m->rd, c->path, sizeof(c->path));
    c->offset = br_rd_u64(&m->rd);
    c->limit = br_rd_u64(&m->rd);
    c->flag = br_rd_u8(&m->rd);
    c->timeout_ms = br_rd_u32(&m->rd);
    c->output_max = br_rd_u64(&m->rd);
    int r = br_msg_blob(m, BR_BLOB_MAX, &c->text, err);
    if (r == 0)
        r = br_msg_blob(m, BR_BLOB_MAX, &c->text2, err);
    if (r == 0)
        r = get_argv(m, c, err);
    if (r == 0 && br_rd_done(&m->rd) < 0)
        r = br_err_set(err, BR_E_PEER_PROTOCOL, "an INIT_CALL is malformed");
    return r;
}

void br_init_call_free(struct br_init_call *c)
{
    br_buf_free(&c->text);
    br_buf_free(&c->text2);
    for (uint32_t i = 0; i < c->argc; i++)
        free(c->argv[i]);
    c->argc = 0;
}

void br_probes_put(struct br_buf *b, const struct br_probe *p, uint32_t n)
{
    br_buf_put_u32(b, n);
    for (uint32_t i = 0; i < n; i++) {
        br_buf_put_str(b, p[i].requirement);
        br_buf_put_u8(b, p[i].result);
        br_buf_put_u8(b, p[i].required);
        br_buf_put_str(b, p[i].detail);
        br_buf_put_str(b, p[i].fix);
    }
}

uint32_t br_probes_get(struct br_rd *r, struct br_probe *p, uint32_t max)
{
    uint32_t n = br_rd_u32(r);
    if (n > max)
        r->failed = true;
    for (uint32_t i = 0; i < n && !r->failed; i++) {
        br_rd_str(r, p[i].requirement, sizeof(p[i].requirement));
        p[i].result = br_rd_u8(r);
        p[i].required = br_rd_u8(r);
        br_rd_str(r, p[i].detail, sizeof(p[i].detail));
        br_rd_str(r, p[i].fix, sizeof(p[i].fix));
    }
    return r->failed ? 0 : n;
}

void br_ceilings_put(struct br_buf *b, const struct br_ceilings *c)
{
    br_buf_put_u64(b, c->tokens);
    br_buf_put_u64(b, c->tool_calls);
    br_buf_put_u32(b, c->ask_seconds);
}

void br_ceilings_get(struct br_rd *r, struct br_ceilings *c)
{
    c->tokens = br_rd_u64(r);
    c->tool_calls = br_rd_u64(r);
    c->ask_seconds = br_rd_u32(r);
    if (c->ask_seconds > BR_RUN_SECONDS_MAX)
        r->failed = true;
}

void br_show_put(struct br_buf *b, const struct br_show *w)
{
    br_buf_put_str(b, w->run_id);
    br_buf_put_u64(b, w->row);
    br_buf_put_u32(b, w->limit);
    br_buf_put_str(b, w->before);
    br_buf_put_str(b, w->words);
}

void br_show_get(struct br_rd *r, struct br_show *w)
{
    br_rd_str(r, w->run_id, sizeof(w->run_id));
    w->row = br_rd_u64(r);
    w->limit = br_rd_u32(r);
    br_rd_str(r, w->before, sizeof(w->before));
    br_rd_str(r, w->words, sizeof(w->words));
}

bool br_is_run_id(const char *s)
{
    return strncmp(s, "run_", 4) == 0 && strlen(s) == 30 &&
           strspn(s + 4, "0123456789abcdefghjkmnpqrstvwxyz") == 26;
}
