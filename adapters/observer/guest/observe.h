/* The guest of the adapter observer@1, which is a mode of bridle-init: argv[1] is "observe". */
#ifndef BR_OBSERVE_H
#define BR_OBSERVE_H

/* Reads a packet from stdin, asks once, writes a result to stdout. The exit status. */
int br_observe_main(void);

#endif
