/*
 * The bytes of an INIT_CALL, as they come from the channel: grant, operation, words. Whatever
 * decodes must be safe to check, must encode to something that decodes to the same, and must be
 * freed.
 */
#include <string.h>

#include "init/init_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool decode(const uint8_t *p, size_t n, struct br_grant_ref *g, struct br_init_call *c)
{
    struct br_msg m = {.type = BR_MSG_INIT_CALL};
    br_rd_init(&m.rd, p, n);
    br_grant_ref_get(&m.rd, g);
    return br_init_call_get(&m, c, NULL) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct br_grant_ref g, g2;
    struct br_init_call c, c2;
    if (size > BR_MSG_MAX)
        return 0;
    if (decode(data, size, &g, &c)) {
        struct br_init in = {.last_serial = 0};
        struct br_out o = BR_OUT_INIT;
        br_grant_ref_put(&o.buf, &g);
        br_init_call_put(&o, &c);
        br_require(!o.failed && !o.buf.failed && o.nfds == 0);
        br_require(o.buf.len == size && memcmp(o.buf.data, data, size) == 0);
        br_require(decode(o.buf.data, o.buf.len, &g2, &c2));
        br_require(c2.argc == c.argc && c2.text.len == c.text.len);
        int r = br_init_check_grant(&in, &g, &c, NULL);
        br_require(r == 0 || r == -BR_E_GRANT_USED || r == -BR_E_GRANT_MISMATCH);
        br_require(in.last_serial == g.serial);
        (void)br_init_path_check(c.path, g.serial & 1, NULL);
        br_init_call_free(&c2);
        br_out_free(&o);
    }
    br_init_call_free(&c);
    return 0;
}
