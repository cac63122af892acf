// The compiler explorer: one list for each stage, and what belongs together lit in all of them. All data is here; nobody is asked.
const MONO = 7.3; // px: about the width of a character, for how far a list scrolls sideways
const MARGIN = 6; // rows painted beyond what is seen
const HEIGHTS = { fx: 28, aten: 28, loops: 44, groups: 23 }; // px; all other rows are lines of text

function element(tag, className, attributes = {}, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

// ---- what belongs together ---------------------------------------------------------------------------------------------

class Links {
  constructor(rows) {
    this.rows = rows;
    this.down = rows.map(() => []);
    this.parts = rows.map(() => []);
    rows.forEach((row, id) => {
      for (const origin of row.up || []) this.down[origin].push(id);
      if (row.of !== undefined) this.parts[row.of].push(id);
    });
  }

  closure(start, after, found) {
    const seen = new Set(start), waiting = [...start];
    while (waiting.length) {
      for (const next of after(waiting.pop())) if (!seen.has(next)) { seen.add(next); waiting.push(next); }
    }
    for (const id of seen) found.add(id);
  }

  // As Provenance.related in provenance.py: up all the way, and down all the way.
  related(id) {
    const row = this.rows[id];
    if (row.kind === "head" && row.of === undefined) return new Set();
    const at = row.of ?? id, { kind, up } = this.rows[at];
    const start = kind === "group" ? [at, ...(up || [])] : [at], found = new Set(this.parts[at]);
    this.closure(start, (one) => this.rows[one].up || [], found);
    this.closure(start, (one) => this.down[one], found);
    return found;
  }
}

// ---- one list ----------------------------------------------------------------------------------------------------------

class Pane {
  constructor(info, explorer) {
    Object.assign(this, { ...info, explorer, height: HEIGHTS[info.key] || 20, cursor: -1, shown: [], place: new Map(), top: 0, seen: 0 });
    const style = `${explorer.colours(info.stage)}; --height: ${this.height}px`;
    this.root = element("section", `cl-x-pane cl-x-${info.key}`, { style });
    this.body = element("div", "cl-x-body cl-m", {
      tabindex: "0", role: "tree", "aria-label": `${info.title}, ${counted(info.size, "row")}`, "data-lm-suppress-shortcuts": "true",
    });
    this.room = element("div", "cl-x-room");
    this.window = element("div", "cl-x-window");
    this.ruler = element("div", "cl-x-ruler", { "aria-hidden": "true" });
    this.count = element("span", "cl-x-count");
    // Tab goes from list to list: in a list, w and x press these two.
    this.wide = element("button", "", { type: "button", tabindex: "-1", "aria-keyshortcuts": "w", "aria-pressed": "false", "aria-label": `${info.title} over the whole width`, title: "whole width (w)" }, "⤢");
    this.close = element("button", "", { type: "button", tabindex: "-1", "aria-keyshortcuts": "x", "aria-label": `hide ${info.title}`, title: "hide (x)" }, "✕");
    this.room.append(this.window);
    this.body.append(this.room);
    // In a notebook the lists stand below a heading of the lesson; on a page of its own right below that page's heading.
    const level = document.querySelector("body > main > h1 + style") ? { role: "heading", "aria-level": "2" } : {};
    this.root.append(element("header", "", {}, element("h4", "", level, info.title), this.count, this.wide, this.close), this.body, this.ruler);
    if (info.key === "bytecode") this.root.append((this.stack = element("div", "cl-x-stack cl-m", { "aria-label": "the stack", role: "group" })));
    this.listen();
  }

  get rows() { return this.explorer.rows; }

  listen() {
    const { body, explorer } = this;
    const at = (event) => {
      const index = Math.floor((event.clientY - this.window.getBoundingClientRect().top) / this.height) + this.first;
      return event.target.closest(".cl-x-row") ? this.shown[index] : undefined;
    };
    // Where the list stands is kept here: to ask the browser between changes would make it lay out the page each time.
    new ResizeObserver(() => { this.seen = body.clientHeight; explorer.later(this); }).observe(body);
    body.addEventListener("scroll", () => {
      if (this.top !== body.scrollTop) { this.top = body.scrollTop; explorer.later(this); }
    }, { passive: true });
    body.addEventListener("mousemove", (event) => {
      const mouse = `${event.screenX},${event.screenY}`; // if it stands still, the list moved
      if (mouse !== explorer.mouse) explorer.point(at(event));
      explorer.mouse = mouse;
    });
    body.addEventListener("mouseleave", () => explorer.point(undefined));
    body.addEventListener("click", (event) => {
      const id = at(event);
      if (id === undefined) return;
      if (event.target.closest(".cl-x-fold")) return this.fold(id);
      explorer.pin(id === explorer.pinned ? undefined : id, this);
    });
    body.addEventListener("keydown", (event) => this.press(event));
    this.wide.addEventListener("click", () => {
      this.wide.setAttribute("aria-pressed", String(this.root.classList.toggle("cl-x-wide")));
    });
    this.close.addEventListener("click", () => explorer.show(this, false));
  }

  press(event) {
    const { explorer, shown } = this, page = Math.max(1, Math.floor(this.seen / this.height) - 1);
    const index = this.cursor < 0 ? -1 : this.place.get(this.cursor) ?? -1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) {
      const start = index < 0 && explorer.lit.size ? this.firstLit() - (steps[event.key] > 0 ? 1 : 0) : index;
      this.step(shown[Math.max(0, Math.min(shown.length - 1, start + steps[event.key]))]);
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const opens = event.key === "ArrowRight";
      if (index < 0) return;
      if (this.foldable(this.cursor) && explorer.folded.has(this.cursor) === opens) this.fold(this.cursor);
      else if (!opens) this.step(this.parent(this.cursor) ?? this.cursor);
      else if (index + 1 < shown.length) this.step(shown[index + 1]);
    } else if (event.key === "Escape") {
      if (explorer.pinned === undefined) return;
      explorer.pin(undefined, this);
    } else if (event.key === "w") this.wide.click();
    else if (event.key === "x") this.close.click();
    else if (event.key === "," || event.key === ".") explorer.go(explorer.time + (event.key === "." ? 1 : -1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  step(id) {
    this.explorer.pin(id, this);
    this.reveal(id);
  }

  firstLit() { return Math.max(0, this.shown.findIndex((id) => this.explorer.lit.has(id))); }

  foldable(id) { return id + 1 < this.end && this.rows[id + 1].depth > this.rows[id].depth; }

  parent(id) {
    for (let at = id - 1; at >= this.start; at--) if (this.rows[at].depth < this.rows[id].depth) return at;
    return undefined;
  }

  fold(id) {
    const { folded } = this.explorer;
    if (!folded.delete(id)) folded.add(id);
    this.layout();
    this.explorer.later(this);
  }

  // Which rows are there, given what is folded.
  layout() {
    this.shown = [];
    this.place.clear();
    let limit = Infinity, longest = 0;
    for (let id = this.start; id < this.end; id++) {
      const row = this.rows[id];
      if (row.depth > limit) continue;
      limit = this.explorer.folded.has(id) ? row.depth : Infinity;
      this.place.set(id, this.shown.length);
      this.shown.push(id);
      longest = Math.max(longest, row.text.length + (row.note || "").length + 2 * row.depth + 10);
    }
    this.room.style.height = `${this.shown.length * this.height}px`;
    this.room.style.minWidth = `min(${Math.round(longest * MONO)}px, 400ch)`;
  }

  // Open what `id` is folded under.
  unfold(id) {
    let changed = false;
    for (let above = this.parent(id); above !== undefined; above = this.parent(above)) changed = this.explorer.folded.delete(above) || changed;
    if (changed) this.layout();
  }

  // Scroll so that `id` can be seen. Nothing moves if it can be already.
  reveal(id) {
    this.unfold(id);
    const at = this.place.get(id) * this.height, highest = this.shown.length * this.height - this.seen;
    if (at >= this.top + this.height && at + 2 * this.height <= this.top + this.seen) return;
    this.top = Math.round(Math.max(0, Math.min(highest, at - this.seen / 3)));
    this.body.scrollTop = this.top;
  }

  paint() {
    const { explorer, body, shown } = this;
    if (this.root.hidden) return;
    this.first = Math.max(0, Math.floor(this.top / this.height) - MARGIN);
    const last = Math.min(shown.length, Math.ceil((this.top + this.seen) / this.height) + MARGIN);
    this.window.style.transform = `translateY(${this.first * this.height}px)`;
    this.window.innerHTML = shown.slice(this.first, last).map((id, n) => this.html(id, this.first + n)).join("");
    const active = explorer.focus !== undefined && this.place.has(this.cursor) ? this.cursor : undefined;
    if (active === undefined) body.removeAttribute("aria-activedescendant");
    else body.setAttribute("aria-activedescendant", `${explorer.name}-${active}`);
    this.paintRuler();
    if (this.stack) this.paintStack();
  }

  html(id, index) {
    const { explorer, rows } = this, row = rows[id], kinds = ["cl-x-row"];
    if (row.kind) kinds.push(`cl-x-is-${row.kind}`);
    if (explorer.lit.has(id)) kinds.push("cl-x-lit");
    else if (explorer.folded.has(id) && this.holdsLit(id)) kinds.push("cl-x-holds");
    if (id === explorer.focus) kinds.push("cl-x-focus");
    if (explorer.moving && row.at === explorer.time) kinds.push("cl-x-now");
    if (!explorer.made(id)) kinds.push("cl-x-later");
    if (index + 1 === this.shown.length || rows[this.shown[index + 1]].depth < 2) kinds.push("cl-x-last");
    const foldable = this.foldable(id), open = !explorer.folded.has(id);
    const fold = foldable ? `<span class="cl-x-fold" aria-hidden="true">${open ? "▾" : "▸"}</span>` : "";
    const state = foldable ? ` aria-expanded="${open}"` : "";
    const label = `<span class="cl-x-no">${row.label || ""}</span>`;
    const note = row.note ? `<span class="cl-x-note">${escape(row.note)}</span>` : "";
    return `<div class="${kinds.join(" ")}" id="${explorer.name}-${id}" role="treeitem" aria-level="${row.depth + 1}"${state} ` +
      `aria-selected="${explorer.lit.has(id)}" aria-setsize="${this.shown.length}" aria-posinset="${index + 1}" ` +
      `style="--depth: ${row.depth}" title="${escape(row.text)}">${fold}${label}<span class="cl-x-text">${row.html || escape(row.text)}</span>${note}</div>`;
  }

  holdsLit(id) {
    for (let at = id + 1; at < this.end && this.rows[at].depth > this.rows[id].depth; at++) if (this.explorer.lit.has(at)) return true;
    return false;
  }

  // Beside the scroll bar: where in the list something is lit.
  paintRuler() {
    const { lit } = this.explorer, total = this.shown.length || 1, marks = [];
    let from = -1;
    this.shown.forEach((id, index) => {
      const on = lit.has(id) || (this.explorer.folded.has(id) && this.holdsLit(id));
      if (on && from < 0) from = index;
      if (from >= 0 && (!on || index === total - 1)) { marks.push([from / total, Math.max((index + (on ? 1 : 0)) / total, from / total + 0.012)]); from = -1; }
    });
    const percent = (share) => `${(100 * share).toFixed(2)}%`;
    const stops = marks.map(([a, b]) => `transparent ${percent(a)}, var(--line) ${percent(a)}, var(--line) ${percent(b)}, transparent ${percent(b)}`);
    this.ruler.style.background = marks.length ? `linear-gradient(${stops.join(", ")})` : "";
    this.count.textContent = this.lit ? `${this.lit} of ${this.size}` : `${this.size}`;
  }

  // The stack of the instruction in question: the one pointed at, the one that made what is pointed at, or the one of this moment.
  paintStack() {
    const { explorer, rows } = this, near = [...explorer.lit].filter((id) => id >= this.start && id < this.end && rows[id].stack);
    const focused = explorer.focus >= this.start && explorer.focus < this.end ? explorer.focus : near.sort((a, b) => rows[b].depth - rows[a].depth || b - a)[0];
    const id = explorer.moving ? explorer.atMoment(this) ?? focused : focused, stack = id === undefined ? undefined : rows[id].stack;
    const values = (list, kind) => list.map((n) => `<span class="cl-x-val${kind}">${escape(explorer.strings[n])}</span>`).join("");
    if (!stack) { this.stack.innerHTML = '<span class="cl-dim">the stack: point at an instruction</span>'; return; }
    const [stays, off, on] = stack, arrow = off.length && on.length ? "<span>→</span>" : "";
    const all = values(stays, "") + values(off, " cl-x-off") + arrow + values(on, " cl-x-on");
    this.stack.innerHTML = `<span class="cl-dim">stack</span>${all || '<span class="cl-dim">empty</span>'}`;
  }
}

// ---- all of it ---------------------------------------------------------------------------------------------------------

class Explorer {
  constructor(data, host) {
    Object.assign(this, { rows: data.rows, strings: data.strings, moments: data.moments, data });
    this.name = `cl-x${Math.random().toString(36).slice(2, 8)}`;
    this.links = new Links(this.rows);
    this.folded = new Set(data.folded);
    this.lit = new Set();
    this.time = this.last = this.moments.length - 1;
    this.waiting = new Set();
    this.panes = data.panes.map((info) => new Pane(info, this));
    this.build(host);
    for (const pane of this.panes) pane.layout();
  }

  get moving() { return this.time < this.last; }
  get focus() { return this.pointed ?? this.pinned; }
  colours(stage) {
    return `--line: var(--cl-${stage}); --fill: var(--cl-${stage === "codegen" ? "codegen-fill" : stage})`;
  }

  build(host) {
    this.root = element("div", "cl-fig cl-x", { role: "group", "aria-label": `Compiler explorer: ${this.data.title}` });
    this.status = element("div", "cl-x-hidden", { role: "status", "aria-live": "polite" });
    this.thread = element("div", "cl-x-thread", { role: "group", "aria-label": "What belongs together, stage by stage" });
    this.steps = this.panes.map((pane) => {
      const value = element("span", "cl-x-value"), name = element("b", "", {}, pane.title);
      const made = element("button", "", { type: "button", style: this.colours(pane.stage) }, name, value);
      made.addEventListener("click", () => this.visit(pane));
      this.thread.append(made);
      return { pane, made, value };
    });
    this.grid = element("div", "cl-x-grid", {}, ...this.panes.map((pane) => pane.root));
    const keys = "Point or click: what belongs to it lights up everywhere. Keys: Tab next list · ↑ ↓ row · ← → fold · w whole width · x hide · Esc let go · , . time";
    this.root.append(this.buildTime(), this.thread, this.grid, element("p", "cl-x-keys", {}, keys), this.status);
    host.append(this.root);
  }

  // The scrubber, over a track that shows how long each stage is.
  buildTime() {
    this.slider = element("input", "", { type: "range", min: 0, max: this.last, step: 1, "aria-label": "moment of the compilation", "data-lm-suppress-shortcuts": "true" });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    const button = (text, label, target) => {
      const made = element("button", "", { type: "button", "aria-label": label, title: label, "data-lm-suppress-shortcuts": "true" }, text);
      made.addEventListener("click", () => this.go(target()));
      return made;
    };
    const track = element("div", "cl-x-track", { "aria-hidden": "true" });
    let from = 0;
    this.moments.forEach(([stage], at) => {
      if (at + 1 < this.moments.length && this.moments[at + 1][0] === stage) return;
      track.append(element("i", "", { style: `${this.colours(stage)}; flex-grow: ${at + 1 - from}` }));
      from = at + 1;
    });
    this.said = element("div", "cl-x-said");
    const back = button("◀", "one moment back", () => this.time - 1), on = button("▶", "one moment on", () => this.time + 1);
    const first = button("|◀", "before the call", () => 0), last = button("▶|", "all compiled", () => this.last);
    return element("div", "cl-x-time", {}, element("b", "cl-x-title", {}, this.data.title), first, back,
      element("div", "cl-x-slider", {}, track, this.slider), on, last, this.said);
  }

  // Is it there, at this time? A call is told when it is done, and is there once something in it is.
  made(id) {
    const row = this.rows[id], next = this.rows[id + 1];
    return row.at <= this.time || (next !== undefined && next.depth > row.depth && next.at <= this.time);
  }

  // Paint a list with the next frame, once.
  later(pane) {
    if (!this.waiting.size) requestAnimationFrame(() => this.paint());
    this.waiting.add(pane);
  }

  paint() {
    const all = [...this.waiting];
    this.waiting.clear();
    for (const one of all) one.paint();
    for (const { stack } of all) if (stack) stack.tabIndex = stack.scrollHeight > stack.clientHeight ? 0 : -1; // what scrolls is reached by keyboard
  }

  point(id) {
    if (id === this.pointed) return;
    this.pointed = id;
    this.light();
  }

  // Hold on to a row (or, without one, let go), and bring what belongs to it into view in the other lists.
  pin(id, from, quiet = false) {
    this.pointed = undefined;
    this.pinned = id;
    if (from && id !== undefined) from.cursor = id;
    this.light();
    if (id !== undefined) {
      for (const pane of this.panes) {
        const [first] = pane === from ? [] : this.litIn(pane);
        if (first !== undefined) pane.reveal(first);
      }
    }
    if (!quiet) this.say();
  }

  litIn(pane) {
    const found = [];
    for (let id = pane.start; id < pane.end; id++) if (this.lit.has(id)) found.push(id);
    return found;
  }

  light() {
    const all = this.focus === undefined ? [] : [...this.links.related(this.focus)];
    this.lit = new Set(all.filter((id) => this.made(id))); // what is not made yet cannot be lit
    for (const { pane, made, value } of this.steps) {
      const found = this.litIn(pane), text = found.length ? this.summary(pane, found) : "nothing";
      pane.lit = found.length;
      value.textContent = text;
      made.title = `${pane.title}: ${text}`;
      made.classList.toggle("cl-x-some", found.length > 0);
      this.later(pane);
    }
  }

  // "line 25", "gelu", "3 loops": what is lit in one list, in a word.
  summary(pane, found) {
    const rows = found.map((id) => this.rows[id]), own = rows.filter((row) => row.kind !== "head");
    if (pane.key === "groups") {
      const kernels = [...new Set(found.map((id) => (this.rows[id].depth === 2 ? pane.parent(id) : id)))];
      return kernels.length === 1 ? this.rows[kernels[0]].text : counted(kernels.length, "group");
    }
    if (pane.key === "source") return `${own[0].label}: ${own[0].text.trim()}${own.length > 1 ? ` and ${counted(own.length - 1, "line")} more` : ""}`;
    return own.length === 1 ? own[0].text.trim().split(" = ")[0] : counted(own.length, pane.one);
  }

  // A list's part of the thread was pressed: show the list, and go to what is lit there.
  visit(pane) {
    if (pane.root.hidden) this.show(pane, true);
    const found = this.litIn(pane)[0];
    if (found !== undefined) { pane.cursor = found; pane.reveal(found); }
    pane.body.focus({ preventScroll: false });
    this.later(pane);
  }

  show(pane, yes) {
    pane.root.hidden = !yes;
    const step = this.steps.find((one) => one.pane === pane);
    step.made.classList.toggle("cl-x-closed", !yes);
    if (!yes) step.made.focus();
    this.panes.forEach((one) => this.later(one));
  }

  go(time) {
    this.time = Math.max(0, Math.min(this.last, time));
    const [stage, text] = this.moments[this.time];
    this.slider.value = this.time;
    this.slider.setAttribute("aria-valuetext", text);
    this.said.setAttribute("style", this.colours(stage));
    this.said.textContent = this.moving ? `${this.time} of ${this.last}: ${text}` : `${this.last} moments: move the slider to go back`;
    for (const pane of this.panes) {
      const now = this.moving ? this.atMoment(pane) : undefined;
      if (now !== undefined) pane.reveal(now);
    }
    this.light();
  }

  atMoment(pane) {
    for (let id = pane.start; id < pane.end; id++) if (this.rows[id].at === this.time && this.rows[id].kind !== "head") return id;
    return undefined;
  }

  // For those who do not see the lights.
  say() {
    if (this.pinned === undefined) { this.status.textContent = "Nothing is lit."; return; }
    const row = this.rows[this.pinned], parts = this.steps.filter(({ pane }) => pane.lit).map(({ pane, value }) => `${pane.title}: ${value.textContent}`);
    this.status.textContent = `${row.label ? row.label + " " : ""}${row.text.trim()}. Belongs together: ${parts.join("; ")}.`;
  }
}

function render({ model, el }) {
  const data = JSON.parse(model.get("data")), explorer = new Explorer(data, el);
  explorer.go(explorer.last);
  // Once the lists have their sizes, there is something to bring into view.
  requestAnimationFrame(() => { for (const pane of explorer.panes) pane.seen = pane.body.clientHeight; explorer.pin(data.start, undefined, true); });
}

export default { render };
