/*
 * core/promote: one change as it travels from bridle-promote to the client. Header only, so that
 * both need nothing else of each other.
 */
#ifndef BR_PROMOTE_ROW_H
#define BR_PROMOTE_ROW_H

#include "base/base.h"

struct br_promote_row {
    uint8_t kind, old_type, new_type; /* as in struct br_change */
    uint32_t old_mode, new_mode;
    uint64_t old_size, new_size;
    uint32_t surface; /* enum br_surface */
    uint8_t state;    /* enum br_change_state */
    char why[128];
    char path[BR_PATH_MAX]; /* any bytes but NUL */
};

static inline void br_promote_row_put(struct br_buf *b, const struct br_promote_row *w)
{
    br_buf_put_u8(b, w->kind);
    br_buf_put_u8(b, w->old_type);
    br_buf_put_u8(b, w->new_type);
    br_buf_put_u32(b, w->old_mode);
    br_buf_put_u32(b, w->new_mode);
    br_buf_put_u64(b, w->old_size);
    br_buf_put_u64(b, w->new_size);
    br_buf_put_u32(b, w->surface);
    br_buf_put_u8(b, w->state);
    br_buf_put_str(b, w->why);
    br_buf_put_str(b, w->path);
}

static inline void br_promote_row_get(struct br_rd *r, struct br_promote_row *w)
{
    w->kind = br_rd_u8(r);
    w->old_type = br_rd_u8(r);
    w->new_type = br_rd_u8(r);
    w->old_mode = br_rd_u32(r);
    w->new_mode = br_rd_u32(r);
    w->old_size = br_rd_u64(r);
    w->new_size = br_rd_u64(r);
    w->surface = br_rd_u32(r);
    w->state = br_rd_u8(r);
    br_rd_str(r, w->why, sizeof(w->why));
    br_rd_str(r, w->path, sizeof(w->path));
    if ((w->kind != '+' && w->kind != '~' && w->kind != '-') || w->state > 2)
        r->failed = true;
}

#endif
