/* core/attack, private: what stage.c and stage_bait.c share. */
#ifndef BR_ATTACK_STAGE_PRIV_H
#define BR_ATTACK_STAGE_PRIV_H

#include "attack/attack.h"

/* The directory, the workspace in it, a secret beside it. 0, or -1. */
int stage_files(struct stage *s);
/* Sockets and System V objects of the host. 0, or -1. */
int stage_bait(struct stage *s);
void stage_remove_bait(struct stage *s);
/* A pseudo-terminal; its slave, or -1. The master is the stage's. */
int stage_terminal(struct stage *s);
void stage_answer_dns(struct stage *s);
void stage_parse_result(const char *json, size_t n, struct exec_result *out);

#endif
