/*
 * The files of share/demo, embedded by CMake.
 */
#ifndef BR_CLI_DEMO_H
#define BR_CLI_DEMO_H

#define BR_DEMO_MANIFEST "task.yaml"

struct br_demo_file {
    const char *path; /* below share/demo; NULL ends the table */
    const char *text;
    const unsigned *len;
};
extern const struct br_demo_file br_demo_files[];

#endif
