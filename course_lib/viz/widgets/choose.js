// Boxes to tick, and what each combination costs. All drawings are here; the kernel is not asked.
function render({ model, el }) {
  const frames = model.get("frames"), said = model.get("said"), root = document.createElement("fieldset");
  root.className = "cl-fig cl-ask";
  root.style.maxWidth = "none";
  const legend = document.createElement("legend"), row = document.createElement("div"), drawing = document.createElement("div");
  legend.textContent = model.get("question");
  row.style.cssText = "display: flex; flex-wrap: wrap; clear: both";
  drawing.style.cssText = "overflow-x: auto; margin: 8px 0 4px";
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  const boxes = model.get("choices").map((choice, n) => {
    const label = document.createElement("label"), text = document.createElement("span");
    const box = Object.assign(document.createElement("input"), { type: "checkbox" });
    box.setAttribute("data-lm-suppress-shortcuts", "true"); // else JupyterLab takes the keys
    box.addEventListener("change", () => { model.set("chosen", model.get("chosen") ^ (1 << n)); draw(); });
    text.textContent = choice;
    label.append(box, text);
    row.append(label);
    return box;
  });
  root.append(legend, row, drawing, status);
  el.append(root);

  function draw() {
    const chosen = model.get("chosen");
    boxes.forEach((box, n) => { box.checked = Boolean((chosen >> n) & 1); });
    drawing.innerHTML = frames[chosen];
    status.textContent = said[chosen];
  }

  draw();
}
export default { render };
