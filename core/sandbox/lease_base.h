/*
 * What was copied into a workspace lease that may stay after its run: `run-ID.base` beside its
 * image. Written by the child that copies (lease_copy.c), read by bridle-promote, which tells by it
 * what the run changed and what somebody else has changed in the workspace since. A header, then
 * one entry with its path for each file, directory and link, a directory before what is in it. Both
 * are programs of one build: native byte order.
 */
#ifndef BR_SANDBOX_LEASE_BASE_H
#define BR_SANDBOX_LEASE_BASE_H

#include <stdint.h>

#define BR_BASE_MAGIC "bridle-base-1\n\0"

/* Written last: without it the copy did not come to its end. */
struct br_base_head {
    char magic[16];
    uint64_t done_ns; /* CLOCK_REALTIME: every later change in the lease has a later ctime */
    uint64_t entries;
    uint64_t dev; /* of the workspace that was copied */
    uint64_t reserved[3];
};

/* What it was in the workspace when it was copied. */
struct br_base_entry {
    char type; /* 'f', 'd', 'l'; 'm': something was mounted there, and an empty directory is */
    uint8_t zero;
    uint16_t path_len; /* bytes behind this; no NUL */
    uint32_t mode;
    uint64_t ino, size;
    int64_t mtime_ns, ctime_ns;
    uint64_t copy_ino; /* of the copy in the lease; 0: not known */
};

#endif
