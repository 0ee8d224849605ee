/*
 * FS_SEARCH: a literal needle, line by line, in one file or a tree. Linear in the bytes it reads;
 * files, bytes, matches and time are bounded, and the result says what was left out. Called by
 * serve.c after the grant was checked; trusts neither the arguments nor the tree.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init_priv.h"

struct search {
    const uint8_t *needle;
    size_t nneedle;
    bool fold; /* ASCII case does not count */
    uint64_t max, matches;
    uint64_t bytes;
    unsigned files, binary, unread;
    bool truncated;
    struct br_buf *out;
    struct br_buf text, folded; /* reused from file to file */
};

static void fold_ascii(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = p[i] >= 'A' && p[i] <= 'Z' ? (uint8_t)(p[i] + 32) : p[i];
}

/* The part of a line around the match that is shown. */
static void put_line(struct br_buf *out, const uint8_t *line, size_t len, size_t at)
{
    size_t from =
        len > BR_INIT_LINE_MAX && at > BR_INIT_LINE_MAX / 3 ? at - BR_INIT_LINE_MAX / 3 : 0;
    while (from > 0 && from < at && (line[from] & 0xc0) == 0x80)
        from++;
    size_t n = len - from;
    if (n > BR_INIT_LINE_MAX)
        n = br_utf8_floor(line + from, BR_INIT_LINE_MAX);
    br_buf_put_json_str(out, (const char *)line + from, n);
}

/* false when the result is full. */
static bool put_match(struct search *s, const char *path, unsigned line_no, const uint8_t *line,
                      size_t len, size_t at)
{
    struct br_buf *out = s->out;
    size_t before = out->len;
    br_buf_printf(out, "%s{\"path\":", s->matches ? "," : "");
    br_buf_put_json_str(out, path, strlen(path));
    br_buf_printf(out, ",\"line\":%u,\"text\":", line_no);
    put_line(out, line, len, at);
    br_buf_put_u8(out, '}');
    if (s->matches < s->max && !out->failed && out->len + 192 <= out->max) {
        s->matches++;
        return true;
    }
    out->len = before;
    out->failed = false;
    s->truncated = true;
    return false;
}

/* false when the result is full. */
static bool search_text(struct search *s, const char *path)
{
    const uint8_t *text = s->text.data, *hay = s->fold ? s->folded.data : text;
    size_t n = s->text.len;
    unsigned line_no = 1;
    for (size_t line = 0; line < n;) {
        const uint8_t *hit = memmem(hay + line, n - line, s->needle, s->nneedle);
        if (!hit)
            break;
        size_t at = (size_t)(hit - hay);
        const uint8_t *nl;
        while ((nl = memchr(text + line, '\n', at - line))) {
            line = (size_t)(nl - text) + 1;
            line_no++;
        }
        nl = memchr(text + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - text) : n;
        size_t len = end - line - (end > line && text[end - 1] == '\r');
        if (!put_match(s, path, line_no, text + line, len, at - line))
            return false;
        line = end + 1;
        line_no++;
    }
    return true;
}

/* Takes fd. false when the search is over. */
static bool search_file(struct search *s, int file, const char *path)
{
    BR_CLEANUP_FD int fd = file;
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        s->unread++;
        s->truncated = true;
        return true;
    }
    br_buf_reset(&s->text);
    if (br_init_pread(fd, 0, BR_INIT_SEARCH_FILE_MAX, &s->text) < 0) {
        s->unread++;
        s->truncated = true;
        return true;
    }
    s->truncated |= st.st_size > (off_t)BR_INIT_SEARCH_FILE_MAX;
    s->bytes += s->text.len;
    if (s->bytes > BR_INIT_SEARCH_BYTES_MAX) {
        s->truncated = true;
        return false;
    }
    if (s->text.len && memchr(s->text.data, 0, s->text.len < 8192 ? s->text.len : 8192)) {
        s->binary++;
        return true;
    }
    s->files++;
    if (!s->fold)
        return search_text(s, path);
    br_buf_reset(&s->folded);
    if (br_buf_put(&s->folded, s->text.data, s->text.len) < 0)
        return false;
    fold_ascii(s->folded.data, s->folded.len);
    return search_text(s, path);
}

static int search_tree(struct search *s, int dirfd, const char *base, struct br_err *err)
{
    BR_CLEANUP_WALK struct br_walk w = {.top = -1};
    int r = br_walk_open(&w, dirfd, true, err);
    if (r < 0)
        return r;
    bool prefix = *base && strcmp(base, ".") != 0, more = true;
    struct br_walk_entry e;
    for (unsigned n = 0; more && br_walk_next(&w, &e); n++) {
        if (n == BR_INIT_WALK_ENTRIES) {
            w.truncated = true;
            break;
        }
        if (!S_ISREG(e.st.st_mode))
            continue;
        char path[2 * BR_PATH_MAX];
        snprintf(path, sizeof(path), "%s%s%s", prefix ? base : "", prefix ? "/" : "", e.path);
        int fd = openat(e.dirfd, e.name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
        more = search_file(s, fd, path);
    }
    s->truncated |= w.truncated;
    return 0;
}

int br_init_fs_search(struct br_init *in, const struct br_init_call *call, struct br_buf *out,
                      struct br_err *err)
{
    const struct br_buf *needle = &call->text;
    if (needle->len == 0 || needle->len > BR_INIT_NEEDLE_MAX ||
        memchr(needle->data, '\n', needle->len) || memchr(needle->data, 0, needle->len))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "the text to search for must be one line of 1 to %u bytes; nothing was "
                          "searched",
                          BR_INIT_NEEDLE_MAX);
    BR_CLEANUP_FD int fd = br_init_path_open(in, call->path, true, O_RDONLY | O_NONBLOCK | O_NOCTTY,
                                             "it was not searched", err);
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)))
        return br_err_set(err, BR_E_INVALID_ARGUMENTS,
                          "%s is neither a file nor a directory; it was not searched",
                          br_init_shown(call->path).text);
    BR_CLEANUP_BUF struct br_buf word = BR_BUF_INIT(BR_INIT_NEEDLE_MAX);
    br_buf_put(&word, needle->data, needle->len);
    struct search s = {.needle = word.data,
                       .nneedle = word.len,
                       .fold = call->flag != 0,
                       .max = call->limit ? call->limit : BR_INIT_MATCHES_DEFAULT,
                       .out = out,
                       .text = BR_BUF_INIT(BR_INIT_SEARCH_FILE_MAX),
                       .folded = BR_BUF_INIT(BR_INIT_SEARCH_FILE_MAX)};
    if (s.max > BR_INIT_MATCHES_MAX)
        s.max = BR_INIT_MATCHES_MAX;
    if (s.fold && word.data)
        fold_ascii(word.data, word.len);
    br_buf_printf(out, "{\"matches\":[");
    int r = 0;
    if (S_ISDIR(st.st_mode))
        r = search_tree(&s, br_steal_fd(&fd), call->path, err);
    else
        search_file(&s, br_steal_fd(&fd), call->path);
    br_buf_printf(out,
                  "],\"filesSearched\":%u,\"binarySkipped\":%u,\"unreadable\":%u,\"truncated\":%s}",
                  s.files, s.binary, s.unread, s.truncated ? "true" : "false");
    br_buf_free(&s.text);
    br_buf_free(&s.folded);
    return r;
}
