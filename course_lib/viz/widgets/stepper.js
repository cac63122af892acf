// Steps through a recorded capture. All data is here; the kernel is not asked.
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function render({ model, el }) {
  const steps = model.get("steps"), nodes = model.get("nodes"), sources = model.get("sources");
  const last = steps.length - 1;
  const root = element("div", "cl-fig cl-step");
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Stepper: " + model.get("title"));
  const bar = element("div", "cl-bar");
  const slider = element("input");
  Object.assign(slider, { type: "range", min: 0, max: last, step: 1 });
  slider.setAttribute("aria-label", "step of " + model.get("title"));
  const count = element("span", "cl-count");
  const status = element("div", "cl-hidden"); // for those who do not see what changes
  status.setAttribute("role", "status");

  const button = (text, label, target) => {
    const made = element("button", "", text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.title = label;
    made.addEventListener("click", () => go(target(now())));
    return made;
  };
  const now = () => model.get("index");
  const nextNode = (at) => { for (let i = at + 1; i <= last; i++) if (steps[i].node) return i; return last; };
  const out = (at) => { for (let i = at + 1; i <= last; i++) if (steps[i].depth < steps[at].depth) return i; return last; };
  const over = (at) => { for (let i = at + 1; i <= last; i++) if (steps[i].depth <= steps[at].depth) return i; return last; };
  const first = button("|◀", "to the first instruction", () => 0);
  const back = button("◀", "one instruction back", (at) => at - 1);
  const forward = button("▶", "one instruction on", (at) => at + 1);
  const end = button("▶|", "to the last instruction", () => last);
  const controls = [first, back, forward, end, button("over call", "past a followed call", over), button("out", "out of this call", out),
    button("next node", "to the next instruction that adds an FX node", nextNode)];
  bar.append(...controls.slice(0, 4), slider, count, ...controls.slice(4));
  // JupyterLab takes arrow keys unless the focused element itself says otherwise.
  for (const control of [slider, ...controls]) control.setAttribute("data-lm-suppress-shortcuts", "true");

  const panes = element("div", "cl-panes");
  const left = element("div"), right = element("div");
  const code = element("div", "cl-pane"), stack = element("div", "cl-pane"), graph = element("div", "cl-pane");
  // As high as the longest function needs, so that nothing jumps while stepping.
  const longest = Math.max(...Object.values(sources).map((lines) => lines.length), 1);
  for (const [pane, label] of [[code, "the source"], [stack, "the instruction and the stack"], [graph, "the FX graph so far"]]) {
    pane.setAttribute("role", "region");
    pane.setAttribute("aria-label", label);
    pane.setAttribute("tabindex", "0"); // what scrolls must be reached by keyboard
  }
  code.style.height = `${Math.min(320, 30 + 20 * longest)}px`;
  graph.style.maxHeight = "480px";
  stack.style.marginTop = "10px";
  left.append(code, stack);
  right.append(graph);
  panes.append(left, right);
  root.append(bar, panes, status);
  el.append(root);

  function go(target) {
    model.set("index", Math.max(0, Math.min(last, target)));
    draw();
  }

  function draw() {
    const at = now(), step = steps[at];
    slider.value = at;
    slider.setAttribute("aria-valuetext", `${step.op} ${step.arg}, line ${step.line}`);
    count.textContent = `step ${at + 1} of ${last + 1}`;
    first.disabled = back.disabled = at === 0;
    end.disabled = forward.disabled = at === last;
    if (root.contains(document.activeElement) && document.activeElement.disabled) slider.focus(); // a disabled button hears no key

    code.replaceChildren(element("h4", "", `${"↳ ".repeat(step.depth)}${step.function}, ${step.place}`));
    let marked = null;
    for (const [number, text] of sources[step.source] || [[step.line, step.text]]) {
      const row = element("div", "cl-line" + (number === step.line ? " cl-now" : ""));
      row.append(element("i", "", number), document.createTextNode(text));
      if (number === step.line) marked = row;
      code.append(row);
    }
    if (marked) code.scrollTop = Math.max(0, marked.offsetTop - code.offsetTop - 120);

    const offset = step.offset >= 0 ? `${step.offset}  ` : "";
    stack.replaceChildren(element("h4", "", "the instruction"), element("div", "cl-ins", `${offset}${step.op} ${step.arg}`));
    if (step.inside) stack.append(element("div", "cl-calls", `this call is followed: its ${step.inside} instructions come next`));
    const held = [...step.stays, ...step.on].join(", ") || "empty";
    status.textContent = `step ${at + 1}: ${step.op} ${step.arg}, line ${step.line}; stack: ${held}${step.node ? `; new node ${step.node}` : ""}`;
    const heading = element("h4", "", "the stack, its top at the right: dashed is taken off, filled is put on");
    heading.style.marginTop = "8px";
    const values = element("div", "cl-stack");
    for (const [kind, list] of [["", step.stays], [" cl-gone", step.off], [" cl-put", step.on]]) {
      if (kind === " cl-put" && step.off.length && list.length) values.append(element("span", "", "→"));
      for (const text of list) values.append(element("span", "cl-val" + kind, text));
    }
    if (!step.stays.length && !step.off.length && !step.on.length) values.append(element("span", "cl-dim", "empty"));
    stack.append(heading, values);
    if (at === last && model.get("problem")) stack.append(element("div", "cl-torn", "✂ " + model.get("problem")));

    // What the graph holds by now: operations added up to this step, and the inputs that they read.
    const added = new Set(steps.slice(0, at + 1).map((s) => s.node).filter(Boolean));
    const lastAdded = nodes.reduce((found, node, i) => (added.has(node.name) ? i : found), -1);
    const shown = nodes.filter((node, i) => added.has(node.name) || (node.kind === "" && i < lastAdded));
    const text = shown.map((node) => node.text).join(" ");
    const inputs = nodes.filter((node) => node.kind === "input" && new RegExp(`[(, ]${node.name}[,)]`).test(text));
    graph.replaceChildren(element("h4", "", `the FX graph so far: ${shown.length} of ${nodes.filter((n) => n.kind === "").length} operations`));
    for (const node of [...inputs, ...shown]) {
      const box = element("div", "cl-node" + (node.kind ? " cl-input" : "") + (node.name === step.node ? " cl-fresh" : ""));
      box.append(element("span", "", node.text), element("span", "cl-dim", node.result ? `  ${node.result}` : ""));
      graph.append(box);
    }
    graph.scrollTop = graph.scrollHeight;
  }

  slider.addEventListener("input", () => go(Number(slider.value)));
  model.on("change:index", draw);
  draw();
}

export default { render };
