/*
 * Which command lines run something else than their first word says. A library of its own
 * (bridle_argv) without Lua, for bridle-session; the shell splitter uses it too.
 */
#ifndef BR_SCRIPT_ARGV_H
#define BR_SCRIPT_ARGV_H

#include "base/base.h"

/*
 * True if the command cannot be decided by its words: its program runs what its arguments, standard
 * input or environment say (sh -c, env, xargs, find -exec, sudo, ...), or it has no program at all.
 * Such a command is decided as a whole: only a rule that names the wrapper itself allows it. *why
 * (may be NULL) receives a static text. argc words; argv need not be NULL-terminated.
 */
bool br_shell_argv_opaque(const char *const *argv, size_t argc, const char **why);

#endif
