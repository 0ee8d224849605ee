/*
 * Sandboxes in images, as root and as an ordinary user: what is seen of the image and what never
 * is, images that are hostile, and a store that somebody has changed. Each refusal is tried on an
 * image that worked before, and works again when the change is undone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "image/image_priv.h"
#include "launch/test_rig.h"

struct world {
    struct rig r;
    char state[96], images[128], src[96];
    char id[BR_IMAGE_ID_MAX];
};

static int run_as(uid_t uid, const char *const *argv)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (uid && (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
            _exit(70);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(71);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void shell(uid_t uid, const char *fmt, ...) BR_PRINTF(2, 3);
static void shell(uid_t uid, const char *fmt, ...)
{
    char script[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(script, sizeof(script), fmt, ap);
    va_end(ap);
    const char *argv[] = {"/bin/sh", "-ec", script, NULL};
    if (run_as(uid, argv) != 0)
        fail_msg("failed: %s", script);
}

static const char *busybox(void)
{
    return access("/usr/bin/busybox", X_OK) == 0 ? "/usr/bin/busybox" : "/bin/busybox";
}

/* A small system in w->src: one static program under the names that the tests use. */
static void make_source(const struct world *w)
{
    shell(w->r.uid,
          "mkdir -p %s/bin %s/etc %s/usr/share; cp %s %s/bin/busybox; cd %s/bin; "
          "for n in sh cat ls id test head stat touch mkdir readlink grep; do ln busybox $n; done; "
          "echo marker >../usr/share/marker; echo image:x:0:0::/:/bin/sh >../etc/passwd; "
          "echo kept >../etc/kept",
          w->src, w->src, w->src, busybox(), w->src, w->src);
}

/* Put w->src into the store as it is, without what an import would leave out. */
static void put_raw(struct world *w)
{
    struct br_image_store s;
    struct br_image img = {.name = "raw", .source = "test", .format = "directory"};
    struct br_err err = {.code = BR_OK};
    uint8_t sum[32];
    char hex[BR_IMAGE_HEX + 1], path[256];
    shell(w->r.uid, "mkfs.erofs --quiet -T0 --all-root -x-1 %s/raw %s; chmod 400 %s/raw", w->state,
          w->src, w->state);
    snprintf(path, sizeof(path), "%s/raw", w->state);
    BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(br_image_hash_file(fd, NULL, sum, &err), 0);
    br_hex(hex, sum, 32);
    snprintf(w->id, sizeof(w->id), "sha256:%s", hex);
    memcpy(img.id, w->id, sizeof(img.id));
    shell(w->r.uid, "mkdir -p -m 700 %s/names; mv %s/raw %s/%s.erofs", w->images, w->state,
          w->images, hex);
    img.has_tree = w->r.uid != 0;
    if (img.has_tree) {
        shell(w->r.uid, "cp -a %s %s/%s.tree", w->src, w->images, hex);
        snprintf(path, sizeof(path), "%s/%s.tree", w->images, hex);
        BR_CLEANUP_FD int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(br_image_hash_tree(dir, NULL, img.tree, img.tree_stamp, &err), 0);
    }
    assert_int_equal(br_image_stamp(fd, &img.file), 0);
    s.fd = open(w->images, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(br_image_index_write(&s, &img, &err), 0);
    br_close(&s.fd);
    snprintf(path, sizeof(path), "%s/%s.index", w->images, hex);
    assert_int_equal(lchown(path, w->r.uid, w->r.uid), 0);
}

static void make_world(struct world *w, uid_t uid)
{
    memset(w, 0, sizeof(*w));
    rig_make(&w->r, uid);
    snprintf(w->state, sizeof(w->state), "%s/state", w->r.dir);
    snprintf(w->images, sizeof(w->images), "%s/images", w->state);
    snprintf(w->src, sizeof(w->src), "%s/state/src", w->r.dir);
    shell(0, "mkdir -m 700 %s; chown %u:%u %s", w->state, uid, uid, w->state);
    shell(uid, "mkdir -m 700 %s; mkdir %s", w->images, w->src);
    make_source(w);
}

static void start(struct world *w)
{
    rig_start(&w->r);
    rig_config(&w->r);
    memcpy(w->r.plan.image, w->id, sizeof(w->id));
}

static void open_world(struct world *w, uid_t uid)
{
    make_world(w, uid);
    put_raw(w);
    start(w);
}

static void works(struct world *w, const char *how)
{
    char want[64];
    if (!rig_launch(&w->r))
        fail_msg("it was refused");
    snprintf(want, sizeof(want), "\"verified\":\"%s\"", how);
    if (!strstr(w->r.receipt, w->id) || !strstr(w->r.receipt, want))
        fail_msg("not in the receipt: %s %s: %s", w->id, want, w->r.receipt);
    assert_string_equal(w->r.image, w->id);
    assert_int_equal(rig_sh(&w->r, "cat /usr/share/marker >/dev/null", NULL), 0);
    rig_exit(&w->r, 0);
}

static void refuses(struct world *w, enum br_code code, const char *text)
{
    assert_false(rig_launch_at(&w->r, -1));
    if (w->r.code != code || !strstr(w->r.text, text))
        fail_msg("want %s '%s', got %s '%s'", br_code_name(code), text,
                 br_code_name((int)w->r.code), w->r.text);
    assert_null(rig_ask(&w->r, "call getpid"));
    assert_int_equal(rig_children(w->r.pid), 0);
    assert_int_equal(rig_cgroups(w->r.pid), 0);
}

/* ---- what is seen ---- */

static void check_view(struct world *w)
{
    const char *out;
    struct rig *r = &w->r;
    assert_true(rig_launch(r));
    assert_int_equal(rig_sh(r, "cat /usr/share/marker /etc/kept; id -u; cat /etc/hostname", &out),
                     0);
    assert_string_equal(out, "marker\nkept\n1000\nbridle\n");
    /* names of ours are ours */
    assert_int_equal(rig_sh(r, "head -n 1 /etc/passwd; stat -c %F /dev/null", &out), 0);
    assert_string_equal(out, "root:x:0:0:root:/:/usr/sbin/nologin\ncharacter special file\n");
    /* nothing of the host's /usr */
    assert_int_equal(rig_sh(r, "ls /usr /usr/bin 2>/dev/null; ls /usr", &out), 0);
    assert_string_equal(out, "/usr:\nshare\nshare\n");
    assert_int_equal(rig_sh(r, "touch /tmp/x /home/agent/x; echo x >/dev/null", &out), 0);
    static const char *const refused[] = {
        "touch /x",       "touch /usr/x",     "echo x >/etc/kept",    "echo x >/bin/sh",
        "mkdir /usr/new", "touch /dev/null0", "echo x >/.bridle-init"};
    for (unsigned i = 0; i < BR_ARRAY_LEN(refused); i++)
        if (rig_sh(r, refused[i], &out) == 0)
            fail_msg("this succeeded inside: %s", refused[i]);
    rig_exit(r, 0);
}

static void check_both(uid_t uid, const char *mounted, bool loop)
{
    struct world w;
    char want[64];
    make_world(&w, uid);
    put_raw(&w);
    w.r.loop = loop;
    start(&w);
    check_view(&w);
    /* a file on tmpfs cannot back erofs by itself */
    struct statfs fs;
    bool memory = statfs(w.r.dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
    if (memory && strcmp(mounted, "erofs") == 0)
        mounted = "erofs-loop";
    snprintf(want, sizeof(want), "\"mounted\":\"%s\"", mounted);
    assert_non_null(strstr(w.r.receipt, want));
    works(&w, "unchanged");
    /* the host's root and the image's in turn, in one launcher */
    for (int i = 0; i < 3; i++) {
        memcpy(w.r.plan.image, "host", 5);
        assert_true(rig_launch(&w.r));
        assert_int_equal(rig_sh(&w.r, "test ! -e /usr/share/marker && test -x /usr/bin/env", NULL),
                         0);
        assert_non_null(strstr(w.r.receipt, "\"image\":{\"id\":\"host\""));
        assert_string_equal(w.r.image, "host");
        rig_exit(&w.r, 0);
        memcpy(w.r.plan.image, w.id, sizeof(w.id));
        works(&w, "unchanged");
    }
    rig_close(&w.r);
}

static void test_root(void **state)
{
    (void)state;
    rig_need_root();
    check_both(0, "erofs", false);
}

static void test_user(void **state)
{
    (void)state;
    rig_need_root();
    check_both(RIG_USER, "tree", false);
}

/* Loop devices that a file of this rig is on. */
static unsigned loops_of(const char *dir)
{
    unsigned n = 0;
    DIR *d = opendir("/sys/block");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512], text[512] = "";
        snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", e->d_name);
        BR_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t k = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
        n += k > 0 && strncmp(text, dir, strlen(dir)) == 0;
    }
    closedir(d);
    return n;
}

static void test_loop(void **state)
{
    struct world w;
    char dir[64];
    (void)state;
    rig_need_root();
    check_both(0, "erofs-loop", true);
    make_world(&w, 0);
    put_raw(&w);
    w.r.loop = true;
    start(&w);
    works(&w, "unchanged");
    memcpy(dir, w.r.dir, sizeof(dir));
    assert_int_equal(loops_of(dir), 1);
    rig_close(&w.r);
    for (int i = 0; i < 2000 && loops_of(dir); i++)
        usleep(1000); /* the kernel lets go of it when the last mount is gone, a little later */
    assert_int_equal(loops_of(dir), 0);
}

/* ---- hostile images ---- */

static void check_hostile(uid_t uid)
{
    struct world w;
    const char *out;
    char path[256], link[64];
    make_world(&w, uid);
    shell(0, "mkdir %s/victim; echo untouched >%s/victim/file; chmod -R a+rwX %s/victim", w.r.dir,
          w.r.dir, w.r.dir);
    /* everything that a sandbox has of its own is a link to somewhere else, or a file */
    shell(uid,
          "cd %s; rm -r etc; mkdir etc; V=%s/victim; "
          "ln -s $V dev; ln -s /etc proc; ln -s $V tmp; ln -s / workspace; ln -s $V home; "
          "ln -s /usr sys; ln -s $V run; ln -s $V var; echo x >.bridle-init; "
          "ln -s $V/file etc/passwd; ln -s $V/file etc/hosts; mkdir etc/resolv.conf; "
          "ln -s ../../../../../../..$V etc/up; ln -s / usr/root",
          w.src, w.r.dir);
    put_raw(&w);
    start(&w);
    snprintf(path, sizeof(path), "%s/dev", w.src);
    assert_true(readlink(path, link, sizeof(link)) > 0); /* it is what the test says it is */
    assert_true(rig_launch(&w.r));
    assert_int_equal(
        rig_sh(&w.r,
               "test ! -h /dev && test ! -h /proc && test ! -h /tmp && test ! -h /workspace && "
               "test ! -h /home && test ! -h /sys && test ! -h /run && test ! -h /etc/passwd && "
               "test -f /etc/resolv.conf && test -c /dev/null && test -d /proc/self",
               &out),
        0);
    assert_int_equal(
        rig_sh(&w.r, "head -n 1 /etc/passwd; readlink /dev/shm; readlink /dev/fd", &out), 0);
    assert_string_equal(out, "root:x:0:0:root:/:/usr/sbin/nologin\n/tmp\n/proc/self/fd\n");
    assert_int_equal(rig_sh(&w.r, "echo x >/tmp/f; echo x >/home/agent/f; echo x >/dev/null", &out),
                     0);
    /* links of the image lead to nothing of the host's */
    assert_int_not_equal(rig_sh(&w.r, "cat /etc/up/file", &out), 0);
    assert_int_not_equal(rig_sh(&w.r, "ls /usr/root/root", &out), 0);
    rig_exit(&w.r, 0);
    shell(0, "test \"$(cat %s/victim/file)\" = untouched; test $(ls %s/victim | wc -l) = 1",
          w.r.dir, w.r.dir);
    rig_close(&w.r);
}

static void test_hostile(void **state)
{
    (void)state;
    rig_need_root();
    check_hostile(0);
    check_hostile(RIG_USER);
}

/* Without a shell, and for another machine: the launch works, and the command says why not. */
static void test_not_runnable(void **state)
{
    struct world w;
    (void)state;
    rig_need_root();
    make_world(&w, 0);
    shell(0, "rm -r %s/bin; mkdir %s/bin", w.src, w.src);
    put_raw(&w);
    start(&w);
    assert_true(rig_launch(&w.r));
    assert_int_equal(rig_sh(&w.r, "true", NULL), 127);
    rig_exit(&w.r, 0);
    rig_close(&w.r);
    make_world(&w, 0);
    /* the machine of an ELF header: 183 is aarch64 */
    shell(0,
          "cd %s/bin; rm sh; cp busybox sh; printf '\\267' | dd of=sh bs=1 seek=18 conv=notrunc "
          "status=none",
          w.src);
    put_raw(&w);
    start(&w);
    assert_true(rig_launch(&w.r));
    assert_int_equal(rig_sh(&w.r, "true", NULL), 127);
    rig_exit(&w.r, 0);
    rig_close(&w.r);
}

/* ---- a store that was changed ---- */

static void check_changed(uid_t uid)
{
    struct world w;
    const char *i;
    open_world(&w, uid);
    i = w.images;
    works(&w, "unchanged");
    /* a byte, with the times as they were */
    shell(0,
          "cd %s; F=$(ls *.erofs); cp -p $F ../copy; printf X | dd of=$F bs=1 seek=5000 "
          "conv=notrunc status=none; touch -r ../copy $F",
          i);
    refuses(&w, BR_E_INVALID_IMAGE, "its bytes were changed");
    refuses(&w, BR_E_INVALID_IMAGE, "its bytes were changed");
    /* another file in its place */
    shell(0,
          "cd %s; F=$(ls *.erofs); cp ../copy $F.n; echo x >>$F.n; chmod 400 $F.n; "
          "chown %u:%u $F.n; mv -f $F.n $F",
          i, uid, uid);
    refuses(&w, BR_E_INVALID_IMAGE, "its bytes were changed");
    shell(0, "cd %s; truncate -s 4096 $(ls *.erofs)", i);
    refuses(&w, BR_E_INVALID_IMAGE, "its bytes were changed");
    /* the right bytes in another file are the image */
    shell(0, "cd %s; F=$(ls *.erofs); cp -p ../copy $F.n; chown %u:%u $F.n; mv -f $F.n $F", i, uid,
          uid);
    works(&w, "hashed");
    shell(0, "cd %s; F=$(ls *.erofs); mv $F ../away; ln -s ../away $F", i);
    refuses(&w, BR_E_INVALID_IMAGE, "a symbolic link is in the place of its file");
    shell(0, "cd %s; rm *.erofs", i);
    refuses(&w, BR_E_INVALID_IMAGE, "its file is missing");
    shell(0, "cd %s; F=$(ls *.index); F=${F%%.index}.erofs; mkfifo $F", i);
    refuses(&w, BR_E_INVALID_IMAGE, "something else is in the place of its file");
    shell(0, "cd %s; F=$(ls *.erofs); rm $F; cp -p ../away $F; chown 60999 $F", i);
    refuses(&w, BR_E_INVALID_IMAGE,
            uid ? "its file cannot be opened" : "belongs to somebody else or can be written to");
    shell(0, "cd %s; F=$(ls *.erofs); chown %u $F; chmod 600 $F", i, uid);
    refuses(&w, BR_E_INVALID_IMAGE, "belongs to somebody else or can be written to");
    shell(0, "chmod 400 %s/*.erofs", i);
    works(&w, "hashed");
    /* the index */
    shell(0,
          "cd %s; F=$(ls *.index); cp -p $F ../index; sed -i 's/^bytes 0/bytes 1/' $F; "
          "chown %u $F",
          i, uid);
    refuses(&w, BR_E_INVALID_IMAGE, "the index of image");
    shell(0, "cd %s; F=$(ls *.index); cp -p ../index $F; chmod 666 $F", i);
    refuses(&w, BR_E_INVALID_IMAGE, "the index of image");
    shell(0, "cd %s; F=$(ls *.index); rm $F; ln -s ../index $F", i);
    refuses(&w, BR_E_INVALID_IMAGE, "the index of image");
    shell(0, "cd %s; F=$(ls *.index); mv ../index $F", i);
    works(&w, "hashed");
    /* the store */
    shell(0, "chmod 770 %s", i);
    refuses(&w, BR_E_INVALID_IMAGE, "can be written to by others");
    shell(0, "chmod 702 %s", i);
    refuses(&w, BR_E_INVALID_IMAGE, "can be written to by others");
    shell(0, "chmod 700 %s; chown 60999 %s", i, i);
    refuses(&w, BR_E_INVALID_IMAGE, uid ? "not a directory that can be opened" : "belongs to uid");
    shell(0, "chown %u %s; chmod 720 %s", uid, i, w.state);
    refuses(&w, BR_E_INVALID_IMAGE, "the state directory can be written to by others");
    shell(0, "chmod 700 %s; mv %s %s.real; ln -s images.real %s", w.state, i, i, i);
    refuses(&w, BR_E_INVALID_IMAGE, "is not a directory that can be opened");
    shell(0, "rm %s; mv %s.real %s", i, i, i);
    works(&w, "hashed");
    rig_close(&w.r);
}

static void test_changed(void **state)
{
    (void)state;
    rig_need_root();
    check_changed(0);
    check_changed(RIG_USER);
}

/* What an ordinary user's sandbox really runs in. */
static void test_changed_tree(void **state)
{
    struct world w;
    (void)state;
    rig_need_root();
    open_world(&w, RIG_USER);
    works(&w, "unchanged");
    shell(0,
          "cd %s/*.tree; cp -p usr/share/marker /%s/m; echo changed >usr/share/marker; "
          "touch -r /%s/m usr/share/marker",
          w.images, w.state, w.state);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked files were changed");
    shell(0, "cd %s/*.tree; cp -p /%s/m usr/share/marker; touch bin/new", w.images, w.state);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked files were changed");
    shell(0, "cd %s/*.tree; rm bin/new", w.images);
    works(&w, "hashed");
    shell(0, "cd %s/*.tree; chmod u+s bin/busybox", w.images);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked files were changed");
    shell(0, "cd %s/*.tree; chmod u-s bin/busybox; rm bin/id; ln -s cat bin/id", w.images);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked files were changed");
    shell(0, "cd %s/*.tree; rm bin/id; ln bin/busybox bin/id; mv usr/share usr/other", w.images);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked files were changed");
    shell(0, "cd %s/*.tree; mv usr/other usr/share", w.images);
    works(&w, "hashed");
    shell(0, "cd %s; chmod 777 *.tree", w.images);
    refuses(&w, BR_E_INVALID_IMAGE, "can be written to by others");
    shell(0, "cd %s; chmod 755 *.tree; mv *.tree gone", w.images);
    refuses(&w, BR_E_INVALID_IMAGE, "its unpacked directory is missing");
    rig_close(&w.r);
}

static void test_unknown(void **state)
{
    struct world w;
    (void)state;
    rig_need_root();
    open_world(&w, 0);
    memset(w.r.plan.image + 7, 'a', 64);
    refuses(&w, BR_E_NOT_FOUND, "there is no image");
    memcpy(w.r.plan.image, "raw", 4); /* a plan holds ids only */
    refuses(&w, BR_E_INVALID_IMAGE, "is not the id of an image");
    memcpy(w.r.plan.image, w.id, sizeof(w.id));
    works(&w, "unchanged");
    rig_close(&w.r);
    /* nobody said where the store is */
    make_world(&w, 0);
    put_raw(&w);
    rig_start(&w.r);
    memcpy(w.r.plan.image, w.id, sizeof(w.id));
    refuses(&w, BR_E_NOT_FOUND, "there is no store of images");
    rig_close(&w.r);
}

/* The calls that make the root of an image fail: refused, and never the host's root instead. */
static void test_faults(void **state)
{
    static const struct {
        const char *call;
        int first; /* what the host's root needs before it */
    } calls[] = {{"FSOPEN", 2},      {"FSCONFIG", 5},       {"FSMOUNT", 2},
                 {"MOVE_MOUNT", 12}, {"MOUNT_SETATTR", 12}, {"OPEN_TREE", 12}};
    struct world w;
    (void)state;
    rig_need_root();
    for (unsigned i = 0; i < BR_ARRAY_LEN(calls); i++) {
        unsigned refused = 0;
        bool through = false;
        for (int n = calls[i].first; !through; n += n < calls[i].first + 3 ? 1 : 4) {
            char fault[64];
            make_world(&w, 0);
            put_raw(&w);
            snprintf(fault, sizeof(fault), "%s:%d:%d", calls[i].call, n, EPERM);
            w.r.fault = fault;
            start(&w);
            through = rig_launch_at(&w.r, -1);
            if (through) {
                assert_int_equal(rig_sh(&w.r, "cat /usr/share/marker >/dev/null", NULL), 0);
                rig_exit(&w.r, 0);
            } else {
                assert_true(w.r.code > 0 && w.r.text[0]);
                assert_int_equal(rig_children(w.r.pid), 0);
                assert_int_equal(rig_cgroups(w.r.pid), 0);
                refused++;
            }
            rig_close(&w.r);
        }
        assert_true(refused >= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root),         cmocka_unit_test(test_user),
        cmocka_unit_test(test_loop),         cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_not_runnable), cmocka_unit_test(test_changed),
        cmocka_unit_test(test_changed_tree), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
