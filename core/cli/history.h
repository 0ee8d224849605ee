/*
 * core/cli: what was typed at a prompt, for libedit: a file of the operator's in the state
 * directory, mode 0600. A line that begins with a blank is not kept.
 */
#ifndef BR_CLI_HISTORY_H
#define BR_CLI_HISTORY_H

#include <histedit.h>

#include "base/base.h"

struct br_cli_history {
    History *lines; /* for el_set(EL_HIST); NULL: there is no memory for one */
    int fd;         /* -1: there is no file */
};

/* Read the file NAME of the state directory, if that can be used. */
void br_cli_history_open(struct br_cli_history *h, const char *name);
void br_cli_history_add(struct br_cli_history *h, const char *line);
void br_cli_history_close(struct br_cli_history *h);

/* libedit reads characters of the locale; all of ours are UTF-8. */
void br_cli_utf8_locale(void);

#endif
