// The connection: JSON-RPC over the WebSocket /acp of this page's own origin, with the subprotocol
// harness.acp.1 and the extension bridle/1. It connects again by itself, ever more slowly, and asks
// for a token where the server wants one. It knows nothing of sessions.

const PATH = "/acp";
const PROTOCOL = "harness.acp.1";
const BACKOFF_MS = [250, 500, 1000, 2000, 4000, 8000, 15000];
const RATE_LIMITED = -32031; // nothing was done: the same request is sent again, ever more slowly
const BUSY_MS = [250, 500, 1000, 2000, 4000];
const ANSWER_MS = 60000; // for a request; a prompt's answer comes when its run has ended

export class RpcError extends Error {
  constructor(code, message, name) {
    super(message);
    this.code = code;
    this.name_ = name;
  }
}

// on: {state(s), ready(info), notification(method, params), failed(why)}. State is one of
// "connecting", "login", "ready", "waiting", "failed".
export class Link {
  constructor(on) {
    this.on = on;
    this.socket = null;
    this.tries = 0;
    this.next = 1;
    this.waiting = new Map();
    this.info = null;
    this.retryAt = 0;
    this.timer = 0;
    this.stopped = false;
  }

  start() {
    clearTimeout(this.timer);
    this.stopped = false;
    this.on.state("connecting");
    const url = (location.protocol === "https:" ? "wss://" : "ws://") + location.host + PATH;
    const socket = new WebSocket(url, PROTOCOL);
    let opened = false;
    this.socket = socket;
    socket.onopen = () => {
      opened = true;
      this.initialize(socket);
    };
    socket.onmessage = (m) => {
      if (this.socket === socket) this.message(m.data);
    };
    socket.onclose = (e) => {
      if (this.socket === socket) this.closed(opened, e);
    };
  }

  // A new connection in place of this one; true once it is ready.
  again() {
    this.stop();
    return new Promise((done) => {
      this.whenReady = done;
      setTimeout(() => done(false), ANSWER_MS);
      this.start();
    });
  }

  stop() {
    clearTimeout(this.timer);
    this.stopped = true;
    const socket = this.socket;
    this.socket = null;
    if (socket) socket.close();
    this.fail("the connection was closed");
  }

  async initialize(socket) {
    try {
      const r = await this.request("initialize", {
        protocolVersion: "harness/acp/1",
        clientName: "bridle-board",
        capabilities: { streaming: true, permissioning: true, sessions: true, extensions: ["bridle/1"] },
      });
      const has = r.capabilities && r.capabilities.extensions;
      if (!r.bridle || !Array.isArray(has) || !has.includes("bridle/1"))
        return this.refuse("This server does not speak the extension bridle/1, which the board needs.");
      this.tries = 0;
      this.info = { ...r, skewMs: Date.parse(r.bridle.serverTime) - Date.now() || 0 };
      this.on.ready(this.info);
      this.on.state("ready");
      if (this.whenReady) this.whenReady(true);
      this.whenReady = null;
    } catch (e) {
      if (this.socket !== socket) return;
      if (e instanceof RpcError) this.refuse("The server refused the board: " + e.message);
      else socket.close();
    }
  }

  // Nothing that time would mend.
  refuse(why) {
    this.stop();
    this.on.failed(why);
    this.on.state("failed");
  }

  message(text) {
    let m;
    try {
      m = JSON.parse(text);
    } catch {
      return this.protocolFailure("a message is not JSON");
    }
    if (typeof m !== "object" || m === null || m.jsonrpc !== "2.0")
      return this.protocolFailure("a message is not JSON-RPC 2.0");
    if (typeof m.method === "string" && m.id === undefined)
      return this.on.notification(m.method, m.params || {}, 2 * text.length);
    const w = this.waiting.get(m.id);
    if (!w) return this.protocolFailure("an answer to a question that was not asked");
    this.waiting.delete(m.id);
    if (m.error && m.error.code === RATE_LIMITED && w.tries < BUSY_MS.length) return this.later(w);
    clearTimeout(w.timer);
    if (m.error) w.reject(new RpcError(m.error.code, m.error.message, m.error.data && m.error.data.code));
    else w.resolve(m.result);
  }

  protocolFailure(why) {
    if (this.socket) this.socket.close(4000, "protocol failure");
    this.on.failed("Protocol failure: " + why + ".");
  }

  request(method, params, ms = ANSWER_MS) {
    return new Promise((resolve, reject) => {
      const socket = this.socket;
      if (!socket || socket.readyState !== WebSocket.OPEN)
        return reject(new Error("there is no connection"));
      const w = { resolve, reject, socket, method, params, tries: 0 };
      w.id = this.next++;
      w.timer = ms ? setTimeout(() => {
        // The answer may still come; a request that is given up takes its connection with it.
        if (this.waiting.get(w.id) === w && this.socket === socket) socket.close(4001, "no answer");
      }, ms) : 0;
      this.waiting.set(w.id, w);
      this.send(w);
    });
  }

  // Params that change meanwhile are a function.
  send(w) {
    const params = typeof w.params === "function" ? w.params() : w.params;
    w.socket.send(JSON.stringify({ jsonrpc: "2.0", id: w.id, method: w.method, params }));
  }

  // It waits for its turn, and ends with its connection like those that wait for an answer.
  later(w) {
    w.id = this.next++;
    this.waiting.set(w.id, w);
    setTimeout(() => {
      if (this.waiting.get(w.id) === w && this.socket === w.socket) this.send(w);
    }, BUSY_MS[w.tries++] * (0.75 + Math.random() / 2));
  }

  fail(why) {
    const all = [...this.waiting.values()];
    this.waiting.clear();
    for (const w of all) {
      clearTimeout(w.timer);
      w.reject(new Error(why));
    }
  }

  async closed(opened, e) {
    const socket = this.socket;
    this.fail("the connection was lost");
    if (this.stopped) return;
    // A browser does not say why a handshake failed: an ordinary request does.
    if (!opened) {
      let status = 0;
      try {
        status = (await fetch("/whoami", { cache: "no-store", redirect: "error" })).status;
      } catch {
        status = 0;
      }
      if (this.socket !== socket || this.stopped) return;
      if (status === 401) return this.on.state("login");
      if (status === 403 || status === 421)
        return this.refuse("The server does not serve the board to this address (" + status + "). Its operator may allow '" + location.origin + "' under 'service.origins' or 'service.hosts'.");
    }
    this.tries = opened && e.code === 1001 ? 0 : this.tries;
    const wait = BACKOFF_MS[Math.min(this.tries, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2);
    this.tries++;
    this.retryAt = Date.now() + wait;
    this.timer = setTimeout(() => this.start(), wait);
    this.on.state("waiting");
  }

  async logout() {
    this.stop();
    try {
      await fetch("/logout", { method: "POST", cache: "no-store", redirect: "error" });
    } catch {
      // the server forgets it in time
    }
    this.start();
  }

  // A cookie for a token: true, or a sentence why not.
  async login(token) {
    if (!/^[\x21-\x7e]+$/.test(token)) return "A token is 64 letters and digits, without blanks.";
    let answer;
    try {
      answer = await fetch("/login", {
        method: "POST",
        headers: { Authorization: "Bearer " + token },
        cache: "no-store",
        redirect: "error",
      });
    } catch {
      return "The server could not be reached. Nothing was sent on; try again.";
    }
    if (answer.ok) {
      this.start();
      return true;
    }
    if (answer.status === 429) return "Too many tries. Wait a minute, then try again.";
    if (answer.status === 401) return "That token is not one of this server's. 'bridle token list' names them; 'bridle token add' makes another.";
    return "The server did not accept it (status " + answer.status + ").";
  }
}
