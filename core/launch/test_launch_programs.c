/*
 * Real programs under the filter, in real sandboxes of an ordinary size, as root and as an ordinary
 * user: shells, git, compilers and language run times with their threads, processes and loopback
 * sockets. A program that is missing is a failure (vendor/ lists the packages).
 */
#include <fcntl.h>

#include "launch/test_rig.h"

static const struct {
    const char *name, *file, *text, *script, *prints;
} programs[] = {
    {"bash", "t.bash",
     "set -euo pipefail\n"
     "a=(1 2 3); declare -A m=([x]=y)\n"
     "diff <(printf '1\\n') <(printf '1\\n')\n"
     "read -r v <<< here\n"
     "trap 'echo trapped' USR1; kill -USR1 $$\n"
     "coproc cat; echo hi >&\"${COPROC[1]}\"; read -r l <&\"${COPROC[0]}\"\n"
     "mkfifo pipe; (echo through > pipe) & read -r p < pipe; wait $!\n"
     "sleep 10 & kill $!; wait $! || code=$?\n"
     "echo \"${a[@]} ${m[x]} $v $l $p $code\"\n"
     "printf '%s\\n' a b c | sort -r | head -1\n",
     "/usr/bin/bash t.bash", "trapped\n1 2 3 y here hi through 143\nc\n"},
    {"git", "t.sh",
     "set -e\n"
     "export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=a \\\n"
     "  GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=a@example.org\n"
     "git init -q repo; cd repo; echo 1 > f; chmod 755 f; git add f; git commit -qm one\n"
     "git checkout -qb side; echo 2 > f; git commit -qam two; git checkout -q -\n"
     "git merge -q side; git tag v1; cd ..\n"
     "git clone -q repo copy; git clone -q \"file://$PWD/repo\" other\n"
     "git -C copy log --format=%s; git -C copy gc -q; git -C copy fsck\n"
     "git -C other worktree add -q ../tree v1; cat tree/f\n"
     /* group inheritance, which is what the set-group-id bit means on a directory */
     "git init -q --shared=group shared; stat -c %a shared/.git/refs\n"
     "cp -a shared again; stat -c %a again/.git/refs\n"
     "mkdir team; chmod 2775 team; mkdir team/sub; stat -c %a team/sub\n",
     "/bin/sh t.sh", "two\none\n2\n2775\n2775\n2755\n"},
    {"gcc", "t.c",
     "#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <fcntl.h>\n"
     "#include <sys/mman.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
     "static void *f(void *p) { ++*(int *)p; return p; }\n"
     "int main(void) {\n"
     "  int n[8] = {0}, s = 0; pthread_t t[8];\n"
     "  for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, f, &n[i]);\n"
     "  for (int i = 0; i < 8; i++) { pthread_join(t[i], NULL); s += n[i]; }\n"
     "  int *m = mmap(0, 4096, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);\n"
     "  if (fork() == 0) { *m = 5; _exit(0); }\n"
     "  wait(NULL); FILE *p = popen(\"echo popen\", \"r\"); char b[9] = \"\";\n"
     "  if (!p || !fgets(b, 9, p) || !tmpfile()) return 1;\n"
     "  pclose(p); printf(\"%d %d %s\", s, *m, b); return 0; }\n",
     "gcc -Wall -O2 -g -flto -pthread -o c-program t.c && ./c-program", "8 5 popen\n"},
    {"python3", "t.py",
     "import asyncio, ctypes, mmap, multiprocessing, os, select, socket, sqlite3, subprocess, sys\n"
     "import tempfile, threading, signal\n"
     "def square(n): return n * n\n"
     "async def echo(r, w):\n"
     "  w.write(await r.readline()); await w.drain(); w.close()\n"
     "async def talk():\n"
     "  s = await asyncio.start_server(echo, '127.0.0.1', 0)\n"
     "  r, w = await asyncio.open_connection(*s.sockets[0].getsockname())\n"
     "  w.write(b'loop\\n'); print((await r.readline()).decode().strip())\n"
     "  p = await asyncio.create_subprocess_exec('echo', 'child',\n"
     "      stdout=asyncio.subprocess.PIPE)\n"
     "  print((await p.communicate())[0].decode().strip()); w.close(); s.close()\n"
     "if __name__ == '__main__':\n"
     "  out = []; ts = [threading.Thread(target=out.append, args=(i,)) for i in range(8)]\n"
     "  [t.start() for t in ts]; [t.join() for t in ts]; print(sum(out))\n"
     "  print(subprocess.run(['echo', 'run'], capture_output=True, text=True).stdout.strip())\n"
     "  with multiprocessing.Pool(3) as p: print(p.map(square, [1, 2, 3]))\n"
     "  asyncio.run(talk())\n"
     "  q = multiprocessing.get_context('spawn').Queue(); q.put(1); print(q.get())\n"
     "  d = sqlite3.connect('t.db'); d.execute('create table t(a)'); d.commit()\n"
     "  print(socket.getaddrinfo('localhost', 80, socket.AF_INET)[0][4][0])\n"
     "  a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
     "  try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('netlink')\n"
     "  except OSError as e: print(e.errno)\n",
     "/usr/bin/python3 t.py", "28\nrun\n[1, 4, 9]\nloop\nchild\n1\n127.0.0.1\nb'x'\n97\n"},
    {"node", "t.mjs",
     "import { Worker } from 'node:worker_threads'; import http from 'node:http';\n"
     "import fs from 'node:fs'; import { execFileSync, spawn } from 'node:child_process';\n"
     "import { once } from 'node:events'; import dns from 'node:dns/promises';\n"
     "import crypto from 'node:crypto'; import zlib from 'node:zlib'; import os from 'node:os';\n"
     "const w = new Worker('require(\"worker_threads\").parentPort.postMessage(6*7)', "
     "{eval: true});\n"
     "console.log((await once(w, 'message'))[0]);\n"
     "const s = http.createServer((q, r) => r.end('http')).listen(0, '127.0.0.1');\n"
     "await once(s, 'listening');\n"
     "console.log(await (await fetch(`http://127.0.0.1:${s.address().port}/`)).text());\n"
     "s.close(); s.closeAllConnections();\n"
     "console.log(execFileSync('echo', ['exec']).toString().trim());\n"
     "const c = spawn('cat'); c.stdin.end('piped');\n"
     "console.log((await once(c.stdout, 'data'))[0].toString());\n"
     "await fs.promises.writeFile('n', 'x'); fs.copyFileSync('n', 'm'); fs.chmodSync('n', 0o755);\n"
     "console.log(fs.readFileSync('m', 'utf8'), (await dns.lookup('localhost', 4)).address);\n"
     "const u = fs.watch('.'); fs.writeFileSync('o', ''); await once(u, 'change'); u.close();\n"
     "try { os.networkInterfaces(); } catch (e) { console.log(e.code); }\n"
     "console.log(zlib.gunzipSync(zlib.gzipSync('z')).toString(), crypto.randomBytes(4).length);\n"
     "process.exit(0);\n",
     "/usr/bin/node t.mjs", "42\nhttp\nexec\npiped\nx 127.0.0.1\nERR_SYSTEM_ERROR\nz 4\n"},
    {"go", "t.go",
     "package main\n"
     "import (\"fmt\"; \"net\"; \"net/http\"; \"io\"; \"os\"; \"os/exec\"; \"sync\"; \"time\")\n"
     "func main() {\n"
     "  var g sync.WaitGroup; var l sync.Mutex; n := 0\n"
     "  for i := 0; i < 100; i++ { g.Add(1); go func() { defer g.Done(); time.Sleep(1000);\n"
     "    l.Lock(); n++; l.Unlock() }() }\n"
     "  g.Wait(); s, err := net.Listen(\"tcp\", \"127.0.0.1:0\"); if err != nil { panic(err) }\n"
     "  go http.Serve(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {\n"
     "    fmt.Fprint(w, \"http\") }))\n"
     "  r, err := http.Get(\"http://\" + s.Addr().String()); if err != nil { panic(err) }\n"
     "  b, _ := io.ReadAll(r.Body); o, err := exec.Command(\"echo\", \"-n\", \"exec\").Output()\n"
     "  if err != nil { panic(err) }\n"
     "  a, err := net.LookupHost(\"localhost\"); if err != nil { panic(err) }\n"
     "  _, err = net.Interfaces(); _, e := os.Create(\"made\"); if e != nil { panic(e) }\n"
     "  fmt.Println(n, string(b), string(o), len(a) > 0, err != nil) }\n",
     /* no interfaces: that takes netlink */
     "go build -o go-program t.go && ./go-program", "100 http exec true true\n"},
    {"rust", "t.rs",
     "use std::{io::{Read, Write}, net::{TcpListener, TcpStream}, process::Command, thread};\n"
     "fn main() {\n"
     "  let t: Vec<_> = (0..8u32).map(|i| thread::spawn(move || i)).collect();\n"
     "  let n: u32 = t.into_iter().map(|t| t.join().unwrap()).sum();\n"
     "  let l = TcpListener::bind(\"127.0.0.1:0\").unwrap(); let a = l.local_addr().unwrap();\n"
     "  let s = thread::spawn(move || l.accept().unwrap().0.write_all(b\"tcp\").unwrap());\n"
     "  let mut b = String::new(); TcpStream::connect(a).unwrap().read_to_string(&mut "
     "b).unwrap();\n"
     "  s.join().unwrap(); let o = Command::new(\"echo\").arg(\"run\").output().unwrap();\n"
     "  std::fs::write(\"written\", &b).unwrap();\n"
     "  print!(\"{} {} {}\", n, b, String::from_utf8(o.stdout).unwrap()) }\n",
     "/usr/bin/rustc -O -o rust-program t.rs && ./rust-program", "28 tcp run\n"},
};

static void run_all(uid_t uid)
{
    struct rig r;
    const char *out;
    char script[4096];
    rig_need_root();
    rig_open(&r, uid);
    rig_put(&r, "work/", NULL);
    for (unsigned i = 0; i < BR_ARRAY_LEN(programs); i++) {
        char name[128];
        snprintf(name, sizeof(name), "work/%s/", programs[i].name);
        rig_put(&r, name, NULL);
        snprintf(name, sizeof(name), "work/%s/%s", programs[i].name, programs[i].file);
        rig_put(&r, name, programs[i].text);
    }
    rig_allow(&r, "work/**");
    assert_true(rig_launch(&r));
    for (unsigned i = 0; i < BR_ARRAY_LEN(programs); i++) {
        snprintf(script, sizeof(script), "cd work/%s && %s", programs[i].name, programs[i].script);
        int code = rig_sh(&r, script, &out);
        if (code != 0 || strcmp(out, programs[i].prints) != 0)
            fail_msg("%s: exit %d, printed:\n%s", programs[i].name, code, out);
    }
    rig_exit(&r, 0);
    rig_close(&r);
}

static void test_as_root(void **state)
{
    (void)state;
    run_all(0);
}

static void test_as_user(void **state)
{
    (void)state;
    rig_need_root();
    run_all(RIG_USER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_root),
        cmocka_unit_test(test_as_user),
    };
    return cmocka_run_group_tests(tests, rig_delegate, rig_undelegate);
}
