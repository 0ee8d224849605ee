/*
 * The real static program over its real channel: what it measures, the grant of every call, what is
 * legal when, and, as pid 1 of its own namespaces, that nothing outlives a call or the channel.
 */
#include <elf.h>

#include "init/test_init.h"

static void measures_itself(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    ws_make(&w);
    peer_start(&p, &w, true);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "pid")), 1);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "uid")), 1000);
    assert_int_equal(json_integer_value(json_object_get(p.ready, "gid")), 1000);
    assert_string_equal(json_string_value(json_object_get(p.ready, "uids")), "1000 1000 1000 1000");
    assert_true(json_is_integer(json_object_get(p.ready, "noNewPrivs")));
    assert_true(json_is_integer(json_object_get(p.ready, "seccomp")));
    assert_true(json_integer_value(json_object_get(p.ready, "mounts")) > 0);
    assert_int_equal(json_object_size(json_object_get(p.ready, "namespaces")), 8);
    if (geteuid() == 0)
        assert_string_equal(json_string_value(json_object_get(p.ready, "capEff")),
                            "0000000000000000");
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void a_call_works(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    ws_make(&w);
    ws_puts(&w, "a.txt", "hello\n");
    peer_start(&p, &w, false);
    call_init(&c, BR_OP_FS_READ, "a.txt");
    struct result r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    assert_string_equal(res_str(&r, "content"), "hello\n");
    result_free(&r);
    call_init(&c, BR_OP_EXEC, "");
    c.flag = 1;
    call_sh(&c, "echo out; echo err >&2; exit 3");
    r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "exitCode"), 3);
    assert_string_equal(res_str(&r, "stdout"), "out\n");
    assert_string_equal(res_str(&r, "stderr"), "err\n");
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

/* ---- grants ---- */

static void write_call(struct br_init_call *c, const char *path)
{
    call_init(c, BR_OP_FS_WRITE, path);
    br_buf_put(&c->text, "effect", 6);
}

static struct result send_with(struct peer *p, struct br_init_call *c, const struct br_grant_ref *g)
{
    peer_send(p, c, g);
    br_init_call_free(c);
    return peer_wait(p);
}

static void no_effect_without_its_own_grant(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c, other;
    struct br_grant_ref g;
    struct result r;
    ws_make(&w);
    peer_start(&p, &w, false);

    write_call(&c, "a"); /* serial 0 is no grant */
    call_grant(&c, 0, &g);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_USED, "nothing was done");
    assert_false(ws_has(&w, "a"));

    write_call(&c, "a"); /* for another file */
    call_init(&other, BR_OP_FS_WRITE, "b");
    call_grant(&other, 1, &g);
    br_init_call_free(&other);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "another subject");
    assert_false(ws_has(&w, "a"));

    write_call(&c, "a"); /* for another action */
    call_grant(&c, 2, &g);
    snprintf(g.action, sizeof(g.action), "fs.read");
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "'fs.read'");
    assert_false(ws_has(&w, "a"));

    write_call(&c, "a"); /* a refused grant is used up: it does not come back corrected */
    call_grant(&c, 2, &g);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_USED, "nothing was done");
    assert_false(ws_has(&w, "a"));

    write_call(&c, "a"); /* the control: the right one works */
    call_grant(&c, 3, &g);
    r = send_with(&p, &c, &g);
    assert_int_equal(r.code, 0);
    result_free(&r);
    ws_same(&w, "a", "effect");
    assert_int_equal(unlinkat(w.fd, "a", 0), 0);

    write_call(&c, "a"); /* once */
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_USED, "used before");
    assert_false(ws_has(&w, "a"));

    write_call(&c, "a"); /* an older one */
    call_grant(&c, 1, &g);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_USED, "used before");
    assert_false(ws_has(&w, "a"));
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void commands_are_bound_to_their_words(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c, other;
    struct br_grant_ref g;
    struct result r;
    ws_make(&w);
    peer_start(&p, &w, false);

    call_init(&c, BR_OP_EXEC, ""); /* other words than granted */
    call_argv(&c, (const char *[]){"touch", "evil", NULL});
    call_init(&other, BR_OP_EXEC, "");
    call_argv(&other, (const char *[]){"touch", "good", NULL});
    call_grant(&other, ++p.serial, &g);
    br_init_call_free(&other);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "another subject");
    assert_false(ws_has(&w, "evil"));

    call_init(&c, BR_OP_EXEC, ""); /* one word that looks like two */
    call_argv(&c, (const char *[]){"touch evil", NULL});
    call_init(&other, BR_OP_EXEC, "");
    call_argv(&other, (const char *[]){"touch", "evil", NULL});
    call_grant(&other, ++p.serial, &g);
    br_init_call_free(&other);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "another subject");

    call_init(&c, BR_OP_EXEC, ""); /* marked as a shell string, but not one */
    call_argv(&c, (const char *[]){"/usr/bin/env", "-c", "touch evil", NULL});
    c.flag = 1;
    call_grant(&c, ++p.serial, &g);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "another subject");

    call_init(&c, BR_OP_EXEC, ""); /* a shell string without the mark is its quoted words */
    call_sh(&c, "touch evil");
    c.flag = 1;
    call_grant(&c, ++p.serial, &g);
    c.flag = 0;
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "another subject");

    call_init(&c, BR_OP_EXEC, ""); /* an operation that does not exist */
    c.op = 99;
    call_grant(&c, ++p.serial, &g);
    r = send_with(&p, &c, &g);
    assert_refused(&r, BR_E_GRANT_MISMATCH, "");
    assert_false(ws_has(&w, "evil"));

    call_init(&c, BR_OP_EXEC, ""); /* the control */
    call_sh(&c, "touch good");
    c.flag = 1;
    r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    result_free(&r);
    assert_true(ws_has(&w, "good"));
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

/* ---- the protocol ---- */

static void violations_end_it(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct ws w;
        struct peer p;
        struct br_init_call c;
        struct br_grant_ref g;
        ws_make(&w);
        peer_start(&p, &w, i % 2 == 0);
        struct br_out o = BR_OUT_INIT;
        if (i < 2) { /* a second call, or a snapshot, while a command runs */
            call_init(&c, BR_OP_EXEC, "");
            call_sh(&c, "sleep 1; touch late");
            call_grant(&c, 1, &g);
            peer_send(&p, &c, &g);
            br_init_call_free(&c);
            sleep_ms(50);
        }
        if (i == 0) {
            write_call(&c, "evil");
            call_grant(&c, 2, &g);
            peer_send(&p, &c, &g);
            br_init_call_free(&c);
        } else if (i == 1) {
            assert_int_equal(br_chan_send(&p.chan, BR_MSG_INIT_SNAPSHOT, 0, NULL, NULL), 0);
        } else if (i == 2) { /* not its message */
            assert_int_equal(br_chan_send(&p.chan, BR_MSG_CTL_CANCEL, 0, NULL, NULL), 0);
        } else { /* a call with bytes behind it */
            write_call(&c, "evil");
            call_grant(&c, 1, &g);
            br_grant_ref_put(&o.buf, &g);
            br_init_call_put(&o, &c);
            br_buf_put_u8(&o.buf, 0);
            assert_int_equal(br_chan_send(&p.chan, BR_MSG_INIT_CALL, 7, &o, NULL), 0);
            br_init_call_free(&c);
        }
        br_out_free(&o);
        int status;
        assert_int_equal(waitpid(p.pid, &status, 0), p.pid); /* while the channel is open */
        assert_int_equal(WEXITSTATUS(status), 1);
        br_chan_close(&p.chan);
        json_decref(p.ready);
        sleep_ms(i < 2 ? 1100 : 0);
        assert_false(ws_has(&w, "evil"));
        assert_false(ws_has(&w, "late"));
        ws_remove(&w);
    }
}

static void large_bodies_travel_as_memfds(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    ws_make(&w);
    peer_start(&p, &w, false);
    call_init(&c, BR_OP_FS_WRITE, "big");
    for (unsigned i = 0; i < 200000; i++)
        br_buf_put(&c.text, "0123456789", 10);
    struct result r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    assert_int_equal(res_int(&r, "bytes"), 2000000);
    result_free(&r);
    call_init(&c, BR_OP_FS_READ, "big");
    c.offset = 10;
    r = peer_call(&p, &c);
    assert_int_equal(res_int(&r, "bytes"), BR_INIT_READ_MAX);
    assert_int_equal(strncmp(res_str(&r, "content"), "0123456789", 10), 0);
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void progress_once_a_second_and_abort(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    struct br_grant_ref g;
    ws_make(&w);
    peer_start(&p, &w, true);
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, "while :; do echo x; sleep 0.02; done");
    call_grant(&c, 1, &g);
    uint64_t start = br_now_us();
    peer_send(&p, &c, &g);
    br_init_call_free(&c);
    while (p.progress < 2)
        assert_int_equal(br_chan_dispatch(&p.chan, NULL), 0);
    assert_in_range((br_now_us() - start) / 1000, 1900, 20000);
    assert_int_equal(br_chan_send(&p.chan, BR_MSG_INIT_ABORT, 0, NULL, NULL), 0);
    struct result r = peer_wait(&p);
    assert_int_equal(r.code, BR_E_CANCELED);
    assert_int_equal(res_int(&r, "signal"), SIGKILL);
    result_free(&r);
    assert_int_equal(br_chan_send(&p.chan, BR_MSG_INIT_ABORT, 0, NULL, NULL),
                     0); /* late: ignored */
    call_init(&c, BR_OP_EXEC, "");
    call_argv(&c, (const char *[]){"true", NULL});
    p.serial = 1;
    r = peer_call(&p, &c);
    assert_int_equal(r.code, 0);
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void snapshots(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    ws_make(&w);
    ws_puts(&w, "a", "1");
    peer_start(&p, &w, false);
    for (unsigned i = 0; i < 2; i++) {
        p.answered = false;
        assert_int_equal(br_chan_send(&p.chan, BR_MSG_INIT_SNAPSHOT, 0, NULL, NULL), 0);
        struct result r = peer_wait(&p);
        assert_int_equal(json_array_size(json_object_get(r.json, "changed")), i);
        result_free(&r);
        ws_puts(&w, "new", "22");
    }
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

/* ---- pid 1 ---- */

/* Leaves its session and its parent, and writes a file a little later. */
static const char daemon_script[] =
    "setsid /bin/sh -c '(sleep 1; echo alive > late) </dev/null >/dev/null 2>&1 &' & wait; "
    "echo /proc/[0-9]*";

static void a_daemon_is_dead_when_the_call_ends(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    ws_make(&w);
    peer_start(&p, &w, true);
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, daemon_script);
    struct result r = peer_call(&p, &c);
    assert_int_equal(res_int(&r, "exitCode"), 0);
    unsigned n = 0;
    for (const char *s = res_str(&r, "stdout"); (s = strstr(s, "/proc/")); s++)
        n++;
    assert_true(n >= 3); /* pid 1, the shell, and the daemon did run */
    result_free(&r);
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, "echo /proc/[0-9]*; echo $$");
    r = peer_call(&p, &c);
    char want[64];
    const char *out = res_str(&r, "stdout");
    const char *self = strchr(out, '\n') + 1;
    snprintf(want, sizeof(want), "/proc/1 /proc/%d\n", atoi(self));
    assert_int_equal(strncmp(out, want, strlen(want)), 0); /* pid 1 and that shell, no more */
    result_free(&r);
    sleep_ms(1500);
    assert_false(ws_has(&w, "late"));
    assert_int_equal(peer_end(&p), 0);
    /* the control: without a pid 1 that kills, the same script leaves its file */
    char cmd[512];
    snprintf(cmd, sizeof(cmd), "cd '%s' && { %s; } >/dev/null", w.dir, daemon_script);
    assert_int_equal(system(cmd), 0);
    for (unsigned i = 0; i < 300 && !ws_has(&w, "late"); i++)
        sleep_ms(10);
    assert_true(ws_has(&w, "late"));
    ws_remove(&w);
}

static void the_end_of_the_channel_ends_everything(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    struct br_grant_ref g;
    ws_make(&w);
    peer_start(&p, &w, true);
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, "touch begun; setsid sh -c 'sleep 0.5; touch late' & sleep 0.5; touch late");
    call_grant(&c, 1, &g);
    peer_send(&p, &c, &g);
    br_init_call_free(&c);
    for (unsigned i = 0; i < 300 && !ws_has(&w, "begun"); i++)
        sleep_ms(10);
    assert_true(ws_has(&w, "begun"));
    assert_int_equal(peer_end(&p), 0);
    sleep_ms(900);
    assert_false(ws_has(&w, "late"));
    ws_remove(&w);
}

/* A command has the uid of pid 1; it must not get at its memory or its channel all the same. */
static void commands_cannot_get_at_pid_1(void **state)
{
    (void)state;
    static const char attack[] =
        "pid=%s; ok=0; "
        "dd if=/proc/$pid/mem of=/dev/null bs=1 count=0 2>/dev/null && ok=1; "
        "ls /proc/$pid/fd/ >/dev/null 2>&1 && ok=1; "
        "cat /proc/$pid/environ 2>/dev/null | grep -q . && ok=1; echo $ok";
    struct ws w;
    struct peer p;
    struct br_init_call c;
    char script[512];
    ws_make(&w);
    peer_start(&p, &w, true);
    snprintf(script, sizeof(script), attack, "1");
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, script);
    struct result r = peer_call(&p, &c);
    assert_string_equal(res_str(&r, "stdout"), "0\n");
    result_free(&r);
    /* the control: an ordinary process of the same uid is open to it */
    char control[600];
    snprintf(script, sizeof(script), attack, "$victim");
    snprintf(control, sizeof(control), "sleep 5 & victim=$!; sleep 0.1; %s", script);
    call_init(&c, BR_OP_EXEC, "");
    call_sh(&c, control);
    r = peer_call(&p, &c);
    assert_string_equal(res_str(&r, "stdout"), "1\n");
    result_free(&r);
    call_init(&c, BR_OP_EXEC, ""); /* nor kill or stop it */
    call_sh(&c, "kill -KILL 1; kill -STOP 1; kill -TERM 1; echo sent");
    r = peer_call(&p, &c);
    assert_string_equal(res_str(&r, "stdout"), "sent\n");
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

static void the_program_gives_nothing_of_the_host_on(void **state)
{
    (void)state;
    struct ws w;
    struct peer p;
    struct br_init_call c;
    ws_make(&w);
    peer_start(&p, &w, false); /* it was started with a secret in its environment and fd 9 open */
    call_init(&c, BR_OP_EXEC, "");
    c.flag = 1;
    call_sh(&c, "env; ls /proc/self/fd; umask");
    struct result r = peer_call(&p, &c);
    const char *out = res_str(&r, "stdout");
    assert_null(strstr(out, "SECRET_OF_HOST"));
    assert_non_null(strstr(out, "\n0\n1\n2\n3\n0022\n")); /* 3: the directory that ls reads */
    result_free(&r);
    assert_int_equal(peer_end(&p), 0);
    ws_remove(&w);
}

/* ---- the file ---- */

static void the_program_is_static(void **state)
{
    (void)state;
    char program[BR_PATH_MAX];
    struct br_buf b = BR_BUF_INIT(BR_BLOB_MAX);
    int fd = open(init_program(program), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(br_read_all(fd, &b, program, NULL), 0);
    close(fd);
    assert_true(b.len > sizeof(Elf64_Ehdr));
    Elf64_Ehdr head;
    memcpy(&head, b.data, sizeof(head));
    assert_memory_equal(head.e_ident, ELFMAG, SELFMAG);
    assert_int_equal(head.e_phentsize, sizeof(Elf64_Phdr));
    assert_true(head.e_phnum > 0);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr ph;
        assert_true(head.e_phoff + (i + 1) * sizeof(ph) <= b.len);
        memcpy(&ph, b.data + head.e_phoff + i * sizeof(ph), sizeof(ph));
        assert_int_not_equal(ph.p_type, PT_INTERP);
        assert_int_not_equal(ph.p_type, PT_DYNAMIC);
    }
    assert_null(memmem(b.data, b.len, "__asan_init", 11)); /* nor a sanitizer in it */
    br_buf_free(&b);
}

static void the_program_refuses_to_run_alone(void **state)
{
    (void)state;
    char program[BR_PATH_MAX];
    init_program(program);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char *const argv[] = {(char[]){"bridle-init"}, NULL};
        close(2);
        open("/dev/null", O_WRONLY);
        close(3);
        execv(program, argv);
        _exit(99);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_itself),
        cmocka_unit_test(a_call_works),
        cmocka_unit_test(no_effect_without_its_own_grant),
        cmocka_unit_test(commands_are_bound_to_their_words),
        cmocka_unit_test(violations_end_it),
        cmocka_unit_test(large_bodies_travel_as_memfds),
        cmocka_unit_test(progress_once_a_second_and_abort),
        cmocka_unit_test(snapshots),
        cmocka_unit_test(a_daemon_is_dead_when_the_call_ends),
        cmocka_unit_test(the_end_of_the_channel_ends_everything),
        cmocka_unit_test(commands_cannot_get_at_pid_1),
        cmocka_unit_test(the_program_gives_nothing_of_the_host_on),
        cmocka_unit_test(the_program_is_static),
        cmocka_unit_test(the_program_refuses_to_run_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
