// Looked at in the page: whether everything that can be used has a name, and whether all text stands
// out from what is behind it (WCAG 2.2: 4.5 to 1, 3 to 1 where it is large). Strings of functions,
// since they run in the page.
"use strict";

// Texts whose contrast is too small, as "RATIO TEXT".
const contrast = `(() => {
  const ctx = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (css) => { ctx.clearRect(0, 0, 1, 1); ctx.fillStyle = "#000"; ctx.fillStyle = css; ctx.fillRect(0, 0, 1, 1); const d = ctx.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const lum = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { const chain = []; for (let x = e; x; x = x.parentElement) chain.unshift(rgba(getComputedStyle(x).backgroundColor)); return chain.reduce((b, a) => over(a, b), rgba(getComputedStyle(document.documentElement).colorScheme === "dark" ? "#000" : "#fff")); };
  const out = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const e = n.parentElement, s = getComputedStyle(e);
    if (!n.data.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest("noscript, .unseen, .skip, :disabled, option")) continue;
    if (!e.getClientRects().length) continue;
    looked++;
    let alpha = 1;
    for (let x = e; x; x = x.parentElement) alpha *= Number(getComputedStyle(x).opacity);
    const bg = behind(e), c = rgba(s.color), fg = over([c[0], c[1], c[2], c[3] * alpha], bg);
    const a = lum(fg), b = lum(bg), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const px = parseFloat(s.fontSize), large = px >= 24 || (px >= 18.66 && Number(s.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) out.push(ratio.toFixed(2) + " " + n.data.trim().slice(0, 40) + " ." + e.className);
  }
  return { looked, out };
})()`;

// Things to use that the browser's own tree of accessibility has no name for, and what it knows of.
async function names(page) {
  const { nodes } = await page.send("Accessibility.getFullAXTree");
  const roles = new Map(), nameless = [];
  for (const n of nodes) {
    if (n.ignored) continue;
    const role = n.role && n.role.value, name = n.name && String(n.name.value).trim();
    roles.set(role, (roles.get(role) || 0) + 1);
    const focusable = n.properties && n.properties.some((p) => p.name === "focusable" && p.value.value);
    if (role === "group" && !focusable) continue; // details
    if (["button", "link", "textbox", "searchbox", "checkbox", "combobox", "dialog", "article", "feed", "region", "navigation", "meter", "group", "spinbutton"].includes(role) && !name)
      nameless.push(role);
  }
  return { roles, nameless };
}

// Ids that are there twice, headings that skip a level, tab stops out of order.
const structure = `(() => {
  const out = [], ids = new Set();
  for (const e of document.querySelectorAll("[id]")) { if (ids.has(e.id)) out.push("twice: #" + e.id); ids.add(e.id); }
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
    for (const a of ["aria-labelledby", "aria-describedby"])
      for (const id of (e.getAttribute(a) || "").split(" ").filter(Boolean)) if (!document.getElementById(id)) out.push(a + " leads nowhere: " + id);
  for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) out.push("tabindex " + e.tabIndex);
  if (document.querySelectorAll("h1").length !== 1) out.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) out.push("not one main");
  if (!document.documentElement.lang) out.push("no language");
  for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) out.push("image without alt");
  return out;
})()`;

module.exports = { contrast, names, structure };
