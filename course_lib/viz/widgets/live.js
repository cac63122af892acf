// Added to the script of every widget (live.py): where the live form goes, and whose keys are whose.
// JupyterLab asks each output for its richest form, and of a saved widget only its name is left: it would show an error.
// So an output holds the still form alone, and the live one stands in for it as long as the kernel knows the widget.

const LIVE = (globalThis.courseLive ??= { forms: new Map(), look: undefined }); // shared by all widgets of the page

// JupyterLab takes the keys of what has the focus (`d d` deletes the cell) unless that very element says otherwise.
function keepKeys(root) {
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
}

function renderLive({ model, el }) {
  keepKeys(el);
  return render({ model, el });
}

// An output comes after its widget, and comes again when its notebook is opened anew: so look whenever the page changes.
function watch() {
  let asked = false;
  const look = () => {
    asked = false;
    for (const still of document.querySelectorAll('figure[id^="cl-live-"]:not([data-live])')) LIVE.forms.get(still.id)?.(still);
  };
  new MutationObserver(() => {
    if (!asked) requestAnimationFrame(look);
    asked = true;
  }).observe(document.body, { childList: true, subtree: true });
  return look;
}

// Called once for each widget that the kernel makes, whether or not it is shown.
function initialize({ model }) {
  const id = `cl-live-${model.get("place")}`, shown = [];
  LIVE.forms.set(id, (still) => {
    const el = document.createElement("div");
    still.dataset.live = "true";
    still.style.display = "none";
    still.after(el);
    shown.push({ still, el });
    renderLive({ model, el });
  });
  LIVE.look ??= watch();
  LIVE.look();
  return () => { // the kernel ended: the still form again
    LIVE.forms.delete(id);
    for (const { still, el } of shown) {
      el.remove();
      still.style.display = "";
      delete still.dataset.live;
    }
  };
}

export default { initialize, render: renderLive };
