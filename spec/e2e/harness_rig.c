/*
 * For tests of adapters, see harness_rig.h. The guests are shell scripts in the workspace, run with
 * the host's programs, so that each test can have one of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "e2e/harness_rig.h"

/* The host's programs instead of an image, so that a guest can be a script of the workspace. */
const char harness_profile[] =
    "return { name = 'hosted', version = 1, rules = { { id = 'no-network', effect = 'deny', "
    "actions = "
    "{ 'network' }, match = 'any', patterns = {} } }, sandbox = { backend = 'native', image = "
    "'host', "
    "identity = 'dedicated', landlock = 'required', workspace = 'lease', sockets = { 'provider', "
    "'gate' }, limits = { memory_bytes = 1 << 30, pids = 64, cpu_percent = 100, nofile = 256, "
    "fsize_bytes = 1 << 30, tmp_bytes = 1 << 20, tmp_inodes = 100, output_bytes = 4096, "
    "exec_seconds = 30, wall_seconds = 60 }, disks = { workspace = { kind = 'tmpfs', bytes = 8 << "
    "20, "
    "inodes = 200 } } } }\n";
const char harness_adapter[] =
    "return { id = 'test-guest', revision = 3, entry = { '/bin/sh', '/workspace/guest.sh' }, "
    "profiles = "
    "{ hosted = { tools = { 'read', 'bash' } } }, routes = { 'chat' }, artifact = { kind = 'text', "
    "bytes = "
    "1000 }, ceilings = { outputBytes = 2000, traceBytes = 1000 }, gate = true }\n";
/* What every guest here begins with: $json is the packet, say writes a frame. */
const char harness_prelude[] =
    "set -eu\n"
    "set -- $(dd bs=1 count=4 2>/dev/null | od -An -tu1)\n"
    "json=$(head -c $(((($1 * 256 + $2) * 256 + $3) * 256 + $4)))\n"
    "run=$(printf %s \"$json\" | sed -nE 's/.*\"runId\":\"([^\"]*)\".*/\\1/p')\n"
    "head4() { printf \"$(printf '\\\\%03o\\\\%03o\\\\%03o\\\\%03o' $(($1 >> 24 & 255)) $(($1 >> "
    "16 & 255)) "
    "$(($1 >> 8 & 255)) $(($1 & 255)))\"; }\n"
    "say() { head4 $(printf %s \"$1\" | wc -c); printf %s \"$1\"; }\n"
    "result() { printf %s "
    "'{\"runId\":\"'${2:-$run}'\",\"status\":\"'${3:-completed}'\",\"adapter\":{\"id\":\""
    "test-guest\",\"revision\":'${4:-3}'},\"session\":{},\"artifact\":{\"kind\":\"text\",\"text\":"
    "\"'\"$1\"'\"},"
    "\"tools\":[{\"name\":\"bash\",\"status\":\"ok\",\"count\":2}]}'; }\n";

void harness_open(struct e2e *t, const char *terms)
{
    harness_open_as(t, 0, terms);
}

void harness_open_as(struct e2e *t, uid_t uid, const char *terms)
{
    char config[1024];
    e2e_open(t, uid);
    e2e_write(t, "workspace/a.txt", "a\n");
    e2e_write(t, "hosted.lua", harness_profile);
    e2e_write(t, "adapter.lua", harness_adapter);
    snprintf(config, sizeof(config),
             "return { api = 1, adapters = { ['test-guest@3'] = { profiles = { 'hosted' }, file = "
             "'%s/adapter.lua', %s }, ['shell-example@1'] = { profiles = { 'workspace-tmpfs-v1' }, "
             "image = 'small' } } }\n",
             t->dir, terms ? terms : "");
    e2e_write(t, "bridle.lua", config);
    t->activated = true;
}

void harness_activate(struct e2e *t, const char *name, const char *image)
{
    struct e2e_result r;
    e2e_run(t, &r, "bridle", "activate", name, image ? "--image" : NULL, image, NULL);
    e2e_expect(&r, 0, NULL);
    e2e_result_free(&r);
}

void harness_guest(struct e2e *t, const char *body)
{
    BR_CLEANUP_BUF struct br_buf text = BR_BUF_INIT(65536);
    br_buf_printf(&text, "%s%s", harness_prelude, body);
    e2e_write(t, "workspace/guest.sh", br_buf_cstr(&text));
}

void harness_run(struct e2e *t, struct e2e_result *r, const char *a, const char *b)
{
    e2e_run(t, r, "bridle", "run", "--json", "-C", "workspace", "--profile", "hosted.lua",
            "--config", "bridle.lua", "-a", "test-guest@3", "-m", "scripted/default", "do it", a, b,
            NULL);
}

void harness_run_guest(struct e2e *t, const char *body, struct e2e_result *r)
{
    harness_guest(t, body);
    harness_run(t, r, NULL, NULL);
}

/* Every byte of the store, which is more than what is shown. */
bool harness_stored(struct e2e *t, const char *text)
{
    char command[512];
    snprintf(command, sizeof(command), "grep -raq -e '%s' %s", text, t->state);
    return system(command) == 0; /* NOLINT(cert-env33-c) */
}
