/*
 * The second check of a grant. The ledger in bridle-session is the first; this one is on the other
 * side of the sandbox, so that a message which was made without the ledger, sent twice, or built
 * for another call has no effect. Called by serve.c only; trusts nothing in the message.
 */
#include <sodium/crypto_hash_sha256.h>
#include <sodium/utils.h>
#include <string.h>

#include "init/init_priv.h"

static const char *op_action(unsigned op)
{
    switch (op) {
    case BR_OP_FS_READ:
    case BR_OP_FS_LIST:
    case BR_OP_FS_SEARCH:
        return "fs.read";
    case BR_OP_FS_WRITE:
    case BR_OP_FS_EDIT:
        return "fs.write";
    case BR_OP_EXEC:
        return "process.exec";
    case BR_OP_GUEST:
        return "adapter.run";
    default:
        return NULL;
    }
}

/* The bytes that the policy decided on. */
static int call_subject(const struct br_init_call *call, struct br_buf *out)
{
    if (call->op == BR_OP_GUEST)
        return br_buf_put(out, call->text.data, call->text.len);
    if (call->op != BR_OP_EXEC)
        return br_buf_put(out, call->path, strlen(call->path));
    if (call->flag == 0)
        return br_exec_subject(call->argv, call->argc, out);
    if (call->flag != 1 || call->argc != 3 || strcmp(call->argv[0], "/bin/sh") != 0 ||
        strcmp(call->argv[1], "-c") != 0)
        return -BR_E_GRANT_MISMATCH;
    return br_buf_put(out, call->argv[2], strlen(call->argv[2]));
}

int br_init_check_grant(struct br_init *in, const struct br_grant_ref *grant,
                        const struct br_init_call *call, struct br_err *err)
{
    if (grant->serial <= in->last_serial)
        return br_err_set(err, BR_E_GRANT_USED,
                          "the grant %llu of call '%s' was used before; nothing was done",
                          (unsigned long long)grant->serial, grant->call_id);
    in->last_serial = grant->serial;
    const char *action = op_action(call->op);
    if (!action || strcmp(action, grant->action) != 0)
        return br_err_set(err, BR_E_GRANT_MISMATCH,
                          "the grant of call '%s' is for '%s', not for what was asked; nothing was "
                          "done",
                          grant->call_id, grant->action);
    BR_CLEANUP_BUF struct br_buf subject = BR_BUF_INIT(BR_BLOB_MAX);
    unsigned char hash[crypto_hash_sha256_BYTES];
    bool ok = call_subject(call, &subject) == 0;
    crypto_hash_sha256(hash, subject.data ? subject.data : (const uint8_t *)"", subject.len);
    if (!ok || sodium_memcmp(hash, grant->subject_sha256, sizeof(hash)) != 0)
        return br_err_set(err, BR_E_GRANT_MISMATCH,
                          "the grant of call '%s' is for another subject; nothing was done",
                          grant->call_id);
    return 0;
}
