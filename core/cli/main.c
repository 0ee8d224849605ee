/*
 * bridle: the operator's client. Finds the verb, parses its arguments, and leaves the rest to the
 * verb's file. Holds no privilege of its own beyond the operator's; everything privileged happens
 * in the programs that bridled starts.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int unknown_verb(const char *word)
{
    const char *names[32];
    size_t n = 0;
    for (const struct br_cli_verb *v = br_cli_verbs; v->name && n < BR_ARRAY_LEN(names); v++)
        names[n++] = v->name;
    const char *near = br_cli_nearest(word, names, n);
    struct br_err err = {.code = BR_OK};
    if (near)
        (void)br_err_set(&err, BR_E_USAGE, "there is no verb '%.80s'; did you mean '%s'?", word,
                         near);
    else
        (void)br_err_set(&err, BR_E_USAGE, "there is no verb '%.80s'; 'bridle help' lists them",
                         word);
    return br_cli_fail(&err);
}

/*
 * Descriptors 0, 1 and 2 exist, so that no channel takes their place. What is written to a closed
 * output is lost, and has to fail: the file in its place can only be read.
 */
static int open_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd)
            return -1;
    return 0;
}

int main(int argc, char **argv)
{
    br_log_init("bridle", BR_LOG_WARN);
    if (open_standard_fds() < 0)
        return 1;
    if (argc < 2) {
        (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* not what was asked for, so not data */
        br_cli_help(NULL);
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0) {
        printf("bridle %s\n", BRIDLE_VERSION);
        return br_cli_flush();
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        br_cli_help(NULL);
        return br_cli_flush();
    }
    const struct br_cli_verb *verb = br_cli_verb_find(word);
    if (!verb)
        return unknown_verb(word);
    struct br_cli_args args;
    struct br_err err = {.code = BR_OK};
    if (br_cli_parse(verb, argc - 2, argv + 2, &args, &err) < 0)
        return br_cli_fail(&err);
    if (args.help) {
        br_cli_help(verb);
        return br_cli_flush();
    }
    return verb->run(&args);
}
