/*
 * What the operator sees of the store, and removing from it. Called by bridle-image. Names and
 * sources were made visible when they were stored; everything printed here is Bridle's own text.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/make_priv.h"

static int flush(void)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}

static void json_text(const char *key, const char *text)
{
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(64 * 1024);
    (void)br_buf_put_json_str(&b, text, strlen(text));
    const char *s = br_buf_cstr(&b);
    printf("\"%s\":%s", key, s ? s : "\"\"");
}

static void json_names(const struct br_image_store *s, const char *id)
{
    struct br_image_names l = {.names = NULL};
    char of[BR_IMAGE_ID_MAX];
    bool first = true;
    (void)br_image_names_list(s, &l, NULL);
    printf("\"names\":[");
    for (size_t i = 0; i < l.n; i++) {
        if (br_image_name_get(s, l.names[i], of, NULL) < 0 || strcmp(of, id) != 0)
            continue;
        printf("%s\"%s\"", first ? "" : ",", l.names[i]);
        first = false;
    }
    printf("]");
    br_image_names_free(&l);
}

static void json_image(const struct br_image *img)
{
    char at[32];
    br_time_iso(at, img->created_us);
    json_text("id", img->id);
    printf(",");
    json_text("format", img->format);
    printf(",");
    json_text("source", img->source);
    printf(",\"created\":\"%s\",\"bytes\":%" PRIu64 ",\"entries\":%" PRIu64 ",\"size\":%" PRIu64
           ",\"unpacked\":%s",
           at, img->bytes, img->entries, img->file.size, img->has_tree ? "true" : "false");
}

int br_image_fail(const struct br_err *err)
{
    (void)fflush(stdout);
    fprintf(stderr, "bridle: %s\n", err->text);
    return br_code_exit(err->code);
}

int br_image_show_made(const struct br_image *img, bool existed, bool json)
{
    if (json) {
        printf("{");
        json_text("name", img->name);
        printf(",\"existed\":%s,", existed ? "true" : "false");
        json_image(img);
        printf("}\n");
        return flush();
    }
    printf("%s\n", img->id);
    (void)fflush(stdout);
    fprintf(stderr, "bridle: image '%s'%s: %" PRIu64 " files, %" PRIu64 " bytes\n", img->name,
            existed ? " was there already" : "", img->entries, img->bytes);
    return flush();
}

static void print_row(const struct br_image_store *s, const char *name, const char *id)
{
    struct br_image img;
    char at[32];
    if (br_image_index_read(s, id, &img, NULL) < 0) {
        printf("%-24s %.19s  damaged; see 'bridle image verify'\n", name, id);
        return;
    }
    br_time_iso(at, img.created_us);
    at[10] = 0;
    printf("%-24s %.19s  %6" PRIu64 " MB  %s  %s\n", name, id, (img.file.size + 999999) / 1000000,
           at, img.source);
}

/* Every name, then every image that has none. */
static void list_text(const struct br_image_store *s, const struct br_image_names *names,
                      const struct br_image_ids *ids)
{
    char id[BR_IMAGE_ID_MAX];
    printf("%-24s %-19s  %9s  %-10s  %s\n", "name", "id", "size", "created", "source");
    for (size_t i = 0; i < names->n; i++)
        if (br_image_name_get(s, names->names[i], id, NULL) == 0)
            print_row(s, names->names[i], id);
        else
            printf("%-24s %-19s  damaged; import the image again\n", names->names[i], "-");
    for (size_t k = 0; k < ids->n; k++) {
        bool named = false;
        for (size_t i = 0; i < names->n && !named; i++)
            named = br_image_name_get(s, names->names[i], id, NULL) == 0 &&
                    strcmp(id, ids->ids[k]) == 0;
        if (!named)
            print_row(s, "-", ids->ids[k]);
    }
}

static void list_json(const struct br_image_store *s, const struct br_image_ids *ids)
{
    struct br_image img;
    printf("{\"images\":[");
    for (size_t i = 0; i < ids->n; i++) {
        printf("%s{", i ? "," : "");
        if (br_image_index_read(s, ids->ids[i], &img, NULL) == 0)
            json_image(&img);
        else
            printf("\"id\":\"%s\",\"damaged\":true", ids->ids[i]);
        printf(",");
        json_names(s, ids->ids[i]);
        printf("}");
    }
    printf("]}\n");
}

int br_image_list(const struct br_image_store *s, bool json)
{
    struct br_err err = {.code = BR_OK};
    struct br_image_names names = {.names = NULL};
    struct br_image_ids ids = {.ids = NULL};
    int r = s->fd < 0 ? 0 : br_image_names_list(s, &names, &err);
    if (r == 0 && s->fd >= 0)
        r = br_image_ids_list(s, &ids, &err);
    if (r == 0 && json)
        list_json(s, &ids);
    else if (r == 0)
        list_text(s, &names, &ids);
    br_image_names_free(&names);
    br_image_ids_free(&ids);
    return r < 0 ? br_image_fail(&err) : flush();
}

int br_image_show(const struct br_image_store *s, const char *id, bool json)
{
    struct br_err err = {.code = BR_OK};
    struct br_image img;
    char at[32];
    int r = br_image_index_read(s, id, &img, &err);
    if (r < 0)
        return br_image_fail(&err);
    if (json) {
        printf("{");
        json_image(&img);
        printf(",");
        json_names(s, id);
        printf("}\n");
        return flush();
    }
    br_time_iso(at, img.created_us);
    printf("id       %s\nformat   %s\nsource   %s\ncreated  %s\nfiles    %" PRIu64 "\nbytes    "
           "%" PRIu64 "\nsize     %" PRIu64 "\nunpacked %s\n",
           img.id, img.format, img.source, at, img.entries, img.bytes, img.file.size,
           img.has_tree ? "yes" : "no");
    return flush();
}

/* One image, whole. What it looks like now is what a launch compares with from here on. */
static int verify_one(const struct br_image_store *s, const char *id, struct br_err *err)
{
    struct br_image before, img;
    enum br_image_how how;
    int r = br_image_index_read(s, id, &before, err);
    if (r == 0)
        r = br_image_verify(s, id, true, &br_image_stop, &img, NULL, NULL, &how, err);
    if (r == 0 && memcmp(&before, &img, sizeof(img)) != 0)
        r = br_image_index_write(s, &img, err);
    return r;
}

int br_image_verify_all(const struct br_image_store *s, char (*ids)[BR_IMAGE_ID_MAX], size_t n,
                        bool json)
{
    struct br_err err = {.code = BR_OK};
    int code = 0;
    if (br_store_lock(s, &err) < 0)
        return br_image_fail(&err);
    if (json)
        printf("{\"images\":[");
    for (size_t i = 0; i < n && !br_image_stop; i++) {
        struct br_err why = {.code = BR_OK};
        int r = verify_one(s, ids[i], &why);
        if (json) {
            printf("%s{\"id\":\"%s\",\"ok\":%s", i ? "," : "", ids[i], r < 0 ? "false" : "true");
            if (r < 0) {
                printf(",\"code\":\"%s\",", br_code_name(why.code));
                json_text("error", why.text);
            }
            printf("}");
        } else {
            printf("%s %s\n", r < 0 ? "changed" : "ok     ", ids[i]);
        }
        if (r < 0)
            code = json ? br_code_exit(r) : br_image_fail(&why);
    }
    if (json)
        printf("]}\n");
    br_store_unlock(s);
    if (br_image_stop)
        return br_image_fail(&(struct br_err){.code = BR_E_CANCELED, .text = "canceled"});
    return flush() ? 1 : code;
}

/* How many names stand for it; with `drop` they are removed. */
static int count_names(const struct br_image_store *s, const char *id, bool drop,
                       struct br_err *err)
{
    struct br_image_names l = {.names = NULL};
    char of[BR_IMAGE_ID_MAX];
    int n = br_image_names_list(s, &l, err);
    for (size_t i = 0; n >= 0 && i < l.n; i++) {
        if (br_image_name_get(s, l.names[i], of, NULL) < 0 || strcmp(of, id) != 0)
            continue;
        int r = drop ? br_image_name_remove(s, l.names[i], err) : 0;
        n = r < 0 ? r : n + 1;
    }
    br_image_names_free(&l);
    return n;
}

static int remove_image(const struct br_image_store *s, const char *id, struct br_err *err)
{
    char name[BR_IMAGE_FILE_MAX];
    br_image_file_name(name, id, ".index"); /* first: without it the others are left-overs */
    if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
        return br_err_errno(err, BR_E_STORE_FAILED, "the image '%s' was not removed", id);
    br_image_file_name(name, id, ".erofs");
    if (unlinkat(s->fd, name, 0) < 0 && errno != ENOENT)
        return br_err_errno(err, BR_E_STORE_FAILED, "the image '%s' was not removed", id);
    br_image_file_name(name, id, ".tree");
    return br_remove_tree(s->fd, name, err);
}

/* A name: it, and the image if no other name stands for that. An id: the image and its names. */
int br_image_remove(const struct br_image_store *s, const char *what, const char *id)
{
    struct br_err err = {.code = BR_OK};
    bool named =
        br_image_is_name(what) && br_image_name_get(s, what, (char[BR_IMAGE_ID_MAX]){0}, NULL) == 0;
    int r = br_store_lock(s, &err);
    if (r < 0)
        return br_image_fail(&err);
    r = named ? br_image_name_remove(s, what, &err) : count_names(s, id, true, &err);
    if (r >= 0)
        r = named ? count_names(s, id, false, &err) : 0;
    if (r == 0)
        r = remove_image(s, id, &err);
    br_store_unlock(s);
    return r < 0 ? br_image_fail(&err) : 0;
}
