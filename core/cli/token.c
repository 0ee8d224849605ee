/*
 * bridle token: who may speak to the service from elsewhere. STATE/tokens has one line for each,
 * 'NAME ACCESS sha256:HEX'; a token itself is printed once, where it is made, and kept nowhere. The
 * file is written anew and renamed, under a lock, so that a service that reads it sees all of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "wire/service.h"

#define TOKENS "tokens"
#define TOKENS_NEW "tokens.new"
#define TOKENS_LOCK "tokens.lock"
#define TOKENS_BYTES_MAX (64u * 1024)
#define TOKEN_BYTES 32u
#define TOKEN_DIGITS (2 * TOKEN_BYTES)

static const char *const access_names[] = {"none", "observe", "answer", "operate"};

struct row {
    char name[64];
    enum br_access access;
};

struct tokens {
    char path[BR_PATH_MAX + 16]; /* of the file, for messages */
    int dir, lock;
    struct br_buf text; /* as it is; its lines are kept as they are */
    struct row rows[BR_TOKENS_MAX];
    unsigned n;
};

static enum br_access access_of(const char *word)
{
    for (unsigned i = BR_ACCESS_OBSERVE; i < BR_ARRAY_LEN(access_names); i++)
        if (strcmp(word, access_names[i]) == 0)
            return (enum br_access)i;
    return BR_ACCESS_NONE;
}

/* The line that begins at 'p': 1 and *w a token, 0 nothing, -1 it is not understood. */
static int read_line(const char *p, size_t n, struct row *w)
{
    char line[256], access[16], hash[80], more;
    if (strspn(p, " \t") == n || p[strspn(p, " \t")] == '#')
        return 0;
    if (n >= sizeof(line))
        return -1;
    memcpy(line, p, n);
    line[n] = 0;
    if (sscanf(line, " %63s %15s %79s %c", w->name, access, hash, &more) != 3 ||
        strncmp(hash, "sha256:", 7) != 0 || strlen(hash) != 7 + 64 ||
        strspn(hash + 7, "0123456789abcdef") != 64 || !br_is_kebab(w->name, sizeof(w->name) - 1))
        return -1;
    w->access = access_of(access);
    return w->access == BR_ACCESS_NONE ? -1 : 1;
}

static int wrong(struct br_err *err, const struct tokens *t, const char *why)
{
    return br_err_set(err, BR_E_INVALID_CONFIG, "the tokens in '%s': %s; nothing was changed",
                      t->path, why);
}

static int read_rows(struct tokens *t, struct br_err *err)
{
    const char *p = br_buf_cstr(&t->text);
    unsigned number = 0;
    char why[96];
    if (!p || strlen(p) != t->text.len)
        return wrong(err, t, "they hold a NUL");
    while (*p) {
        size_t n = strcspn(p, "\n");
        number++;
        struct row w;
        int r = read_line(p, n, &w);
        snprintf(why, sizeof(why), "line %u is no NAME ACCESS sha256:HEX", number);
        if (r < 0)
            return wrong(err, t, why);
        if (r > 0 && t->n == BR_TOKENS_MAX)
            return wrong(err, t, "there are more than 64");
        if (r > 0)
            t->rows[t->n++] = w;
        p += n + (p[n] == '\n');
    }
    return 0;
}

static int read_file(struct tokens *t, struct br_err *err)
{
    struct stat st;
    BR_CLEANUP_FD int fd =
        openat(t->dir, TOKENS, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    br_buf_init(&t->text, TOKENS_BYTES_MAX);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return wrong(err, t, errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return wrong(err, t, "it is not a file that only you can read ('chmod 600' it)");
    int r = br_read_all(fd, &t->text, t->path, err);
    return r < 0 ? r : read_rows(t, err);
}

/* For a change, the lock is held until tokens_end(). */
static int tokens_begin(struct tokens *t, bool change, struct br_err *err)
{
    char state[BR_PATH_MAX];
    *t = (struct tokens){.dir = -1, .lock = -1};
    int r = br_state_path(state, getenv, err);
    if (r < 0)
        return r;
    snprintf(t->path, sizeof(t->path), "%s/" TOKENS, state);
    t->dir = br_state_open(state, err);
    if (t->dir < 0)
        return t->dir;
    if (change) {
        t->lock =
            openat(t->dir, TOKENS_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
        if (t->lock < 0 || flock(t->lock, LOCK_EX) < 0)
            return br_err_errno(err, BR_E_IO, "'%s' could not be locked; nothing was changed",
                                t->path);
    }
    return read_file(t, err);
}

static void tokens_end(struct tokens *t)
{
    br_buf_free(&t->text);
    br_close(&t->lock);
    br_close(&t->dir);
}

/* Everything in 'text' becomes the file, or nothing does. */
static int replace_file(struct tokens *t, const struct br_buf *text, struct br_err *err)
{
    (void)unlinkat(t->dir, TOKENS_NEW, 0); /* of one that was ended in the middle */
    BR_CLEANUP_FD int fd =
        openat(t->dir, TOKENS_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = text->failed ? -ENOMEM : fd < 0 ? -errno : br_write_all(fd, text->data, text->len);
    if (r == 0 &&
        (fsync(fd) < 0 || renameat(t->dir, TOKENS_NEW, t->dir, TOKENS) < 0 || fsync(t->dir) < 0))
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlinkat(t->dir, TOKENS_NEW, 0);
    errno = -r;
    return br_err_errno(err, BR_E_IO, "'%s' could not be written; nothing was changed", t->path);
}

static const struct row *find(const struct tokens *t, const char *name)
{
    for (unsigned i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    return NULL;
}

/* ---- add ---- */

static void make_token(char digits[TOKEN_DIGITS + 1], char hash[65])
{
    uint8_t raw[TOKEN_BYTES], sum[32];
    struct br_sha256 s;
    br_random(raw, sizeof(raw));
    br_hex(digits, raw, sizeof(raw));
    br_sha256_init(&s);
    br_sha256_put(&s, digits, TOKEN_DIGITS);
    br_sha256_end(&s, sum);
    br_hex(hash, sum, sizeof(sum));
    explicit_bzero(raw, sizeof(raw));
    explicit_bzero(&s, sizeof(s));
}

static int add(struct tokens *t, const char *name, enum br_access access, bool json,
               struct br_err *err)
{
    char digits[TOKEN_DIGITS + 1], hash[65];
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(TOKENS_BYTES_MAX);
    if (find(t, name))
        return br_err_set(
            err, BR_E_IN_USE,
            "there is a token '%s' already; nothing was changed. Remove it first with "
            "'bridle token remove %s'",
            name, name);
    if (t->n == BR_TOKENS_MAX)
        return br_err_set(err, BR_E_LIMIT_EXCEEDED,
                          "there are %u tokens, and no more than that can be; nothing was changed. "
                          "Remove one first with 'bridle token remove NAME'",
                          t->n);
    make_token(digits, hash);
    br_buf_put(&text, t->text.data, t->text.len);
    if (t->text.len && t->text.data[t->text.len - 1] != '\n')
        br_buf_put_u8(&text, '\n');
    br_buf_printf(&text, "%s %s sha256:%s\n", name, access_names[access], hash);
    int r = replace_file(t, &text, err);
    if (r == 0 && json)
        printf("{\"name\":\"%s\",\"access\":\"%s\",\"token\":\"%s\"}\n", name, access_names[access],
               digits);
    else if (r == 0)
        printf("%s\n", digits);
    explicit_bzero(digits, sizeof(digits));
    if (r == 0 && !json)
        fprintf(stderr,
                "bridle: this is the only time that the token '%s' is shown. A service that runs "
                "takes it with SIGHUP or 'bridle policy reload'\n",
                name);
    return r;
}

/* ---- remove, list ---- */

static int remove_one(struct tokens *t, const char *name, struct br_err *err)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(TOKENS_BYTES_MAX);
    if (!find(t, name))
        return br_err_set(err, BR_E_NOT_FOUND,
                          "there is no token '%.64s'; nothing was changed. 'bridle token list' "
                          "shows those that there are",
                          name);
    for (const char *p = (const char *)t->text.data; *p;) {
        size_t n = strcspn(p, "\n"), all = n + (p[n] == '\n');
        struct row w;
        if (read_line(p, n, &w) != 1 || strcmp(w.name, name) != 0)
            br_buf_put(&text, p, all);
        p += all;
    }
    int r = replace_file(t, &text, err);
    if (r == 0)
        fprintf(stderr,
                "bridle: the token '%s' is removed. A service that runs knows it until SIGHUP or "
                "'bridle policy reload'\n",
                name);
    return r;
}

static void list(const struct tokens *t, bool json)
{
    if (json)
        printf("[");
    for (unsigned i = 0; i < t->n; i++) {
        const char *access = access_names[t->rows[i].access];
        if (json)
            printf("%s{\"name\":\"%s\",\"access\":\"%s\"}", i ? ",\n" : "", t->rows[i].name,
                   access);
        else
            printf("%-32s %s\n", t->rows[i].name, access);
    }
    if (json)
        printf("]\n");
    else if (!t->n)
        fprintf(stderr, "bridle: there is no token; 'bridle token add NAME' makes one\n");
}

/* ---- the verb ---- */

enum action { ADD, LIST, REMOVE };

static int what_is_asked(const struct br_cli_args *a, enum action *action, enum br_access *access,
                         struct br_err *err)
{
    static const char *const names[] = {"add", "list", "remove"};
    const char *word = a->operands[0], *name = a->noperands > 1 ? a->operands[1] : NULL,
               *given = br_cli_opt(a, "access");
    unsigned i = 0;
    while (i < BR_ARRAY_LEN(names) && strcmp(word, names[i]) != 0)
        i++;
    if (i == BR_ARRAY_LEN(names))
        return br_err_set(err, BR_E_USAGE,
                          "'%.80s' is no action of 'bridle token'; add, list and remove are", word);
    *action = (enum action)i;
    *access = access_of(given ? given : "operate");
    if ((name != NULL) != (*action != LIST))
        return br_err_set(err, BR_E_USAGE, "'bridle token %s' takes %s", word,
                          *action == LIST ? "no name" : "the name of a token");
    if (given && *action != ADD)
        return br_err_set(err, BR_E_USAGE, "--access is of 'bridle token add'");
    if (*access == BR_ACCESS_NONE)
        return br_err_set(
            err, BR_E_USAGE,
            "'%.40s' is no access; observe, answer and operate are. No token was made", given);
    if (*action == ADD && !br_is_kebab(name, 63))
        return br_err_set(err, BR_E_USAGE,
                          "'%.80s' is no name of a token, which is lower-case letters, digits and "
                          "single dashes, at most 63. No token was made",
                          name);
    return 0;
}

int br_cli_token(const struct br_cli_args *a)
{
    struct br_err err = {.code = BR_OK};
    struct tokens t;
    enum action action;
    enum br_access access;
    bool json = br_cli_opt(a, "json") != NULL;
    if (what_is_asked(a, &action, &access, &err) < 0)
        return br_cli_fail(&err);
    int r = tokens_begin(&t, action != LIST, &err);
    if (r == 0 && action == ADD)
        r = add(&t, a->operands[1], access, json, &err);
    else if (r == 0 && action == REMOVE)
        r = remove_one(&t, a->operands[1], &err);
    else if (r == 0)
        list(&t, json);
    tokens_end(&t);
    return r < 0 ? br_cli_fail(&err) : br_cli_flush();
}
