// One session: its head, the timeline, the questions that are open, and what may be done with it.

import { askCard } from "./board-ask.js";
import { LongList } from "./board-list.js";
import { itemHas } from "./board-stream.js";
import { basename, clock, count, el, icon, plural, put } from "./board-text.js";
import { FILTERS, chip, drawItem, statusChip } from "./board-view.js";

export class SessionView {
  // app: see board.js
  constructor(app, id) {
    this.app = app;
    this.id = id;
    this.filter = "all";
    this.words = [];
    this.cards = new Map();
    this.over = new Map(); // asks that others answered, until they are put away
    this.built = "";
    this.title = el("h2", { tabIndex: -1, id: "session-title" });
    this.meta = el("p.meta");
    this.gauges = el("div.gauges");
    this.actions = el("div.actions");
    this.banner = el("div.banner", { role: "status" });
    this.box = el("div.feed", { role: "feed", "aria-label": "Timeline", "aria-busy": "false" });
    this.scroller = el("div.scroller", null, this.box);
    this.tools = this.makeTools();
    this.latest = el("button.latest", { type: "button", hidden: true, onclick: () => this.list.toEnd() }, icon("down"), "Latest");
    this.dockHead = el("p.dock-head", { hidden: true });
    this.dock = el("div.dock", { role: "region", "aria-label": "Questions that are open" }, this.dockHead);
    this.root = el("div.session", { "aria-labelledby": "session-title" },
      el("header.session-head", null,
        el("div.top", null,
          el("a.back", { href: "#/", "aria-label": "Back to the list" }, icon("back")),
          el("div.names", null, this.title, this.meta), this.actions),
        this.gauges, this.tools),
      this.banner, el("div.stage", null, this.scroller, this.latest), this.dock);
    this.list = new LongList(this.scroller, this.box, (item) => this.draw(item));
    this.list.hurry = () => this.app.loading(this.id);
    this.list.moved = (end) => { this.latest.hidden = end; };
    this.box.addEventListener("focusin", (e) => this.focused(e));
    this.box.addEventListener("keydown", (e) => this.key(e));
    this.ctx = {
      again: (item) => {
        item.rev++;
        this.list.schedule();
      },
      tokens: () => this.stream ? this.stream.usage.prompt + this.stream.usage.completion : 0,
      elapsed: () => this.elapsed(),
    };
  }

  destroy() {
    this.list.destroy();
    for (const card of this.cards.values()) clearTimeout(card.timer);
    this.root.remove();
  }

  makeTools() {
    this.filters = el("div.filters", { role: "group", "aria-label": "Show" });
    for (const [key, [label]] of Object.entries(FILTERS))
      this.filters.append(el("button.filter", {
        type: "button", "aria-pressed": String(key === "all"), "data-filter": key,
        onclick: () => this.setFilter(key),
      }, label));
    this.find = el("input.find", {
      type: "search", placeholder: "Find in this session", "aria-label": "Find in this session", spellcheck: false,
      oninput: () => {
        clearTimeout(this.findTimer);
        this.findTimer = setTimeout(() => this.refilter(), 120);
      },
    });
    this.found = el("span.found", { role: "status" });
    return el("div.tools", null, this.filters, el("div.finder", null, icon("search"), this.find, this.found));
  }

  setFilter(key) {
    this.filter = key;
    for (const b of this.filters.children) b.setAttribute("aria-pressed", String(b.dataset.filter === key));
    this.refilter();
  }

  passes(item) {
    return FILTERS[this.filter][1](item) && (!this.words.length || itemHas(item, this.words));
  }

  get filtering() {
    return this.filter !== "all" || this.words.length > 0;
  }

  refilter() {
    this.words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.stream ? this.stream.items : [];
    const items = all.filter((i) => this.passes(i));
    this.listed = this.filtering ? new Set(items) : null;
    this.list.reset(items);
    this.tell();
  }

  tell() {
    const s = this.stream;
    this.found.textContent = this.filtering ? `${count(this.list.items.length)} of ${count(s.items.length)}`
      : s && s.forgotten ? `${count(s.forgotten)} older entries are only in the record` : "";
  }

  // ---- what changed ----------------------------------------------------------------------------

  setStream(stream, atEnd) {
    this.stream = stream;
    this.list.setEnd(atEnd);
    stream.changed = (item, isNew) => this.changed(item, isNew);
    for (const card of this.cards.values()) card.remove();
    this.cards.clear();
    this.over.clear();
    this.refilter();
    this.update();
  }

  changed(item, isNew) {
    if (item === null) {
      if (isNew) this.wantRefilter();
      this.app.asksChanged(this.stream);
    } else if (isNew && this.passes(item)) {
      this.list.append(item);
      if (this.listed) this.listed.add(item);
    } else if (!isNew && this.listed && !this.listed.has(item) && this.passes(item)) {
      this.wantRefilter(); // it has become one of those that are shown
    }
    this.list.schedule();
    this.wantUpdate();
  }

  wantRefilter() {
    this.refilterTimer ||= setTimeout(() => {
      this.refilterTimer = 0;
      this.refilter();
    }, 250);
  }

  wantUpdate() {
    this.updateFrame ||= requestAnimationFrame(() => {
      this.updateFrame = 0;
      this.update();
    });
  }

  draw(item) {
    const element = drawItem(item, this.ctx);
    element.tabIndex = item === this.list.focused ? 0 : -1;
    element.dataset.focus = item.id;
    return element;
  }

  elapsed() {
    const s = this.stream;
    if (!s || !s.startedAt) return 0;
    const end = s.stopped || !this.app.isLive(this.id) ? Date.parse(s.lastAt) : this.app.serverNow();
    return end - Date.parse(s.startedAt);
  }

  status() {
    if (this.stream && this.stream.stopped) return this.stream.stopped.status;
    const row = this.app.row(this.id);
    return row ? row.status : "";
  }

  update() {
    const s = this.stream, row = this.app.row(this.id) || {};
    const goal = (s && s.goal) || row.goal || "";
    const status = this.status();
    const live = this.app.isLive(this.id);
    const first = goal.split("\n")[0] || (row.workspace ? basename(row.workspace) : this.id);
    const model = (s && s.model) || row.model || "";
    const key = JSON.stringify([first, status, live, model, row.workspace, row.owned, this.app.may("operate"), this.app.connected()]);
    if (key !== this.built) {
      this.built = key;
      this.title.replaceChildren();
      put(this.title, first.slice(0, 300));
      this.title.title = "";
      this.meta.replaceChildren();
      put(this.meta, statusChip(status), el("span", null, model), el("span.path", null, row.workspace || (s && s.workspace) || ""),
        el("span.path.dim", null, this.id), live && row.owned === false ? chip("quiet", "detached") : null);
      this.actions.replaceChildren();
      if (live && this.app.may("operate") && this.app.connected())
        this.actions.append(el("button.danger", { type: "button", "data-do": "cancel", onclick: () => this.app.askCancel(this.id) },
          icon("stop"), "Cancel"));
    }
    this.updateGauges();
    this.updateDock();
    if (s) this.tell();
    this.box.setAttribute("aria-busy", String(this.app.loading(this.id)));
    this.scroller.classList.toggle("loading", this.app.loading(this.id));
  }

  updateGauges() {
    const s = this.stream;
    if (!s) return;
    const tokens = s.usage.prompt + s.usage.completion;
    const live = this.app.isLive(this.id) && !s.stopped;
    const budget = (metric) => s.budget.get(metric);
    const of = (metric, n) => budget(metric) ? `${count(Math.max(n, budget(metric).used))} of ${count(budget(metric).limit)}` : count(n);
    const unread = this.app.unread(this.id);
    if (unread) {
      this.gaugeKey = "";
      this.gauges.replaceChildren(el("div.gauge", null, el("span.value", null, "Loading"), el("span.label", null, "the session")));
      return;
    }
    const gauge = (label, value, b, n) => el("div.gauge", null, el("span.value", null, value), el("span.label", null, label),
      b ? el("meter", { min: 0, max: b.limit, value: Math.max(b.used, n), high: b.limit * 0.8, "aria-label": label + " used" }) : null);
    const key = JSON.stringify([tokens, s.toolCalls, s.turns, s.phase, live, Math.trunc(this.elapsed() / 1000), [...s.budget]]);
    if (key === this.gaugeKey) return;
    this.gaugeKey = key;
    this.gauges.replaceChildren(
      gauge("elapsed", clock(this.elapsed())),
      gauge("tokens", of("tokens", tokens), budget("tokens"), tokens),
      gauge("tool calls", of("tool_calls", s.toolCalls), budget("tool_calls"), s.toolCalls),
      gauge("turns", count(s.turns)),
      s.changes ? gauge("files changed", count((s.changes.changed || []).length)) : el("span"),
      live && s.phase ? el("div.phase", null, el("span.pulse"), s.phase) : el("span"));
  }

  // ---- questions -------------------------------------------------------------------------------

  updateDock() {
    const s = this.stream;
    if (!s) return;
    const open = this.app.isLive(this.id) ? s.openAsks() : [];
    let moved = false;
    const wanted = new Set();
    for (const ask of open) wanted.add(ask);
    for (const [ask, card] of this.cards) {
      if (wanted.has(ask)) continue;
      if (ask.state !== "open" && card.key === "open" && !s.mine.has(ask.id) && ask.ui.seen)
        this.over.set(ask.id, ask);
      if (this.over.has(ask.id)) continue;
      const held = card.contains(document.activeElement);
      clearTimeout(card.timer);
      card.remove();
      this.cards.delete(ask);
      moved = true;
      if (held) this.afterAnswer = true;
    }
    let before = this.dockHead;
    for (const ask of [...open, ...this.over.values()]) {
      const key = ask.state === "open" ? "open" : ask.state + ask.by;
      let card = this.cards.get(ask);
      const variant = [key, ask.more ? 1 : 0, this.app.may("answer"), this.app.connected()].join();
      if (!card || card.variant !== variant || card.stale) {
        const fresh = askCard(s, ask, this.askApp());
        fresh.key = key;
        fresh.variant = variant;
        if (card) {
          clearTimeout(card.timer);
          this.list.replace.call(this, card, fresh);
        }
        card = fresh;
        this.cards.set(ask, card);
        moved = true;
      }
      if (!card.isConnected || card.previousElementSibling !== before) {
        before.after(card);
        moved = true;
      }
      before = card;
    }
    if (moved) for (const card of this.cards.values()) if (card.arm) card.arm();
    this.dock.hidden = this.cards.size === 0;
    this.dockHead.hidden = open.length < 2;
    this.dockHead.textContent = `${count(open.length)} questions are open; each has an answer of its own.`;
    if (this.afterAnswer) {
      this.afterAnswer = false;
      const next = this.dock.querySelector(".card:not(.over)");
      (next || this.title).focus({ preventScroll: true });
    }
  }

  askApp() {
    const app = this.app;
    return {
      may: (a) => app.may(a), online: () => app.connected(), who: () => app.who(), keys: () => app.keys(),
      deadline: (ask) => Date.parse(ask.at) + app.askMs() - app.skew(),
      answer: (stream, ask, decision, scope, note) => app.answer(stream, ask, decision, scope, note).then((why) => {
        ask.ui.busy = false;
        ask.ui.error = why || "";
        const card = this.cards.get(ask);
        if (card && why) card.stale = true;
        this.update();
      }),
      gone: (ask) => {
        this.over.delete(ask.id);
        this.update();
        this.title.focus({ preventScroll: true });
      },
    };
  }

  // All that had happened is here: a session that has ended is read from its beginning.
  loaded() {
    if (!this.app.isLive(this.id) && !this.read) {
      this.list.setEnd(false);
      this.scroller.scrollTop = 0;
    }
    this.read = true;
    this.update();
    if (this.app.wantAsk && this.focusAsk()) this.app.wantAsk = false;
    this.list.schedule();
  }

  reconnected() {
    for (const card of this.cards.values()) card.stale = true;
    this.built = "";
    this.update();
  }

  tick() {
    for (const card of this.cards.values()) if (card.tick) card.tick();
    this.updateGauges();
  }

  focusAsk() {
    const list = [...this.dock.querySelectorAll(".card:not(.over)")];
    if (!list.length) return false;
    const at = list.findIndex((c) => c.contains(document.activeElement));
    list[(at + 1) % list.length].focus();
    return true;
  }

  // again: what a button to read the session again does; null: there is none.
  say(text, tone, again = null) {
    this.banner.replaceChildren();
    this.banner.className = "banner" + (tone ? " " + tone : "");
    if (text) put(this.banner, el("p", null, text), again ? el("button.plain", { type: "button", onclick: again }, "Read it again") : null);
  }

  // ---- keys ------------------------------------------------------------------------------------

  focused(e) {
    const article = e.target.closest("article");
    if (!article) return;
    for (const [item, d] of this.list.drawn)
      if (d.element === article) {
        this.list.focused = item;
        this.list.tabStop();
      }
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const article = e.target.closest("article");
    const i = this.list.index();
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[e.key] ||
      (this.app.keys() ? { j: 1, k: -1 }[e.key] : 0);
    if (move) this.list.focus(i + move);
    else if (e.key === "Home") this.list.focus(0);
    else if (e.key === "End") {
      this.list.focus(this.list.items.length - 1);
      this.list.toEnd();
    } else if ((e.key === "Enter" || e.key === " ") && e.target === article && article.toggle) article.toggle();
    else if (e.key === "ArrowRight" && e.target === article && article.toggle && !article.classList.contains("open")) article.toggle();
    else if (e.key === "ArrowLeft" && e.target === article && article.toggle && article.classList.contains("open")) article.toggle();
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  focusTimeline() {
    const i = this.list.index();
    if (i >= 0) return this.list.focus(i);
    const y = this.scroller.scrollTop - this.box.offsetTop;
    return this.list.focus(this.list.items.length ? this.list.at(Math.max(0, y)) : 0);
  }

  describe() {
    return plural(this.stream ? this.stream.items.length : 0, "entry", "entries");
  }
}
