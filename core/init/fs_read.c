/*
 * FS_READ and FS_LIST. Results are bounded and say when they were cut; nothing is written. Called
 * by serve.c after the grant was checked; trusts neither the arguments nor the tree.
 */
#include <fcntl.h>
#include <sodium/utils.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

/* Text unless a reader of JSON could not take it for text: NUL, or not UTF-8. */
static bool is_text(const struct br_buf *b)
{
    return br_utf8_valid(b->data, b->len) && !(b->len && memchr(b->data, 0, b->len));
}

static void put_base64(struct br_buf *out, const uint8_t *p, size_t n)
{
    size_t cap = sodium_base64_encoded_len(n, sodium_base64_VARIANT_ORIGINAL);
    BR_CLEANUP_FREE char *text = malloc(cap);
    if (!text) {
        out->failed = true;
        return;
    }
    sodium_bin2base64(text, cap, p, n, sodium_base64_VARIANT_ORIGINAL);
    br_buf_printf(out, "\"%s\"", text);
}

/* One try with at most `max` bytes of content. */
static void put_content(struct br_buf *out, const char *path, const struct br_buf *content,
                        size_t max, uint64_t offset, uint64_t size)
{
    struct br_buf part = {.data = content->data, .len = content->len, .max = content->len};
    if (part.len > max)
        part.len = max;
    bool cut = offset + part.len < size;
    size_t whole = cut ? br_utf8_floor(part.data, part.len) : part.len;
    struct br_buf text = part;
    text.len = whole;
    bool utf8 = is_text(&text);
    if (utf8)
        part.len = whole;
    br_buf_printf(out, "{\"path\":");
    br_buf_put_json_str(out, path, strlen(path));
    br_buf_printf(out, ",\"content\":");
    if (utf8)
        br_buf_put_json_str(out, (const char *)part.data, part.len);
    else
        put_base64(out, part.data, part.len);
    br_buf_printf(out, ",\"bytes\":%zu,\"size\":%llu,\"truncated\":%s,\"encoding\":\"%s\"",
                  part.len, (unsigned long long)size, cut ? "true" : "false",
                  utf8 ? "utf-8" : "base64");
    if (cut)
        br_buf_printf(out, ",\"nextOffset\":%llu", (unsigned long long)offset + part.len);
    br_buf_put_u8(out, '}');
}

int br_init_fs_read(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                    struct br_err *err)
{
    struct stat st;
    BR_CLEANUP_FD int fd = br_init_open_file(in, call->path, "it was not read", &st, err);
    if (fd < 0)
        return fd;
    uint64_t size = (uint64_t)st.st_size, offset = call->offset < size ? call->offset : size;
    size_t max = call->limit && call->limit < BR_INIT_READ_MAX ? call->limit : BR_INIT_READ_MAX;
    BR_CLEANUP_BUF struct br_buf content = BR_BUF_INIT(BR_INIT_READ_MAX);
    if (br_init_pread(fd, offset, max, &content) < 0)
        return br_init_path_err(in, call->path, "it was not read", err);
    if (content.len < max && offset + content.len < size)
        size = offset + content.len; /* it became shorter meanwhile */
    for (; max; max /= 2) {          /* escapes may make it too large: show less, and say so */
        put_content(out, call->path, &content, max, offset, size);
        if (!out->failed)
            return 0;
        br_buf_reset(out);
    }
    return br_err_set(err, BR_E_LIMIT_EXCEEDED, "the result does not fit; it was not read");
}

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "other";
}

int br_init_fs_list(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                    struct br_err *err)
{
    int fd = br_init_path_open(in, call->path, true, O_RDONLY | O_DIRECTORY | O_NONBLOCK,
                               "it was not listed", err);
    if (fd < 0)
        return fd;
    BR_CLEANUP_WALK struct br_walk w = {.top = -1};
    int r = br_walk_open(&w, fd, call->flag != 0, err);
    if (r < 0)
        return r;
    uint64_t max = call->limit ? call->limit : BR_INIT_LIST_DEFAULT;
    if (max > BR_INIT_LIST_MAX)
        max = BR_INIT_LIST_MAX;
    br_buf_printf(out, "{\"path\":");
    br_buf_put_json_str(out, call->path, strlen(call->path));
    br_buf_printf(out, ",\"entries\":[");
    struct br_walk_entry e;
    const char *comma = "";
    for (uint64_t n = 0; br_walk_next(&w, &e); n++) {
        size_t before = out->len;
        br_buf_printf(out, "%s{\"name\":", comma);
        br_buf_put_json_str(out, e.path, strlen(e.path));
        br_buf_printf(out, ",\"type\":\"%s\",\"size\":%llu}", type_name(e.st.st_mode),
                      (unsigned long long)(S_ISREG(e.st.st_mode) ? e.st.st_size : 0));
        if (n == max || out->failed || out->len + 64 > out->max) {
            out->len = before;
            out->failed = false;
            w.truncated = true;
            break;
        }
        comma = ",";
    }
    br_buf_printf(out, "],\"truncated\":%s}", w.truncated ? "true" : "false");
    return 0;
}
