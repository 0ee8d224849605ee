/*
 * What the tests of imports share: a directory with a store, an archive, and a victim outside of
 * the store which careless unpacking would change; and running the program on them.
 */
#ifndef BR_IMAGE_TEST_WORLD_H
#define BR_IMAGE_TEST_WORLD_H

#include "image/image_priv.h"

#define USER (62000u + (unsigned)getpid() % 900u)
#define SAID_MAX 16384

struct world {
    uid_t uid;
    char dir[64], victim[96], archive[96];
    const char *tools;   /* BRIDLE_TEST_TOOLS */
    char said[SAID_MAX]; /* stdout and stderr of the last program */
    int exit;
};

void run(struct world *w, uid_t uid, const char *const *argv);
void shell(struct world *w, uid_t uid, const char *fmt, ...) BR_PRINTF(3, 4);
void image(struct world *w, const char *fmt, ...) BR_PRINTF(2, 3);
void make_world(struct world *w, uid_t uid);
void end_world(struct world *w);
/* A copy of test_archives.py that an ordinary user can read wherever the sources lie. */
const char *archives_script(const struct world *w, char path[128]);
void craft(struct world *w, const char *kind);
bool victim_untouched(const struct world *w);
unsigned entries(const struct world *w, const char *prefix);
void refused(struct world *w, int code, const char *text);
void accepted(struct world *w, char id[BR_IMAGE_ID_MAX]);
void extract(struct world *w, const char *id);
pid_t spawn(const struct world *w, uid_t uid, const char *const *argv, int out);
void finish(struct world *w, pid_t pid, int in);
const char *program(void);

#endif
