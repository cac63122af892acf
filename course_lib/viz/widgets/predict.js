// A multiple-choice question. The choice goes to the kernel; nothing is asked of it.
function render({ model, el }) {
  const root = document.createElement("fieldset"), legend = document.createElement("legend"), status = document.createElement("p");
  root.className = "cl-fig cl-ask";
  legend.innerHTML = model.get("question"); // escaped in predict.py
  status.className = "cl-dim";
  status.setAttribute("role", "status");
  root.append(legend);
  const group = `predict-${Math.random().toString(36).slice(2)}`; // two views of one question must not share their buttons
  const buttons = model.get("options").map((option, number) => {
    const label = document.createElement("label"), text = document.createElement("span");
    const button = Object.assign(document.createElement("input"), { type: "radio", name: group, value: number });
    button.setAttribute("data-lm-suppress-shortcuts", "true"); // else JupyterLab takes the arrow keys
    button.addEventListener("change", () => { model.set("choice", number); model.save_changes(); });
    text.innerHTML = `<span class="cl-letter">${"abcdef"[number]})</span> ${option}`;
    label.append(button, text);
    root.append(label);
    return button;
  });
  root.append(status);
  el.append(root);

  function draw() {
    const choice = model.get("choice");
    buttons.forEach((button, number) => { button.checked = number === choice; });
    status.textContent = choice < 0 ? "Choose before you read on." : `You said ${"abcdef"[choice]}. You may change your mind until the answer comes.`;
  }
  model.on("change:choice", draw);
  draw();
}

export default { render };
