/*
 * The comparison that decides whether a sandbox may be used: the plan, the launcher's readings from
 * outside and pid 1's from inside must say the same. Called by bridle-session before the first
 * call, and by `bridle show` to check a stored receipt. The launcher's receipt is trusted; what pid
 * 1 says is compared member by member, and could only ever refuse its own start.
 */
#include <sodium/crypto_hash_sha256.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session/isolation.h"

static int differs(struct br_err *err, const char *member, const json_t *got, const char *want)
{
    char *text = got ? json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    int r = br_err_set(err, BR_E_REQUIREMENT_MISSING,
                       "pid 1 of the sandbox measured '%s' as %.200s, and %.200s was planned; it "
                       "was ended before anything ran in it",
                       member, text ? text : "nothing", want);
    free(text);
    return r;
}

static int is_text(const json_t *init, const char *member, const char *want, struct br_err *err)
{
    const json_t *v = json_object_get(init, member);
    const char *s = json_string_value(v);
    return s && want && strcmp(s, want) == 0 ? 0 : differs(err, member, v, want ? want : "?");
}

static int is_number(const json_t *object, const char *member, uint64_t want, struct br_err *err)
{
    const json_t *v = json_object_get(object, member);
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)want);
    return json_is_integer(v) && (uint64_t)json_integer_value(v) == want
               ? 0
               : differs(err, member, v, text);
}

static int is_bool(const json_t *init, const char *member, bool want, struct br_err *err)
{
    const json_t *v = json_object_get(init, member);
    return json_is_boolean(v) && json_is_true(v) == want
               ? 0
               : differs(err, member, v, want ? "true" : "false");
}

static int check_identity(const json_t *receipt, const json_t *init, struct br_err *err)
{
    static const char *const caps[] = {"capInh", "capPrm", "capEff", "capBnd", "capAmb"};
    const char *kind =
        json_string_value(json_object_get(json_object_get(receipt, "identity"), "kind"));
    int r = is_number(init, "pid", 1, err);
    if (r == 0)
        r = is_text(init, "uids", "1000 1000 1000 1000", err);
    if (r == 0)
        r = is_text(init, "gids", "1000 1000 1000 1000", err);
    /* an ordinary user's launcher cannot drop that user's groups */
    if (r == 0 && !(kind && strcmp(kind, "operator") == 0))
        r = is_text(init, "groups", "", err);
    /* pid 1 sees the map to the namespace around its own: of bubblewrap's that is not the host's */
    const char *backend = json_string_value(json_object_get(receipt, "backend"));
    bool nested = backend && strcmp(backend, "bwrap") == 0;
    const char *uids = json_string_value(json_object_get(receipt, "uidMap"));
    const char *gids = json_string_value(json_object_get(receipt, "gidMap"));
    if (r == 0)
        r = is_text(init, "uidMap", nested ? "1000 1000 1" : uids, err);
    if (r == 0)
        r = is_text(init, "gidMap", nested ? "1000 1000 1" : gids, err);
    for (size_t i = 0; r == 0 && i < BR_ARRAY_LEN(caps); i++)
        r = is_text(init, caps[i], "0000000000000000", err);
    return r;
}

static int check_locks(const json_t *receipt, const json_t *init, const struct br_plan *plan,
                       struct br_err *err)
{
    int r = is_number(init, "noNewPrivs", 1, err);
    if (r == 0)
        r = is_number(init, "seccomp", 2, err);
    if (r == 0)
        r = is_number(init, "seccompFilters",
                      (uint64_t)json_integer_value(json_object_get(receipt, "seccompFilters")),
                      err);
    if (r == 0)
        r = is_bool(init, "filterRefuses", true, err);
    if (r == 0)
        r = is_bool(init, "landlockRefuses", !(plan->flags & BR_PLAN_NO_LANDLOCK), err);
    if (r == 0)
        r = is_number(init, "dumpable", 0, err);
    if (r == 0)
        r = is_number(init, "inheritedFds", 0, err);
    return r;
}

static int check_namespaces(const json_t *receipt, const json_t *init, struct br_err *err)
{
    const json_t *inside = json_object_get(init, "namespaces"), *v;
    const char *name;
    unsigned n = 0;
    json_object_foreach(json_object_get((json_t *)(uintptr_t)receipt, "namespaces"), name, v)
    {
        char want[64];
        snprintf(want, sizeof(want), "%.16s:[%llu]", name,
                 (unsigned long long)json_integer_value(v));
        int r = is_text(inside, name, want, err);
        if (r < 0)
            return r;
        n++;
    }
    return n == 7 ? 0 : differs(err, "namespaces", inside, "seven of its own");
}

/* "11:memory:/ 0::/": of every hierarchy it sees its own cgroup as the root. */
static int check_cgroup(const json_t *init, struct br_err *err)
{
    const json_t *v = json_object_get(init, "cgroup");
    const char *p = json_string_value(v);
    bool ok = p && *p;
    while (ok && *p) {
        size_t n = strcspn(p, " ");
        ok = n > 2 && p[n - 1] == '/' && p[n - 2] == ':';
        p += n + (p[n] == ' ');
    }
    return ok ? 0 : differs(err, "cgroup", v, "the root of every hierarchy");
}

static uint64_t pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static int check_limits(const json_t *init, const struct br_limits *l, struct br_err *err)
{
    static const char *const places[] = {"/tmp", "/home/agent"};
    const json_t *limits = json_object_get(init, "rlimits");
    const json_t *quotas = json_object_get(init, "quotas");
    int r = is_number(limits, "nofile", l->nofile, err);
    if (r == 0)
        r = is_number(limits, "fsize", l->fsize_bytes, err);
    if (r == 0)
        r = is_number(limits, "core", 0, err);
    for (size_t i = 0; r == 0 && i < BR_ARRAY_LEN(places); i++) {
        const json_t *q = json_object_get(quotas, places[i]);
        r = q ? is_number(q, "bytes", pages(l->tmp_bytes), err)
              : differs(err, "quotas", quotas, places[i]);
        if (r == 0)
            r = is_number(q, "inodes", l->tmp_inodes, err);
    }
    return r;
}

int br_isolation_check(const json_t *receipt, const json_t *init, const struct br_plan *plan,
                       struct br_err *err)
{
    if (!json_is_object(receipt) || !json_is_object(init))
        return br_err_set(err, BR_E_INTERNAL, "the isolation receipt is not usable");
    int r = check_identity(receipt, init, err);
    if (r == 0)
        r = check_locks(receipt, init, plan, err);
    if (r == 0)
        r = check_namespaces(receipt, init, err);
    if (r == 0)
        r = check_cgroup(init, err);
    if (r == 0)
        r = is_text(init, "hostname", "bridle", err);
    if (r == 0)
        r = is_text(init, "cwd", "/workspace", err);
    if (r == 0)
        r = is_number(init, "mounts",
                      (uint64_t)json_integer_value(json_object_get(receipt, "mounts")), err);
    return r < 0 ? r : check_limits(init, &plan->limits, err);
}

/* ---- the whole of it ---- */

static bool digest(const json_t *receipt, char hex[65])
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char *text = json_dumps(receipt, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return false;
    crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
    free(text);
    br_hex(hex, hash, sizeof(hash));
    return true;
}

json_t *br_isolation_receipt(json_t *receipt, json_t *init)
{
    char hex[65];
    if (json_object_set(receipt, "init", init) == 0 && digest(receipt, hex) &&
        json_object_set_new(receipt, "sha256", json_string(hex)) == 0)
        return receipt;
    json_decref(receipt);
    return NULL;
}

bool br_isolation_verify(const json_t *receipt)
{
    char hex[65];
    json_t *rest = json_copy((json_t *)(uintptr_t)receipt);
    const char *said = json_string_value(json_object_get(receipt, "sha256"));
    (void)json_object_del(rest, "sha256");
    bool same = rest && said && digest(rest, hex) && strcmp(hex, said) == 0;
    json_decref(rest);
    return same;
}
