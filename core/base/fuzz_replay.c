/*
 * Runs a fuzz target over its corpus without libFuzzer, so that every build replays every input
 * that ever mattered. Arguments: files or directories. Linked into the replay build only.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    BR_CLEANUP_FILE FILE *f = fopen(path, "re");
    if (!f) {
        perror(path);
        return -1;
    }
    BR_CLEANUP_BUF struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    if (br_read_all(fileno(f), &b, path, NULL) < 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    LLVMFuzzerTestOneInput(b.data ? b.data : (const uint8_t *)"", b.len);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned n = 0;
    for (int i = 1; i < argc; i++) {
        struct dirent **names;
        int count = scandir(argv[i], &names, NULL, alphasort);
        if (count < 0) {
            perror(argv[i]);
            return 1;
        }
        for (int k = 0; k < count; k++) {
            char path[BR_PATH_MAX];
            struct stat st;
            snprintf(path, sizeof(path), "%s/%s", argv[i], names[k]->d_name);
            free(names[k]);
            if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
                continue;
            if (replay_file(path) < 0)
                return 1;
            n++;
        }
        free(names);
    }
    if (n == 0) {
        fprintf(stderr, "no corpus input was found\n");
        return 1;
    }
    printf("replayed %u inputs\n", n);
    return 0;
}
