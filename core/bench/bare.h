/*
 * The baseline sandbox of the benches; see bare.c.
 */
#ifndef BR_BENCH_BARE_H
#define BR_BENCH_BARE_H

/* Run `program` (an O_PATH descriptor of a static executable) with argv in a bare namespace
 * sandbox and wait for it. The status as from waitpid(2), or -1 and errno. */
int bench_bare(int program, char *const *argv);

#endif
