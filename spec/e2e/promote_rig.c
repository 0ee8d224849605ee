/*
 * Support for tests of kept workspaces; see promote_rig.h. Called by those tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "promote_rig.h"

void lease_open(struct e2e *t)
{
    struct e2e_result r;
    e2e_open(t, 0);
    e2e_write(t, "workspace/a.txt", "one\ntwo\nthree\n");
    e2e_write(t, "workspace/src/b.txt", "bee\n");
    e2e_write(t, "workspace/src/c.txt", "sea\n");
    e2e_write(t, "workspace/Makefile", "all:\n\ttrue\n");
    e2e_write(t, "policy.lua",
              "local policy = require 'bridle.policy'\n"
              "return policy.bundle { api = 1, name = 'allow-all', rules = {\n"
              "  policy.allow { id = 'all', action = '*' } } }\n");
    e2e_write(t, "ask.lua",
              "local policy = require 'bridle.policy'\n"
              "return policy.bundle { api = 1, name = 'asks', rules = {\n"
              "  policy.allow { id = 'exec', action = 'process.exec' } } }\n");
    e2e_write(t, "never.lua",
              "local policy = require 'bridle.policy'\n"
              "return policy.bundle { api = 1, name = 'never', rules = {\n"
              "  policy.deny { id = 'no-promotion', action = 'workspace.promote' } } }\n");
    e2e_write(t, "task.yaml",
              "id: fix\ntitle: fix\ngoal: fix it\nacceptance: [done]\nallowed_paths: [src/**]\n"
              "permissions: {process.exec: allow, fs.read: allow, fs.write: allow}\n"
              "delivery: {type: none}\n");
    e2e_write(t, "disks.lua",
              "return { name = 'disks', version = 1, rules = { { id = 'no-network', effect = "
              "'deny', actions = { 'network' }, match = 'any', patterns = {} } }, sandbox = { "
              "backend = 'native', image = 'host', identity = 'dedicated', landlock = 'required', "
              "workspace = 'lease', limits = { memory_bytes = 1 << 30, pids = 32, cpu_percent = "
              "100, nofile = 256, fsize_bytes = 1 << 30, tmp_bytes = 1 << 20, tmp_inodes = 100, "
              "output_bytes = 4096, exec_seconds = 30, wall_seconds = 60 }, disks = { workspace = "
              "{ kind = 'ext4', bytes = 8 << 20, inodes = 256 } } } }\n");
    t->activated = true;
    e2e_run(t, &r, "bridle", "activate", "disks.lua", NULL);
    e2e_expect(&r, 0, "'disks' works");
    e2e_result_free(&r);
}

void lease_sh(struct e2e *t, int status, const char *line)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "exec", "-C", "workspace", "-p", "policy.lua", "--profile",
            "disks.lua", "task.yaml", "--", "/bin/sh", "-c", line, NULL);
    e2e_expect(&r, status, NULL);
    e2e_result_free(&r);
}

char *lease_list(struct e2e *t)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "state", "list", "--json", NULL);
    e2e_expect(&r, 0, NULL);
    char *text = strdup(br_buf_cstr(&r.out));
    e2e_result_free(&r);
    return text;
}

void lease_kept(struct e2e *t, char id[64])
{
    BR_CLEANUP_FREE char *text = lease_list(t);
    id[0] = 0;
    for (const char *p = text; (p = strstr(p, "\"kind\":\"workspace\",\"id\":\"")); p++) {
        char one[64];
        assert_int_equal(sscanf(p, "\"kind\":\"workspace\",\"id\":\"%63[^\"]", one), 1);
        if (strcmp(one, id) > 0)
            memcpy(id, one, sizeof(one));
    }
}

void lease_bridle(struct e2e *t, int status, const char *said, ...)
{
    char *argv[24] = {(char *)"bridle"};
    struct e2e_result r;
    unsigned n = 1;
    va_list ap;
    va_start(ap, said);
    while (n + 1 < BR_ARRAY_LEN(argv) && (argv[n] = va_arg(ap, char *)))
        n++;
    va_end(ap);
    e2e_wait(t, e2e_spawn(t, argv, NULL), 60, &r);
    e2e_expect(&r, status, said);
    e2e_result_free(&r);
}
