// Starts reveal.js, fits each slide to the screen, and lets D change between light and dark.
(() => {
  const WIDTH = 1280, HEIGHT = 720, SMALLEST = 0.6;
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

  // How large a slide can be shown whole; 0 if it would be too small to read.
  function scaleOf(fit) {
    const wide = [fit, ...fit.querySelectorAll(".cl-fig")];
    for (let scale = 1; scale >= SMALLEST; scale -= 0.05) {
      fit.style.zoom = scale;
      if (fit.scrollHeight * scale <= HEIGHT && wide.every((part) => part.scrollWidth <= part.clientWidth + 1)) return scale;
    }
    return 0;
  }

  // A slide that is too high becomes smaller, or has its output beside the code, whichever is larger; else it scrolls.
  function fitted(slide) {
    const fit = slide && slide.querySelector(":scope > .fit");
    if (!fit || fit.dataset.fitted) return;
    fit.dataset.fitted = "yes";
    fit.classList.toggle("alone", fit.children.length === 1 && fit.querySelector("h2") && fit.innerText.length < 60);
    const below = scaleOf(fit);
    if (below === 1) return;
    fit.classList.add("beside");
    const scale = scaleOf(fit);
    fit.classList.toggle("beside", scale > below);
    fit.style.zoom = Math.max(scale, below, SMALLEST);
    if (Math.max(scale, below) > 0) return;
    fit.style.maxHeight = `${HEIGHT / SMALLEST}px`;
    fit.classList.add("scrolls");
  }

  const printing = /print-pdf/.test(location.search);
  Reveal.initialize({
    width: WIDTH, height: HEIGHT, margin: 0.04, center: false, hash: true, transition: "none", slideNumber: "c/t",
    plugins: [RevealNotes], keyboard: { 68: () => theme(document.body.dataset.theme === "dark" ? "light" : "dark") },
  }).then(() => (printing ? leaves.forEach(fitted) : fitted(Reveal.getCurrentSlide())));
  Reveal.on("slidechanged", (event) => fitted(event.currentSlide));
  Reveal.registerKeyboardShortcut("D", "Light or dark");
})();
