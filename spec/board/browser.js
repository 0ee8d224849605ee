// Chromium without a window, driven by the DevTools protocol over two pipes: no package, no port.
"use strict";
const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--no-default-browser-check",
  "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio", "--no-pings", "--no-proxy-server", "--password-store=basic",
  "--disable-features=Translate,MediaRouter,OptimizationHints,DialMediaRouteProvider", "--remote-debugging-pipe"];

const ANSWER_MS = 60000;

class Browser {
  static async start(program) {
    const b = new Browser();
    b.profile = fs.mkdtempSync(path.join(os.tmpdir(), "bridle-board."));
    b.child = spawn(program, [...FLAGS, "--user-data-dir=" + b.profile, "about:blank"], {
      stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"], env: { ...process.env, HOME: b.profile, XDG_CONFIG_HOME: b.profile, XDG_CACHE_HOME: b.profile },
    });
    b.stderr = "";
    b.child.stderr.on("data", (d) => { b.stderr = (b.stderr + d).slice(-4000); });
    b.exited = new Promise((done) => b.child.on("exit", done));
    b.exited.then(() => {
      for (const w of b.waiting.values()) w.reject(new Error("Chromium has ended: " + b.stderr));
    });
    b.waiting = new Map();
    b.listeners = [];
    b.next = 1;
    let rest = "";
    b.child.stdio[4].setEncoding("utf8");
    b.child.stdio[4].on("data", (d) => {
      const parts = (rest + d).split("\0");
      rest = parts.pop();
      for (const text of parts) b.message(JSON.parse(text));
    });
    await b.send("Browser.getVersion");
    return b;
  }

  message(m) {
    const w = this.waiting.get(m.id);
    if (w) {
      this.waiting.delete(m.id);
      if (m.error) w.reject(new Error(w.method + ": " + m.error.message));
      else w.resolve(m.result);
    } else {
      for (const f of this.listeners) f(m);
    }
  }

  send(method, params = {}, sessionId) {
    return new Promise((resolve, reject) => {
      const id = this.next++;
      const late = setTimeout(() => {
        this.waiting.delete(id);
        reject(new Error(method + ": Chromium did not answer"));
      }, ANSWER_MS);
      this.waiting.set(id, {
        method,
        resolve: (r) => { clearTimeout(late); resolve(r); },
        reject: (e) => { clearTimeout(late); reject(e); },
      });
      this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + "\0");
    });
  }

  async page(url, { width = 1280, height = 800 } = {}) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank", browserContextId, width, height });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const p = new Page(this, sessionId, targetId, browserContextId);
    await p.init(width, height);
    if (url) await p.go(url);
    return p;
  }

  async close() {
    try {
      await this.send("Browser.close");
    } catch {
      // it was gone
    }
    const late = setTimeout(() => this.child.kill("SIGKILL"), 5000);
    await this.exited;
    clearTimeout(late);
    for (let i = 0; i < 5; i++) {
      try {
        fs.rmSync(this.profile, { recursive: true, force: true });
        return;
      } catch {
        spawnSync("sleep", ["0.1"]);
      }
    }
    fs.rmSync(this.profile, { recursive: true, force: true });
  }
}

class Page {
  constructor(browser, session, target, context) {
    Object.assign(this, { browser, session, target, context, requests: [], console: [], violations: [], dialogs: [], sockets: [] });
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  async init(width, height) {
    this.browser.listeners.push((m) => {
      if (m.sessionId !== this.session) return;
      const p = m.params;
      if (m.method === "Network.requestWillBeSent") this.requests.push(p.request.url);
      else if (m.method === "Network.webSocketCreated") this.sockets.push(p.url);
      else if (m.method === "Runtime.exceptionThrown") this.console.push("exception: " + (p.exceptionDetails.exception?.description || p.exceptionDetails.text));
      else if (m.method === "Log.entryAdded") this.console.push(p.entry.source + ": " + p.entry.text);
      else if (m.method === "Audits.issueAdded" && p.issue.code === "ContentSecurityPolicyIssue")
        this.violations.push(p.issue.details.contentSecurityPolicyIssueDetails.violatedDirective);
      else if (m.method === "Page.javascriptDialogOpening") {
        this.dialogs.push(p.message);
        this.send("Page.handleJavaScriptDialog", { accept: true });
      }
    });
    for (const domain of ["Page", "Network", "Runtime", "Log", "Audits", "DOM", "Accessibility"]) await this.send(domain + ".enable");
    await this.send("Emulation.setFocusEmulationEnabled", { enabled: true }); // several at once
    await this.size(width, height);
  }

  size(width, height) {
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  media(features) {
    return this.send("Emulation.setEmulatedMedia", { features: Object.entries(features).map(([name, value]) => ({ name, value })) });
  }

  async go(url) {
    await this.send("Page.navigate", { url });
  }

  // The value of an expression in the page.
  async eval(expression) {
    const r = await this.send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description || r.exceptionDetails.text);
    return r.result.value;
  }

  // Wait until the expression is true; its value.
  async until(expression, what = expression, ms = 30000) {
    const end = Date.now() + ms;
    for (;;) {
      // A page on its way to another has no values.
      const v = await this.eval(`(() => { try { return ${expression}; } catch (e) { return false; } })()`).catch(() => false);
      if (v) return v;
      if (Date.now() > end) throw new Error(`it did not come about: ${what}\n  page: ${(await this.eval("document.body.innerText")).slice(0, 1500)}\n  console: ${this.console.join("\n")}`);
      await new Promise((done) => setTimeout(done, 15));
    }
  }

  async click(selector) {
    const at = await this.eval(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); if (!e) return null; e.scrollIntoView({block: "nearest"}); const r = e.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + r.height / 2}; })()`);
    if (!at) throw new Error("there is no '" + selector + "'");
    for (const type of ["mousePressed", "mouseReleased"])
      await this.send("Input.dispatchMouseEvent", { type, x: at.x, y: at.y, button: "left", clickCount: 1 });
  }

  async key(key, modifiers = 0) {
    const codes = { Enter: 13, Escape: 27, Tab: 9, ArrowDown: 40, ArrowUp: 38, ArrowLeft: 37, ArrowRight: 39, Home: 36, End: 35 };
    const text = key.length === 1 ? key : key === "Enter" ? "\r" : undefined;
    const common = { key, modifiers, windowsVirtualKeyCode: codes[key] || key.toUpperCase().charCodeAt(0), code: key.length === 1 ? undefined : key };
    await this.send("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", text, ...common });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...common });
  }

  type(text) {
    return this.send("Input.insertText", { text });
  }

  async shot(file) {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    fs.writeFileSync(file, Buffer.from(data, "base64"));
  }

  async close() {
    await this.browser.send("Target.disposeBrowserContext", { browserContextId: this.context });
  }
}

module.exports = { Browser };
