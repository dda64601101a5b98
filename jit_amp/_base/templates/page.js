"use strict";
const { rows, tree, timing, numerics, gradients } = JSON.parse(document.getElementById("data").textContent);
const STEP = 100;
const byId = (id) => document.getElementById(id);
const make = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const lines = [...document.querySelectorAll("button.line")].map((button) => ({
  button, item: button.parentElement, rows: button.dataset.rows.split(",").map(Number),
}));
const text = rows.map((row) => [row.op, row.module, row.reason, row.at].join(" ").toLowerCase());
let kept = rows.map(() => true);
let picked = null; // paths of modules

const scoped = rows.some((row) => row.scope.length);
const NAMES = ["operator", "module", "dtypes", "casts", "why"];
if (scoped) NAMES.splice(4, 0, "scope");
if (timing) NAMES.push("time");
if (numerics) NAMES.push("error");
if (gradients) NAMES.push("gradient");

function header() {
  const head = make("tr");
  for (const name of NAMES) head.append(make("th", name));
  return head;
}

// Rows that differ in their module only are one, of all these modules.
function groups(numbers) {
  const found = new Map();
  for (const number of numbers) {
    const row = rows[number];
    const key = JSON.stringify([row.op, row.stack, row.in, row.out, row.shapes, row.scope, row.reason, row.module.replace(/\d+/g, "*")]);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(number);
  }
  return [...found.values()];
}

function cells(numbers) {
  const [row] = numbers.map((number) => rows[number]);
  const all = numbers.map((number) => rows[number]);
  const calls = all.reduce((sum, each) => sum + each.calls, 0);
  const size = (value) => (value === "inf" ? Infinity : Number(value));
  const worst = (get) => all.map(get).reduce((a, b) => (size(b) > size(a) ? b : a));
  const found = [row.op, numbers.length > 1 ? `${numbers.length} x ${row.module.replace(/\d+/g, "*")}` : row.module,
    `${row.in.join(" ")} \u2192 ${row.out.join(" ")} ${row.shapes.join(" ")} ${row.there}`, row.casts.join("; "),
    ...(scoped ? [row.scope.join("; ")] : []),
    row.reason + (calls > 1 ? ` (${calls} calls)` : "")];
  if (timing) {
    const sum = (get) => all.reduce((total, each) => total + get(each), 0);
    found.push(`${sum((each) => each.ms).toFixed(2)} ms, ${(100 * sum((each) => each.time)).toFixed(1)} %`);
  }
  if (numerics) {
    const there = all.filter((each) => each.n);
    const bad = {};
    for (const each of there) for (const [what, count] of Object.entries(each.n.bad)) bad[what] = (bad[what] ?? 0) + count;
    const told = Object.entries(bad).map(([what, count]) => `${count.toLocaleString("en")} ${what}`);
    found.push(there.length ? [`${worst((e) => e.n?.own ?? "") || 0} own, ${worst((e) => e.n?.total ?? "") || 0} by then`,
      `largest ${worst((e) => e.n?.largest ?? "")}`, ...told].join("; ") : "");
  }
  if (gradients) {
    const g = all.map((each) => each.g).find(Boolean);
    found.push(g ? `largest ${g.largest || 0} ${g.dtype}; ${(100 * g.zero).toFixed(1)} % lost without a loss scale`
      + (g.from ? `; overflows from a scale of ${g.from}` : "") : "");
  }
  return found;
}

function shown(numbers) {
  const made = make("tr");
  made.id = "r" + numbers[0];
  cells(numbers).forEach((value, at) => {
    const cell = make("td", at === 1 && numbers.length > 1 ? undefined : value, NAMES[at]);
    cell.dataset.name = NAMES[at];
    made.append(cell);
    if (at === 1 && numbers.length > 1) {
      const each = make("button", value, "plain each");
      each.type = "button";
      each.title = "one by one";
      each.onclick = () => made.replaceWith(...numbers.map((number) => shown([number])));
      cell.append(each);
    }
  });
  made.firstChild.title = rows[numbers[0]].stack.join("\n");
  return made;
}

function open(line, at) {
  close(line);
  const box = make("div", undefined, "details");
  const table = make("table");
  table.append(header());
  box.append(table);
  const wanted = groups(line.rows.filter((number) => kept[number]));
  let done = 0;
  const more = make("button", "", "plain more");
  const add = (upTo) => {
    for (; done < Math.min(upTo, wanted.length); done++) table.append(shown(wanted[done]));
    more.textContent = `${wanted.length - done} more`;
    more.hidden = done >= wanted.length;
  };
  more.onclick = () => add(done + STEP);
  add(Math.max(STEP, at === undefined ? 0 : wanted.findIndex((group) => group.includes(at)) + 1));
  box.append(more);
  line.item.append(box);
  line.button.setAttribute("aria-expanded", "true");
}

function close(line) {
  line.item.querySelector(".details")?.remove();
  line.button.setAttribute("aria-expanded", "false");
}

function filter() {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [precision, policy] = ["precision", "policy"].map((id) => byId(id).value);
  const inside = (module) => picked.some((path) => module === path || module.startsWith(path + "."));
  kept = rows.map((row, i) => (!precision || row.precision === precision)
    && (!policy || (row.policy || "none") === policy)
    && (!picked || inside(row.module))
    && words.every((word) => text[i].includes(word)));
  for (const line of lines) {
    line.item.classList.toggle("out", !line.rows.some((number) => kept[number]));
    if (line.button.getAttribute("aria-expanded") === "true") open(line);
  }
  byId("found").textContent = `${kept.filter(Boolean).length} of ${rows.length} operators`;
}

// The tree: one level at a time.
function pick(node, button) {
  const again = button?.getAttribute("aria-pressed") === "true";
  document.querySelectorAll("nav .pick").forEach((each) => each.setAttribute("aria-pressed", "false"));
  picked = node && !again ? node.paths : null;
  if (picked) button.setAttribute("aria-pressed", "true");
  byId("module").hidden = !picked;
  byId("module").textContent = picked ? `${picked[0]}${picked.length > 1 ? ` and ${picked.length - 1} more` : ""} \u00d7` : "";
  filter();
}

function branch(nodes) {
  const list = make("ul");
  for (const node of nodes) {
    const item = make("li"), row = make("div", undefined, "node");
    const opens = make("button", node.children.length ? "\u25b8" : "", "open");
    opens.type = "button";
    opens.disabled = !node.children.length;
    opens.setAttribute("aria-label", "open " + node.label);
    opens.onclick = () => {
      const below = item.querySelector("ul");
      if (below) below.remove(); else item.append(branch(node.children));
      opens.textContent = below ? "\u25b8" : "\u25be";
    };
    const choose = make("button", undefined, "pick");
    choose.type = "button";
    choose.setAttribute("aria-pressed", "false");
    const told = [];
    if (timing) told.push(`${node.ms.toFixed(2)} ms`);
    if (node.casts) told.push(`${node.casts} casts`);
    if (numerics && node.error) told.push(node.error);
    choose.append(make("span", node.label + (node.count > 1 ? ` (${node.count} x)` : ""), "name"), make("span", told.join(", "), "faint what"));
    choose.onclick = () => pick(node, choose);
    row.append(opens, choose);
    item.append(row);
    list.append(item);
  }
  return list;
}

function follow() {
  const wanted = /^#r(\d+)$/.exec(location.hash);
  if (wanted) {
    const number = Number(wanted[1]);
    const at = lines.filter((line) => line.rows.includes(number));
    const line = at.sort((a, b) => a.rows.length - b.rows.length)[0];
    if (line) {
      line.item.closest("details")?.setAttribute("open", "");
      open(line, number);
      line.item.scrollIntoView({ block: "center" });
      line.button.focus({ preventScroll: true });
    }
  }
}

for (const line of lines) {
  line.button.onclick = () => {
    if (line.button.getAttribute("aria-expanded") === "true") close(line);
    else { open(line); try { history.replaceState(null, "", "#" + line.item.id); } catch { /* in a notebook */ } }
  };
}
for (const value of [...new Set(rows.map((row) => row.policy || "none"))].sort()) byId("policy").append(make("option", value));
for (const id of ["search", "precision", "policy"]) byId(id).oninput = filter;
byId("form").onsubmit = () => false;
byId("module").onclick = () => pick(null);
if (byId("copy")) byId("copy").onclick = () => {
  navigator.clipboard?.writeText(byId("advice").textContent);
  byId("copy").textContent = "copied";
};
if (tree.length) {
  byId("nav").hidden = false;
  byId("below").classList.add("with-tree");
  byId("modules").append(branch(tree));
  byId("modules").open = innerWidth >= 1100;
}
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && event.target === document.body) { event.preventDefault(); byId("search").focus(); }
  if (["j", "k"].includes(event.key) && event.target.tagName !== "INPUT" && event.target.tagName !== "SELECT") {
    const seen = lines.filter((line) => line.button.offsetParent);
    const now = seen.findIndex((line) => line.button === document.activeElement);
    seen[Math.max(0, Math.min(seen.length - 1, now + (event.key === "j" ? 1 : -1)))]?.button.focus();
  }
});
const root = document.documentElement;
root.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
byId("theme").onclick = () => root.classList.toggle("dark");
addEventListener("hashchange", follow);
filter();
follow();
