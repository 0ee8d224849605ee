// The board: what is shown, who may do what, and the sessions that are followed. Everything that it
// knows comes over one connection (board-link.js); what one may not do is not offered here, and is
// refused by the server anyway.

import { confirmDialog, keysDialog, loginDialog, startDialog } from "./board-dialogs.js";
import { Home } from "./board-home.js";
import { Link, RpcError } from "./board-link.js";
import { SessionView } from "./board-session.js";
import { Stream, StreamFailure } from "./board-stream.js";
import { el, icon, plural, put, visible } from "./board-text.js";

const ACCESS = { observe: 1, answer: 2, operate: 3 };
const ENDED = new Set(["completed", "failed", "canceled", "interrupted", "budget_exceeded"]);
const READS = 3; // of one session, whose stream is never whole
const NOTHING = -32021, GONE = -32020, FORBIDDEN = -32030, LIMIT = -32012;

const store = {
  get(key) {
    try {
      return localStorage.getItem("bridle-board-" + key);
    } catch {
      return null;
    }
  },
  set(key, value) {
    try {
      localStorage.setItem("bridle-board-" + key, value);
    } catch {
      // a browser that keeps nothing forgets it
    }
  },
};

class Board {
  constructor() {
    this.live = new Map(); // sessionId: row of the list
    this.streams = new Map(); // sessionId: {stream, loading, failures, owned, view}
    this.current = "";
    this.view = null;
    this.state = "connecting";
    this.info = null;
    this.announced = new Set();
    this.link = new Link({
      state: (s) => this.stateIs(s), ready: (i) => this.ready(i), failed: (why) => this.say(why, "bad"),
      notification: (method, params, size) => this.notified(method, params, size),
    });
    this.home = new Home(this);
    this.build();
    this.setTheme(store.get("theme") || "auto");
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (e) => this.key(e));
    addEventListener("online", () => this.state === "waiting" && this.link.start());
    addEventListener("beforeunload", (e) => {
      if (this.wouldEnd().length) e.preventDefault();
    });
    setInterval(() => this.tick(), 1000);
    this.route();
    this.link.start();
  }

  build() {
    this.who_ = el("span.who");
    this.status = el("span.link", { role: "status" });
    this.themeButton = el("button.icon-button", { type: "button", onclick: () => this.nextTheme() });
    this.startButton = el("button.primary", { type: "button", hidden: true, "data-do": "start", onclick: () => this.askStart() },
      icon("plus"), "Start");
    const head = el("header.brand", null,
      el("a.logo", { href: "#/", "aria-label": "Bridle, the board" }, el("img", { src: "icon.svg", alt: "", width: 26, height: 26 }), el("h1", null, "Bridle")),
      el("div.brand-tools", null, this.startButton, this.themeButton,
        el("button.icon-button", { type: "button", "aria-label": "Keys", title: "Keys (?)", onclick: () => keysDialog(this) }, icon("keys"))));
    this.side = el("div.side", null, head, this.home.root, el("footer", null, this.status, this.who_));
    this.pane = el("main.pane", { id: "pane", tabIndex: -1 });
    this.toast = el("div.toast", { role: "alert" });
    this.alert = el("div.unseen", { "aria-live": "assertive" });
    document.body.append(el("a.skip", { href: "#/", onclick: (e) => {
      e.preventDefault();
      this.pane.focus();
    } }, "To the session"), this.side, this.pane, this.toast, this.alert);
  }

  // ---- who, when -------------------------------------------------------------------------------

  connected() {
    return this.state === "ready";
  }

  may(access) {
    return Boolean(this.info) && ACCESS[this.info.bridle.access] >= ACCESS[access];
  }

  who() {
    return this.info ? `${this.info.bridle.name} (${this.info.bridle.access})` : "";
  }

  skew() {
    return this.info ? this.info.skewMs : 0;
  }

  serverNow() {
    return Date.now() + this.skew();
  }

  askMs() {
    return (this.info ? this.info.bridle.askSeconds : 120) * 1000;
  }

  isLive(id) {
    return this.live.has(id);
  }

  row(id) {
    const t = this.streams.get(id);
    return this.live.get(id) || this.home.history.find((s) => s.sessionId === id) ||
      (t && t.status ? { sessionId: id, status: t.status } : null);
  }

  loading(id) {
    const t = this.streams.get(id);
    return Boolean(t && t.loading);
  }

  // Nothing of it has been read yet, or not all: what is counted is not what there is.
  unread(id) {
    const t = this.streams.get(id);
    return Boolean(t && !t.status && !t.owned && (t.loading || t.stream.seq < 0));
  }

  request(method, params, ms) {
    return this.link.request(method, params, ms);
  }

  // ---- the connection --------------------------------------------------------------------------

  stateIs(s) {
    this.state = s;
    document.documentElement.dataset.link = s;
    const text = { connecting: "connecting", ready: "connected", login: "not signed in", waiting: "no connection", failed: "not connected" }[s];
    this.status.replaceChildren();
    put(this.status, el("span.dot"), text);
    if (s === "waiting") this.status.append(el("button.plain", { type: "button", onclick: () => this.link.start() }, "Try now"));
    if (s === "login" && !this.login) {
      this.login = loginDialog(this.link);
      this.login.addEventListener("close", () => { this.login = null; });
    }
    if (s === "ready" && this.login) this.login.close();
    this.startButton.hidden = !(this.may("operate") && s === "ready");
    if (this.view) this.view.reconnected();
    this.home.render();
  }

  async ready(info) {
    const was = this.who();
    this.info = info;
    this.state = "ready";
    this.say(was && was !== this.who() ? `You are known as ${this.who()} now, and were ${was}.` : "");
    this.who_.replaceChildren();
    put(this.who_, info.bridle.name, el("span.dim", null, " " + info.bridle.access),
      info.bridle.name.startsWith("token:") ? el("button.plain", { type: "button", "data-do": "logout", onclick: () => this.link.logout() }, "Sign out") : null);
    // What was followed goes on where it stopped.
    for (const t of this.streams.values()) {
      t.followed = false;
      t.owned = false;
    }
    this.home.load(false);
    try {
      const r = await this.request("session/watch", {});
      this.live.clear();
      for (const s of r.sessions) this.live.set(s.sessionId, s);
      this.watched = "read";
      this.liveChanged();
    } catch (e) {
      if (!this.watched) this.watched = "failed";
      if (!this.current) this.overview();
      if (this.connected()) this.say("The live sessions could not be read: " + e.message, "bad");
    }
    for (const [id, t] of this.streams)
      if (id === this.current) this.follow(id);
      else if (!t.owned) this.streams.delete(id);
  }

  notified(method, p, size) {
    if (method === "session/event" || method === "bridle/event") {
      const t = this.streams.get(p.sessionId);
      if (!t || !t.followed) return; // unfollowed meanwhile
      try {
        if (method === "session/event") t.stream.feed(p.event, p.seq, size);
        else t.stream.feedOwn(p.event, p.seq, p.after, size);
      } catch (e) {
        if (!(e instanceof StreamFailure)) throw e;
        this.streamFailed(p.sessionId, e.message);
      }
    } else if (method === "bridle/session") {
      this.sessionChanged(p);
    }
  }

  sessionChanged(p) {
    const old = this.live.get(p.sessionId);
    if (ENDED.has(p.status)) {
      this.live.delete(p.sessionId);
      const row = this.home.history.find((s) => s.sessionId === p.sessionId);
      if (row) Object.assign(row, { status: p.status, asks: 0, live: false });
      this.home.refresh();
    } else {
      this.live.set(p.sessionId, { ...(old || { goal: "", events: 0 }), ...p, live: true });
      if (!old || old.status !== p.status) this.refreshLive();
    }
    this.liveChanged();
  }

  // The goal of a session is not part of its changes.
  refreshLive() {
    clearTimeout(this.liveTimer);
    this.liveTimer = setTimeout(async () => {
      if (!this.connected()) return;
      try {
        const r = await this.request("session/list", { limit: 50 });
        for (const s of r.sessions) {
          const row = this.live.get(s.sessionId);
          if (row) Object.assign(row, { goal: s.goal, model: s.model || row.model });
        }
        this.liveChanged();
      } catch {
        // the next change asks again
      }
    }, 250);
  }

  liveChanged() {
    let asks = 0;
    for (const s of this.live.values()) asks += s.asks > 0 ? s.asks : 0;
    document.title = (asks ? `(${asks}) ` : "") + "Bridle";
    for (const s of this.live.values()) {
      if (!(s.asks > 0)) this.announced.delete(s.sessionId);
      else if (!this.announced.has(s.sessionId)) {
        this.announced.add(s.sessionId);
        if (s.sessionId !== this.current)
          this.announce(`${plural(s.asks, "question")} in the session '${(s.goal || s.sessionId).slice(0, 80)}'`);
      }
    }
    this.home.render();
    if (this.view) this.view.wantUpdate();
    if (!this.current) this.overview();
  }

  announce(text) {
    this.alert.textContent = visible(text, true);
  }

  asksChanged(stream) {
    if (!stream || stream.id !== this.current || this.loading(stream.id)) return;
    const open = stream.openAsks();
    const fresh = open.filter((a) => !this.announced.has(a.id));
    for (const a of fresh) this.announced.add(a.id);
    if (fresh.length)
      this.announce(`Permission wanted: ${fresh.map((a) => a.data.action + " " + (a.data.subject || "")).join("; ").slice(0, 300)}`);
  }

  // ---- sessions that are followed ----------------------------------------------------------------

  track(id) {
    let t = this.streams.get(id);
    if (!t) {
      t = { stream: new Stream(id), loading: false, failures: 0, owned: false, followed: false };
      this.streams.set(id, t);
    }
    return t;
  }

  async follow(id) {
    if (!this.connected()) return;
    const t = this.track(id);
    if (t.followed) return;
    t.followed = t.loading = true;
    const stream = t.stream;
    if (this.view && this.view.id === id) this.view.wantUpdate();
    try {
      const r = await this.request("session/load", () => ({ sessionId: id, after: stream.seq, afterBridle: stream.own }), 0);
      if (this.streams.get(id) !== t || t.stream !== stream) return;
      t.loading = false;
      t.failures = 0;
      t.status = r.status;
      if (!r.live && this.live.delete(id)) this.liveChanged();
      if (!r.live && !stream.stopped && !ENDED.has(r.status)) this.followLater(id, t);
      for (const a of stream.openAsks()) this.announced.add(a.id);
      if (this.view && this.view.id === id) {
        this.view.say(t.failed ? `Protocol failure: ${t.failed}. The session was read again from the record, as it is shown now.` : "", t.failed ? "bad" : undefined);
        this.view.loaded();
      }
    } catch (e) {
      if (this.streams.get(id) !== t || t.stream !== stream) return;
      t.loading = t.followed = false;
      if (this.view && this.view.id === id && this.connected())
        this.view.say(e instanceof RpcError && e.code === -32010 ? "There is no session with this id." : "The session could not be read: " + e.message, "bad");
    }
  }

  // Nobody tells of it any more, and its record is not closed yet: somebody is about to.
  followLater(id, t) {
    t.followed = false;
    t.wait = Math.min(t.wait ? 2 * t.wait : 500, 15000);
    setTimeout(() => {
      if (this.current === id && this.streams.get(id) === t) this.follow(id);
    }, t.wait);
  }

  unfollow(id) {
    const t = this.streams.get(id);
    if (!t || (t.owned && this.isLive(id))) return;
    this.streams.delete(id);
    if (t.followed && this.connected()) this.request("session/unfollow", { sessionId: id }).catch(() => {});
  }

  async streamFailed(id, why) {
    const t = this.streams.get(id);
    const failures = t.failures + 1;
    this.streams.delete(id);
    const view = this.view && this.view.id === id ? this.view : null;
    const given = failures >= READS;
    if (view) view.say(`Protocol failure: ${why}. ${given ? "It was read again, and failed again." : "The session is being read again from the record."}`, "bad",
      given ? () => this.readAgain(id) : null);
    try {
      await this.request("session/unfollow", { sessionId: id });
    } catch {
      // it was not followed
    }
    if (this.streams.has(id) || this.current !== id) return;
    const fresh = this.track(id);
    fresh.failures = failures;
    fresh.failed = why; // stays to be seen when all is well again
    fresh.owned = t.owned;
    if (view === this.view && view) view.setStream(fresh.stream, this.isLive(id));
    if (!given) await this.follow(id);
  }

  readAgain(id) {
    this.unfollow(id);
    this.view.say("");
    this.view.setStream(this.track(id).stream, this.isLive(id));
    this.follow(id);
  }

  // ---- what one may do -------------------------------------------------------------------------

  // null, or a sentence why the answer was not taken.
  async answer(stream, ask, decision, scope, note) {
    const params = { sessionId: stream.id, permissionId: ask.id, decision };
    if (scope === "run") params.scope = "run";
    if (note) params.note = note;
    try {
      await this.request("permission/respond", params);
      stream.accepted(ask.id, decision);
      return null;
    } catch (e) {
      if (e instanceof StreamFailure) {
        this.streamFailed(stream.id, e.message);
        return null;
      }
      if (e.code === NOTHING || e.code === GONE) return ask.state === "open" ? "Somebody else was faster, or its time was up." : null;
      if (e.code === FORBIDDEN) return "You may not answer: " + e.message;
      return "The answer was not taken: " + e.message;
    }
  }

  askCancel(id) {
    const row = this.row(id) || {};
    confirmDialog("Cancel this session?", `'${(row.goal || id).split("\n")[0].slice(0, 120)}' ends: what is asked is denied, what runs is stopped, and its sandbox is removed. What it changed stays.`,
      async () => {
        try {
          const r = await this.request("session/cancel", { sessionId: id });
          if (!r.canceled) this.say("It had ended already.");
        } catch (e) {
          this.say("It was not canceled: " + e.message, "bad");
        }
      }, "Cancel the session");
  }

  askStart() {
    if (!this.may("operate") || !this.connected()) return;
    const places = new Set();
    for (const s of [...this.live.values(), ...this.home.history]) if (s.workspace) places.add(s.workspace);
    startDialog(this, this.info.models || [], [...places].slice(0, 20), this.info.bridle.detach === true);
  }

  async begin(what) {
    let id;
    try {
      const params = { workspace: what.workspace };
      if (what.taskId) params.taskId = what.taskId;
      if (what.model) params.model = what.model;
      id = await this.make(params);
    } catch (e) {
      return "The session was not made: " + e.message;
    }
    const t = this.track(id);
    t.owned = t.followed = true;
    const params = { sessionId: id, content: what.content };
    if (what.maxModelTokens) params.maxModelTokens = what.maxModelTokens;
    if (what.maxToolCalls) params.maxToolCalls = what.maxToolCalls;
    const done = this.request("session/prompt", params, 0);
    const over = () => {
      t.owned = false;
      if (this.current !== id && this.streams.get(id) === t) this.streams.delete(id);
    };
    done.then(over, (e) => {
      over();
      if (this.connected()) this.say("The session did not run: " + e.message, "bad");
    });
    if (what.detach)
      this.request("session/detach", { sessionId: id }).then(() => { t.owned = false; },
        (e) => this.say("It ends when this page is closed: " + e.message, "bad"));
    location.hash = "#/s/" + encodeURIComponent(id);
    return null;
  }

  // A connection makes so many sessions and no more; another one may, unless this one has to stay.
  async make(params) {
    try {
      return (await this.request("session/new", params)).sessionId;
    } catch (e) {
      if (e.code !== LIMIT || this.wouldEnd().length || !(await this.link.again())) throw e;
      return (await this.request("session/new", params)).sessionId;
    }
  }

  // Sessions that closing this page would end.
  wouldEnd() {
    return [...this.streams].filter(([id, t]) => t.owned && this.isLive(id));
  }

  // ---- where we are ----------------------------------------------------------------------------

  route() {
    const m = /^#\/s\/(.+)$/.exec(location.hash);
    let id = "";
    try {
      id = m ? decodeURIComponent(m[1]) : "";
    } catch {
      id = "";
    }
    if (id === this.current && (this.view || !id) && this.routed) return;
    this.routed = true;
    if (this.current && this.current !== id) this.unfollow(this.current);
    if (this.view) this.view.destroy();
    this.view = null;
    this.current = id;
    document.documentElement.dataset.at = id ? "session" : "list";
    this.pane.replaceChildren();
    if (id) {
      const t = this.track(id);
      this.view = new SessionView(this, id);
      this.pane.append(this.view.root);
      this.view.setStream(t.stream, this.isLive(id) || !this.info);
      this.follow(id);
      if (this.pane.offsetParent !== null && document.activeElement === document.body) this.view.title.focus({ preventScroll: true });
    } else {
      this.overview();
    }
    this.home.render();
  }

  overview() {
    const live = [...this.live.values()], waiting = live.filter((s) => s.asks > 0);
    const known = this.watched === "read" || live.length > 0;
    const key = [live.length, waiting.length, this.may("operate"), known, this.watched].join();
    if (this.pane.firstChild && this.overviewKey === key) return;
    this.overviewKey = key;
    this.pane.replaceChildren(el("div.overview", null,
      el("img", { src: "icon.svg", alt: "", width: 72, height: 72 }),
      el("h2", null, waiting.length ? plural(waiting.length, "session waits", "sessions wait") + " for an answer"
        : live.length ? plural(live.length, "session runs", "sessions run")
          : known ? "Nothing runs" : this.watched ? "What runs is not known" : "Loading what runs"),
      el("p.dim", null, !known ? "" : waiting.length ? "Choose one, or press a." : live.length ? "Choose one to see what it does."
        : this.may("operate") ? "Start one, or read what has run." : "What has run is in the record."),
      waiting.length ? el("button.primary", { type: "button", onclick: () => this.nextAsk() }, icon("ask"), "To the first question") : null));
  }

  nextAsk() {
    if (this.view && this.view.focusAsk()) return;
    const waiting = [...this.live.values()].filter((s) => s.asks > 0 && s.sessionId !== this.current);
    if (waiting.length) {
      this.wantAsk = true;
      location.hash = "#/s/" + encodeURIComponent(waiting[0].sessionId);
    } else {
      this.announce("No question is open.");
    }
  }

  say(text, tone) {
    this.toast.replaceChildren();
    this.toast.className = "toast" + (tone ? " " + tone : "");
    if (!text) return;
    put(this.toast, el("p", null, text), el("button.plain", { type: "button", onclick: () => this.say("") }, "Dismiss"));
  }

  tick() {
    this.home.tick();
    if (this.view) this.view.tick();
    if (this.state === "waiting") {
      const s = Math.max(0, Math.ceil((this.link.retryAt - Date.now()) / 1000));
      const text = this.status.childNodes[1];
      if (text) text.textContent = s ? `next try in ${s} s` : "no connection";
    }
  }

  // ---- settings and keys -------------------------------------------------------------------------

  keys() {
    return store.get("keys") !== "off";
  }

  setKeys(on) {
    store.set("keys", on ? "on" : "off");
  }

  setTheme(theme) {
    this.theme = ["light", "dark"].includes(theme) ? theme : "auto";
    document.documentElement.dataset.theme = this.theme;
    store.set("theme", this.theme);
    const label = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" }[this.theme];
    this.themeButton.replaceChildren(icon({ auto: "auto", light: "sun", dark: "moon" }[this.theme]));
    this.themeButton.setAttribute("aria-label", label);
    this.themeButton.title = label + " (m)";
  }

  nextTheme() {
    this.setTheme({ auto: "light", light: "dark", dark: "auto" }[this.theme]);
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]")) return;
    const typing = e.target.closest && e.target.closest("input, textarea, select");
    if (e.key === "Escape") {
      if (typing) e.target.blur();
      else if (this.current && this.side.checkVisibility()) this.home.focus();
      else if (this.current) location.hash = "#/";
      return;
    }
    if (typing || !this.keys()) return;
    const f = {
      a: () => this.nextAsk(), s: () => this.home.focus(), t: () => this.view && this.view.focusTimeline(),
      "/": () => this.home.search.focus(), f: () => this.view && this.view.find.focus(), c: () => this.askStart(),
      x: () => this.view && this.isLive(this.current) && this.may("operate") && this.askCancel(this.current),
      m: () => this.nextTheme(), "?": () => keysDialog(this),
    }[e.key];
    if (!f) return;
    e.preventDefault();
    f();
  }
}

new Board();
