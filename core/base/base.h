/*
 * core/base: what every program of Bridle shares. Errors, cleanup, buffers with bounded getters,
 * secrets, the injectable clock and source of ids, descriptors, logging, and role hardening.
 *
 * Library code reports errors through `struct br_err` and never logs above debug, exits, or reads
 * the environment. Only br_log_*() and br_require() write to stderr.
 */
#ifndef BR_BASE_H
#define BR_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "limits.h"

#define BR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define BR_WARN_UNUSED __attribute__((warn_unused_result))

/* ---- codes -------------------------------------------------------------------------------- */

/*
 * X(name, stable string, exit code). The string is the same on the wire, in JSON, in logs and in
 * the man page; it never changes once released. The exit code is the one of the verb that fails
 * with it (0 ok, 1 failed, 2 usage, 3 not found, 4 denied, 5 invalid input, 6 requirement missing,
 * 7 timeout or budget, 8 audit or redaction).
 */
#define BR_CODES(X)                                                                                \
    X(FAILED, "FAILED", 1)                                                                         \
    X(NOMEM, "OUT_OF_MEMORY", 1)                                                                   \
    X(IO, "IO_ERROR", 1)                                                                           \
    X(PEER_GONE, "PEER_GONE", 1)                                                                   \
    X(PEER_PROTOCOL, "PEER_PROTOCOL", 1)                                                           \
    X(PROGRAM_DIED, "PROGRAM_DIED", 1)                                                             \
    X(CANCELED, "CANCELED", 1)                                                                     \
    X(INTERNAL, "INTERNAL_ERROR", 1)                                                               \
    X(IN_USE, "IN_USE", 1)                                                                         \
    X(USAGE, "USAGE", 2)                                                                           \
    X(NOT_FOUND, "NOT_FOUND", 3)                                                                   \
    X(DENIED, "DENIED", 4)                                                                         \
    X(NO_GRANT, "NO_GRANT", 4)                                                                     \
    X(GRANT_USED, "GRANT_USED", 4)                                                                 \
    X(GRANT_MISMATCH, "GRANT_MISMATCH", 4)                                                         \
    X(INVALID_MANIFEST, "INVALID_MANIFEST", 5)                                                     \
    X(INVALID_POLICY, "INVALID_POLICY", 5)                                                         \
    X(INVALID_CONFIG, "INVALID_CONFIG", 5)                                                         \
    X(INVALID_PROFILE, "INVALID_PROFILE", 5)                                                       \
    X(INVALID_IMAGE, "INVALID_IMAGE", 5)                                                           \
    X(INVALID_FRAME, "INVALID_FRAME", 5)                                                           \
    X(INVALID_JSON, "INVALID_JSON", 5)                                                             \
    X(INVALID_TABLE, "INVALID_DECISION_TABLE", 5)                                                  \
    X(INVALID_WORKSPACE, "INVALID_WORKSPACE", 5)                                                   \
    X(INVALID_ALLOWED_PATH, "INVALID_ALLOWED_PATH", 5)                                             \
    X(INVALID_ARGUMENTS, "INVALID_ARGUMENTS", 5)                                                   \
    X(POLICY_ERROR, "POLICY_ERROR", 5)                                                             \
    X(UNKNOWN_TOOL, "UNKNOWN_TOOL", 5)                                                             \
    X(REQUIREMENT_MISSING, "REQUIREMENT_MISSING", 6)                                               \
    X(TIMEOUT, "TIMEOUT", 7)                                                                       \
    X(BUDGET_EXCEEDED, "BUDGET_EXCEEDED", 7)                                                       \
    X(LIMIT_EXCEEDED, "LIMIT_EXCEEDED", 7)                                                         \
    X(PROVIDER_UNREACHABLE, "PROVIDER_UNREACHABLE", 1)                                             \
    X(PROVIDER_STATUS, "PROVIDER_STATUS", 1)                                                       \
    X(PROVIDER_INVALID, "PROVIDER_INVALID_RESPONSE", 1)                                            \
    X(PROVIDER_TRUNCATED, "PROVIDER_TRUNCATED", 1)                                                 \
    X(LEASE_REFUSED, "PROVIDER_LEASE_REFUSED", 7)                                                  \
    X(REDACTION_FAILED, "EVENT_REDACTION_FAILED", 8)                                               \
    X(EVENT_SCHEMA, "EVENT_SCHEMA_FAILED", 8)                                                      \
    X(STORE_FAILED, "AUDIT_STORE_FAILED", 8)

enum br_code {
    BR_OK = 0,
#define BR_CODE_ENUM_(name, str, ex) BR_E_##name,
    BR_CODES(BR_CODE_ENUM_)
#undef BR_CODE_ENUM_
        BR_CODE_COUNT_
};

/* The stable string of a code; "OK" for 0, "INTERNAL_ERROR" for a number that is not a code. */
const char *br_code_name(int code);
/* The exit code of a code (either sign is accepted); 0 for BR_OK, 1 for an unknown number. */
int br_code_exit(int code);

/* ---- errors ------------------------------------------------------------------------------- */

/*
 * An error that people can act on. `text` names the subject in 'ticks', says what did not happen
 * and, where there is one, the next step. Success never touches it.
 */
struct br_err {
    enum br_code code;
    int os_errno; /* 0 when no system call failed */
    char text[BR_ERR_TEXT_MAX];
};

/* Fill `err` (which may be NULL) and return -code. */
int br_err_set(struct br_err *err, enum br_code code, const char *fmt, ...) BR_PRINTF(3, 4);
/* The same, with ": strerror(errno)" appended and errno kept in os_errno. */
int br_err_errno(struct br_err *err, enum br_code code, const char *fmt, ...) BR_PRINTF(3, 4);
/* Prefix the text with "context: " on the way up; returns -err->code. `err` may be NULL (then
 * -BR_E_FAILED). */
int br_err_wrap(struct br_err *err, const char *fmt, ...) BR_PRINTF(2, 3);

/* ---- assertions --------------------------------------------------------------------------- */

_Noreturn void br_require_failed(const char *expr, const char *file, int line);
/* A programmer's error: always on, aborts. */
#define br_require(expr) ((expr) ? (void)0 : br_require_failed(#expr, __FILE__, __LINE__))
bool br_check_failed(const char *expr, const char *file, int line);
/* A condition that should hold but that the caller must handle: logs and yields false. */
#define br_check(expr) ((expr) ? true : br_check_failed(#expr, __FILE__, __LINE__))

/* ---- cleanup ------------------------------------------------------------------------------ */

void br_cleanup_fd(int *fd);
void br_cleanup_free(void *p); /* p is a pointer to a pointer */
void br_cleanup_file(FILE **f);
#define BR_CLEANUP_FD __attribute__((cleanup(br_cleanup_fd)))
#define BR_CLEANUP_FREE __attribute__((cleanup(br_cleanup_free)))
#define BR_CLEANUP_FILE __attribute__((cleanup(br_cleanup_file)))

/* Hand over ownership: returns the fd and leaves -1 behind. */
static inline int br_steal_fd(int *fd)
{
    int v = *fd;
    *fd = -1;
    return v;
}
/* Hand over ownership: returns the pointer and leaves NULL behind. */
#define br_steal_ptr(pp)                                                                           \
    __extension__({                                                                                \
        __typeof__(*(pp)) br_v_ = *(pp);                                                           \
        *(pp) = NULL;                                                                              \
        br_v_;                                                                                     \
    })

/* Close and set to -1; a negative fd is left alone. errno is kept. */
void br_close(int *fd);

#define BR_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- buffers ------------------------------------------------------------------------------ */

/*
 * A growable byte buffer with a hard maximum. Writers append; a failed append sets `failed`, which
 * is sticky, so that a sequence of puts needs one check at its end. Owned by whoever initialised
 * it; freed with br_buf_free().
 */
struct br_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
};

#define BR_BUF_INIT(max_)                                                                          \
    {                                                                                              \
        .data = NULL, .len = 0, .cap = 0, .max = (max_), .failed = false                           \
    }
void br_buf_init(struct br_buf *b, size_t max);
void br_buf_free(struct br_buf *b);
void br_buf_reset(struct br_buf *b); /* len = 0, failed = false; keeps the memory */
#define BR_CLEANUP_BUF __attribute__((cleanup(br_buf_free)))

int br_buf_put(struct br_buf *b, const void *p, size_t n);
int br_buf_put_u8(struct br_buf *b, uint8_t v);
int br_buf_put_u32(struct br_buf *b, uint32_t v); /* little endian */
int br_buf_put_u64(struct br_buf *b, uint64_t v);
int br_buf_put_str(struct br_buf *b, const char *s); /* u32 length, bytes; NULL counts as "" */
int br_buf_put_lstr(struct br_buf *b, const void *p, size_t n);
int br_buf_printf(struct br_buf *b, const char *fmt, ...) BR_PRINTF(2, 3);
/* Append a JSON string literal, quotes included, of `n` bytes; invalid UTF-8 becomes U+FFFD. */
int br_buf_put_json_str(struct br_buf *b, const char *s, size_t n);
/* NUL-terminate (not counted in len) and return the bytes; NULL after a failure. */
char *br_buf_cstr(struct br_buf *b);

/*
 * A bounded reader over bytes that it does not own. The first short or over-long field makes it
 * `failed`, after which every getter returns zero values; br_rd_done() then reports the error.
 */
struct br_rd {
    const uint8_t *p;
    size_t len;
    size_t off;
    bool failed;
};

void br_rd_init(struct br_rd *r, const void *p, size_t n);
uint8_t br_rd_u8(struct br_rd *r);
uint32_t br_rd_u32(struct br_rd *r);
uint64_t br_rd_u64(struct br_rd *r);
/* A string of at most `max` bytes without NUL inside. Points into the message, NOT terminated;
 * *n receives its length. */
const char *br_rd_lstr(struct br_rd *r, size_t max, size_t *n);
/* The same, any bytes allowed. */
const void *br_rd_bytes(struct br_rd *r, size_t max, size_t *n);
/* Copies into `dst` (cap bytes, terminated); fails if it does not fit or holds NUL. */
void br_rd_str(struct br_rd *r, char *dst, size_t cap);
/* A copy to be freed by the caller, terminated, at most `max` bytes without NUL; NULL on failure.
 */
char *br_rd_strdup(struct br_rd *r, size_t max);
/* 0 if nothing failed and every byte was read, else -BR_E_PEER_PROTOCOL. */
int br_rd_done(const struct br_rd *r);

/* ---- text --------------------------------------------------------------------------------- */

/* True if the n bytes are valid UTF-8 (no surrogates, no overlong forms). NUL is valid. */
bool br_utf8_valid(const void *p, size_t n);
/* The largest k <= n such that the first k bytes do not end inside a UTF-8 sequence. */
size_t br_utf8_floor(const void *p, size_t n);
/* Kebab-case identifier: [a-z0-9]+(-[a-z0-9]+)*, 1..max bytes. */
bool br_is_kebab(const char *s, size_t max);
/* The n bytes as lower-case hex digits, terminated: `dst` needs 2 * n + 1. */
void br_hex(char *dst, const void *p, size_t n);
/*
 * Append `n` bytes as text that is safe on a terminal: control characters (C0 but \n and \t, DEL,
 * C1), bidirectional controls, zero-width characters and invalid UTF-8 become visible escapes
 * (\x1b, \u202e). With `one_line`, \n and \t are escaped as well.
 */
int br_buf_put_visible(struct br_buf *b, const char *s, size_t n, bool one_line);

/*
 * Scan JSON text without parsing it: valid UTF-8, depth and node count within the limits, no NUL
 * escape. Run it before any parser. Errors: -BR_E_INVALID_JSON.
 */
int br_json_scan(const char *s, size_t n, unsigned max_depth, unsigned max_nodes,
                 struct br_err *err);

/*
 * A word of a command that is known only in part, because a shell will expand it: one of these
 * bytes, which no UTF-8 text has, stands for what is not known.
 *   FILE  a part of a file's name: no '/'. The word may become several of the same form.
 *   PART  any bytes, none included, but no end of the word.
 *   ANY   those too, so that the word may become several, or none.
 */
#define BR_UNKNOWN_FILE '\xfd'
#define BR_UNKNOWN_PART '\xfe'
#define BR_UNKNOWN_ANY '\xff'
static inline bool br_is_unknown(char c)
{
    return (unsigned char)c >= 0xfd;
}
static inline bool br_has_mark(const char *word, char mark)
{
    while (*word && *word != mark)
        word++;
    return *word != 0;
}

/*
 * Append the subject of a command: its words, joined by one space. A word made only of
 * [A-Za-z0-9_@%+=:,./-] stays bare; any other, and an empty one, is put in single quotes, a quote
 * inside as '\''. (A shell string, {"/bin/sh", "-c", STRING} marked as one, has STRING itself as
 * its subject.) 0, or -BR_E_LIMIT_EXCEEDED if it does not fit into `out`.
 */
int br_exec_subject(char *const *argv, uint32_t argc, struct br_buf *out);

/* ---- secrets ------------------------------------------------------------------------------ */

/* Bytes that are wiped when freed and that no printf format accepts. */
struct br_secret {
    unsigned char *bytes_;
    size_t len_;
};
int br_secret_set(struct br_secret *s, const void *p, size_t n);
const unsigned char *br_secret_bytes(const struct br_secret *s, size_t *n);
void br_secret_wipe(struct br_secret *s);
#define BR_CLEANUP_SECRET __attribute__((cleanup(br_secret_wipe)))

/* ---- clock and ids ------------------------------------------------------------------------ */

/*
 * Where time and randomness come from. The default reads the kernel; a test installs its own with
 * br_world_set() (not thread-safe; before anything else runs). NULL members keep the default.
 */
struct br_world {
    uint64_t (*wall_us)(void);         /* microseconds since the epoch */
    uint64_t (*mono_us)(void);         /* microseconds of CLOCK_MONOTONIC */
    void (*random)(void *p, size_t n); /* fills or aborts */
};
void br_world_set(const struct br_world *w);
uint64_t br_now_wall_us(void);
uint64_t br_now_us(void);
void br_random(void *p, size_t n);
/* "prefix_" + 26 characters of Crockford base32: 48 bits of milliseconds, 80 random bits; sorts by
 * time. `dst` needs strlen(prefix) + 28 bytes. */
#define BR_ID_MAX 48u
/* The same with its random bits given. */
#define BR_ID_RANDOM 10u
void br_id_from(char dst[BR_ID_MAX], const char *prefix, const uint8_t random[BR_ID_RANDOM]);
void br_id_make(char dst[BR_ID_MAX], const char *prefix);
/* ISO 8601 with milliseconds and offset, "2026-03-01T10:00:00.000+00:00" (30 bytes with NUL). */
void br_time_iso(char dst[32], uint64_t wall_us);

/* ---- descriptors -------------------------------------------------------------------------- */

/* Write everything, retrying EINTR and short writes. 0 or -errno. */
int br_write_all(int fd, const void *p, size_t n);
/* Read the whole of a regular file or pipe of at most max bytes; -BR_E_LIMIT_EXCEEDED beyond.
 * `what` names it in errors. */
int br_read_all(int fd, struct br_buf *out, const char *what, struct br_err *err);
/* What a small file of the kernel's says: one read(2) of at most cap - 1 bytes, terminated; no link
 * is followed at its end. The length, or -1 and errno, and then dst is "". */
ssize_t br_read_text(int dirfd, const char *path, char *dst, size_t cap);
/* A sealed memfd (write, shrink, grow, seal) with these bytes; -1 and errno on failure. */
int br_memfd_sealed(const char *name, const void *p, size_t n);
/* Checks the four seals and the size (<= max), then reads all into `out`. */
int br_memfd_read(int fd, size_t max, struct br_buf *out, struct br_err *err);
/* openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS and O_CLOEXEC; fd or
 * -1 and errno. Never falls back to openat(). */
int br_open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* ---- working directories of tools (scratch.c) ----------------------------------------------- */

/* A new directory TMP/PREFIX..., mode 0700, that names this process; -1 and errno. */
int br_scratch_make(char *path, size_t cap, const char *tmp, const char *prefix);
/* Remove such a directory and all that is in it; -1 and errno if something stayed. */
int br_scratch_remove(const char *path);
/* Remove those in TMP whose process has ended and which belong to this effective uid. */
void br_scratch_sweep(const char *tmp, const char *prefix);

/*
 * The state directory: BRIDLE_STATE_DIR; else as root /var/lib/bridle, as an ordinary user
 * bridle/ in XDG_STATE_HOME or in HOME/.local/state. `env` is the program's getenv. Absolute, not
 * opened. -BR_E_STORE_FAILED if there is none.
 */
int br_state_path(char dst[BR_PATH_MAX], char *(*env)(const char *), struct br_err *err);
/* Make it if it is not there, and open it; a descriptor of the caller's, or -BR_E_STORE_FAILED if
 * it is a link, somebody else's or open to other users. */
int br_state_open(const char *path, struct br_err *err);

/* ---- SHA-256 ------------------------------------------------------------------------------ */

/* FIPS 180-4, without a library. init, any number of puts, end; then init again. */
struct br_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};
void br_sha256_init(struct br_sha256 *s);
void br_sha256_put(struct br_sha256 *s, const void *p, size_t n);
void br_sha256_end(struct br_sha256 *s, uint8_t out[32]);
/* Use the processor's instructions from now on, if it has them. Not by itself: to ask for them
 * takes tens of microseconds on a virtual machine, which a program that hashes little does not
 * have. */
void br_sha256_fast(bool want);

/* ---- log ---------------------------------------------------------------------------------- */

enum br_log_level { BR_LOG_ERROR, BR_LOG_WARN, BR_LOG_INFO, BR_LOG_DEBUG };
/* Programs call this once; without it nothing below ERROR is written. */
void br_log_init(const char *program, enum br_log_level max);
void br_log(enum br_log_level level, const char *fmt, ...) BR_PRINTF(2, 3);

/* ---- role hardening ----------------------------------------------------------------------- */

/*
 * What a program gives up before it reads its first message: supplementary groups, uid and gid
 * (when root and `uid` is not 0), all capabilities, core dumps, being traced, new privileges;
 * then descriptors beyond the ones it was given, and, if `syscalls` is set, every system call that
 * the list does not name (default: kill the process).
 */
struct br_role {
    const char *name;
    uid_t uid; /* 0: keep the current one */
    uint64_t max_nofile;
    uint64_t max_as;     /* bytes of address space; 0: not limited */
    uint64_t max_cpu_s;  /* CPU seconds; 0: not limited */
    bool no_fork;        /* RLIMIT_NPROC 0 where the uid changed, and no fork in the list */
    const int *syscalls; /* numbers, in addition to a small base that every role needs */
    size_t nsyscalls;
    /* Starts the threads of the role, when identity and capabilities are gone; the filter is for
     * all of them. Each has made its first calls when this returns. NULL: there are none. */
    void (*threads)(void *ctx);
    void *ctx;
};
int br_role_enter(const struct br_role *role, struct br_err *err);
/* Close every descriptor >= first except those in keep[] (sorted or not). */
void br_close_from(int first, const int *keep, size_t nkeep);

#endif
