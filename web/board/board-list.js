// A long list of entries of different heights, of which only those near the window are elements of
// the page. Heights are guessed until they have been measured; what the reader looks at stays where
// it is while others change, and the end stays in sight while the reader is there.

const GUESS = 44;
const MARGIN = 600; // pixels above and below that are drawn too
const AT_END = 48;
const HURRY_MS = 150;

export class LongList {
  // scroller: the element that scrolls; box: the element in it that gets the entries; draw(item):
  // a new element for it.
  constructor(scroller, box, draw) {
    this.scroller = scroller;
    this.box = box;
    this.draw = draw;
    this.items = [];
    this.heights = [];
    this.tops = [0];
    this.clean = 0; // tops are right up to this index
    this.drawn = new Map(); // item: {element, rev}
    this.atEnd = true;
    this.frame = 0;
    this.focused = null; // the item whose element takes part in the order of Tab
    this.moved = null;
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(scroller);
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  destroy() {
    this.observer.disconnect();
    clearTimeout(this.pause);
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  reset(items) {
    this.items = items;
    this.heights = items.map((i) => i.height || GUESS);
    this.clean = 0;
    this.schedule(); // what is drawn and not among them goes then
  }

  append(item) {
    this.items.push(item);
    this.heights.push(GUESS);
    this.schedule();
  }

  // Drawn with the next frame; while very much comes at once (`hurry`), a few times a second.
  schedule() {
    if (this.frame !== 0 || this.pause) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
      if (!this.hurry || !this.hurry()) return;
      this.pause = setTimeout(() => {
        this.pause = 0;
        this.schedule();
      }, HURRY_MS);
    });
  }

  setEnd(end) {
    if (end === this.atEnd) return;
    this.atEnd = end;
    if (this.moved) this.moved(end);
  }

  scrolled() {
    const s = this.scroller;
    this.setEnd(s.scrollHeight - s.scrollTop - s.clientHeight <= AT_END);
    this.schedule();
  }

  toEnd() {
    this.setEnd(true);
    this.render();
  }

  top(i) {
    for (; this.clean < i; this.clean++)
      this.tops[this.clean + 1] = this.tops[this.clean] + this.heights[this.clean];
    return this.tops[i];
  }

  dirty(i) {
    if (i < this.clean) this.clean = i;
  }

  // The entry that covers this offset.
  at(y) {
    let low = 0, high = this.items.length - 1;
    this.top(this.items.length);
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.tops[mid] <= y) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  // What stays in place: the first entry in sight, and how far it has scrolled.
  anchor() {
    const y = this.scroller.scrollTop - this.box.offsetTop;
    if (!this.items.length || y <= 0) return null;
    const i = this.at(y);
    return { item: this.items[i], i, by: y - this.tops[i] };
  }

  render() {
    if (this.frame < 0) return;
    const keep = this.atEnd ? null : this.anchor();
    // Measuring may bring others into sight: a few rounds, each cheaper than the one before.
    for (let round = 0; round < 4; round++) {
      this.place(keep);
      if (!this.measure()) break;
    }
    this.place(keep);
    if (this.scroller.scrollHeight <= this.scroller.clientHeight) this.setEnd(true);
  }

  place(keep) {
    const s = this.scroller, n = this.items.length;
    const total = this.top(n);
    if (this.total !== total) {
      this.box.style.height = total + "px";
      this.total = total;
    }
    if (this.atEnd) s.scrollTop = s.scrollHeight;
    else if (keep) s.scrollTop = this.box.offsetTop + this.tops[keep.i] + keep.by;
    const y = s.scrollTop - this.box.offsetTop;
    const from = n ? this.at(Math.max(0, y - MARGIN)) : 0;
    const to = n ? Math.min(n, this.at(Math.max(0, y + s.clientHeight + MARGIN)) + 1) : 0;
    const wanted = new Set();
    let before = null;
    const want = (i) => {
      const item = this.items[i];
      wanted.add(item);
      let d = this.drawn.get(item);
      if (!d || d.rev !== item.rev) {
        const fresh = this.draw(item);
        if (d) this.replace(d.element, fresh);
        d = { element: fresh, rev: item.rev };
        this.drawn.set(item, d);
      }
      d.i = i;
      if (!d.element.isConnected || d.element.previousSibling !== before) {
        if (before) before.after(d.element);
        else this.box.prepend(d.element);
      }
      before = d.element;
      if (d.top !== this.tops[i]) {
        d.top = this.tops[i];
        d.element.style.transform = `translateY(${d.top}px)`;
      }
      d.element.setAttribute("aria-posinset", String(i + 1));
      d.element.setAttribute("aria-setsize", String(n));
    };
    // The one with the focus stays in the page wherever it is.
    const held = this.focused && this.box.contains(document.activeElement) ? this.items.indexOf(this.focused) : -1;
    if (held >= 0 && held < from) want(held);
    for (let i = from; i < to; i++) want(i);
    if (held >= to) want(held);
    for (const [item, d] of this.drawn)
      if (!wanted.has(item)) {
        d.element.remove();
        this.drawn.delete(item);
      }
    this.tabStop(y);
  }

  // An entry drawn anew keeps the focus that was in it.
  replace(old, fresh) {
    const active = document.activeElement;
    const had = old.contains(active);
    const key = had && active.dataset ? active.dataset.focus : null;
    old.replaceWith(fresh);
    if (!had) return;
    const to = active === old ? fresh : key ? fresh.querySelector(`[data-focus="${CSS.escape(key)}"]`) : fresh;
    (to || fresh).focus({ preventScroll: true });
  }

  measure() {
    let changed = false;
    for (const d of this.drawn.values()) {
      const h = Math.ceil(d.element.getBoundingClientRect().height);
      if (h && h !== this.heights[d.i]) {
        this.heights[d.i] = h;
        this.items[d.i].height = h;
        this.dirty(d.i);
        changed = true;
      }
    }
    return changed;
  }

  // ---- focus that moves ------------------------------------------------------------------------

  tabStop(y = this.scroller.scrollTop - this.box.offsetTop) {
    let stop = this.focused && this.drawn.get(this.focused);
    if (!stop) {
      const first = this.items[this.items.length ? this.at(Math.max(0, y)) : 0];
      stop = first && this.drawn.get(first);
    }
    for (const d of this.drawn.values()) {
      const want = d === stop ? 0 : -1;
      if (d.element.tabIndex !== want) d.element.tabIndex = want;
    }
  }

  index() {
    return this.focused ? this.items.indexOf(this.focused) : -1;
  }

  focus(i) {
    if (!this.items.length) return;
    i = Math.max(0, Math.min(this.items.length - 1, i));
    this.focused = this.items[i];
    this.show(i);
    const d = this.drawn.get(this.focused);
    if (d) d.element.focus({ preventScroll: true });
  }

  // Scroll as little as needed.
  show(i) {
    const s = this.scroller;
    this.setEnd(false);
    for (let round = 0; round < 3; round++) {
      const top = this.box.offsetTop + this.top(i), h = this.heights[i];
      if (top < s.scrollTop + 8) s.scrollTop = top - 8;
      else if (top + h > s.scrollTop + s.clientHeight) s.scrollTop = Math.min(top - 8, top + h - s.clientHeight + 8);
      this.place(null);
      if (!this.measure()) break;
    }
    this.scrolled();
  }
}
