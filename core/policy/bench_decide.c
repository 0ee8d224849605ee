/*
 * How long one decision takes. Called by `bridle bench` and by a test; the table is made here, in
 * the shape that people write: most patterns name a tool, a directory or a domain, some a suffix,
 * a few have a wildcard at both ends.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/bench.h"
#include "policy/policy.h"

#define ROUND_US 50000u
#define ROUNDS 5u

static const char *const effects[] = {"allow", "ask", "deny"};

static void put_command(struct br_buf *b, unsigned i, unsigned rules)
{
    /* half of them are of one program */
    char program[32] = "npm";
    if (i % 20 == 2)
        snprintf(program, sizeof(program), "prog%u", i);
    br_buf_printf(b,
                  ",{\"id\":\"rule-%u\",\"source\":%u,\"action\":\"process.exec\",\"match\":"
                  "\"program\",\"pattern\":\"%s run task-%u\",\"effect\":\"%s\",\"command\":{"
                  "\"program\":\"%s\",\"words\":[[\"run\"],[\"task-%u\"]],\"flags\":[[\"-f\","
                  "\"--force\"]]}}",
                  i, i * 3 / rules ? 1 : 0, program, i, effects[i % 3], program, i);
}

static void put_rule(struct br_buf *b, unsigned i, unsigned rules)
{
    char pattern[128];
    const char *action = "process.exec", *match = "command";
    switch (i % 10) {
    case 0:
        snprintf(pattern, sizeof(pattern), "tool%u *", i);
        break;
    case 1:
        snprintf(pattern, sizeof(pattern), "git verb%u*", i);
        break;
    case 2:
        put_command(b, i, rules);
        return;
    case 3:
        snprintf(pattern, sizeof(pattern), "make target%u ?*", i);
        break;
    case 4:
        action = "network", match = "host";
        snprintf(pattern, sizeof(pattern), "*.zone%u.example:443", i);
        break;
    case 5:
        action = "fs.read", match = "path";
        snprintf(pattern, sizeof(pattern), "**/*.ext%u", i);
        break;
    case 6:
        action = "fs.read", match = "path";
        snprintf(pattern, sizeof(pattern), "docs/part%u/**", i);
        break;
    default:
        action = "fs.write", match = "path";
        snprintf(pattern, sizeof(pattern), "src/module%u/*/gen/*.c", i);
    }
    /* a hundredth, but at most twenty, cannot be found by their ends */
    if (i % 100 == 50 && i < 2000)
        snprintf(pattern, sizeof(pattern), "* --dangerous%u*", i);
    br_buf_printf(b,
                  "%s{\"id\":\"rule-%u\",\"source\":%u,\"action\":\"%s\",\"match\":\"%s\","
                  "\"pattern\":\"%s\",\"effect\":\"%s\"}",
                  i ? "," : "", i, i * 3 / rules, action, match, pattern, effects[i % 3]);
}

int br_bench_table(unsigned rules, struct br_table **t, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_TABLE_MAX);
    br_buf_printf(&b, "{\"v\":2,\"sources\":[{\"kind\":\"profile\",\"name\":\"bench\"},"
                      "{\"kind\":\"operator\",\"name\":\"bench\"},"
                      "{\"kind\":\"manifest\",\"name\":\"bench\"}],\"rules\":[");
    for (unsigned i = 0; i < rules; i++)
        put_rule(&b, i, rules);
    br_buf_printf(&b, "],\"fallbacks\":[{\"id\":\"rest\",\"source\":2,\"action\":\"fs.write\","
                      "\"effect\":\"deny\"}],\"predicates\":false,\"programs\":[{\"name\":\"npm\","
                      "\"values\":[\"--prefix\",\"-w\"]}]}");
    if (!br_buf_cstr(&b))
        return br_err_set(err, BR_E_NOMEM, "no memory for a table of %u rules", rules);
    return br_table_load(b.data, b.len, t, err);
}

static struct br_request subject_request(const char *action, const char *subject)
{
    return (struct br_request){
        .action = action, .subject = subject, .subject_len = strlen(subject)};
}

/* Processor time: a decision never waits, and other programs' turns are not its cost. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    br_require(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static double bench_round(const struct br_table *t, const struct br_request *q, unsigned n)
{
    struct br_decision d;
    uint64_t start = cpu_us(), now = start, done = 0;
    while (now - start < ROUND_US) {
        for (unsigned k = 0; k < 200; k++)
            for (unsigned i = 0; i < n; i++)
                br_table_decide(t, &q[i], &d);
        done += 200ull * n;
        now = cpu_us();
    }
    return (double)(now - start) * 1000 / (double)done;
}

static int compare_ns(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int br_bench_decide(unsigned rules, double *ns_per_decision, struct br_err *err)
{
    static const char *const diff[] = {"git", "verb1", "src/main.c"};
    static const char *const test[] = {"npm", "--prefix", "d", "run", "task-12", "--force"};
    static const char *const make[] = {"make", "target13", "-j4", "VERBOSE=1"};
    static const char *const none[] = {"cargo", "build", "--release", "--locked"};
    const struct br_request q[] = {
        {.action = "process.exec", .words = diff, .nwords = 3},
        {.action = "process.exec", .words = test, .nwords = 6},
        {.action = "process.exec", .words = make, .nwords = 4},
        {.action = "process.exec", .words = none, .nwords = 4},
        subject_request("network", "api.zone4.example:443"),
        subject_request("fs.read", "docs/part6/chapter/intro.md"),
        subject_request("fs.read", "lib/deep/inside/the/tree/file.ext15"),
        subject_request("fs.write", "src/module17/parser/gen/tables.c"),
    };
    double ns[ROUNDS];
    struct br_table *t;
    if (rules == 0 || rules > BR_RULES_MAX)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "nothing was measured: %u rules, but a table has 1 to %u", rules,
                          BR_RULES_MAX);
    int r = br_bench_table(rules, &t, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < ROUNDS; i++)
        ns[i] = bench_round(t, q, BR_ARRAY_LEN(q));
    br_table_free(&t);
    qsort(ns, ROUNDS, sizeof(ns[0]), compare_ns);
    *ns_per_decision = ns[ROUNDS / 2];
    return 0;
}
