// Moves a tile over its tensor. All drawings are here; the kernel is not asked.
function render({ model, el }) {
  const frames = model.get("frames"), said = model.get("said"), last = frames.length - 1;
  const root = document.createElement("div");
  root.className = "cl-fig cl-step";
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "A tile over its tensor");
  root.style.setProperty("--cl-capture", "var(--cl-codegen)"); // the style sheet is the stepper's, the stage is another
  const bar = document.createElement("div"), drawing = document.createElement("div"), words = document.createElement("div");
  bar.className = "cl-bar";
  drawing.style.cssText = "overflow-x: auto; margin: 10px 0 4px; cursor: grab; user-select: none; touch-action: pan-y";
  words.setAttribute("aria-live", "polite");

  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: last, step: 1 });
  slider.setAttribute("aria-label", "which tile");
  const button = (text, label, step) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: text, title: label });
    made.setAttribute("aria-label", label);
    made.addEventListener("click", () => go(model.get("index") + step));
    return made;
  };
  const back = button("◀", "one tile back", -1), forward = button("▶", "one tile on", 1);
  // JupyterLab takes arrow keys unless the focused element itself says otherwise.
  for (const control of [slider, back, forward]) control.setAttribute("data-lm-suppress-shortcuts", "true");
  slider.addEventListener("input", () => go(Number(slider.value)));
  const drag = (event) => { // the tile goes where the pointer is
    const [rows, columns, across, cell] = model.get("grid"), svg = drawing.querySelector("svg"), box = svg.getBoundingClientRect();
    const size = cell * box.width / svg.viewBox.baseVal.width, down = frames.length / across;
    const nearest = (place, step, most) => Math.max(0, Math.min(most - 1, Math.floor(place / (step * size))));
    go(nearest(event.clientY - box.top, rows, down) * across + nearest(event.clientX - box.left, columns, across));
  };
  drawing.addEventListener("pointerdown", (event) => { drawing.setPointerCapture(event.pointerId); drag(event); });
  drawing.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
  bar.append(back, forward, slider);
  root.append(bar, drawing, words);
  el.append(root);

  function go(target) {
    model.set("index", Math.max(0, Math.min(last, target)));
    draw();
  }

  function draw() {
    const at = model.get("index");
    slider.value = at;
    slider.setAttribute("aria-valuetext", said[at]);
    back.disabled = at === 0;
    forward.disabled = at === last;
    if (root.contains(document.activeElement) && document.activeElement.disabled) slider.focus(); // a disabled button hears no key
    drawing.innerHTML = frames[at];
    words.textContent = said[at];
  }

  draw();
}
export default { render };
