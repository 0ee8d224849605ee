// The isolation receipt of a run (bridle.launch) as rows for people: what its sandbox was measured
// to be, as `bridle show` prints it.

import { bytes, count, el, plural } from "./board-text.js";

const sum = (o) => Object.values(o || {}).reduce((a, v) => a + (Number(v) || 0), 0);

export function receiptRows(r, code) {
  const who = r.identity || {}, l = r.limits || {}, init = r.init || {}, filter = r.seccompFilter || {};
  const image = r.image || {};
  const list = [
    ["receipt", `version ${r.version}, ${r.backend}, sha256 `, code(String(r.sha256 || "").slice(0, 12))],
    ["image", code(String(image.id || "").slice(0, 19)), ", ",
      !image.verified || image.verified === "not" ? "not verified" : String(image.verified)],
    ["identity", `${who.kind}, uid ${who.uid}, gid ${who.gid} outside, 1000 inside${who.idmapped ? ", idmapped" : ""}`],
    ["locks", `${r.capabilities && sum(r.capabilities) === 0 ? "no capabilities" : "CAPABILITIES"}, ` +
      `${r.noNewPrivs ? "no_new_privs" : "NO no_new_privs"}, filter table ${filter.tableVersion} `,
    code(String(filter.sha256 || "").slice(0, 12)), r.landlock ? `, Landlock ABI ${r.landlock}` : ", no Landlock"],
    ["tried", `filter ${init.filterRefuses ? "refuses" : "not proved"}, Landlock ${init.landlockRefuses ? "refuses" : "not proved"}`],
    ["limits", `memory ${bytes(l.memoryBytes || 0)}, ${count(l.pids)} processes, ${l.cpuPercent} % CPU, ` +
      `${count(l.nofile)} descriptors, files of ${bytes(l.fsize || 0)}`],
  ];
  for (const [i, g] of (Array.isArray(r.cgroups) ? r.cgroups : []).entries())
    list.push([i ? "" : "cgroups", `v${g.version} `, code(g.path)]);
  const mounts = Array.isArray(r.mountTable) ? r.mountTable : [];
  const place = (m) => [code(m.target), ` ${m.type} ${m.flags}`, m.bytes ? ` ${bytes(m.bytes)}, ${count(m.inodes)} inodes` : null];
  if (mounts.length) {
    const open = mounts.filter((m) => !String(m.flags).split(",").includes("ro"));
    list.push(["writable", open.map((m) => el("div", null, place(m)))]);
    list.push(["mounts", el("details", null, el("summary", null, plural(mounts.length, "mount") + ", every one"),
      mounts.map((m) => el("div", null, place(m))))]);
  }
  for (const [i, m] of (Array.isArray(r.leases) ? r.leases : []).entries())
    list.push([i ? "" : "leases", code(m.point), ` ${m.kind} ${bytes(m.bytes || 0)}, ${count(m.inodes)} inodes`]);
  return list;
}
