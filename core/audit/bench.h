/* core/audit: what `bridle bench` measures here. */
#ifndef BR_AUDIT_BENCH_H
#define BR_AUDIT_BENCH_H

#include "base/base.h"

/* Redaction throughput over ordinary text (source code and logs, one credential every few KiB) with
 * one registered secret, in 10^6 bytes per second of processor time, median of several passes. 0 or
 * -code. */
int br_bench_redact(double *mb_per_s);

#endif
