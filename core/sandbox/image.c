/*
 * A root made of an image: the image's files, read-only, with what Bridle puts into every root on
 * top, joined by overlayfs without a writable layer. Called by the launcher before a sandbox is
 * made. The image's content is hostile: names of ours always win (a link or a file at "dev" or
 * "etc/passwd" is hidden), and no path is resolved through it. The store belongs to the launcher's
 * user and is checked by core/image.
 *
 * Root mounts the erofs file (directly where the kernel can, else on a loop device); an ordinary
 * user, whom the kernel does not let mount erofs, binds the unpacked tree.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/box_priv.h"
#include "sandbox/image.h"
#include "sandbox/reopen.h"
#include "sandbox/rootfs.h"
#include "sandbox/sys.h"

#define LOOP_TRIES 16 /* somebody else may take the free device first */

bool br_image_force_loop;

void br_image_root_init(struct br_image_root *r)
{
    *r = (struct br_image_root){.root = -1, .at = -1, .stage = -1, .mounted = ""};
}

void br_image_root_close(struct br_image_root *r)
{
    char path[32];
    br_close(&r->root);
    if (r->stage >= 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", r->stage);
        (void)br_sys_umount(path, MNT_DETACH);
    }
    br_close(&r->stage);
    br_mounts_free(&r->mounts);
    r->id[0] = 0;
}

static int missing(struct br_err *err, const char *what)
{
    return br_err_errno(err, BR_E_REQUIREMENT_MISSING,
                        "%s; nothing was started. Use the image 'host', or a kernel that can",
                        what);
}

/* ---- the image's own files ---- */

static int mount_source(const char *source, struct br_err *err)
{
    BR_CLEANUP_FD int fs = br_sys_fsopen("erofs");
    if (fs < 0)
        return missing(err, "this kernel has no erofs (CONFIG_EROFS_FS), which images are made of");
    if (br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", source) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return missing(err, "the image could not be mounted");
    int m = br_sys_fsmount(fs, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return m < 0 ? missing(err, "the image could not be mounted") : m;
}

/* A read-only loop device for the file, which goes with the last mount of it. */
static int open_loop(int file, char path[32], struct br_err *err)
{
    BR_CLEANUP_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config config = {.fd = (unsigned)file,
                                 .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR};
    for (int i = 0; control >= 0 && i < LOOP_TRIES; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            break;
        snprintf(path, 32, "/dev/loop%d", n);
        BR_CLEANUP_FD int dev = open(path, O_RDONLY | O_CLOEXEC);
        if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &config) == 0)
            return br_steal_fd(&dev);
        if (dev >= 0 && errno != EBUSY)
            break;
    }
    return missing(err, "there is no loop device for the image, and this kernel cannot mount a "
                        "file (CONFIG_EROFS_FS_BACKED_BY_FILE)");
}

static int mount_erofs(struct br_image_root *r, int file, bool loop, struct br_err *err)
{
    char path[32];
    if (!loop) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        r->mounted = "erofs";
        return mount_source(path, err);
    }
    BR_CLEANUP_FD int dev = open_loop(file, path, err);
    r->mounted = "erofs-loop";
    return dev < 0 ? dev : mount_source(path, err);
}

static int bind_tree(struct br_image_root *r, int tree, struct br_err *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                              .propagation = MS_PRIVATE};
    BR_CLEANUP_FD int here =
        br_reopen_here(tree, O_PATH | O_DIRECTORY, "the directory of the image", err);
    if (here < 0)
        return here;
    BR_CLEANUP_FD int m = br_sys_open_tree(here, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
    if (m < 0 || br_sys_mount_setattr(m, "", AT_EMPTY_PATH, &attr) < 0)
        return missing(err, "the directory of the image could not be mounted");
    r->mounted = "tree";
    return br_steal_fd(&m);
}

/* ---- the root ---- */

/* overlayfs of stage/top over stage/image, attached at stage/root. */
static int join(int stage, struct br_err *err)
{
    char lower[96];
    BR_CLEANUP_FD int top = br_open_beneath(stage, "top", O_PATH | O_DIRECTORY, 0);
    BR_CLEANUP_FD int image = openat(stage, "image", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    BR_CLEANUP_FD int fs = br_sys_fsopen("overlay");
    if (fs < 0)
        return missing(err, "this kernel has no overlayfs (CONFIG_OVERLAY_FS)");
    if (top < 0 || image < 0)
        return missing(err, "the root of an image could not be made");
    snprintf(lower, sizeof(lower), "/proc/self/fd/%d:/proc/self/fd/%d", top, image);
    if (br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", "bridle") < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower) < 0 ||
        br_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL) < 0)
        return missing(err,
                       "the image could not be joined with what every sandbox has (overlayfs)");
    BR_CLEANUP_FD int m =
        br_sys_fsmount(fs, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (m < 0 || br_sys_move_mount(m, "", stage, "root", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return missing(err, "the root of an image could not be attached");
    return br_steal_fd(&m);
}

static int make_stage(int at, struct br_err *err)
{
    static const char *const dirs[] = {"top", "image", "root"};
    BR_CLEANUP_FD int stage = br_rootfs_tmpfs(err);
    if (stage < 0)
        return stage;
    if (br_sys_move_mount(stage, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return missing(err, "the root of an image could not be attached");
    for (unsigned i = 0; i < BR_ARRAY_LEN(dirs); i++)
        if (mkdirat(stage, dirs[i], 0755) < 0)
            return missing(err, "the root of an image could not be made");
    return br_steal_fd(&stage);
}

/* `image` is a detached mount of the image's files. */
static int build(struct br_image_root *r, int image, int init, struct br_err *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    r->stage = make_stage(r->at, err);
    if (r->stage < 0)
        return r->stage;
    BR_CLEANUP_FD int top = br_open_beneath(r->stage, "top", O_RDONLY | O_DIRECTORY, 0);
    if (top < 0 || br_sys_move_mount(image, "", r->stage, "image", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return missing(err, "the root of an image could not be attached");
    int k = br_rootfs_fill(top, err);
    if (k < 0)
        return k;
    r->root = join(r->stage, err);
    if (r->root < 0)
        return r->root;
    k = br_rootfs_bind(r->root, init, err);
    if (k == 0 && br_sys_mount_setattr(r->stage, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        k = missing(err, "the root of an image could not be made read-only");
    return k;
}

/* Directly first; on a loop device where the kernel cannot, or cannot stack that many file systems
 * (a store that lies on an overlay itself). */
static int make_root(struct br_image_root *r, int file, int tree, bool as_root, int init,
                     struct br_err *err)
{
    int k = -BR_E_REQUIREMENT_MISSING;
    for (int loop = br_image_force_loop; k < 0 && loop < 2; loop++) {
        br_image_root_close(r);
        BR_CLEANUP_FD int image =
            as_root ? mount_erofs(r, file, loop, err) : bind_tree(r, tree, err);
        k = image < 0 ? image : build(r, image, init, err);
        if (!as_root)
            break;
    }
    return k;
}

/* What every sandbox has, joined with nothing: no program but pid 1's. */
static int use_none(struct br_image_root *r, int init_fd, struct br_err *err)
{
    if (strcmp(r->id, BR_IMAGE_NONE) == 0)
        return 0;
    br_image_root_close(r);
    BR_CLEANUP_FD int init = br_reopen_here(init_fd, O_PATH, "bridle-init", err);
    BR_CLEANUP_FD int empty = init < 0 ? init : br_rootfs_tmpfs(err);
    int k = empty < 0 ? empty : build(r, empty, init, err);
    if (k == 0)
        k = br_measure_root(&r->mounts, BR_STAGE_POINT "/root", true, err);
    if (k < 0) {
        br_image_root_close(r);
        return k;
    }
    r->mounted = "empty";
    r->made++;
    memcpy(r->id, BR_IMAGE_NONE, sizeof(BR_IMAGE_NONE));
    return 0;
}

int br_image_root_use(struct br_image_root *r, const char *id, int state_fd, bool as_root,
                      int init_fd, struct br_err *err)
{
    if (strcmp(id, BR_IMAGE_NONE) == 0)
        return use_none(r, init_fd, err);
    struct br_image_store store;
    struct br_image img;
    BR_CLEANUP_FD int file = -1;
    BR_CLEANUP_FD int tree = -1;
    int k = br_image_store_open(state_fd, false, &store, err);
    if (k == 0)
        k = br_image_verify(&store, id, false, NULL, &img, &file, &tree, &r->how, err);
    br_image_store_close(&store);
    if (k == 0 && !as_root && tree < 0)
        k = br_err_set(err, BR_E_INVALID_IMAGE,
                       "the image '%s' has no unpacked directory, which an ordinary user needs; "
                       "nothing was started. Import it again as this user",
                       id);
    /* the same image, and the mounted file is the one that was found now */
    if (k == 0 && strcmp(r->id, id) == 0 && br_image_stamp_equal(&r->file, &img.file))
        return 0;
    BR_CLEANUP_FD int init = k < 0 ? -1 : br_reopen_here(init_fd, O_PATH, "bridle-init", err);
    if (k == 0)
        k = init < 0 ? init : make_root(r, file, tree, as_root, init, err);
    if (k == 0)
        k = br_measure_root(&r->mounts, BR_STAGE_POINT "/root", true, err);
    if (k < 0) {
        br_image_root_close(r);
        return k;
    }
    r->file = img.file;
    r->made++;
    memcpy(r->id, id, strlen(id) + 1);
    return 0;
}

/* ---- of a host ---- */

int br_host_set_state(struct br_host *h, int state_fd, struct br_err *err)
{
    br_close(&h->state_fd);
    h->state_fd = fcntl(state_fd, F_DUPFD_CLOEXEC, 3);
    return h->state_fd < 0 ? br_err_errno(err, BR_E_INTERNAL, "no descriptor for the state") : 0;
}

int br_host_use_image(struct br_host *h, const char *image, struct br_err *err)
{
    if (strcmp(image, BR_IMAGE_HOST) != 0) {
        int r = br_image_root_use(&h->image, image, h->state_fd, h->uid == 0, h->cfg.init_fd, err);
        if (r < 0)
            return r;
    }
    snprintf(h->image_id, sizeof(h->image_id), "%s", image);
    return 0;
}

static int root_of(const struct br_host *h, const char *image)
{
    if (strcmp(image, BR_IMAGE_HOST) == 0)
        return h->rootfs;
    return strcmp(image, h->image.id) == 0 ? h->image.root : -1;
}

int br_host_root(const struct br_host *h)
{
    return root_of(h, h->image_id);
}

bool br_image_fits(const struct br_box *b, const struct br_plan *plan)
{
    return strcmp(b->image, plan->image) == 0 &&
           (strcmp(b->image, BR_IMAGE_HOST) == 0 || b->image_made == b->host->image.made);
}

int br_image_measure(const struct br_box *b, int proc, struct br_err *err)
{
    struct stat want, got;
    int root = root_of(b->host, b->image);
    if (root < 0 || fstat(root, &want) < 0 || fstatat(proc, "root", &got, 0) < 0 ||
        want.st_dev != got.st_dev || want.st_ino != got.st_ino)
        return br_err_set(err, BR_E_REQUIREMENT_MISSING,
                          "the sandbox was measured and is not what was planned: its root is not "
                          "that of the image '%s'; nothing was started",
                          b->image);
    return 0;
}

void br_image_json(const struct br_box *b, struct br_buf *out)
{
    const struct br_image_root *r = &b->host->image;
    if (strcmp(b->image, BR_IMAGE_HOST) == 0)
        br_buf_printf(out, "{\"id\":\"" BR_IMAGE_HOST
                           "\",\"verified\":\"not\",\"assurance\":\"lower\"}");
    else if (strcmp(b->image, BR_IMAGE_NONE) == 0)
        br_buf_printf(out, "{\"id\":\"" BR_IMAGE_NONE
                           "\",\"verified\":\"empty\",\"mounted\":\"tmpfs\"}");
    else
        br_buf_printf(out, "{\"id\":\"%s\",\"verified\":\"%s\",\"mounted\":\"%s\"}", b->image,
                      br_image_how_name(r->how), r->mounted);
}
