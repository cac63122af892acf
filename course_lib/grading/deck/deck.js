// Starts reveal.js, fits each slide to the screen, and lets D change between light and dark.
(() => {
  const WIDTH = 1280, HEIGHT = 720;
  // The smallest scale at which letters have 12 px on a screen of 1280 x 800: those of code, and those of pictures.
  const SMALLEST = 0.75, SMALLEST_PICTURE = 0.85;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = (name) => { document.body.dataset.theme = name; };
  theme(dark ? "dark" : "light");

  const leaves = [...document.querySelectorAll(".slides section")].filter((slide) => !slide.querySelector("section"));
  for (const slide of leaves) {
    const fit = document.createElement("div");
    fit.className = "fit";
    fit.append(...[...slide.childNodes].filter((node) => node.nodeName !== "ASIDE"));
    slide.prepend(fit);
  }

  const smallest = (fit) => (fit.querySelector(".cl-fig svg") ? SMALLEST_PICTURE : SMALLEST);
  function zoom(fit, scale) {
    fit.style.zoom = scale;
    fit.style.setProperty("--zoom", scale);
  }

  // How large a slide can be shown whole; 0 if it would be too small to read.
  function scaleOf(fit) {
    const wide = [fit, ...fit.querySelectorAll(".cl-fig")];
    for (let scale = 1; scale >= smallest(fit) - 0.001; scale -= 0.05) {
      zoom(fit, scale);
      if (fit.scrollHeight * scale <= HEIGHT && wide.every((part) => part.scrollWidth <= part.clientWidth + 1)) return scale;
    }
    return 0;
  }

  // A slide that is too high has its output beside the code, or beside all of the text, or less room round its headings:
  // whichever leaves it larger.
  // What is too high even so is cut into several slides.
  function fitted(slide) {
    const fit = slide.querySelector(":scope > .fit");
    fit.classList.toggle("alone", fit.children.length === 1 && fit.querySelector("h2") && fit.innerText.length < 60);
    let best = { looks: [], scale: 0 };
    for (const looks of [[], ["beside"], ["columns"], ["tight"], ["beside", "tight"], ["columns", "tight"]]) {
      fit.classList.add(...looks);
      const scale = scaleOf(fit);
      fit.classList.remove("beside", "columns", "tight");
      if (scale > best.scale) best = { looks, scale };
      if (scale === 1) break;
    }
    fit.classList.add(...best.looks);
    zoom(fit, best.scale || smallest(fit));
    return best.scale ? [] : cut(slide, fit, smallest(fit));
  }

  // Where a slide may be cut: [top, bottom] of each of its parts, in px of the unscaled slide. No line of text is in two parts.
  function partsOf(fit, scale) {
    const whole = fit.scrollHeight, most = HEIGHT / scale, lines = linesOf(fit);
    const count = Math.ceil(whole / (most * 0.94)), parts = [];
    const output = outputOf(fit);
    if (output && output < most && whole - output < most) return [[0, output], [output, whole]];
    for (let top = 0, left = count; top < whole - 1; left--) {
      const wish = top + (whole - top) / Math.max(1, left);
      const free = (y) => lines.every(([start, end]) => y <= start + 1 || y >= end - 1);
      let bottom = Math.min(whole, top + most);
      for (let away = 0; away < most; away += 2) {
        const found = [wish - away, wish + away].find((y) => y > top + 40 && y <= top + most && (y >= whole || free(y)));
        if (found !== undefined) { bottom = Math.min(whole, found); break; }
      }
      parts.push([top, bottom]);
      top = bottom;
    }
    return parts;
  }

  // Where the last output begins: a picture is not cut if it fits on a slide of its own.
  function outputOf(fit) {
    const above = fit.getBoundingClientRect(), outputs = [...fit.querySelectorAll(".jp-Cell-outputWrapper")];
    return outputs.length && (outputs.at(-1).getBoundingClientRect().top - above.top) * (fit.scrollHeight / above.height);
  }

  // [top, bottom] of each line of text that can be seen.
  function linesOf(fit) {
    const above = fit.getBoundingClientRect(), perPixel = fit.scrollHeight / above.height, lines = [], range = document.createRange();
    const walker = document.createTreeWalker(fit, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      if (!walker.currentNode.textContent.trim()) continue;
      range.selectNodeContents(walker.currentNode);
      for (const box of range.getClientRects()) {
        if (box.height) lines.push([(box.top - above.top) * perPixel, (box.bottom - above.top) * perPixel]);
      }
    }
    return lines;
  }

  // The slide shows its first part; the slides that show the others come back.
  function cut(slide, fit, scale) {
    const parts = partsOf(fit, scale), others = parts.slice(1).map(() => slide.cloneNode(true));
    for (const [number, one] of [slide, ...others].entries()) {
      const [top, bottom] = parts[number], inner = one.querySelector(":scope > .fit"), view = document.createElement("div");
      view.className = "part";
      view.style.height = `${(bottom - top) * scale}px`;
      inner.style.marginTop = `${-top}px`;
      inner.before(view);
      view.append(inner);
      view.dataset.part = `${number + 1} of ${parts.length}`;
    }
    slide.after(...others);
    return others;
  }

  // Reveal hides what is not near the current slide; to be measured a slide must be seen.
  function fitAll() {
    for (const slide of leaves) {
      const columns = [slide, slide.parentElement].map((one) => [one, one.style.display, one.hidden]);
      for (const [one] of columns) { one.style.display = "block"; one.hidden = false; }
      const made = fitted(slide);
      for (const [one, display, hidden] of columns) { one.style.display = display; one.hidden = hidden; }
      // A column of one slide becomes a column of several.
      if (made.length && !slide.parentElement.matches("section")) {
        const column = document.createElement("section");
        slide.before(column);
        column.append(slide, ...made);
      }
    }
    Reveal.sync();
    Reveal.layout();
  }

  Reveal.initialize({
    width: WIDTH, height: HEIGHT, margin: 0.04, center: false, hash: true, transition: "none", slideNumber: "c/t",
    plugins: [RevealNotes], keyboard: { 68: () => theme(document.body.dataset.theme === "dark" ? "light" : "dark") },
  }).then(fitAll);
  Reveal.registerKeyboardShortcut("D", "Light or dark");
})();
