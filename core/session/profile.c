/*
 * From the launch object of a compiled profile to the launch plan. The object comes from
 * bridle-script, which ran a text of the operator's: its shape is checked here, member by member,
 * and its size against the compiled-in ceiling of core/wire. Called by the session before anything
 * is asked for; nothing of a manifest or a model gets in here.
 */
#include <sodium/crypto_hash_sha256.h>
#include <string.h>

#include "session/profile.h"

static const struct br_profile_text *builtin(const char *name)
{
    for (const struct br_profile_text *t = br_profile_texts; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

int profile_choose(const struct br_profile_choice *c, const char **label, const char **text,
                   uint8_t sha256[32], struct br_err *err)
{
    bool own = c->source && c->source[0];
    const char *name = c->name[0] ? c->name : "run-v1";
    const struct br_profile_text *t = own ? NULL : builtin(name);
    if (!own && !t) {
        char known[512] = "";
        for (t = br_profile_texts; t->name; t++)
            snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                     known[0] ? ", " : "", t->name);
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no profile '%.64s'; nothing was started. There are %s, and "
                          "files of your own: --profile FILE.lua",
                          name, known);
    }
    *label = own ? c->path : t->name;
    *text = own ? c->source : t->text;
    crypto_hash_sha256(sha256, (const uint8_t *)*text, own ? strlen(*text) : *t->len);
    return 0;
}

/* ---- the launch object ---- */

static int bad(struct br_err *err, const char *what)
{
    return br_err_set(err, BR_E_INVALID_PROFILE,
                      "the compiled profile is not usable: '%s'; nothing was started", what);
}

/* The index of the text in `names`, counted from `first`; -1. */
static int index_of(const json_t *v, const char *const *names, int first)
{
    const char *s = json_string_value(v);
    for (int i = first; s && names[i]; i++)
        if (strcmp(s, names[i]) == 0)
            return i;
    return -1;
}

static bool only_keys(const json_t *o, const char *const *keys)
{
    const char *key;
    json_t *v;
    size_t known = 0;
    if (!json_is_object(o))
        return false;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        bool found = false;
        for (size_t i = 0; keys[i]; i++)
            found |= strcmp(keys[i], key) == 0;
        if (!found)
            return false;
        known++;
    }
    return known > 0 || keys[0] == NULL;
}

static bool get_u64(const json_t *o, const char *key, uint64_t max, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) <= 0 || (uint64_t)json_integer_value(v) > max)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static const struct {
    const char *name;
    size_t at;
    bool wide;
} limit_members[] = {
#define MEMBER_(name, wide)                                                                        \
    {                                                                                              \
#name, offsetof(struct br_limits, name), wide                                              \
    }
    MEMBER_(memory_bytes, true),  MEMBER_(pids, false),        MEMBER_(cpu_percent, false),
    MEMBER_(nofile, false),       MEMBER_(fsize_bytes, true),  MEMBER_(tmp_bytes, true),
    MEMBER_(tmp_inodes, true),    MEMBER_(output_bytes, true), MEMBER_(exec_seconds, false),
    MEMBER_(wall_seconds, false),
#undef MEMBER_
};

static int read_limits(const json_t *o, struct br_limits *l, struct br_err *err)
{
    if (!json_is_object(o) || json_object_size(o) != BR_ARRAY_LEN(limit_members))
        return bad(err, "limits");
    for (size_t i = 0; i < BR_ARRAY_LEN(limit_members); i++) {
        uint64_t v;
        char *at = (char *)l + limit_members[i].at;
        if (!get_u64(o, limit_members[i].name, INT64_MAX, &v))
            return bad(err, limit_members[i].name);
        uint32_t narrow = v > UINT32_MAX ? UINT32_MAX : (uint32_t)v; /* over any ceiling */
        if (limit_members[i].wide)
            memcpy(at, &v, sizeof(v));
        else
            memcpy(at, &narrow, sizeof(narrow));
    }
    return 0;
}

static int read_disks(const json_t *o, struct br_plan *plan, struct br_err *err)
{
    static const char *const keys[] = {"kind", "bytes", "inodes", "name", NULL};
    size_t known = 0;
    if (!json_is_object(o))
        return bad(err, "disks");
    for (unsigned i = 0; i < BR_DISKS; i++) {
        const json_t *d = json_object_get(o, br_disk_names[i]);
        struct br_quota *q = &plan->disks[i];
        if (!d)
            continue;
        known++;
        int kind = index_of(json_object_get(d, "kind"), br_quota_names, 1);
        if (!only_keys(d, keys) || kind < 0 || !get_u64(d, "bytes", INT64_MAX, &q->bytes) ||
            !get_u64(d, "inodes", INT64_MAX, &q->inodes))
            return bad(err, br_disk_names[i]);
        q->kind = (uint8_t)kind;
        const json_t *name = json_object_get(d, "name");
        if (!name)
            continue;
        /* br_plan_check() says what a name may be; only a state disk has one */
        if (i != BR_DISK_STATE || !json_string_length(name) ||
            json_string_length(name) >= sizeof(plan->state) ||
            strlen(json_string_value(name)) != json_string_length(name))
            return bad(err, "name of a disk");
        strcpy(plan->state, json_string_value(name));
    }
    return known == json_object_size(o) ? 0 : bad(err, "disks");
}

/* A list of words, each of which is a flag of the plan. */
static int read_flags(const json_t *list, const char *what, const char *const *names,
                      const uint32_t *flags, struct br_plan *plan, struct br_err *err)
{
    json_t *v;
    size_t i;
    if (!json_is_array(list))
        return bad(err, what);
    json_array_foreach((json_t *)(uintptr_t)list, i, v)
    {
        int k = index_of(v, names, 0);
        if (k < 0)
            return bad(err, what);
        plan->flags |= flags[k];
    }
    return 0;
}

static int read_plan_flags(const json_t *o, struct br_plan *plan, struct br_err *err)
{
    static const char *const places[] = {"tmp", "home", "workspace", "scratch", "state", NULL};
    static const uint32_t noexec[] = {BR_PLAN_TMP_NOEXEC, BR_PLAN_HOME_NOEXEC,
                                      BR_PLAN_WORKSPACE_NOEXEC, BR_PLAN_SCRATCH_NOEXEC,
                                      BR_PLAN_STATE_NOEXEC};
    static const char *const names[] = {"provider", "gate", NULL};
    static const uint32_t sockets[] = {BR_PLAN_BROKER, BR_PLAN_GATE};
    const json_t *alone = json_object_get(o, "alone");
    int r = read_flags(json_object_get(o, "noexec"), "noexec", places, noexec, plan, err);
    if (r == 0)
        r = read_flags(json_object_get(o, "sockets"), "sockets", names, sockets, plan, err);
    if (r == 0 && !json_is_boolean(alone))
        r = bad(err, "alone");
    plan->flags |= json_is_true(alone) ? BR_PLAN_ALONE : 0;
    return r;
}

/* One launch object; "offers" is read by the caller. */
static int read_launch(const json_t *o, struct br_plan *plan, struct br_err *err)
{
    static const char *const keys[] = {"name",     "version",   "backend", "image",   "identity",
                                       "landlock", "workspace", "noexec",  "sockets", "alone",
                                       "limits",   "disks",     "offers",  NULL};
    static const char *const locks[] = {"none", "required", NULL};
    *plan = (struct br_plan){.nallowed = 0};
    if (!only_keys(o, keys))
        return bad(err, "an unknown key");
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *image = json_string_value(json_object_get(o, "image"));
    uint64_t version;
    if (!name || strlen(name) >= sizeof(plan->profile) ||
        !get_u64(o, "version", UINT32_MAX, &version))
        return bad(err, "name or version");
    snprintf(plan->profile, sizeof(plan->profile), "%s", name);
    plan->profile_version = (uint32_t)version;
    int backend = index_of(json_object_get(o, "backend"), br_backend_names, 1);
    int identity = index_of(json_object_get(o, "identity"), br_identity_names, 1);
    int workspace = index_of(json_object_get(o, "workspace"), br_workspace_names, 1);
    int lock = index_of(json_object_get(o, "landlock"), locks, 0);
    if (backend < 0 || identity < 0 || workspace < 0 || lock < 0)
        return bad(err, "backend, identity, workspace or landlock");
    if (!image || strlen(image) >= sizeof(plan->image))
        return bad(err, "image");
    snprintf(plan->image, sizeof(plan->image), "%s", strcmp(image, "required") == 0 ? "" : image);
    plan->backend = (uint8_t)backend;
    plan->identity = (uint8_t)identity;
    plan->workspace = (uint8_t)workspace;
    plan->flags = lock == 0 ? BR_PLAN_NO_LANDLOCK : 0;
    int r = read_limits(json_object_get(o, "limits"), &plan->limits, err);
    if (r == 0)
        r = read_disks(json_object_get(o, "disks"), plan, err);
    return r < 0 ? r : read_plan_flags(o, plan, err);
}

/* Whether it is within the ceiling does not depend on which image it gets. */
static int check(const struct br_plan *plan, struct br_err *err)
{
    struct br_plan p = *plan;
    if (!p.image[0])
        snprintf(p.image, sizeof(p.image), "host");
    int r = br_plan_check(&p, err);
    return r < 0
               ? br_err_wrap(err, "the profile '%s' is refused; nothing was started", plan->profile)
               : 0;
}

int profile_read(const void *json, size_t n, struct profile *out, struct br_err *err)
{
    memset(out, 0, sizeof(*out));
    int r = br_json_scan(json ? json : "", n, BR_JSON_DEPTH_MAX, BR_JSON_NODES_MAX, err);
    json_t *o = r == 0 ? json_loadb(json ? json : "", n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!o)
        return bad(err, "it is no JSON");
    const json_t *offers = json_object_get(o, "offers");
    r = read_launch(o, &out->plan, err);
    out->image_required = out->plan.image[0] == 0;
    if (r == 0)
        r = check(&out->plan, err);
    if (r == 0 && (!json_is_array(offers) || json_array_size(offers) > BR_ARRAY_LEN(out->offers)))
        r = bad(err, "offers");
    for (size_t i = 0; r == 0 && i < json_array_size(offers); i++) {
        r = read_launch(json_array_get(offers, i), &out->offers[out->noffers], err);
        if (r == 0)
            r = check(&out->offers[out->noffers++], err);
    }
    json_decref(o);
    return r;
}

int profile_image(struct profile *p, const char *image, struct br_err *err)
{
    const char *name = p->plan.profile;
    if (!p->image_required && image[0] && strcmp(image, p->plan.image) != 0)
        return br_err_set(err, BR_E_USAGE,
                          "the profile '%s' names its image ('%s'), so '--image %.80s' cannot be "
                          "used with it; nothing was started. Leave it out, or use a profile "
                          "whose image is \"required\"",
                          name, p->plan.image, image);
    if (!p->image_required)
        return 0;
    if (!image[0])
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the profile '%s' requires an image; nothing was started. Name one with "
                          "--image, or in bridle.lua: profiles = { [\"%s\"] = { image = "
                          "\"sha256:...\" } }",
                          name, name);
    if (strlen(image) >= sizeof(p->plan.image))
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "the image '%.80s' has a name that is too long; nothing was started",
                          image);
    snprintf(p->plan.image, sizeof(p->plan.image), "%s", image);
    if (br_plan_check(&p->plan, NULL) < 0)
        return br_err_set(err, BR_E_INVALID_IMAGE,
                          "'%.80s' is not the id of an image; nothing was started. An id is "
                          "'sha256:' and 64 lower-case hex digits, or 'host' for the programs of "
                          "this host",
                          image);
    return 0;
}
