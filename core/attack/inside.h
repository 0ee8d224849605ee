/*
 * bridle-attack: what runs inside. A static program without sanitizers that tries one thing, says
 * in one line what came of it, and exits with one of the codes below. What it needs to know (the
 * name of a host file, a port) comes as KEY=VALUE arguments. As `bridle-attack --operation NAME` it
 * runs on the host and performs the operation that the attack looks for, where a weakened sandbox
 * cannot show it.
 */
#ifndef BR_ATTACK_INSIDE_H
#define BR_ATTACK_INSIDE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* The exit status, by which the host's side (stage_judge(), rows_*.c) knows what came of it. */
enum in_code { IN_THROUGH = 20, IN_BLOCKED = 21, IN_FAILED = 22 };

typedef int in_fn(void);
struct in_attack {
    const char *name;
    in_fn *fn;
};
extern const struct in_attack in_fs[], in_proc[], in_ns[], in_net[], in_res[], in_count[];

/* The value of KEY=VALUE, or NULL; in_need() ends the program with IN_FAILED instead. */
const char *in_arg(const char *key);
const char *in_need(const char *key);
long in_number(const char *key);
extern bool in_operation; /* on the host */
/* Say one line and return the code. */
int in_through(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int in_blocked(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int in_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Is there a system call filter on this process? */
bool in_filtered(void);
/* Read a file into a static buffer, NUL-terminated; NULL if it cannot be opened or read. */
const char *in_read(const char *path);
/* True if the file can be opened for writing and the bytes can be appended. */
bool in_append(const char *path, const char *text);

#endif
