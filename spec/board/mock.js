// A server for the tests of the board that says what a test wants it to say, right or wrong: static
// files of web/board, and harness/acp/1 with bridle/1 on /acp. It checks nothing and decides nothing.
"use strict";
const crypto = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

let serial = 0;
const evt = (type, data, actor) => {
  const e = { v: 1, type, eventId: `evt_${String(++serial).padStart(8, "0")}`, at: new Date().toISOString().replace("Z", "+00:00") };
  if (actor) e.actor = actor;
  e.data = data;
  return e;
};

class Session {
  constructor(mock, row) {
    this.mock = mock;
    this.row = { sessionId: row.sessionId, status: "running", workspace: "/srv/work/project", model: "scripted/demo", goal: "", startedAt: new Date().toISOString(), events: 0, live: true, owned: true, asks: 0, ...row };
    this.log = []; // {method, params}
    this.seq = -1;
    this.own = -1;
    this.open = new Map();
  }

  // Store an event, and send it to those who follow.
  put(event) {
    const own = event.type.startsWith("bridle.");
    const entry = own ? { method: "bridle/event", params: { sessionId: this.row.sessionId, after: this.seq, seq: ++this.own, event } }
      : { method: "session/event", params: { sessionId: this.row.sessionId, seq: ++this.seq, event } };
    this.log.push(entry);
    this.row.events++;
    for (const c of this.mock.clients) if (c.follows.has(this.row.sessionId)) c.send({ jsonrpc: "2.0", ...entry });
    return event;
  }

  say(type, data, actor) {
    return this.put(evt(type, data, actor));
  }

  changed(values) {
    Object.assign(this.row, values);
    const { sessionId, status, workspace, model, asks, owned, startedAt } = this.row;
    for (const c of this.mock.clients)
      if (c.watches) c.send({ jsonrpc: "2.0", method: "bridle/session", params: { sessionId, status, workspace, model, asks, owned, startedAt } });
  }

  begin(goal) {
    const id = this.row.sessionId;
    this.row.goal = goal;
    this.say("session.created", { sessionId: id, workspace: this.row.workspace }, "kernel");
    this.say("bridle.run", { runId: id, mode: "run", goal, model: this.row.model, scripted: true, workspace: this.row.workspace, policy: "default", tableSha256: "c2d4606712d6a1ced397d54d9ed11efa77d297348d43fa2eb0a38966b6cb0c1a", rules: 128, profile: "run-v1" }, "kernel");
    this.say("agent.started", { agentId: "bridle-agent", sessionId: id, model: this.row.model }, "kernel");
  }

  call(callId, tool, input, decision) {
    this.say("tool.call", { callId, tool, input }, "agent");
    this.say("policy.decision", { action: decision.action, subject: decision.subject, effect: decision.effect, ruleId: decision.ruleId || "operator:rule", ...(decision.reason ? { reason: decision.reason } : {}) }, "kernel");
    this.say("bridle.votes", { callId, action: decision.action, subject: decision.subject, effect: decision.effect, ruleId: decision.ruleId || "operator:rule", source: "operator", opaque: false, votes: [{ source: "operator", ruleId: decision.ruleId || "operator:rule", effect: decision.effect }] }, "kernel");
  }

  ask(permissionId, callId, action, subject, more = {}) {
    this.open.set(permissionId, { callId, action, subject });
    this.say("permission.requested", { permissionId, sessionId: this.row.sessionId, callId, action, subject, scope: "once", reason: "a command is asked about" }, "kernel");
    this.say("bridle.ask", { permissionId, callId, action, subject, scope: "run", ruleId: "operator:exec", source: "operator", file: "default.lua", line: 58, opaque: false, commands: [{ action, subject, effect: "ask", ruleId: "operator:exec", source: "operator" }], touches: { writable: ["src/**"] }, advice: "To be asked no more, add to 'rules' of a policy of your own (extend = \"default\"), and run with -p FILE:", rules: [{ text: `policy.allow { id = "mine", action = "${action}" },` }], why: `bridle policy why --run ${this.row.sessionId} --call ${callId}`, ...more }, "kernel");
    this.say("bridle.asks", { asks: [...this.open.keys()].map((permissionId) => ({ permissionId })) }, "kernel");
    this.changed({ asks: this.open.size });
  }

  resolve(permissionId, decision, by, scope, note, wrong = {}) {
    const a = this.open.get(permissionId);
    this.open.delete(permissionId);
    this.say("permission.resolved", { permissionId, sessionId: this.row.sessionId, callId: a.callId, action: a.action, subject: a.subject, scope: "once", decision, ...(note ? { note } : {}), ...wrong }, by ? "operator" : "kernel");
    if (by) this.say("bridle.answered", { permissionId, by, decision, scope }, "kernel");
    if (decision === "allow" && scope === "run") this.say("bridle.grant", { permissionId, ...a, scope: "run", environment: "0", ruleId: "operator:exec", source: "operator" }, "kernel");
    this.changed({ asks: this.open.size });
    if (this.answered) this.answered(permissionId, decision);
  }

  end(status = "completed") {
    for (const id of [...this.open.keys()]) this.resolve(id, "deny", "", "once", "the run was canceled");
    this.say("agent.stopped", { agentId: "bridle-agent", status, steps: 1, toolCalls: 1 }, "kernel");
    this.row.live = false;
    this.row.endedAt = new Date().toISOString();
    this.changed({ status });
  }
}

class Client {
  constructor(mock, socket, who) {
    Object.assign(this, { mock, socket, who, follows: new Set(), watches: false, made: 0, buffer: Buffer.alloc(0) });
    socket.on("data", (d) => this.data(d));
    socket.on("error", () => {});
    socket.on("close", () => mock.clients.delete(this));
  }

  frame(op, payload) {
    const n = payload.length;
    const head = n < 126 ? Buffer.from([0x80 | op, n]) : n < 65536 ? Buffer.from([0x80 | op, 126, n >> 8, n & 255])
      : Buffer.from([0x80 | op, 127, 0, 0, 0, 0, n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255]);
    if (!this.socket.destroyed) this.socket.write(Buffer.concat([head, payload]));
  }

  send(message) {
    this.frame(1, Buffer.from(JSON.stringify(message)));
  }

  data(d) {
    this.buffer = Buffer.concat([this.buffer, d]);
    for (;;) {
      const b = this.buffer;
      if (b.length < 2) return;
      let n = b[1] & 127, at = 2;
      if (n === 126) { if (b.length < 4) return; n = b.readUInt16BE(2); at = 4; }
      else if (n === 127) { if (b.length < 10) return; n = Number(b.readBigUInt64BE(2)); at = 10; }
      if (b.length < at + 4 + n) return;
      const mask = b.subarray(at, at + 4), payload = Buffer.from(b.subarray(at + 4, at + 4 + n));
      for (let i = 0; i < n; i++) payload[i] ^= mask[i & 3];
      this.buffer = b.subarray(at + 4 + n);
      const op = b[0] & 15;
      if (op === 8) { this.frame(8, payload.subarray(0, 2)); this.socket.end(); }
      else if (op === 1) this.message(JSON.parse(payload.toString()));
    }
  }

  message(m) {
    this.mock.requests.push({ method: m.method, params: m.params, who: this.who.name });
    const f = METHODS[m.method];
    if (this.mock.slow && /^session\/(list|load|watch)$/.test(m.method)) return void this.mock.slow.push(() => this.answer(f, m));
    this.answer(f, m);
  }

  answer(f, m) {
    try {
      if (this.mock.busy[m.method]-- > 0) throw { code: -32031, message: "too many readings of the record; try again in a second", data: { code: "ACP_RATE_LIMITED" } };
      if (!f) throw { code: -32601, message: "there is no such method" };
      const need = NEEDS[m.method];
      if (need && ORDER.indexOf(this.who.access) < ORDER.indexOf(need)) throw { code: -32030, message: `'${m.method}' needs the access '${need}'`, data: { code: "ACP_FORBIDDEN" } };
      const result = f(this, m.params || {}, m);
      if (result !== undefined) this.send({ jsonrpc: "2.0", id: m.id, result });
    } catch (e) {
      if (!("code" in e)) throw e;
      this.send({ jsonrpc: "2.0", id: m.id, error: e });
    }
  }
}

const ORDER = ["observe", "answer", "operate"];
const NEEDS = { "session/new": "operate", "session/prompt": "operate", "session/cancel": "operate", "session/detach": "operate", "permission/respond": "answer" };

const METHODS = {
  initialize(c) {
    return { protocolVersion: "harness/acp/1", agentName: "bridle", agentVersion: "mock", capabilities: { streaming: true, permissioning: true, sessions: true, extensions: ["bridle/1"] }, models: ["scripted/demo", "openai/gpt-5"], bridle: { name: c.who.name, access: c.who.access, detach: true, askSeconds: c.mock.askSeconds, serverTime: new Date().toISOString() } };
  },
  "session/watch"(c) {
    c.watches = true;
    return { sessions: [...c.mock.sessions.values()].filter((s) => s.row.live).map((s) => s.row) };
  },
  "session/list"(c, p) {
    let list = [...c.mock.sessions.values()].map((s) => s.row).reverse();
    if (p.query) list = list.filter((r) => JSON.stringify(r).includes(p.query));
    if (p.before) list = list.slice(list.findIndex((r) => r.sessionId === p.before) + 1);
    const limit = p.limit || 50;
    return { sessions: list.slice(0, limit), more: list.length > limit };
  },
  "session/load"(c, p) {
    const s = find(c, p);
    c.follows.add(p.sessionId);
    if (c.mock.onLoad) c.mock.onLoad(s, p);
    for (const [i, e] of s.log.entries()) {
      // A reading that begins again too often: it ends in the middle.
      if (i === 2 && c.mock.breaks-- > 0) throw { code: -32031, message: "too many readings of the record; try again in a second", data: { code: "ACP_RATE_LIMITED" } };
      const after = e.method === "session/event" ? p.after : p.afterBridle;
      if (e.params.seq > (after ?? -1)) c.send({ jsonrpc: "2.0", ...e });
    }
    return { status: s.row.status, live: s.row.live, owned: s.row.owned };
  },
  "session/unfollow"(c, p) {
    c.follows.delete(p.sessionId);
    return {};
  },
  "session/detach"(c, p) {
    find(c, p).changed({ owned: false });
    return { detached: true };
  },
  "session/new"(c, p) {
    if (!p.workspace.startsWith("/srv/work")) throw { code: -32602, message: `'${p.workspace}' is not inside of '/srv/work'; no session was made` };
    if (++c.made > c.mock.sessionsMax) throw { code: -32012, message: "this connection has made as many sessions as it may" };
    const s = c.mock.add({ status: "created", workspace: p.workspace, model: p.model });
    c.follows.add(s.row.sessionId);
    s.changed({});
    return { sessionId: s.row.sessionId };
  },
  "session/prompt"(c, p, m) {
    const s = find(c, p);
    s.changed({ status: "running" });
    s.begin(p.content);
    s.prompted = { client: c, id: m.id };
    return undefined;
  },
  "session/cancel"(c, p) {
    const s = find(c, p);
    if (!s.row.live) return { canceled: false };
    s.end("canceled");
    return { canceled: true };
  },
  "permission/respond"(c, p) {
    const s = find(c, p);
    if (!s.open.has(p.permissionId)) throw { code: -32021, message: "the permission is resolved", data: { code: "ACP_PERMISSION_RESOLVED" } };
    const liar = c.mock.liar;
    setImmediate(() => s.resolve(p.permissionId, liar ? "allow" : p.decision, c.who.name, p.scope || "once", p.note));
    return { accepted: true };
  },
};

function find(c, p) {
  const s = c.mock.sessions.get(p.sessionId);
  if (!s) throw { code: -32010, message: "there is no such session", data: { code: "ACP_SESSION_NOT_FOUND" } };
  return s;
}

class Mock {
  constructor(folder) {
    Object.assign(this, { folder, sessions: new Map(), clients: new Set(), requests: [], urls: [], askSeconds: 120, sessionsMax: 32, liar: false, needsToken: false, onLoad: null, slow: null, busy: { "session/list": 0, "session/load": 0 }, breaks: 0, inject: "" });
    this.who = { name: "uid:1000", access: "operate" };
    this.server = http.createServer((q, r) => this.file(q, r));
    this.server.on("upgrade", (q, socket) => this.upgrade(q, socket));
  }

  listen(port = 0) {
    return new Promise((done) => this.server.listen(port, "127.0.0.1", () => done(this.server.address().port)));
  }

  close() {
    this.drop();
    this.server.close();
    this.server.closeAllConnections();
  }

  // Every connection is lost, without a word.
  drop() {
    for (const c of this.clients) c.socket.destroy();
    this.clients.clear();
  }

  add(row) {
    const s = new Session(this, { sessionId: row.sessionId || "run_" + String(this.sessions.size + 1).padStart(4, "0"), ...row });
    this.sessions.set(s.row.sessionId, s);
    return s;
  }

  known(q) {
    return !this.needsToken || /session=good/.test(q.headers.cookie || "");
  }

  file(q, r) {
    this.urls.push(q.url);
    const at = q.url.split("?")[0], name = at === "/" ? "/index.html" : at;
    if (name === "/login") {
      const good = q.headers.authorization === "Bearer good" && q.method === "POST";
      return void r.writeHead(good ? 200 : 401, good ? { "Set-Cookie": "session=good; HttpOnly; SameSite=Strict; Path=/" } : {}).end("{}");
    }
    if (name === "/logout") return void r.writeHead(200, { "Set-Cookie": "session=; Max-Age=0; Path=/" }).end("{}");
    if (name === "/whoami") return void r.writeHead(this.known(q) ? 200 : 401).end("{}");
    let body;
    try {
      body = fs.readFileSync(path.join(this.folder, path.basename(name)));
    } catch {
      return void r.writeHead(404).end();
    }
    // A page into which somebody got markup: the policy must stop it.
    if (name === "/index.html" && this.inject) body = body.toString().replace("</head>", this.inject + "</head>");
    r.writeHead(200, { "Content-Type": TYPES[path.extname(name)], "Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" }).end(body);
  }

  upgrade(q, socket) {
    if (!this.known(q)) return void socket.end("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    const key = crypto.createHash("sha1").update(q.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\nSec-WebSocket-Protocol: harness.acp.1\r\n\r\n`);
    this.clients.add(new Client(this, socket, this.who));
  }
}

module.exports = { Mock, evt };
