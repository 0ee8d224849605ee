/*
 * The structures that cross channels: what one end encodes the other decodes to the same, every
 * bound at N and N + 1, and no decoder believes a message that is cut anywhere.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/types.h"
#include "wire/wire.h"

/* ---- the choice of a profile ---- */

static void choice_round_trip(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(2 * BR_PROFILE_MAX);
    struct br_profile_choice c = {.name = "run-v1", .path = "/p.lua", .image = "debian"}, got;
    struct br_rd r;
    c.source = (char *)(uintptr_t) "return {}";
    c.backend = BR_BACKEND_DOCKER;
    br_profile_choice_put(&b, &c);
    br_rd_init(&r, b.data, b.len);
    br_profile_choice_get(&r, &got);
    assert_int_equal(br_rd_done(&r), 0);
    assert_string_equal(got.name, "run-v1");
    assert_string_equal(got.path, "/p.lua");
    assert_string_equal(got.source, "return {}");
    assert_string_equal(got.image, "debian");
    assert_int_equal(got.backend, BR_BACKEND_DOCKER);
    br_profile_choice_free(&got);
    b.data[b.len - 1] = BR_BACKEND_DOCKER + 1; /* no backend */
    br_rd_init(&r, b.data, b.len);
    br_profile_choice_get(&r, &got);
    assert_true(br_rd_done(&r) < 0);
    br_profile_choice_free(&got);
    br_buf_free(&b);
}

static void choice_source_max(void **state)
{
    (void)state;
    static char text[BR_PROFILE_MAX + 2];
    memset(text, 'x', BR_PROFILE_MAX + 1);
    for (size_t n = BR_PROFILE_MAX; n <= BR_PROFILE_MAX + 1; n++) {
        struct br_buf b = BR_BUF_INIT(2 * BR_PROFILE_MAX);
        struct br_profile_choice c = {.name = ""}, got;
        struct br_rd r;
        c.source = text + BR_PROFILE_MAX + 1 - n;
        br_profile_choice_put(&b, &c);
        br_rd_init(&r, b.data, b.len);
        br_profile_choice_get(&r, &got);
        assert_int_equal(br_rd_done(&r) == 0, n == BR_PROFILE_MAX);
        br_profile_choice_free(&got);
        br_buf_free(&b);
    }
}

/* ---- policies that are held ---- */

static const char sum[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

static int put_get_pin(const struct br_policy_pin *p, struct br_policy_pin *got)
{
    struct br_buf b = BR_BUF_INIT(1000);
    struct br_rd r;
    br_policy_pin_put(&b, p);
    br_rd_init(&r, b.data, b.len);
    br_policy_pin_get(&r, got);
    int code = br_rd_done(&r);
    br_buf_free(&b);
    return code;
}

static void pins_round_trip(void **state)
{
    (void)state;
    struct br_policy_pin p = {.generation = 7, .at_us = 8, .uid = 9, .by = BR_POLICY_BY_SIGNAL},
                         got;
    snprintf(p.sha256, sizeof(p.sha256), "%s", sum);
    assert_int_equal(put_get_pin(&p, &got), 0);
    assert_string_equal(got.sha256, sum);
    assert_int_equal(got.generation, 7);
    assert_int_equal(got.at_us, 8);
    assert_int_equal(got.uid, 9);
    assert_string_equal(br_policy_by_name(got.by), "signal");
    assert_string_equal(br_policy_by_name(BR_POLICY_BY_REQUEST + 1), "");
    p.by = BR_POLICY_BY_REQUEST + 1;
    assert_true(put_get_pin(&p, &got) < 0);
    p.by = 0; /* nobody's */
    assert_true(put_get_pin(&p, &got) < 0);
    p.generation = 0;
    assert_int_equal(put_get_pin(&p, &got), 0);
    p.sha256[0] = 0;
    assert_int_equal(put_get_pin(&p, &got), 0);
    snprintf(p.sha256, sizeof(p.sha256), "%.63s", sum);
    assert_true(put_get_pin(&p, &got) < 0);
    snprintf(p.sha256, sizeof(p.sha256), "%.63sG", sum);
    assert_true(put_get_pin(&p, &got) < 0);
}

static int put_get_row(const struct br_policy_row *w, struct br_policy_row *got, size_t cut)
{
    struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    struct br_rd r;
    br_policy_row_put(&b, w);
    assert_false(b.failed);
    br_rd_init(&r, b.data, b.len - cut);
    br_policy_row_get(&r, got);
    int code = br_rd_done(&r);
    br_buf_free(&b);
    return code;
}

static void policy_rows_are_bounded(void **state)
{
    (void)state;
    static struct br_policy_row w, got;
    w = (struct br_policy_row){.kind = BR_POLICY_CURRENT, .rules = 1, .warnings = 2, .probes = 3};
    w.pin = (struct br_policy_pin){.generation = 1, .by = BR_POLICY_BY_START};
    memset(w.path, 'p', sizeof(w.path) - 1);
    snprintf(w.table, sizeof(w.table), "%s", sum);
    w.runs = BR_POLICY_RUNS_MAX + 5;
    w.nids = BR_POLICY_RUNS_MAX;
    for (uint32_t i = 0; i < w.nids; i++)
        memset(w.ids[i], 'r', sizeof(w.ids[i]) - 1);
    assert_int_equal(put_get_row(&w, &got, 0), 0);
    assert_string_equal(got.path, w.path);
    assert_string_equal(got.table, sum);
    assert_int_equal(got.rules, 1);
    assert_int_equal(got.warnings, 2);
    assert_int_equal(got.probes, 3);
    assert_int_equal(got.runs, BR_POLICY_RUNS_MAX + 5);
    assert_int_equal(got.nids, BR_POLICY_RUNS_MAX);
    assert_string_equal(got.ids[BR_POLICY_RUNS_MAX - 1], w.ids[0]);
    for (size_t cut = 1; cut < 4000; cut += 7)
        assert_true(put_get_row(&w, &got, cut) < 0);
    w.runs = w.nids = 1; /* more names than runs */
    assert_int_equal(put_get_row(&w, &got, 0), 0);
    w.runs = 0;
    assert_true(put_get_row(&w, &got, 0) < 0);
    w.nids = 0;
    w.code = BR_E_INVALID_POLICY; /* what is refused has a code, and nothing else has */
    assert_true(put_get_row(&w, &got, 0) < 0);
    w.kind = BR_POLICY_REFUSED;
    assert_int_equal(put_get_row(&w, &got, 0), 0);
    w.code = 0;
    assert_true(put_get_row(&w, &got, 0) < 0);
    w.code = BR_CODE_COUNT_;
    assert_true(put_get_row(&w, &got, 0) < 0);
    w.code = 0;
    w.kind = BR_POLICY_REFUSED + 1;
    assert_true(put_get_row(&w, &got, 0) < 0);
    w.kind = 0;
    assert_true(put_get_row(&w, &got, 0) < 0);
}

/* One more name than there may be: nothing is believed. */
static void policy_rows_have_a_limit(void **state)
{
    (void)state;
    static struct br_policy_row w, got;
    w = (struct br_policy_row){.kind = BR_POLICY_CURRENT};
    struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    struct br_rd r;
    br_policy_row_put(&b, &w);
    b.len -= 8; /* runs, and how many names */
    br_buf_put_u32(&b, BR_POLICY_RUNS_MAX + 1);
    br_buf_put_u32(&b, BR_POLICY_RUNS_MAX + 1);
    for (uint32_t i = 0; i <= BR_POLICY_RUNS_MAX; i++)
        br_buf_put_str(&b, "r");
    br_rd_init(&r, b.data, b.len);
    br_policy_row_get(&r, &got);
    assert_true(br_rd_done(&r) < 0);
    assert_int_equal(got.nids, 0);
    br_buf_free(&b);
}

/* ---- limits ---- */

static void limits_round_trip(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1000);
    struct br_limits l = {.memory_bytes = 1ull << 40, 2, 3, 4, 5, 6, 7, 8, 9, 10}, got;
    struct br_rd r;
    br_limits_put(&b, &l);
    br_rd_init(&r, b.data, b.len);
    br_limits_get(&r, &got);
    assert_int_equal(br_rd_done(&r), 0);
    assert_int_equal(got.memory_bytes, l.memory_bytes);
    assert_int_equal(got.pids, 2);
    assert_int_equal(got.cpu_percent, 3);
    assert_int_equal(got.nofile, 4);
    assert_int_equal(got.fsize_bytes, 5);
    assert_int_equal(got.tmp_bytes, 6);
    assert_int_equal(got.tmp_inodes, 7);
    assert_int_equal(got.output_bytes, 8);
    assert_int_equal(got.exec_seconds, 9);
    assert_int_equal(got.wall_seconds, 10);
    br_buf_free(&b);
}

#define CHECK_MEMBER(name)                                                                         \
    do {                                                                                           \
        struct br_limits l = br_limits_default;                                                    \
        struct br_err err = {.code = BR_OK};                                                       \
        l.name = br_limits_ceiling.name;                                                           \
        assert_int_equal(br_limits_check(&l, &err), 0);                                            \
        l.name = br_limits_ceiling.name + 1;                                                       \
        assert_int_equal(br_limits_check(&l, &err), -BR_E_LIMIT_EXCEEDED);                         \
        assert_non_null(strstr(err.text, "'" #name "'"));                                          \
        l.name = 0; /* never "unlimited" */                                                        \
        assert_int_equal(br_limits_check(&l, &err), -BR_E_LIMIT_EXCEEDED);                         \
        l.name = 1;                                                                                \
        assert_int_equal(br_limits_check(&l, &err), 0);                                            \
    } while (0)

static void limits_have_a_ceiling(void **state)
{
    (void)state;
    assert_int_equal(br_limits_check(&br_limits_default, NULL), 0);
    assert_int_equal(br_limits_check(&br_limits_ceiling, NULL), 0);
    CHECK_MEMBER(memory_bytes);
    CHECK_MEMBER(pids);
    CHECK_MEMBER(cpu_percent);
    CHECK_MEMBER(nofile);
    CHECK_MEMBER(fsize_bytes);
    CHECK_MEMBER(tmp_bytes);
    CHECK_MEMBER(tmp_inodes);
    CHECK_MEMBER(output_bytes);
    CHECK_MEMBER(exec_seconds);
    CHECK_MEMBER(wall_seconds);
}

/* ---- plan ---- */

static void fill_plan(struct br_plan *p, uint32_t n)
{
    br_plan_default(p);
    for (uint32_t i = 0; i < n; i++) {
        char path[32];
        snprintf(path, sizeof(path), "src/%u/", i);
        p->allowed_paths[p->nallowed++] = strdup(path);
        p->sources[i].ino = i + 1;
        p->sources[i].tree_sha256[31] = (uint8_t)i;
    }
    p->nsources = n;
    p->disks[BR_DISK_STATE] = (struct br_quota){BR_QUOTA_EXT4, 1 << 20, 16};
    p->disks[BR_DISK_SCRATCH] = (struct br_quota){BR_QUOTA_TMPFS, 64ull << 30, 10000000};
    snprintf(p->state, sizeof(p->state), "agent-1");
    p->flags = BR_PLAN_FLAGS_ALL;
}

static void who_is_alone_has_nothing(void **state)
{
    static const struct {
        const char *image;
        uint8_t backend, workspace;
        uint32_t pids, flags;
        bool ok;
    } rows[] = {
        {"none", BR_BACKEND_NATIVE, BR_WORKSPACE_NONE, 2, BR_PLAN_BROKER, true},
        {"none", BR_BACKEND_NATIVE, BR_WORKSPACE_NONE, 3, BR_PLAN_BROKER, false},
        {"none", BR_BACKEND_BWRAP, BR_WORKSPACE_NONE, 3, BR_PLAN_BROKER, true},
        {"none", BR_BACKEND_BWRAP, BR_WORKSPACE_NONE, 4, BR_PLAN_BROKER, false},
        {"host", BR_BACKEND_NATIVE, BR_WORKSPACE_NONE, 2, BR_PLAN_BROKER, false},
        {"none", BR_BACKEND_NATIVE, BR_WORKSPACE_BIND, 2, BR_PLAN_BROKER, false},
        {"none", BR_BACKEND_NATIVE, BR_WORKSPACE_NONE, 2, BR_PLAN_GATE, false},
    };
    (void)state;
    for (size_t i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct br_plan p;
        br_plan_default(&p);
        snprintf(p.image, sizeof(p.image), "%s", rows[i].image);
        p.backend = rows[i].backend;
        p.workspace = rows[i].workspace;
        p.limits.pids = rows[i].pids;
        p.flags = rows[i].flags | BR_PLAN_ALONE;
        assert_int_equal(br_plan_check(&p, NULL) == 0, rows[i].ok);
    }
}

static void plans_round_trip(void **state)
{
    (void)state;
    struct br_plan p, got;
    struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    struct br_rd r;
    fill_plan(&p, BR_ALLOWED_PATHS_MAX);
    br_plan_put(&b, &p);
    br_rd_init(&r, b.data, b.len);
    br_plan_get(&r, &got);
    assert_int_equal(br_rd_done(&r), 0);
    assert_int_equal(got.nallowed, BR_ALLOWED_PATHS_MAX);
    for (uint32_t i = 0; i < got.nallowed; i++)
        assert_string_equal(got.allowed_paths[i], p.allowed_paths[i]);
    assert_memory_equal(got.sources, p.sources, sizeof(p.sources));
    assert_string_equal(got.profile, "run-v1");
    assert_string_equal(got.state, "agent-1");
    assert_string_equal(got.image, "host");
    assert_int_equal(got.flags, BR_PLAN_FLAGS_ALL);
    assert_int_equal(got.disks[BR_DISK_SCRATCH].bytes, 64ull << 30);
    assert_int_equal(br_plan_check(&got, NULL), -BR_E_INVALID_PROFILE); /* not alone in that */
    got.flags &= ~(uint32_t)BR_PLAN_ALONE;
    assert_int_equal(br_plan_check(&got, NULL), 0);
    br_plan_free(&got);
    for (size_t cut = 0; cut < b.len; cut++) { /* cut anywhere: refused, and nothing leaks */
        uint8_t *copy = malloc(cut + 1);       /* exact, so that a sanitizer sees a byte too far */
        memcpy(copy, b.data, cut);
        br_rd_init(&r, copy, cut);
        br_plan_get(&r, &got);
        assert_int_not_equal(br_rd_done(&r), 0);
        br_plan_free(&got);
        free(copy);
    }
    br_plan_free(&p);
    br_buf_free(&b);
}

/* Each member at its limit and one over, and what does not fit together. */
static void plans_have_a_ceiling(void **state)
{
    (void)state;
    struct br_plan p;
    struct br_err err;
#define REFUSED(change, expected, says)                                                            \
    do {                                                                                           \
        br_plan_default(&p);                                                                       \
        assert_int_equal(br_plan_check(&p, &err), 0);                                              \
        change;                                                                                    \
        assert_int_equal(br_plan_check(&p, &err), -(expected));                                    \
        assert_non_null(strstr(err.text, says));                                                   \
    } while (0)
    REFUSED(p.profile[0] = 0, BR_E_INVALID_PROFILE, "profile");
    REFUSED(p.profile_version = 0, BR_E_INVALID_PROFILE, "profile");
    REFUSED(p.backend = 0, BR_E_INVALID_PROFILE, "backend");
    REFUSED(p.backend = BR_BACKEND_DOCKER + 1, BR_E_INVALID_PROFILE, "backend");
    REFUSED(p.identity = 0, BR_E_INVALID_PROFILE, "identity");
    REFUSED(p.identity = BR_IDENTITY_OWNER + 1, BR_E_INVALID_PROFILE, "identity");
    REFUSED(p.workspace = 0, BR_E_INVALID_PROFILE, "workspace");
    REFUSED(p.workspace = BR_WORKSPACE_LEASE + 1, BR_E_INVALID_PROFILE, "workspace");
    REFUSED(p.workspace = BR_WORKSPACE_LEASE, BR_E_INVALID_PROFILE, "workspace lease");
    REFUSED(p.disks[BR_DISK_WORKSPACE].kind = BR_QUOTA_TMPFS, BR_E_INVALID_PROFILE,
            "workspace lease");
    REFUSED(p.flags = BR_PLAN_FLAGS_ALL + 1, BR_E_INVALID_PROFILE, "flags");
    REFUSED(strcpy(p.image, "/etc"), BR_E_INVALID_PROFILE, "image");
    REFUSED(strcpy(p.image, "sha256:12"), BR_E_INVALID_PROFILE, "image");
    REFUSED(strcpy(p.state, "kept"), BR_E_INVALID_PROFILE, "state");
    REFUSED(strcpy(p.state, "../up"), BR_E_INVALID_PROFILE, "state");
    REFUSED(strcpy(p.keep, "run_1"), BR_E_INVALID_PROFILE, "keep"); /* without such a lease */
    REFUSED((p.nallowed = 1, p.workspace = BR_WORKSPACE_NONE), BR_E_INVALID_PROFILE,
            "allowed paths");
    REFUSED(p.disks[BR_DISK_STATE].kind = BR_QUOTA_EXT4 + 1, BR_E_INVALID_PROFILE, "'state'");
    struct br_quota most = {BR_QUOTA_EXT4, 64ull << 30, 10000000};
    struct br_quota least = {BR_QUOTA_TMPFS, 1 << 20, 16};
    REFUSED((p.disks[BR_DISK_STATE] = most, p.disks[BR_DISK_STATE].bytes++), BR_E_LIMIT_EXCEEDED,
            "'state'");
    REFUSED((p.disks[BR_DISK_STATE] = most, p.disks[BR_DISK_STATE].inodes++), BR_E_LIMIT_EXCEEDED,
            "'state'");
    REFUSED((p.disks[BR_DISK_SCRATCH] = least, p.disks[BR_DISK_SCRATCH].bytes--),
            BR_E_LIMIT_EXCEEDED, "'scratch'");
    REFUSED((p.disks[BR_DISK_SCRATCH] = least, p.disks[BR_DISK_SCRATCH].inodes--),
            BR_E_LIMIT_EXCEEDED, "'scratch'");
    REFUSED(p.limits.pids = 0, BR_E_LIMIT_EXCEEDED, "'pids'");
    br_plan_default(&p);
    p.disks[BR_DISK_STATE] = most;
    p.disks[BR_DISK_SCRATCH] = least;
    assert_int_equal(br_plan_check(&p, &err), 0);
#undef REFUSED
}

static int allowed(uint32_t claimed, uint32_t n, size_t len)
{
    struct br_plan got = {.nallowed = 0};
    struct br_buf b = BR_BUF_INIT(1 << 20);
    struct br_rd r;
    char *path = malloc(len);
    memset(path, 'p', len);
    br_buf_put_u32(&b, claimed);
    for (uint32_t i = 0; i < n; i++)
        br_buf_put_lstr(&b, path, len);
    br_rd_init(&r, b.data, b.len);
    br_allowed_get(&r, &got);
    int code = br_rd_done(&r);
    assert_true(got.nallowed <= BR_ALLOWED_PATHS_MAX);
    br_plan_free(&got);
    br_buf_free(&b);
    free(path);
    return code;
}

static void allowed_paths_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(allowed(0, 0, 1), 0);
    assert_int_equal(allowed(BR_ALLOWED_PATHS_MAX, BR_ALLOWED_PATHS_MAX, 1), 0);
    assert_int_equal(allowed(BR_ALLOWED_PATHS_MAX + 1, BR_ALLOWED_PATHS_MAX + 1, 1),
                     -BR_E_PEER_PROTOCOL);
    assert_int_equal(allowed(UINT32_MAX, 1, 1), -BR_E_PEER_PROTOCOL);
    assert_int_equal(allowed(2, 1, 1), -BR_E_PEER_PROTOCOL);
    assert_int_equal(allowed(1, 2, 1), -BR_E_PEER_PROTOCOL);
    assert_int_equal(allowed(1, 1, BR_PATH_MAX - 1), 0);
    assert_int_equal(allowed(1, 1, BR_PATH_MAX), -BR_E_PEER_PROTOCOL);
}

/* ---- lease, grant, probes ---- */

static void leases_and_grants_round_trip(void **state)
{
    (void)state;
    struct br_buf b = BR_BUF_INIT(1000);
    struct br_lease l = {1,
                         1ull << 40,
                         3,
                         4,
                         5,
                         6,
                         7,
                         BR_ROUTE_CHAT | BR_ROUTE_MODELS,
                         BR_ANSWERS_NORMALIZE,
                         0,
                         2,
                         {"read", "edit"},
                         "token"},
                    lgot;
    struct br_grant_ref g = {.serial = 7, .call_id = "call", .action = "fs.write"}, ggot;
    struct br_rd r;
    memset(g.token, 1, sizeof(g.token));
    memset(g.subject_sha256, 2, sizeof(g.subject_sha256));
    br_lease_put(&b, &l);
    br_grant_ref_put(&b, &g);
    br_rd_init(&r, b.data, b.len);
    br_lease_get(&r, &lgot);
    br_grant_ref_get(&r, &ggot);
    assert_int_equal(br_rd_done(&r), 0);
    assert_int_equal(lgot.max_requests, 1);
    assert_int_equal(lgot.max_request_bytes, 1ull << 40);
    assert_int_equal(lgot.max_response_bytes, 3);
    assert_int_equal(lgot.max_tokens, 4);
    assert_int_equal(lgot.seconds, 5);
    assert_int_equal(lgot.max_answer_tokens, 6);
    assert_int_equal(lgot.max_in_flight, 7);
    assert_int_equal(lgot.routes, BR_ROUTE_CHAT | BR_ROUTE_MODELS);
    assert_int_equal(lgot.answers, BR_ANSWERS_NORMALIZE);
    assert_int_equal(lgot.any_tools, 0);
    assert_int_equal(lgot.ntools, 2);
    assert_string_equal(lgot.tools[0], "read");
    assert_string_equal(lgot.tools[1], "edit");
    assert_string_equal(lgot.token, "token");
    assert_int_equal(ggot.serial, 7);
    assert_string_equal(ggot.call_id, "call");
    assert_string_equal(ggot.action, "fs.write");
    assert_memory_equal(ggot.token, g.token, sizeof(g.token));
    assert_memory_equal(ggot.subject_sha256, g.subject_sha256, sizeof(g.subject_sha256));
    for (size_t cut = 0; cut < b.len; cut++) {
        br_rd_init(&r, b.data, cut);
        br_lease_get(&r, &lgot);
        br_grant_ref_get(&r, &ggot);
        assert_int_not_equal(br_rd_done(&r), 0);
    }
    br_buf_free(&b);
}

static void headers_round_trip(void **state)
{
    (void)state;
    static struct br_headers h, got;
    struct br_rd r;
    char value[BR_HEADER_VALUE_MAX + 1], name[BR_HEADER_NAME_MAX + 1];
    memset(value, 'v', sizeof(value));
    memset(name, 'n', sizeof(name));
    h.n = 0;
    value[BR_HEADER_VALUE_MAX] = name[BR_HEADER_NAME_MAX] = 0;
    assert_false(br_headers_add(&h, "a", value));
    assert_false(br_headers_add(&h, name, "v"));
    value[BR_HEADER_VALUE_MAX - 1] = name[BR_HEADER_NAME_MAX - 1] = 0;
    assert_true(br_headers_add(&h, name, value));
    static const char *const bad[][2] = {{"", "v"},   {"A", "v"},         {"a b", "v"},
                                         {"a:", "v"}, {"a", "v\r\nb: c"}, {"a", "\x80"}};
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_false(br_headers_add(&h, bad[i][0], bad[i][1]));
    for (uint32_t i = 1; i < BR_HEADERS_MAX; i++)
        assert_true(br_headers_add(&h, "x-ratelimit-limit", ""));
    assert_false(br_headers_add(&h, "b", "v"));
    struct br_buf b = BR_BUF_INIT(65536);
    br_headers_put(&b, &h);
    br_rd_init(&r, b.data, b.len);
    br_headers_get(&r, &got);
    assert_int_equal(br_rd_done(&r), 0);
    assert_int_equal(got.n, BR_HEADERS_MAX);
    assert_string_equal(br_headers_find(&got, name), value);
    assert_string_equal(br_headers_find(&got, "none"), "");
    for (size_t cut = 0; cut < b.len; cut++) {
        br_rd_init(&r, b.data, cut);
        br_headers_get(&r, &got);
        assert_int_not_equal(br_rd_done(&r), 0);
    }
    br_buf_reset(&b);
    br_buf_put_u32(&b, BR_HEADERS_MAX + 1);
    for (uint32_t i = 0; i <= BR_HEADERS_MAX; i++) {
        br_buf_put_str(&b, "a");
        br_buf_put_str(&b, "b");
    }
    br_rd_init(&r, b.data, b.len);
    br_headers_get(&r, &got);
    assert_int_not_equal(br_rd_done(&r), 0);
    br_buf_reset(&b);
    br_buf_put_u32(&b, 1);
    br_buf_put_str(&b, "a");
    br_buf_put_str(&b, "v\r\nx: y");
    br_rd_init(&r, b.data, b.len);
    br_headers_get(&r, &got);
    assert_int_not_equal(br_rd_done(&r), 0);
    br_buf_free(&b);
}

static void probes_are_bounded(void **state)
{
    (void)state;
    static struct br_probe p[BR_PROBES_MAX], got[BR_PROBES_MAX];
    struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    struct br_rd r;
    for (unsigned i = 0; i < BR_PROBES_MAX; i++) {
        p[i] = (struct br_probe){.result = BR_PROBE_MISSING, .required = 1, .fix = "do this"};
        snprintf(p[i].requirement, sizeof(p[i].requirement), "need-%u", i);
    }
    br_probes_put(&b, p, BR_PROBES_MAX);
    br_rd_init(&r, b.data, b.len);
    assert_int_equal(br_probes_get(&r, got, BR_PROBES_MAX), BR_PROBES_MAX);
    assert_int_equal(br_rd_done(&r), 0);
    assert_string_equal(got[39].requirement, "need-39");
    assert_string_equal(got[39].fix, "do this");
    assert_int_equal(got[39].result, BR_PROBE_MISSING);
    br_rd_init(&r, b.data, b.len);
    assert_int_equal(br_probes_get(&r, got, BR_PROBES_MAX - 1), 0);
    assert_int_not_equal(br_rd_done(&r), 0);
    br_buf_free(&b);
}

/* ---- init call ---- */

static struct br_init_call got;
static int got_code;
static int on_call(struct br_chan *c, struct br_msg *m, void *ctx, struct br_err *err)
{
    (void)c;
    (void)ctx;
    got_code = br_init_call_get(m, &got, err);
    return got_code;
}
static const struct br_msg_rule rules[] = {
    {BR_MSG_INIT_CALL, BR_PERMIT, 0, BR_MSG_MAX, 0, 3, on_call},
};

/* Over a real channel, so that large parts travel as memfds. */
static int send_call(const struct br_init_call *c)
{
    int fds[2];
    struct br_chan rx, tx;
    struct br_out o = BR_OUT_INIT;
    assert_int_equal(br_chan_pair(fds), 0);
    br_chan_init(&rx, fds[0], "a", rules, 1, NULL);
    br_chan_init(&tx, fds[1], "b", NULL, 0, NULL);
    br_init_call_put(&o, c);
    int r = br_chan_send(&tx, BR_MSG_INIT_CALL, 1, &o, NULL);
    if (r == 0)
        r = br_chan_dispatch(&rx, NULL);
    br_out_free(&o);
    br_chan_close(&rx);
    br_chan_close(&tx);
    return r;
}

static void calls_round_trip(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, BR_BLOB_INLINE_MAX, BR_BLOB_INLINE_MAX + 1, 1000000};
    for (unsigned i = 0; i < BR_ARRAY_LEN(sizes); i++) {
        struct br_init_call c = {.op = BR_OP_EXEC, .path = "a/b", .offset = 1ull << 40, .limit = 2};
        uint8_t *bytes = malloc(sizes[i] + 1);
        memset(bytes, 't', sizes[i]);
        br_buf_init(&c.text, BR_BLOB_MAX);
        br_buf_init(&c.text2, BR_BLOB_MAX);
        br_buf_put(&c.text, bytes, sizes[i]);
        br_buf_put(&c.text2, bytes, sizes[i]);
        c.flag = 1;
        c.timeout_ms = 3;
        c.output_max = 4;
        for (unsigned k = 0; k < BR_EXEC_ARGS_MAX; k++)
            c.argv[c.argc++] = strdup(k % 3 ? "word with blanks" : "");
        assert_int_equal(send_call(&c), 0);
        assert_int_equal(got.op, BR_OP_EXEC);
        assert_string_equal(got.path, "a/b");
        assert_int_equal(got.offset, 1ull << 40);
        assert_int_equal(got.limit, 2);
        assert_int_equal(got.flag, 1);
        assert_int_equal(got.timeout_ms, 3);
        assert_int_equal(got.output_max, 4);
        assert_int_equal(got.text.len, sizes[i]);
        assert_int_equal(got.text2.len, sizes[i]);
        assert_int_equal(sizes[i] ? memcmp(got.text2.data, bytes, sizes[i]) : 0, 0);
        assert_int_equal(got.argc, BR_EXEC_ARGS_MAX);
        assert_null(got.argv[got.argc]);
        for (unsigned k = 0; k < got.argc; k++)
            assert_string_equal(got.argv[k], c.argv[k]);
        br_init_call_free(&got);
        br_init_call_free(&c);
        free(bytes);
    }
}

/* The argument list is a count and a blob of terminated words: they must agree. */
static int words(uint32_t argc, const char *p, size_t n)
{
    struct br_init_call empty = {.op = BR_OP_EXEC};
    struct br_out o = BR_OUT_INIT;
    br_init_call_put(&o, &empty);
    o.buf.len -= 4 + 1 + 4; /* argc, and an empty inline blob */
    br_buf_put_u32(&o.buf, argc);
    br_out_blob(&o, p, n);
    struct br_msg m = {.type = BR_MSG_INIT_CALL, .nfds = o.nfds};
    memcpy(m.fds, o.fds, sizeof(m.fds)); /* hand them over */
    br_rd_init(&m.rd, o.buf.data, o.buf.len);
    int r = br_init_call_get(&m, &got, NULL);
    br_init_call_free(&got);
    for (unsigned i = 0; i < m.nfds; i++)
        br_close(&m.fds[i]);
    o.nfds = 0;
    br_out_free(&o);
    return r;
}

static void argument_lists_must_agree(void **state)
{
    (void)state;
    assert_int_equal(words(0, "", 0), 0);
    assert_int_equal(words(2, "ls\0-l\0", 6), 0);
    assert_int_equal(words(2, "\0\0", 2), 0);
    assert_int_equal(words(1, "ls\0-l\0", 6), -BR_E_PEER_PROTOCOL);
    assert_int_equal(words(3, "ls\0-l\0", 6), -BR_E_PEER_PROTOCOL);
    assert_int_equal(words(0, "ls\0", 3), -BR_E_PEER_PROTOCOL);
    assert_int_equal(words(1, "ls", 2), -BR_E_PEER_PROTOCOL); /* not terminated */
    assert_int_equal(words(2, "ls\0-l", 5), -BR_E_PEER_PROTOCOL);
    assert_int_equal(words(UINT32_MAX, "ls\0", 3), -BR_E_PEER_PROTOCOL);
    char many[BR_EXEC_ARGS_MAX + 1] = {0};
    assert_int_equal(words(BR_EXEC_ARGS_MAX, many, BR_EXEC_ARGS_MAX), 0);
    assert_int_equal(words(BR_EXEC_ARGS_MAX + 1, many, BR_EXEC_ARGS_MAX + 1), -BR_E_PEER_PROTOCOL);
    char *big = malloc(BR_TOOL_JSON_MAX + 1);
    memset(big, 'w', BR_TOOL_JSON_MAX + 1);
    big[BR_TOOL_JSON_MAX - 1] = 0;
    assert_int_equal(words(1, big, BR_TOOL_JSON_MAX), 0);
    big[BR_TOOL_JSON_MAX - 1] = 'w';
    big[BR_TOOL_JSON_MAX] = 0;
    assert_int_equal(words(1, big, BR_TOOL_JSON_MAX + 1), -BR_E_PEER_PROTOCOL);
    free(big);
}

/* What runs have left: every member arrives, and what is cut or of no kind does not. */
static void test_state_row(void **state)
{
    (void)state;
    struct br_state_row w = {.kind = BR_STATE_WORKSPACE,
                             .id = "run_1",
                             .owner = 7,
                             .adapter = "pi-coding@1",
                             .profile = "workspace-v1",
                             .image = "host",
                             .workspace = "/w",
                             .created = 1,
                             .used = 2,
                             .expires = 3,
                             .bytes = 4,
                             .in_use = 1,
                             .interrupted = 1},
                        row;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_MSG_MAX);
    struct br_rd rd;
    br_state_row_put(&b, &w);
    br_rd_init(&rd, b.data, b.len);
    br_state_row_get(&rd, &row);
    assert_int_equal(br_rd_done(&rd), 0);
    assert_int_equal(row.kind, w.kind);
    assert_string_equal(row.id, w.id);
    assert_int_equal(row.owner, w.owner);
    assert_string_equal(row.adapter, w.adapter);
    assert_string_equal(row.profile, w.profile);
    assert_string_equal(row.image, w.image);
    assert_string_equal(row.workspace, w.workspace);
    assert_true(row.created == 1 && row.used == 2 && row.expires == 3 && row.bytes == 4);
    assert_true(row.in_use == 1 && row.interrupted == 1);
    for (size_t n = 0; n < b.len; n++) {
        br_rd_init(&rd, b.data, n);
        br_state_row_get(&rd, &row);
        assert_int_equal(br_rd_done(&rd), -BR_E_PEER_PROTOCOL);
    }
    b.data[0] = BR_STATE_WORKSPACE + 1;
    br_rd_init(&rd, b.data, b.len);
    br_state_row_get(&rd, &row);
    assert_int_equal(br_rd_done(&rd), -BR_E_PEER_PROTOCOL);
}

static void what_is_shown_is_bounded(void **state)
{
    (void)state;
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(4096);
    struct br_show w = {.row = 7, .limit = 3}, read;
    struct br_rd rd;
    snprintf(w.run_id, sizeof(w.run_id), "run_a");
    snprintf(w.before, sizeof(w.before), "run_b");
    memset(w.words, 'w', BR_SHOW_WORDS_MAX - 1);
    br_show_put(&b, &w);
    br_rd_init(&rd, b.data, b.len);
    br_show_get(&rd, &read);
    assert_int_equal(br_rd_done(&rd), 0);
    assert_string_equal(read.run_id, "run_a");
    assert_string_equal(read.before, "run_b");
    assert_string_equal(read.words, w.words);
    assert_true(read.row == 7 && read.limit == 3);
    br_buf_reset(&b);
    br_buf_put_str(&b, "");
    br_buf_put_u64(&b, 0);
    br_buf_put_u32(&b, 0);
    br_buf_put_str(&b, "");
    char long_words[BR_SHOW_WORDS_MAX + 1];
    memset(long_words, 'w', BR_SHOW_WORDS_MAX);
    long_words[BR_SHOW_WORDS_MAX] = 0;
    br_buf_put_str(&b, long_words);
    br_rd_init(&rd, b.data, b.len);
    br_show_get(&rd, &read);
    assert_int_equal(br_rd_done(&rd), -BR_E_PEER_PROTOCOL);
}

static void ceilings_have_one_themselves(void **state)
{
    (void)state;
    for (uint32_t more = 0; more < 2; more++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64);
        struct br_ceilings c = {
            .tokens = UINT64_MAX, .tool_calls = 9, .ask_seconds = BR_RUN_SECONDS_MAX + more};
        struct br_ceilings read;
        struct br_rd rd;
        br_ceilings_put(&b, &c);
        br_rd_init(&rd, b.data, b.len);
        br_ceilings_get(&rd, &read);
        assert_int_equal(br_rd_done(&rd), more ? -BR_E_PEER_PROTOCOL : 0);
        assert_true(read.tokens == UINT64_MAX && read.tool_calls == 9);
    }
}

static void run_ids_look_as_they_are_made(void **state)
{
    static const char *const bad[] = {"",
                                      "run_",
                                      "run_0000000000000000000000000",
                                      "run_000000000000000000000000000",
                                      "ses_00000000000000000000000000",
                                      "run_0000000000000000000000000/",
                                      "run_0000000000000000000000000A"};
    char id[BR_ID_MAX];
    (void)state;
    br_id_make(id, "run");
    assert_true(br_is_run_id(id));
    for (size_t i = 0; i < BR_ARRAY_LEN(bad); i++)
        assert_false(br_is_run_id(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_row),
        cmocka_unit_test(choice_round_trip),
        cmocka_unit_test(choice_source_max),
        cmocka_unit_test(pins_round_trip),
        cmocka_unit_test(policy_rows_are_bounded),
        cmocka_unit_test(policy_rows_have_a_limit),
        cmocka_unit_test(limits_round_trip),
        cmocka_unit_test(limits_have_a_ceiling),
        cmocka_unit_test(plans_round_trip),
        cmocka_unit_test(plans_have_a_ceiling),
        cmocka_unit_test(who_is_alone_has_nothing),
        cmocka_unit_test(allowed_paths_are_bounded),
        cmocka_unit_test(leases_and_grants_round_trip),
        cmocka_unit_test(headers_round_trip),
        cmocka_unit_test(probes_are_bounded),
        cmocka_unit_test(calls_round_trip),
        cmocka_unit_test(argument_lists_must_agree),
        cmocka_unit_test(what_is_shown_is_bounded),
        cmocka_unit_test(ceilings_have_one_themselves),
        cmocka_unit_test(run_ids_look_as_they_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
