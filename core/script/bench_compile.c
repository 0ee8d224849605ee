/*
 * How long a policy takes from its text to a table that decides. Called by `bridle bench` and by a
 * test. The rules are of the kinds that people write; a loop writes them, so that it is not the
 * parser of Lua that is measured.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/policy.h"
#include "script/bench.h"
#include "script/script.h"

#define ROUNDS 5u
/* The rest is the profile's. */
#define RULES_MAX (BR_RULES_MAX - 10)

static const char text[] =
    "local policy = require 'bridle.policy'\n"
    "local rules = {}\n"
    "for i = 1, %u do\n"
    "  local id, kind = 'rule-' .. i, i %% 10\n"
    "  local make = i %% 3 == 0 and policy.deny or i %% 3 == 1 and policy.ask or policy.allow\n"
    "  if kind < 3 then\n"
    "    rules[i] = make { id = id, action = 'process.exec', command = 'tool' .. i .. ' *' }\n"
    "  elseif kind < 5 then\n"
    "    rules[i] = make { id = id, action = 'process.exec', command = policy.command {\n"
    "      'prog' .. i, { 'run', 'test' }, flags = { { '-f', '--force' } } } }\n"
    "  elseif kind == 5 then\n"
    "    rules[i] = make { id = id, action = 'network', host = '*.zone' .. i .. '.example:443' }\n"
    "  elseif kind < 8 then\n"
    "    rules[i] = make { id = id, action = 'fs.read', path = 'docs/part' .. i .. '/**' }\n"
    "  else\n"
    "    rules[i] = make { id = id, action = 'fs.write', path = 'src/module' .. i .. "
    "'/*/gen/*.c',\n"
    "      reason = 'made by a program' }\n"
    "  end\n"
    "end\n"
    "return policy.bundle { api = 1, name = 'bench', rules = rules }\n";

static uint64_t cpu_us(void)
{
    struct timespec t;
    br_require(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static int compile_once(const char *policy, double *ms, struct br_err *err)
{
    struct br_compile_in in = {.profile_path = "",
                               .policy_path = "bench.lua",
                               .policy = policy,
                               .policy_len = strlen(policy),
                               .manifest_path = "",
                               .goal = "measure",
                               .goal_len = 7};
    struct br_compile_out out;
    struct br_table *t = NULL;
    uint64_t start = cpu_us();
    struct br_script *s = br_script_new(BR_SCRIPT_MEMORY_MAX);
    if (!s)
        return br_err_set(err, BR_E_NOMEM, "no memory to compile a policy");
    s->hard_timer = true; /* as bridle-script has it */
    br_compile_out_init(&out);
    int r = br_compile(s, &in, &out, err);
    if (r == 0)
        r = br_table_load(out.table.data, out.table.len, &t, err);
    *ms = (double)(cpu_us() - start) / 1000;
    br_table_free(&t);
    br_compile_out_free(&out);
    br_script_free(&s);
    return r;
}

static int compare_ms(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int br_bench_compile(unsigned rules, double *ms, struct br_err *err)
{
    char policy[sizeof(text) + 16];
    double all[ROUNDS];
    int r = 0;
    if (rules == 0 || rules > RULES_MAX)
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "nothing was measured: %u rules, but a policy has 1 to %u", rules,
                          RULES_MAX);
    snprintf(policy, sizeof(policy), text, rules);
    for (unsigned i = 0; r == 0 && i < ROUNDS; i++)
        r = compile_once(policy, &all[i], err);
    if (r < 0)
        return r;
    qsort(all, ROUNDS, sizeof(all[0]), compare_ms);
    *ms = all[ROUNDS / 2];
    return 0;
}
