/*
 * bridle-selftest: attacks the sandbox of this machine with everything in its tables and says what
 * came of it. Started by `bridle selftest --attack`, as root or as an ordinary user. It starts
 * launchers of its own, with workspaces of its own, and leaves nothing behind. Exit 0: every attack
 * was blocked or is documented as not stopped; 1: a breakout, or an attack of which nothing can be
 * said; 6: no sandbox can be made here.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack/attack.h"

static const struct attack *const tables[] = {
    attack_rows_fs,    attack_rows_proc,      attack_rows_calls,
    attack_rows_net,   attack_rows_resources, attack_rows_channel,
    attack_rows_store, attack_rows_bwrap,     attack_rows_counters};
#define ROWS_MAX 300u

static bool json, list, verbose;
static bool wanted[CLASSES];
static const char *only;

static int usage(const char *why, const char *what)
{
    fprintf(stderr, "bridle selftest: %s '%s'; nothing was done. See 'bridle selftest --help'\n",
            why, what);
    return 2;
}

/* "filesystem,proc" */
static int choose_classes(const char *names)
{
    while (*names) {
        size_t n = strcspn(names, ",");
        unsigned c = 0;
        while (c < CLASSES &&
               (strlen(attack_class_names[c]) != n || memcmp(attack_class_names[c], names, n) != 0))
            c++;
        if (c == CLASSES)
            return -1;
        wanted[c] = true;
        names += n + (names[n] == ',');
    }
    return 0;
}

static int parse(int argc, char **argv)
{
    bool some = false, attack = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--attack") == 0) {
            attack = true;
        } else if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            list = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--class") == 0 && i + 1 < argc) {
            if (choose_classes(argv[++i]) < 0)
                return usage("there is no class", argv[i]);
            some = true;
        } else {
            return usage("unknown argument", argv[i]);
        }
    }
    if (!attack)
        return usage("what is to be tested? There is one test:", "--attack");
    for (unsigned c = 0; c < CLASSES && !some; c++)
        wanted[c] = true;
    return 0;
}

/* The rows that were asked for, class by class. */
static unsigned select_rows(const struct attack **rows)
{
    unsigned n = 0;
    for (unsigned c = 0; c < CLASSES; c++)
        for (unsigned t = 0; t < BR_ARRAY_LEN(tables); t++)
            for (const struct attack *a = tables[t]; a->id; a++)
                if ((unsigned)a->class == c && wanted[c] &&
                    (list || geteuid() == 0 || !(a->flags & A_ROOT)) &&
                    (list || !(a->flags & A_BWRAP) || access("/usr/bin/bwrap", X_OK) == 0) &&
                    (!only || strcmp(a->id, only) == 0)) {
                    br_require(n < ROWS_MAX);
                    rows[n++] = a;
                }
    return n;
}

/* ---- output ---- */

static void put_str(struct br_buf *b, const char *key, const char *value)
{
    br_buf_printf(b, "\"%s\":", key);
    br_buf_put_json_str(b, value ? value : "", value ? strlen(value) : 0);
}

static void control_text(const struct attack *a, char *dst, size_t cap)
{
    static const char *const what[] = {
#define WHAT_(name, text, what_) what_,
        BR_WEAKNESSES(WHAT_)
#undef WHAT_
    };
    if (a->flags & A_EXPECTED) {
        snprintf(dst, cap, "none");
        return;
    }
    if (a->control || a->flags & A_OPERATION) {
        snprintf(dst, cap, "operation: %s", a->control ? a->control : "the same on the host");
        return;
    }
    size_t at = (size_t)snprintf(dst, cap, "a sandbox without: ");
    for (unsigned i = 0, n = 0; i < BR_WEAK_BITS_ && at < cap; i++)
        if (a->without & (1u << i))
            at += (size_t)snprintf(dst + at, cap - at, "%s%s", n++ ? "; " : "", what[i]);
}

static void put_about(struct br_buf *b, const struct attack *a)
{
    char control[1024];
    control_text(a, control, sizeof(control));
    put_str(b, "id", a->id);
    br_buf_put(b, ",", 1);
    put_str(b, "class", attack_class_names[a->class]);
    br_buf_put(b, ",", 1);
    put_str(b, "title", a->title);
    br_buf_put(b, ",", 1);
    put_str(b, "source", a->source);
    br_buf_put(b, ",", 1);
    put_str(b, "success", a->success);
    br_buf_put(b, ",", 1);
    put_str(b, "control", control);
    br_buf_printf(b, ",\"boundary\":%s", a->flags & A_EXPECTED ? "false" : "true");
}

static void put_row(struct br_buf *b, const struct verdict_row *r)
{
    static const char *const outcomes[] = {"undone", "blocked", "through"};
    br_buf_put(b, "{", 1);
    put_about(b, r->attack);
    br_buf_put(b, ",", 1);
    put_str(b, "result", verdict_names[r->verdict]);
    br_buf_put(b, ",", 1);
    put_str(b, "attack", outcomes[r->strong]);
    br_buf_put(b, ",", 1);
    put_str(b, "attackNote", r->strong_note);
    br_buf_put(b, ",", 1);
    put_str(b, "controlResult", r->attack->flags & A_EXPECTED ? "" : outcomes[r->control]);
    br_buf_put(b, ",", 1);
    put_str(b, "controlNote", r->control_note);
    br_buf_printf(b, ",\"durationMs\":%llu}", (unsigned long long)(r->us / 1000));
}

static void say_visible(const char *label, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
    if (!*text)
        return;
    (void)br_buf_put_visible(&b, text, strlen(text), true);
    printf("      %s: %s\n", label, br_buf_cstr(&b) ? br_buf_cstr(&b) : "");
}

static void say_row(const struct verdict_row *r)
{
    static enum attack_class last = CLASSES;
    const struct attack *a = r->attack;
    if (a->class != last)
        printf("%s%s\n", last == CLASSES ? "" : "\n", attack_class_names[a->class]);
    last = a->class;
    printf("  %-12s %-24s %s\n", verdict_names[r->verdict], a->id, a->title);
    if (r->verdict >= VERDICT_BREAKOUT || verbose) {
        say_visible("success would be", a->success);
        say_visible("attack", r->strong_note);
        say_visible("control", r->control_note);
    } else if (r->verdict == VERDICT_EXPECTED) {
        say_visible("not a boundary", r->strong_note);
    }
    (void)fflush(stdout);
}

static int list_rows(const struct attack *const *rows, unsigned n)
{
    if (json)
        printf("[");
    for (unsigned i = 0; i < n; i++) {
        BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
        char control[1024];
        if (json) {
            br_buf_put(&b, "{", 1);
            put_about(&b, rows[i]);
            printf("%s%s}", i ? ",\n " : "", br_buf_cstr(&b));
            continue;
        }
        control_text(rows[i], control, sizeof(control));
        printf("%-24s %-11s %s\n    source: %s\n    success: %s\n    control: %s\n", rows[i]->id,
               attack_class_names[rows[i]->class], rows[i]->title, rows[i]->source,
               rows[i]->success, control);
    }
    if (json)
        printf("]\n");
    return fflush(stdout) == 0 ? 0 : 1;
}

/* ---- running ---- */

static void interrupt(int sig)
{
    stage_interrupted = sig;
}

/* Is there a sandbox at all? 0, or 6 with the reason. */
static int try_plain(void)
{
    static const struct attack plain = {.id = "plain", .title = "a plain sandbox"};
    struct stage s;
    int r = stage_open(&s, &plain, false);
    if (r == 0)
        r = stage_launch(&s, -1);
    if (r == 0)
        r = stage_end(&s);
    if (r != 0)
        fprintf(stderr,
                "bridle selftest: no sandbox can be attacked, because none can be made: %s\n",
                s.note);
    stage_close(&s);
    return r == 0 ? 0 : 6;
}

static int run_rows(const struct attack *const *rows, unsigned n)
{
    unsigned count[4] = {0};
    uint64_t from = br_now_us();
    if (json)
        printf("{\"uid\":%u,\"attacks\":[", (unsigned)geteuid());
    for (unsigned i = 0; i < n && !stage_interrupted; i++) {
        struct verdict_row r;
        attack_try(rows[i], &r);
        count[r.verdict]++;
        if (json) {
            BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(65536);
            put_row(&b, &r);
            printf("%s%s", i ? ",\n " : "", br_buf_cstr(&b));
        } else {
            say_row(&r);
        }
    }
    double s = (double)(br_now_us() - from) / 1e6;
    if (json)
        printf("],\n\"blocked\":%u,\"expected\":%u,\"breakout\":%u,\"inconclusive\":%u,"
               "\"seconds\":%.1f}\n",
               count[0], count[1], count[2], count[3], s);
    else
        printf("\n%u of %u attacks in %.1f s as %s: %u blocked, %u expected, %u breakout, %u "
               "inconclusive\n",
               count[0] + count[1] + count[2] + count[3], n, s,
               geteuid() == 0 ? "root" : "an ordinary user", count[0], count[1], count[2],
               count[3]);
    if (fflush(stdout) != 0)
        return 1;
    return count[VERDICT_BREAKOUT] || count[VERDICT_INCONCLUSIVE] ? 1 : 0;
}

/* Everything of ours that lost its parent came to us; nothing of it may be alive. */
static bool nothing_left(void)
{
    pid_t pid = 0;
    for (int i = 0; i < 500 && pid >= 0; i++) {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0)
            usleep(10000);
    }
    if (pid >= 0)
        fprintf(stderr, "bridle selftest: a process of the suite is still alive\n");
    return pid < 0;
}

int main(int argc, char **argv)
{
    static const struct attack *rows[ROWS_MAX];
    br_log_init("bridle-selftest", BR_LOG_ERROR);
    int r = parse(argc, argv);
    if (r)
        return r;
    unsigned n = select_rows(rows);
    if (n == 0)
        return usage("there is no attack", only ? only : "");
    if (list)
        return list_rows(rows, n);
    /* everything of ours that is left without a parent comes back to be reaped */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    /* without SA_RESTART: waiting ends */
    struct sigaction act = {.sa_handler = interrupt};
    (void)sigaction(SIGINT, &act, NULL);
    (void)sigaction(SIGTERM, &act, NULL);
    (void)sigaction(SIGHUP, &act, NULL);
    br_scratch_sweep("/tmp", STAGE_PREFIX);
    r = try_plain();
    if (r == 0)
        r = run_rows(rows, n);
    /* one more launcher sweeps the cgroup of the one that an attack killed */
    int sig = stage_interrupted;
    stage_interrupted = 0;
    if (r <= 1 && try_plain() != 0)
        r = 1;
    return !nothing_left() ? 1 : sig ? 128 + sig : r;
}
