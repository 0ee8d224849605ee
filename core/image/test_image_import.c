/*
 * Imports by the program, as root and as an ordinary user: every kind of source, hostile archives
 * (made by test_archives.py), limits, hostile and missing child programs, signals, and what is left
 * behind. Outside of the store lies a directory, the victim, which careless unpacking would change.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/test_tools.h"
#include "confine/test_evil.h"
#include "image/test_world.h"

/* ---- sources ---- */

static void check_sources(uid_t uid, char first[BR_IMAGE_ID_MAX])
{
    static const char *const sources[] = {"archive.tar", "t.tar.gz",  "t.tar.xz", "t.tar.zst",
                                          "t.tar.bz2",   "shuffled",  "tree",     "layout",
                                          "oci.tar",     "docker.tar"};
    struct world w;
    char id[BR_IMAGE_ID_MAX];
    make_world(&w, uid);
    craft(&w, "shuffled");
    shell(&w, uid, "mv %s %s/shuffled", w.archive, w.dir);
    craft(&w, "plain");
    shell(&w, uid,
          "cd %s; for z in gzip:gz xz:xz zstd:zst bzip2:bz2; do ${z%%:*} -c archive.tar "
          ">t.tar.${z#*:}; done; mkdir tree; tar -C tree -xf archive.tar; umoci init --layout "
          "layout; umoci new --image layout:latest; umoci raw add-layer --image layout:latest "
          "archive.tar; tar -C layout -cf oci.tar .; skopeo --insecure-policy --tmpdir=. copy "
          "oci:layout:latest docker-archive:docker.tar:test:latest",
          w.dir);
    for (unsigned i = 0; i < BR_ARRAY_LEN(sources); i++) {
        image(&w, "import --name=n%u -- %s/%s", i, w.dir, sources[i]);
        accepted(&w, id);
        if (!first[0])
            memcpy(first, id, BR_IMAGE_ID_MAX);
        if (strcmp(id, first) != 0)
            fail_msg("%s: %s, not %s", sources[i], id, first);
    }
    assert_int_equal(entries(&w, ""), uid ? 3 : 2);
    extract(&w, id);
    shell(&w, uid, "cd %s; diff -r --no-dereference tree work/out", w.dir);
    if (uid)
        shell(&w, uid, "cd %s; diff -r --no-dereference tree state/images/%s.tree", w.dir, id + 7);
    end_world(&w);
}

/* The same files are the same image, whatever they come in and whoever imports them. */
static void test_sources(void **state)
{
    char id[BR_IMAGE_ID_MAX] = "";
    (void)state;
    test_need_root();
    check_sources(0, id);
    check_sources(USER, id);
}

/* From another file system the kernel copies nothing; the archive has several chunks. */
static void test_other_file_system(void **state)
{
    struct world w;
    struct stat there, here;
    char far[64], near_id[BR_IMAGE_ID_MAX], far_id[BR_IMAGE_ID_MAX];
    (void)state;
    test_need_root();
    make_world(&w, 0);
    snprintf(far, sizeof(far), "/dev/shm/bridle-import-%d.tar", (int)getpid());
    shell(&w, 0,
          "cd %s; mkdir tree; head -c 5000000 /dev/urandom >tree/data; tar -C tree -cf archive.tar "
          ".; cp archive.tar %s",
          w.dir, far);
    assert_int_equal(stat(far, &there), 0);
    assert_int_equal(stat(w.dir, &here), 0);
    assert_int_not_equal(there.st_dev, here.st_dev);
    image(&w, "import --name=near -- %s", w.archive);
    accepted(&w, near_id);
    image(&w, "import --name=far -- %s", far);
    unlink(far);
    accepted(&w, far_id);
    assert_string_equal(far_id, near_id);
    end_world(&w);
}

/* What was expected is said, beside what the program of others said. */
static void test_wrong_kind(void **state)
{
    struct world w;
    (void)state;
    test_need_root();
    make_world(&w, 0);
    shell(&w, 0, "echo text >%s", w.archive);
    image(&w, "import --name=x --format=oci -- %s", w.archive);
    refused(&w, 5, "could not be read as an OCI archive (a tar file with 'oci-layout' at its top)");
    image(&w, "import --name=x --format=docker -- %s", w.archive);
    refused(&w, 5, "could not be read as what 'docker save' writes");
    end_world(&w);
}

/* ---- hostile archives ---- */

static void check_hostile(uid_t uid)
{
    static const struct {
        const char *kind;
        bool control;     /* tar -P falls for it */
        const char *said; /* NULL: accepted, with everything inside of the image */
    } rows[] = {
        {"absolute", true, NULL},
        {"dotdot", true, NULL},
        {"symlink-absolute", true, NULL},
        {"symlink-relative", true, NULL},
        {"symlink-chain", true, NULL},
        {"symlink-file", false, NULL},
        {"hardlink", true, "'umoci' refused it"},
        {"hardlink-symlink", true, "'umoci' refused it"},
        {"whiteout-up", false, "'umoci' refused it"},
        {"whiteout-top", false, "refused it"},
        {"whiteout-self", false, "refused it"},
        {"whiteout-symlink", false, NULL},
        {"huge-header", false, "refused it"},
        {"garbage", false, "refused it"},
        {"empty", false, "there are no files in it"},
    };
    char id[BR_IMAGE_ID_MAX];
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        struct world w;
        make_world(&w, uid);
        craft(&w, rows[i].kind);
        image(&w, "import --name=x -- %s", w.archive);
        if (rows[i].said)
            refused(&w, 5, rows[i].said);
        else
            accepted(&w, id);
        if (rows[i].control) {
            run(&w, uid, (const char *[]){"tar", "-P", "-C", w.victim, "-xf", w.archive, NULL});
            if (victim_untouched(&w))
                fail_msg("%s: the control proves nothing", rows[i].kind);
        }
        end_world(&w);
    }
}

static void test_hostile(void **state)
{
    (void)state;
    test_need_root();
    check_hostile(0);
    check_hostile(USER);
}

static void check_special(uid_t uid)
{
    struct world w;
    char id[BR_IMAGE_ID_MAX];
    make_world(&w, uid);
    craft(&w, "special");
    image(&w, "import --name=x -- %s", w.archive);
    accepted(&w, id);
    extract(&w, id);
    shell(&w, 0,
          "cd %s/work/out; test -z \"$(find . ! -type f ! -type d ! -type l -o -perm /7000)\"; "
          "test ! -e dev; test ! -e proc; test ! -e tmp; test ! -s d/null; test -f d/locked/in; "
          "test \"$(stat -c %%a d/setuid d/setgid d/closed d/sticky d/locked | tr '\\n' ' ')\" = "
          "'755 755 400 777 700 '",
          w.dir);
    /* no attributes: what mkfs.erofs would keep is not even there in an unpacked copy */
    if (uid)
        shell(&w, 0,
              "test -z \"$(cd %s/state/images/*.tree; python3 -c \"import os\n"
              "print(os.listxattr('d/caps') or '')\")\"",
              w.dir);
    end_world(&w);
    make_world(&w, uid);
    craft(&w, "duplicates");
    image(&w, "import --name=x -- %s", w.archive);
    accepted(&w, id);
    extract(&w, id);
    shell(&w, uid, "cd %s/work/out; test $(cat twice) = second; test $(cat now-a-file) = file",
          w.dir);
    craft(&w, "names");
    image(&w, "import --name=x -- %s", w.archive);
    accepted(&w, id);
    end_world(&w);
}

static void test_special(void **state)
{
    (void)state;
    test_need_root();
    check_special(0);
    check_special(USER);
}

static void test_limits(void **state)
{
    struct world w;
    char id[BR_IMAGE_ID_MAX];
    (void)state;
    test_need_root();
    make_world(&w, USER);
    craft(&w, "bytes");
    image(&w, "import --name=x --max-bytes=999 -- %s", w.archive);
    refused(&w, 7, "larger than 999 bytes");
    image(&w, "import --name=x --max-files=4 -- %s", w.archive);
    refused(&w, 7, "or 4 files");
    image(&w, "import --name=x --max-bytes=1000 --max-files=5 -- %s", w.archive);
    accepted(&w, id);
    end_world(&w);
    make_world(&w, USER);
    craft(&w, "deep");
    image(&w, "import --name=x -- %s", w.archive);
    refused(&w, 7, "128 directories within each other");
    craft(&w, "deep-enough");
    image(&w, "import --name=x -- %s", w.archive);
    accepted(&w, id);
    end_world(&w);
    make_world(&w, USER);
    craft(&w, "bomb");
    image(&w, "import --name=x --max-bytes=1000000 -- %s", w.archive);
    refused(&w, 7, "no image was made");
    craft(&w, "sparse");
    image(&w, "import --name=x --max-bytes=1000000 -- %s", w.archive);
    refused(&w, 7, "no image was made");
    end_world(&w);
}

/* ---- child programs ---- */

/* A directory of programs of which one is replaced by a script. */
static void replace_tool(struct world *w, const char *tool, const char *script)
{
    static char dirs[160];
    shell(w, w->uid,
          "mkdir -p %s/tools; cat >%s/tools/%s <<'END'\n#!/bin/sh\n%s\nEND\nchmod +x "
          "%s/tools/%s",
          w->dir, w->dir, tool, script, w->dir, tool);
    /* where a confined program may be read */
    shell(w, 0, "mkdir -p /usr/local/lib/%s; cp %s/tools/* /usr/local/lib/%s/", w->dir + 9, w->dir,
          w->dir + 9);
    snprintf(dirs, sizeof(dirs), "/usr/local/lib/%s:/usr/bin:/bin:/usr/sbin:/sbin", w->dir + 9);
    w->tools = dirs;
}

static void restore_tools(struct world *w)
{
    shell(w, 0, "rm -r /usr/local/lib/%s", w->dir + 9);
    w->tools = NULL;
}

static void test_missing(void **state)
{
    static const struct {
        const char *without, *package, *kind;
    } rows[] = {{"umoci", "umoci", "plain"},
                {"mkfs.erofs", "erofs-utils", "plain"},
                {"gzip", "gzip", "bomb"}};
    struct world w;
    char id[BR_IMAGE_ID_MAX], want[64], dirs[128];
    (void)state;
    test_need_root();
    make_world(&w, 0);
    for (unsigned i = 0; i < BR_ARRAY_LEN(rows); i++) {
        craft(&w, rows[i].kind);
        shell(&w, 0,
              "cd %s; rm -rf some; mkdir some; for t in tar gzip umoci skopeo mkfs.erofs; do "
              "ln -s $(command -v $t) some/$t; done; rm some/%s",
              w.dir, rows[i].without);
        snprintf(dirs, sizeof(dirs), "%s/some", w.dir);
        w.tools = dirs;
        image(&w, "import --name=x -- %s", w.archive);
        snprintf(want, sizeof(want), "apt-get install %s", rows[i].package);
        refused(&w, 6, want);
    }
    craft(&w, "plain");
    w.tools = NULL;
    image(&w, "import --name=x -- %s", w.archive);
    accepted(&w, id);
    end_world(&w);
}

/* A program that an archive has taken over changes files (without processes of its own: those it
 * may not have, and the control below makes use of). */
static void check_confined(uid_t uid)
{
    struct world w;
    char script[1024];
    make_world(&w, uid);
    craft(&w, "plain");
    shell(&w, 0, "echo secret >%s/secret; chmod 644 %s/secret", w.dir, w.dir);
    snprintf(script, sizeof(script),
             "exec 2>/dev/null\n{ echo x >%s/made; } || :\n{ echo x >%s/file; } || :\nmkdir "
             "%s/dir\nrm -f %s/file\n"
             "ln -s x %s/link\nmv %s/file here\nln %s/file here2\nchmod 700 %s/../secret\n"
             "mknod disk b 8 0\nmknod null c 1 3\n"
             "cat %s/secret >got && echo SECRET-READ >>got\nexit 3",
             w.victim, w.victim, w.victim, w.victim, w.victim, w.victim, w.victim, w.victim, w.dir);
    replace_tool(&w, "umoci", script);
    image(&w, "import --name=x -- %s", w.archive);
    refused(&w, 5, "'umoci' refused it");
    /* the control: the same script, not confined */
    shell(&w, uid, "cd %s/work; sh %s/tools/umoci || true; grep -q SECRET-READ got", w.dir, w.dir);
    assert_false(victim_untouched(&w));
    restore_tools(&w);
    end_world(&w);
}

static void test_confined(void **state)
{
    (void)state;
    test_need_root();
    check_confined(0);
    check_confined(USER);
}

/* And tries sockets, signals, staying on: test_confine has its controls; one of them is here too.
 */
static void check_evil(uid_t uid)
{
    struct world w;
    struct evil_rig r;
    char dirs[128], want[64];
    make_world(&w, uid);
    evil_rig_make(&r, uid);
    craft(&w, "plain");
    shell(&w, uid, "gzip %s; mv %s.gz %s", w.archive, w.archive, w.archive);
    shell(&w, 0, "mv %s %s/gzip", r.evil, r.dir);
    snprintf(r.evil, sizeof(r.evil), "%s/gzip", r.dir);
    snprintf(dirs, sizeof(dirs), "%s:/usr/bin:/bin:/usr/sbin:/sbin", r.dir);
    w.tools = dirs;
    image(&w, "import --name=x -- %s", w.archive);
    snprintf(want, sizeof(want), "evil uid=%u got:.", uid ? uid : 60717);
    refused(&w, 5, want);
    assert_true(evil_victim_lives(&r));
    assert_int_equal(evil_left_over(&r), 0);
    run(&w, uid, (const char *[]){r.evil, NULL});
    snprintf(want, sizeof(want), "evil uid=%u got:" EVIL_ALL, uid);
    if (!strstr(w.said, want))
        fail_msg("the control proves nothing: %s", w.said);
    evil_rig_end(&r);
    end_world(&w);
}

static void test_evil(void **state)
{
    (void)state;
    test_need_root();
    check_evil(0);
    check_evil(USER);
}

/* An archive that names an address for one of its parts: nobody is asked there. */
static void check_urls(uid_t uid)
{
    struct world w;
    struct evil_rig r;
    make_world(&w, uid);
    evil_rig_make(&r, uid);
    char path[128];
    shell(&w, uid, "python3 %s urls %s %d", archives_script(&w, path), w.archive, r.port);
    assert_int_equal(fcntl(r.tcp, F_SETFL, O_NONBLOCK), 0);
    image(&w, "import --name=x -- %s", w.archive);
    int asked = accept(r.tcp, NULL, NULL);
    assert_int_equal(asked, -1);
    refused(&w, 5, "'skopeo' refused it");
    /* the control: the same program, not confined, does ask; the answer is that it is hung up on */
    shell(&w, uid,
          "cd %s/work; skopeo --insecure-policy --tmpdir=. copy --quiet oci-archive:%s "
          "oci:layout:image >/dev/null 2>&1 & sk=$!; (sleep 5; kill $sk) 2>/dev/null & "
          "wait $sk || :",
          w.dir, w.archive);
    asked = accept(r.tcp, NULL, NULL);
    assert_true(asked >= 0);
    close(asked);
    evil_rig_end(&r);
    end_world(&w);
}

static void test_urls(void **state)
{
    (void)state;
    test_need_root();
    check_urls(0);
    check_urls(USER);
}

static void test_deadline(void **state)
{
    struct world w;
    (void)state;
    test_need_root();
    make_world(&w, USER);
    craft(&w, "plain");
    replace_tool(&w, "umoci", "while :; do :; done");
    image(&w, "import --name=x --max-seconds=1 -- %s", w.archive);
    refused(&w, 7, "1 seconds for the whole image");
    restore_tools(&w);
    end_world(&w);
}

/* Files that it writes without end are noticed while it writes. */
static void test_flood(void **state)
{
    struct world w;
    (void)state;
    test_need_root();
    make_world(&w, USER);
    craft(&w, "plain");
    replace_tool(&w, "umoci", "i=0; while :; do i=$((i+1)); echo >f$i; done");
    image(&w, "import --name=x --max-files=100 -- %s", w.archive);
    refused(&w, 7, "no image was made");
    replace_tool(&w, "umoci",
                 "x=0123456789abcdef; for i in a b c d e f g h i j k l m n o p; do x=$x$x; done\n"
                 "i=0; while :; do i=$((i+1)); printf %s \"$x\" >f$i || exit 1; done");
    image(&w, "import --name=x --max-bytes=1000000 -- %s", w.archive);
    refused(&w, 7, "no image was made");
    restore_tools(&w);
    end_world(&w);
}

/* An import that hangs in a child program; returns when the child runs. */
static pid_t start_hanging(struct world *w)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const char *argv[] = {program(), "import", "--name=hang", "--", w->archive, NULL};
    char script[64];
    snprintf(script, sizeof(script), "echo >pid; exec sleep 1000.%d", (int)getpid());
    replace_tool(w, "umoci", script);
    pid_t pid = spawn(w, w->uid, argv, null);
    close(null);
    for (int i = 0; i < 3000; i++) {
        char path[160];
        snprintf(path, sizeof(path), "ls %s/state/images/tmp.*/pid >/dev/null 2>&1", w->dir);
        if (system(path) == 0) /* NOLINT(cert-env33-c) */
            return pid;
        usleep(10000);
    }
    fail_msg("it does not run");
    return -1;
}

/* It is in a namespace: its pid there is not ours. */
static int child_of(void)
{
    char want[64];
    int pid = 0;
    size_t n = 6 + (size_t)snprintf(want, sizeof(want), "sleep 1000.%d", (int)getpid()) - 6;
    want[5] = 0;
    for (int i = 0; i < 3000 && pid == 0; i++) {
        DIR *d = opendir("/proc");
        for (struct dirent *e; d && (e = readdir(d));) {
            char path[300], text[64] = "";
            snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
            BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && read(fd, text, sizeof(text) - 1) == (ssize_t)n + 1 &&
                memcmp(text, want, n) == 0)
                pid = atoi(e->d_name);
        }
        closedir(d);
        usleep(10000);
    }
    assert_true(pid > 1);
    return pid;
}

static void wait_gone(int pid)
{
    for (int i = 0; i < 3000 && kill(pid, 0) == 0; i++)
        usleep(10000);
    assert_int_equal(kill(pid, 0), -1);
}

static void check_signal(int sig)
{
    struct world w;
    int status = 0;
    make_world(&w, USER);
    craft(&w, "plain");
    pid_t pid = start_hanging(&w);
    int child = child_of();
    assert_int_equal(kill(pid, sig), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    wait_gone(child);
    if (sig == SIGKILL) {
        char id[BR_IMAGE_ID_MAX];
        assert_true(WIFSIGNALED(status));
        assert_int_equal(entries(&w, "tmp."), 1); /* nobody could remove it */
        shell(&w, USER, "cd %s/state/images; touch %064d.erofs new_123; mkdir %064d.tree", w.dir, 1,
              2);
        restore_tools(&w);
        image(&w, "import --name=x -- %s", w.archive); /* the next one does */
        accepted(&w, id);
        assert_int_equal(entries(&w, ""), 3);
    } else {
        assert_int_equal(status, 1 << 8);
        assert_int_equal(entries(&w, ""), 0);
        restore_tools(&w);
    }
    assert_true(victim_untouched(&w));
    end_world(&w);
}

static void test_signals(void **state)
{
    (void)state;
    test_need_root();
    check_signal(SIGINT);
    check_signal(SIGTERM);
    check_signal(SIGHUP);
    check_signal(SIGKILL);
}

/* One that is at work is left alone. */
static void test_side_by_side(void **state)
{
    struct world w;
    char id[BR_IMAGE_ID_MAX];
    int status = 0;
    (void)state;
    test_need_root();
    make_world(&w, USER);
    craft(&w, "plain");
    pid_t pid = start_hanging(&w);
    int child = child_of();
    w.tools = NULL;
    image(&w, "import --name=x -- %s", w.archive);
    assert_int_equal(w.exit, 0);
    snprintf(id, sizeof(id), "%.71s", w.said);
    assert_int_equal(entries(&w, "tmp."), 1);
    assert_int_equal(kill(child, 0), 0);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(entries(&w, "tmp."), 0);
    image(&w, "verify --json %s", id);
    assert_int_equal(w.exit, 0);
    restore_tools(&w);
    end_world(&w);
}

/* ---- the other verbs ---- */

static void test_verbs(void **state)
{
    struct world w;
    char a[BR_IMAGE_ID_MAX], b[BR_IMAGE_ID_MAX];
    (void)state;
    test_need_root();
    make_world(&w, USER);
    image(&w, "list");
    assert_int_equal(w.exit, 0);
    assert_int_equal(access(w.victim, F_OK), 0);
    craft(&w, "plain");
    image(&w, "import --name=one -- %s", w.archive);
    accepted(&w, a);
    craft(&w, "bytes");
    image(&w, "import --name=two --json -- %s", w.archive);
    assert_int_equal(w.exit, 0);
    assert_non_null(strstr(w.said, "\"bytes\":1000,\"entries\":5,"));
    image(&w, "import --name=three -- %s", w.archive);
    accepted(&w, b);
    image(&w, "show --json %.15s", b + 7);
    assert_non_null(strstr(w.said, "\"names\":[\"three\",\"two\"]"));
    assert_non_null(strstr(w.said, b));
    image(&w, "list --json");
    assert_non_null(strstr(w.said, a));
    assert_non_null(strstr(w.said, b));
    image(&w, "show nothing");
    assert_int_equal(w.exit, 3);
    image(&w, "verify");
    assert_int_equal(w.exit, 0);
    shell(&w, 0, "cd %s/state/images; printf X | dd of=%s.erofs bs=1 seek=4500 conv=notrunc", w.dir,
          b + 7);
    image(&w, "verify two");
    assert_int_equal(w.exit, 5);
    image(&w, "verify --json");
    assert_int_equal(w.exit, 5);
    assert_non_null(strstr(w.said, "\"code\":\"INVALID_IMAGE\""));
    /* importing it again puts it right */
    image(&w, "import --name=two -- %s", w.archive);
    accepted(&w, b);
    image(&w, "verify");
    assert_int_equal(w.exit, 0);
    /* a name is moved; an image goes with its last name */
    image(&w, "remove two");
    assert_int_equal(w.exit, 0);
    image(&w, "show three");
    assert_int_equal(w.exit, 0);
    image(&w, "remove three");
    image(&w, "show %s", b);
    assert_int_equal(w.exit, 3);
    image(&w, "remove %s", a);
    assert_int_equal(w.exit, 0);
    assert_int_equal(entries(&w, ""), 0);
    image(&w, "show one");
    assert_int_equal(w.exit, 3);
    shell(&w, 0, "chmod 755 %s/state", w.dir);
    image(&w, "list");
    assert_int_equal(w.exit, 8);
    end_world(&w);
}

static void test_usage(void **state)
{
    static const char *const wrong[] = {
        "",
        "nothing",
        "import",
        "import a b",
        "import --name=host -- x",
        "import --name=../x -- x",
        "import --name=-x -- x",
        "import --name=" /* 64 */
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -- x",
        "import --format=zip -- x",
        "import --max-bytes=0 -- x",
        "import --max-bytes=68719476737 -- x",
        "import --max-files=2000001 -- x",
        "import --max-seconds=0 -- x",
        "import --max-seconds=86401 -- x",
        "import --unknown -- x",
        "build",
        "build -- -x",
        "build -- a,b",
        "build -- x;y",
        "build --suite=-x -- base-files",
        "build --mirror=--x -- base-files",
        "list x",
        "show host",
        "verify a b",
        "remove",
    };
    struct world w;
    (void)state;
    test_need_root();
    make_world(&w, USER);
    for (unsigned i = 0; i < BR_ARRAY_LEN(wrong); i++) {
        image(&w, "%s", wrong[i]);
        if (w.exit != 2)
            fail_msg("'%s': %d %s", wrong[i], w.exit, w.said);
    }
    image(&w,
          "import --max-bytes=68719476736 --max-files=2000000 --max-seconds=86400 -- %s/missing",
          w.dir);
    assert_int_equal(w.exit, 3);
    image(&w, "import --name="
              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa -- /dev/null");
    assert_int_equal(w.exit, 5);
    assert_int_equal(entries(&w, ""), 0);
    end_world(&w);
}

/* From the mirror that this machine's apt uses. */
static void test_build(void **state)
{
    struct world w;
    char id[BR_IMAGE_ID_MAX];
    (void)state;
    test_need_root();
    make_world(&w, 0);
    shell(&w, 0, ". /etc/os-release; echo $VERSION_CODENAME");
    w.said[strcspn(w.said, "\n")] = 0;
    char source[96]; /* the suite is that of this machine */
    snprintf(source, sizeof(source), "\"source\":\"%.31s: busybox-static\"", w.said);
    image(&w, "build --name=tiny --unpack-only -- busybox-static");
    accepted(&w, id);
    extract(&w, id);
    shell(&w, 0, "cd %s/work/out; find . -name busybox -type f -perm 755 | grep -q busybox", w.dir);
    image(&w, "show --json tiny");
    assert_non_null(strstr(w.said, "\"format\":\"packages\""));
    assert_non_null(strstr(w.said, source));
    /* an image of this release is not to be called another one */
    image(&w, "build --name=none --suite=no-such-suite --unpack-only -- base-files");
    assert_int_equal(w.exit, 2);
    assert_non_null(strstr(w.said, "do not have the suite 'no-such-suite'"));
    image(&w, "build --name=none --unpack-only -- no-such-package-anywhere");
    assert_int_equal(w.exit, 1);
    /* what apt said, not that mmdebstrap gave up */
    assert_non_null(strstr(w.said, "Unable to locate package no-such-package-anywhere"));
    assert_int_equal(entries(&w, "tmp."), 0);
    end_world(&w);
}

/* The store's disk is full: it is not the archive that is wrong. */
static void test_full(void **state)
{
    struct world w;
    (void)state;
    test_need_root();
    make_world(&w, 0);
    shell(&w, 0, "mkdir %s/large; head -c 2000000 /dev/urandom >%s/large/file", w.dir, w.dir);
    shell(&w, 0, "mkdir %s/state; mount -t tmpfs -o size=1m,mode=700 tmpfs %s/state", w.dir, w.dir);
    image(&w, "import --name=x -- %s/large", w.dir);
    refused(&w, 8, "is full; no image was made");
    shell(&w, 0, "umount %s/state", w.dir);
    end_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources),    cmocka_unit_test(test_other_file_system),
        cmocka_unit_test(test_wrong_kind), cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_special),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_missing),    cmocka_unit_test(test_confined),
        cmocka_unit_test(test_flood),      cmocka_unit_test(test_signals),
        cmocka_unit_test(test_verbs),      cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_usage),      cmocka_unit_test(test_evil),
        cmocka_unit_test(test_urls),       cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_build),      cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
