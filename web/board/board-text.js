// Text that somebody else wrote, on its way into the page: made visible the way a terminal of
// Bridle's makes it (br_buf_put_visible() in core/base/text.c), and only ever put into text nodes.
// Nothing in this folder gives the browser markup to parse. Also how quantities are written.

// The characters that a reader cannot see, or that reorder or act on what is read.
const UNSAFE =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}\p{Cs}]/gu;

const NAMES = new Map([
  [0x00, "null"], [0x07, "bell"], [0x08, "backspace"], [0x0d, "carriage return"], [0x1b, "escape"],
  [0x7f, "delete"], [0x61c, "Arabic letter mark"], [0x200b, "zero width space"],
  [0x200c, "zero width non-joiner"], [0x200d, "zero width joiner"], [0x200e, "left-to-right mark"],
  [0x200f, "right-to-left mark"], [0x2028, "line separator"], [0x2029, "paragraph separator"],
  [0x202a, "left-to-right embedding"], [0x202b, "right-to-left embedding"],
  [0x202c, "pop directional formatting"], [0x202d, "left-to-right override"],
  [0x202e, "right-to-left override"], [0x2060, "word joiner"], [0x2066, "left-to-right isolate"],
  [0x2067, "right-to-left isolate"], [0x2068, "first strong isolate"],
  [0x2069, "pop directional isolate"], [0xfeff, "zero width no-break space"],
]);

function escape(cp) {
  const hex = cp.toString(16);
  return cp < 0x100 ? "\\x" + hex.padStart(2, "0") : "\\u" + hex.padStart(4, "0");
}

function word(cp, oneLine) {
  if (cp === 0x0a) return oneLine ? "\\n" : "\n";
  if (cp === 0x09) return oneLine ? "\\t" : "\t";
  return escape(cp);
}

// The text as a terminal of Bridle's would show it.
export function visible(text, oneLine = false) {
  return String(text).replace(UNSAFE, (c) => word(c.codePointAt(0), oneLine));
}

// The same as nodes: what stands for a character is marked, so that it cannot be taken for text
// that looks like it.
export function visibleNodes(text, oneLine = false) {
  const nodes = [];
  const s = String(text);
  let at = 0, plain = "";
  for (const m of s.matchAll(UNSAFE)) {
    const cp = m[0].codePointAt(0);
    plain += s.slice(at, m.index);
    at = m.index + m[0].length;
    if (!oneLine && (cp === 0x0a || cp === 0x09)) {
      plain += m[0];
      continue;
    }
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    const mark = document.createElement("span");
    mark.className = "esc";
    mark.textContent = word(cp, oneLine);
    mark.title = "U+" + cp.toString(16).toUpperCase().padStart(4, "0") +
      (NAMES.has(cp) ? ", " + NAMES.get(cp) : "");
    nodes.push(mark);
  }
  plain += s.slice(at);
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

// el("p.note", {title: "x", onclick: f}, child, ...): an element. A string child is text of ours or
// of somebody else's; it goes through visibleNodes(), always. null and false are no child.
export function el(what, props, ...children) {
  const [tag, ...classes] = what.split(".");
  const e = document.createElement(tag || "div");
  if (classes.length) e.className = classes.join(" ");
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
    else if (key in e && !key.startsWith("aria") && key !== "role" && key !== "list") e[key] = value;
    else e.setAttribute(key, value === true ? "" : value);
  }
  put(e, ...children);
  return e;
}

export function put(e, ...children) {
  for (const child of children.flat(2)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) e.append(child);
    else e.append(...visibleNodes(child));
  }
  return e;
}

// An icon of board's own sprite of shapes, drawn with the text's colour.
const SHAPES = {
  allow: "M3.5 8.5l3 3 6-7",
  deny: "M4.5 4.5l7 7m0-7l-7 7",
  ask: "M5.6 6.1a2.4 2.4 0 1 1 3.4 2.2c-.7.3-1 .8-1 1.5m0 2.1v.2",
  run: "M5 3.5l7 4.5-7 4.5z",
  read: "M4 2.5h5.5L12 5v8.5H4zM6 7h4M6 9.5h4",
  write: "M3.5 12.5l.6-2.6 6.8-6.8 2 2-6.8 6.8z",
  list: "M3 4h2l1 1.5h7V12.5H3z",
  search: "M7 11.2a4.2 4.2 0 1 0 0-8.4 4.2 4.2 0 0 0 0 8.4zm3-1.2l3.2 3.2",
  box: "M8 2.5l5 2.7v5.6l-5 2.7-5-2.7V5.2zM3.2 5.3L8 8l4.8-2.7M8 8v5.3",
  file: "M4 2.5h5.5L12 5v8.5H4zM9.3 2.7V5.2h2.5",
  note: "M8 7.2v4m0-6.6v.2M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z",
  warn: "M8 2.8l5.8 10.4H2.2zM8 6.6v3m0 1.7v.2",
  coin: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 5.2v5.6M9.8 6.2H7.1a1 1 0 0 0 0 2h1.8a1 1 0 0 1 0 2H6.2",
  flag: "M4 14V2.8m0 .4c3-1.6 5 1.2 8-.2v5.6c-3 1.4-5-1.4-8 .2",
  stop: "M4.5 4.5h7v7h-7z",
  plus: "M8 3v10M3 8h10",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.4m0 10.2v1.4M1.5 8h1.4m10.2 0h1.4M3.4 3.4l1 1m7.2 7.2l1 1m0-9.2l-1 1m-7.2 7.2l-1 1",
  moon: "M13 9.6A5.4 5.4 0 0 1 6.4 3 5.4 5.4 0 1 0 13 9.6z",
  auto: "M8 13.5a5.5 5.5 0 1 0 0-11zM8 2.5a5.5 5.5 0 0 0 0 11z",
  keys: "M2.5 4.5h11v7h-11zM5 7h.1m2.9 0h.1m2.9 0h.1M5.5 9.3h5",
  back: "M10 3.5L5.5 8l4.5 4.5",
  fold: "M6 4l4 4-4 4",
  down: "M8 3v9.5M4 8.8l4 4 4-4",
  says: "M2.5 3.5h11v7H7.5L5 13v-2.5H2.5zM5 6h6M5 8.2h3.5",
};
export function icon(name) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(ns, "path");
  path.setAttribute("d", SHAPES[name] || SHAPES.note);
  svg.append(path);
  return svg;
}

// ---- quantities --------------------------------------------------------------------------------

export function count(n) {
  return String(Math.trunc(Number(n) || 0)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function plural(n, one, many = one + "s") {
  return count(n) + " " + (n === 1 ? one : many);
}

export function bytes(n) {
  if (n < 1024) return count(n) + (n === 1 ? " byte" : " bytes");
  if (n < 1024 * 1024) return (n / 1024).toFixed(1) + " KiB";
  if (n < 1024 * 1024 * 1024) return (n / 1048576).toFixed(1) + " MiB";
  return (n / 1073741824).toFixed(1) + " GiB";
}

export function duration(ms) {
  ms = Math.max(0, Math.trunc(ms));
  if (ms < 1000) return ms + " ms";
  if (ms < 60000) return Math.trunc(ms / 1000) + "." + Math.trunc((ms % 1000) / 100) + " s";
  if (ms < 3600000) return Math.trunc(ms / 60000) + " min " + Math.trunc((ms % 60000) / 1000) + " s";
  if (ms < 86400000) return Math.trunc(ms / 3600000) + " h " + Math.trunc((ms % 3600000) / 60000) + " min";
  return Math.trunc(ms / 86400000) + " d " + Math.trunc((ms % 86400000) / 3600000) + " h";
}

// 1:07, 12:40, 1:02:03: what a clock that runs shows.
export function clock(ms) {
  const s = Math.max(0, Math.trunc(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  return s < 3600 ? Math.trunc(s / 60) + ":" + two(s % 60)
    : Math.trunc(s / 3600) + ":" + two(Math.trunc((s % 3600) / 60)) + ":" + two(s % 60);
}

export function timeOf(at) {
  const d = new Date(at);
  return Number.isNaN(d.getTime()) ? "" : d.toLocaleTimeString(undefined, { hour12: false });
}

export function ago(at, now) {
  const t = Date.parse(at);
  if (Number.isNaN(t)) return "";
  const s = Math.max(0, Math.round((now - t) / 1000));
  if (s < 60) return "just now";
  if (s < 3600) return Math.trunc(s / 60) + " min ago";
  if (s < 86400) return Math.trunc(s / 3600) + " h ago";
  const d = new Date(t);
  return d.toLocaleDateString(undefined, {
    month: "short", day: "numeric",
    year: d.getFullYear() === new Date(now).getFullYear() ? undefined : "numeric",
  });
}

export function basename(path) {
  const parts = String(path).split("/").filter(Boolean);
  return parts.length ? parts[parts.length - 1] : String(path);
}
