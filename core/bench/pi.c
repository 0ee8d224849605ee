/*
 * What a run of a harness costs, with Pi as the harness: measured by a script of the adapter, since
 * the guest and its bare provider are JavaScript. Started by main.c; needs the image that the
 * test pi.image keeps in the build directory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench.h"

#define RUNS 15

int bench_pi(struct br_err *err)
{
    char cache[BR_PATH_MAX + 32], node[BR_PATH_MAX + 64], place[160], line[4 * BR_PATH_MAX];
    double bare = 0, run = 0;
    snprintf(cache, sizeof(cache), "%s/../../cache/pi", bench_bin_path());
    snprintf(node, sizeof(node), "%s/root/opt/pi/bin/node", cache);
    snprintf(place, sizeof(place), "%s/pi", bench_scratch());
    if (geteuid() != 0 || access(node, X_OK) < 0) {
        bench_note(
            "  a run of Pi: measured as root only, once the test pi.image has made its image");
        return 0;
    }
    if (mkdir(place, 0755) < 0)
        return br_err_errno(err, BR_E_IO, "'%s' could not be made", place);
    snprintf(line, sizeof(line),
             "PI_CACHE='%s' '%s' '%s/../../../adapters/pi-coding/spec/cost.mjs' '%s' '%s' %d",
             cache, node, bench_bin_path(), bench_bin_path(), place, RUNS);
    FILE *f = popen(line, "re"); /* NOLINT(cert-env33-c): paths of the build */
    bool read = f && fscanf(f, "%lf %lf", &bare, &run) == 2;
    if (!f || pclose(f) != 0 || !read)
        return br_err_set(err, BR_E_FAILED, "a run of Pi could not be measured");
    bench_row("a run of Pi, added", run - bare, "ms", NULL, 0, 150, false);
    bench_note(
        "  from launch to the end of its record, one tool call: by itself %.0f ms, in Bridle %.0f",
        bare, run);
    return 0;
}
