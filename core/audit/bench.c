/*
 * Redaction throughput, for `bridle bench`. The text is made here, so that the number means the
 * same everywhere: lines like those of source code, logs and JSON, and now and then a credential.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "audit/bench.h"
#include "audit/redact.h"

#define BENCH_BYTES (8u * 1024 * 1024)
#define BENCH_PASSES 7

static const char *const lines[] = {
    "static int next_state(const struct table *t, uint32_t state, unsigned char byte)\n",
    "    if (state >= table->special && !outputs(table, state))\n        return -EAGAIN;\n",
    "2026-03-01T10:00:00.412+00:00 INFO  server: request 8812 took 14 ms (200, 5121 bytes)\n",
    "The quick brown fox jumps over the lazy dog; nobody in the packet saw what it was about.\n",
    "    {\"name\": \"build\", \"steps\": [\"configure\", \"compile\", \"test\"], \"max_tokens\": "
    "4096},\n",
    "import { readFile, writeFile } from 'node:fs/promises';\n",
    "  at Object.<anonymous> (/workspace/src/index.ts:41:17)\n",
    "commit 3f1c9a0e4b7d2c8f6a5e1b0d9c8f7a6e5d4c3b2a\nAuthor: Somebody <somebody@example.org>\n",
};

static int make_text(struct br_buf *b)
{
    for (unsigned i = 0; b->len < BENCH_BYTES; i++) {
        const char *line = lines[i * 2654435761u % BR_ARRAY_LEN(lines)];
        br_buf_put(b, line, strlen(line));
        if (i % 64 == 63)
            br_buf_printf(b, "export API_KEY=%s-%08x%08x\n", "sk-bench", i, ~i);
    }
    return b->failed ? -BR_E_NOMEM : 0;
}

/* Of this thread, so that a busy machine does not change the result. */
static double cpu_us(void)
{
    struct timespec ts;
    br_require(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) == 0);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int br_bench_redact(double *mb_per_s)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(2 * BENCH_BYTES);
    BR_CLEANUP_BUF struct br_buf out = BR_BUF_INIT(4 * BENCH_BYTES);
    static const char key[] = "bench-3f9a77c1d2e84b06a5d1-key";
    double rate[BENCH_PASSES];
    struct br_redact *r = br_redact_new();
    int ret = r ? br_redact_secret(r, "BENCH_KEY", key, sizeof(key) - 1, NULL) : -BR_E_NOMEM;
    if (ret == 0)
        ret = make_text(&text);
    for (int i = 0; i < BENCH_PASSES && ret == 0; i++) {
        br_buf_reset(&out);
        double start = cpu_us();
        ret = br_redact_text(r, text.data, text.len, &out, NULL);
        rate[i] = (double)text.len / (cpu_us() - start + 1);
    }
    br_redact_free(&r);
    if (ret < 0)
        return ret;
    qsort(rate, BENCH_PASSES, sizeof(rate[0]), compare);
    *mb_per_s = rate[BENCH_PASSES / 2];
    return 0;
}
