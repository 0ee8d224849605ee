/*
 * bridle run: one agent run in the foreground.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* The words of the goal, separated by one space. */
static int join_goal(const struct br_cli_args *a, struct br_buf *goal, struct br_err *err)
{
    for (unsigned i = 0; i < a->noperands; i++)
        br_buf_printf(goal, "%s%s", i ? " " : "", a->operands[i]);
    if (goal->failed)
        return br_err_set(err, BR_E_USAGE, "the goal is longer than %u bytes; nothing was started",
                          BR_GOAL_MAX);
    if (!br_utf8_valid(goal->data, goal->len))
        return br_err_set(err, BR_E_USAGE, "the goal is not valid UTF-8; nothing was started");
    if (strspn(br_buf_cstr(goal) ? (char *)goal->data : "", " \t\n") == goal->len &&
        !br_cli_opt(a, "task"))
        return br_err_set(err, BR_E_USAGE,
                          "there is no goal; say what the agent should do, or give a manifest: "
                          "bridle run %s",
                          a->verb->synopsis);
    return 0;
}

/* With an adapter, -p names its profile: `run -p workspace-v1 -a pi-coding@1`. A file, and the name
 * of a shipped policy, stay what they are. */
static bool is_profile(const char *word)
{
    return !br_cli_is_shipped(word) && !strpbrk(word, "/.");
}

int br_cli_run(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    BR_CLEANUP_BUF struct br_buf goal = BR_BUF_INIT(BR_GOAL_MAX + 1);
    const char *timeout = br_cli_opt(a, "timeout");
    uint32_t seconds = 0;
    if (timeout && br_cli_number("--timeout", timeout, 1, BR_RUN_SECONDS_MAX, &seconds, &err) < 0)
        return br_cli_fail(&err);
    if (join_goal(a, &goal, &err) < 0)
        return br_cli_fail(&err);
    if (br_cli_opt(a, "resume") && !br_cli_opt(a, "adapter") && !br_cli_opt(a, "task")) {
        (void)br_err_set(&err, BR_E_USAGE,
                         "--resume goes on with a session of an adapter, and none was named (-a); "
                         "nothing was started");
        return br_cli_fail(&err);
    }
    struct br_cli_foreground f = {.mode = BR_RUN_AGENT,
                                  .args = a,
                                  .dir = br_cli_opt(a, "dir"),
                                  .manifest = br_cli_opt(a, "task"),
                                  .goal = (char *)goal.data,
                                  .json = br_cli_opt(a, "json") != NULL,
                                  .adapter = br_cli_opt(a, "adapter"),
                                  .resume = br_cli_opt(a, "resume"),
                                  .wall_seconds = seconds};
    const char *p = br_cli_opt(a, "policy");
    if (f.adapter && p && !br_cli_opt(a, "profile") && is_profile(p)) {
        f.profile = p;
        f.no_policy = true;
    }
    return br_cli_foreground(&f);
}
