/*
 * Samples and the table that they end up in, for people or as JSON.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"

static unsigned missed;
static struct br_buf rows = BR_BUF_INIT(65536);
static bool want_json;

void samples_add(struct samples *s, uint64_t from_us, uint64_t to_us)
{
    if (s->n < BENCH_SAMPLES_MAX)
        s->v[s->n++] = (double)(to_us - from_us);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double samples_median(struct samples *s)
{
    qsort(s->v, s->n, sizeof(*s->v), by_value);
    return s->n ? s->v[s->n / 2] : NAN;
}

double samples_p99(struct samples *s)
{
    qsort(s->v, s->n, sizeof(*s->v), by_value);
    return s->n ? s->v[(s->n * 99 + 99) / 100 - 1] : NAN; /* the nearest rank */
}

void bench_row(const char *name, double value, const char *unit, const char *reference,
               double reference_value, double limit, bool more_is_better)
{
    double measured = reference ? value / reference_value : value;
    bool met = more_is_better ? measured >= limit : measured <= limit;
    missed += !met;
    if (want_json) {
        br_buf_printf(&rows,
                      "%s{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"%s\",\"reference\":\"%s\","
                      "\"referenceValue\":%.3f,\"ratio\":%.3f,\"target\":%.3f,\"met\":%s}",
                      rows.len ? "," : "", name, value, unit, reference ? reference : "",
                      reference ? reference_value : 0.0, reference ? measured : 0.0, limit,
                      met ? "true" : "false");
        return;
    }
    char against[96] = "", target[48];
    if (reference)
        snprintf(against, sizeof(against), "%.2fx %s (%.1f)", measured, reference, reference_value);
    snprintf(target, sizeof(target), "%s %g%s", more_is_better ? ">=" : "<=", limit,
             reference ? "x" : "");
    printf("%-38s %10.2f %-5s %-34s %-9s %s\n", name, value, unit, against, target,
           met ? "ok" : "MISSED");
    fflush(stdout);
}

void bench_note(const char *fmt, ...)
{
    va_list ap;
    if (want_json)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

void bench_begin(bool json)
{
    want_json = json;
    if (!json)
        printf("%-38s %10s %-5s %-34s %-9s\n", "what", "median", "", "against", "target");
}

int bench_end(void)
{
    if (want_json)
        printf("{\"rows\":[%s],\"missed\":%u}\n", rows.len ? br_buf_cstr(&rows) : "", missed);
    else if (missed)
        printf("\n%u target%s missed\n", missed, missed == 1 ? "" : "s");
    return missed ? 1 : 0;
}
