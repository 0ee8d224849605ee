// The list of sessions: those that wait for an answer, those that run, and the record of all others
// with its search. A link each, so that the browser's own ways of opening them work.

import { ago, basename, clock, el, icon, plural, put, visible } from "./board-text.js";
import { statusChip } from "./board-view.js";

const PAGE = 50;
const SHOWN_MAX = 2000; // rows of history that are elements of the page

export class Home {
  constructor(app) {
    this.app = app;
    this.history = [];
    this.more = false;
    this.query = "";
    this.asked = 0; // number of the last request for the list
    this.rows = new Map();
    this.search = el("input", {
      type: "search", id: "search", placeholder: "Search the record", "aria-label": "Search the record", spellcheck: false,
      oninput: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.searched(), 200);
      },
    });
    this.sections = {};
    const section = (key, label) => {
      const list = el("ul.sessions", { "aria-labelledby": "h-" + key });
      const note = el("span.count");
      this.sections[key] = {
        list, note, root: el("section." + key, null, el("h2", { id: "h-" + key }, label, note), list),
      };
      return this.sections[key].root;
    };
    this.moreButton = el("button.more", { type: "button", hidden: true, onclick: () => this.load(true) }, "Show older ones");
    this.empty = el("p.dim.empty", { role: "status" });
    this.root = el("nav.home", { "aria-label": "Sessions" },
      section("waiting", "Waits for an answer"), section("running", "Live"), section("past", "Record"));
    this.sections.past.root.insertBefore(el("div.finder", null, icon("search"), this.search), this.sections.past.list);
    this.sections.past.root.append(this.empty, this.moreButton);
    this.root.addEventListener("keydown", (e) => this.key(e));
  }

  searched() {
    const query = this.search.value.trim().slice(0, 250);
    if (query === this.query) return;
    this.query = query;
    this.load(false);
  }

  // The record from its newest on, or what comes after what is here.
  async load(more) {
    if (!this.app.connected()) return;
    const me = ++this.asked;
    const params = { limit: PAGE };
    if (this.query) params.query = this.query;
    if (more && this.history.length) params.before = this.history[this.history.length - 1].sessionId;
    this.root.classList.add("busy");
    if (this.historyQuery === undefined) this.render();
    try {
      const r = await this.app.request("session/list", params);
      if (me !== this.asked) return;
      const known = new Set(more ? this.history.map((s) => s.sessionId) : []);
      const fresh = r.sessions.filter((s) => !known.has(s.sessionId));
      // A refresh keeps what was paged in below it.
      if (!more && !this.query && this.historyQuery === "" && this.history.length > PAGE) {
        const ids = new Set(fresh.map((s) => s.sessionId));
        const last = fresh.length ? fresh[fresh.length - 1].sessionId : "";
        const at = this.history.findIndex((s) => s.sessionId === last);
        this.history = at >= 0 ? [...fresh, ...this.history.slice(at + 1).filter((s) => !ids.has(s.sessionId))] : fresh;
        if (at < 0) this.more = r.more;
      } else {
        this.history = more ? [...this.history, ...fresh] : fresh;
        this.more = r.more;
      }
      this.historyQuery = this.query;
    } catch (e) {
      if (me === this.asked && this.app.connected()) this.app.say("The list could not be read: " + e.message, "bad");
    } finally {
      if (me === this.asked) {
        this.root.classList.remove("busy");
        this.render();
      }
    }
  }

  // Something began or ended; many such changes cost one request.
  refresh() {
    clearTimeout(this.refreshTimer);
    this.refreshTimer = setTimeout(() => {
      if (!this.query) this.load(false);
    }, 300);
  }

  render() {
    const live = [...this.app.live.values()].sort((a, b) => (a.startedAt < b.startedAt ? 1 : -1));
    const waiting = live.filter((s) => s.asks > 0), running = live.filter((s) => !(s.asks > 0));
    const past = this.history.filter((s) => this.query || !this.app.live.has(s.sessionId)).slice(0, SHOWN_MAX);
    this.fill("waiting", waiting, waiting.length);
    this.fill("running", running, running.length);
    this.fill("past", past, "");
    this.sections.waiting.root.hidden = waiting.length === 0;
    this.sections.running.root.hidden = running.length === 0;
    this.moreButton.hidden = !this.more || past.length >= SHOWN_MAX;
    this.empty.replaceChildren();
    if (this.historyQuery === undefined && !past.length && this.root.classList.contains("busy")) put(this.empty, "Loading the record");
    else if (!past.length && this.app.connected() && this.historyQuery !== undefined)
      put(this.empty, this.query ? `Nothing in the record has '${this.query}'.` : "Nothing has run here yet.");
    this.rove();
    this.tick();
  }

  fill(key, sessions, n) {
    const { list, note } = this.sections[key];
    note.textContent = n ? String(n) : "";
    let before = null;
    const kept = new Set();
    for (const s of sessions) {
      const id = key + " " + s.sessionId;
      kept.add(id);
      const state = JSON.stringify([s.status, s.asks, s.goal, s.model, s.workspace, s.owned, s.live, this.app.current === s.sessionId]);
      let row = this.rows.get(id);
      if (!row || row.state !== state) {
        const fresh = this.draw(s, key);
        if (row) {
          const had = row.element.contains(document.activeElement);
          row.element.replaceWith(fresh);
          if (had) fresh.firstChild.focus();
        }
        row = { element: fresh, state, key };
        this.rows.set(id, row);
      }
      if (!row.element.isConnected || row.element.previousElementSibling !== before) {
        if (before) before.after(row.element);
        else list.prepend(row.element);
      }
      before = row.element;
    }
    for (const [id, row] of this.rows)
      if (row.key === key && !kept.has(id)) {
        row.element.remove();
        this.rows.delete(id);
      }
  }

  draw(s, key) {
    const goal = (s.goal || "").split("\n")[0].slice(0, 200);
    const when = el("span.when", s.startedAt ? { title: new Date(s.startedAt).toLocaleString() } : null,
      s.live || key !== "past" ? null : ago(s.startedAt, this.app.serverNow()));
    if (key !== "past") when.dataset.since = s.startedAt || "";
    const link = el("a.session-row", {
      href: "#/s/" + encodeURIComponent(s.sessionId), tabIndex: -1,
      "aria-current": this.app.current === s.sessionId ? "page" : null,
    },
    el("span.goal", null, goal || basename(s.workspace || s.sessionId)),
    el("span.sub", null, s.asks > 0 ? el("span.chip.ask", null, icon("ask"), plural(s.asks, "question")) : statusChip(s.status),
      el("span.where", { title: visible(`${s.workspace || ""}  ${s.model || ""}`, true) }, basename(s.workspace || "")), when));
    return el("li", null, link);
  }

  tick() {
    for (const e of this.root.querySelectorAll("[data-since]"))
      if (e.dataset.since) e.textContent = clock(this.app.serverNow() - Date.parse(e.dataset.since));
  }

  // ---- one stop of Tab for the whole list --------------------------------------------------------

  links() {
    return [...this.root.querySelectorAll("a.session-row")].filter((a) => !a.closest("[hidden]"));
  }

  rove() {
    const links = this.links();
    const stop = links.find((a) => a === document.activeElement) || links.find((a) => a.hasAttribute("aria-current")) || links[0];
    for (const a of links) a.tabIndex = a === stop ? 0 : -1;
  }

  focus() {
    const links = this.links();
    const to = links.find((a) => a.tabIndex === 0) || links[0] || this.search;
    to.focus();
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const links = this.links();
    const i = links.indexOf(e.target);
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key] || (this.app.keys() && i >= 0 ? { j: 1, k: -1 }[e.key] : 0);
    let to = null;
    if (e.target === this.search && e.key === "ArrowDown") to = this.sections.past.list.querySelector("a");
    else if (i >= 0 && by) to = links[i + by];
    else if (i >= 0 && e.key === "Home") to = links[0];
    else if (i >= 0 && e.key === "End") to = links[links.length - 1];
    else if (e.target === this.search && e.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.searched();
      e.stopPropagation();
    } else return;
    e.preventDefault();
    if (!to) return;
    for (const a of links) a.tabIndex = a === to ? 0 : -1;
    to.focus();
    to.scrollIntoView({ block: "nearest" });
  }
}
