/*
 * What a provider lease was charged, as bridle-broker left it on the page of its account
 * (core/wire/account.h): read when the record ends, whoever ends it, so that it is there even if
 * every other program was killed. The page is the broker's word. A request that had not ended when
 * it was read is charged as it was reserved.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit_priv.h"
#include "wire/account.h"

/* As in core/broker/dialect.h, by bit number. */
static const char *const repairs[] = {"finish", "ids", "function_call", "total", "done", "index"};

static bool page_path(char path[64], const char *run_id)
{
    return run_id[0] && !strchr(run_id, '/') && run_id[0] != '.' &&
           snprintf(path, 64, BR_ACCOUNT_DIR "/%s", run_id) < 64;
}

static json_t *repair_list(uint64_t bits)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < BR_ARRAY_LEN(repairs); i++)
        if (bits & 1u << i)
            (void)json_array_append_new(list, json_pack("{s:s}", "name", repairs[i]));
    return list;
}

static json_int_t bounded(uint64_t v)
{
    return v < BR_EVENT_INT_MAX ? (json_int_t)v : (json_int_t)BR_EVENT_INT_MAX;
}

static json_t *account_data(const struct br_account_sums *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "requests",
                     bounded(s->requests), "settled", bounded(s->settled), "unsettled",
                     bounded(s->unsettled + s->in_flight), "released", bounded(s->released),
                     "refused", bounded(s->refused), "requestBytes", bounded(s->request_bytes),
                     "responseBytes", bounded(s->response_bytes), "tokensReserved",
                     bounded(s->tokens_reserved), "tokensCharged", bounded(s->tokens_charged),
                     "cut", bounded(s->cut), "repaired", bounded(s->repaired), "repairs",
                     repair_list(s->repairs));
}

int account_add(struct recorder *r, struct br_err *err)
{
    char path[64];
    struct br_account_sums sums;
    struct br_err why = {.code = BR_OK};
    if (r->accounted || !page_path(path, r->run.run_id))
        return 0;
    BR_CLEANUP_FD int fd = openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0; /* a run without a provider */
    int k = fd < 0 ? br_err_errno(&why, BR_E_STORE_FAILED, "the account of '%s' could not be read",
                                  r->run.run_id)
                   : br_account_page_read(fd, r->run.run_id, &sums, &why);
    if (k == 0)
        return 0;
    json_t *data =
        k < 0 ? json_pack("{s:s, s:s}", "code", br_code_name((int)why.code), "message", why.text)
              : account_data(&sums);
    if (!data)
        return br_err_set(err, BR_E_NOMEM, "no memory for the account of a provider lease");
    r->accounted = true;
    int ret = recorder_add(r, k < 0 ? "bridle.notice" : "bridle.provider.account", "kernel", data,
                           true, err);
    json_decref(data);
    return ret;
}

void account_remove(const char *run_id)
{
    char path[64];
    if (page_path(path, run_id))
        (void)unlinkat(AT_FDCWD, path, 0);
}
