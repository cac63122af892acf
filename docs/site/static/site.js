// A hit in the glossary says which term it is: Sphinx gives the page's title alone.
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("search-results");
  const name = (link) => {
    link.dataset.term = "told";
    link.textContent += `: ${decodeURIComponent(link.hash.slice(6)).replaceAll("-", " ")}`;
  };
  if (list) new MutationObserver(() => list.querySelectorAll('a[href*="#term-"]:not([data-term])').forEach(name)).observe(list, { childList: true, subtree: true });
});

// What scrolls can be reached by the keyboard, and a cell at the head of a table that says nothing is no heading.
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".bd-content :is(pre, div, figure)")) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (scrolls && /auto|scroll/.test(getComputedStyle(box).overflow) && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }
  // Its text says already what it does: a name of its own would be another one than what is seen.
  for (const summary of document.querySelectorAll('summary[aria-label="Toggle hidden content"]')) summary.removeAttribute("aria-label");
  for (const head of document.querySelectorAll(".bd-content th")) {
    if (head.textContent.trim() || head.querySelector("img, svg")) continue;
    const cell = document.createElement("td");
    cell.className = head.className;
    head.replaceWith(cell);
  }
});

// A hit says what stands around the word. Browsers forbid `fetch` on files, so the texts come as a script (build.py writes it).
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("search-results");
  if (!list) return;
  const words = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const excerpt = (text) => {
    const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((at) => at >= 0);
    if (!places.length) return "";
    const from = Math.max(0, Math.min(...places) - 80);
    const cut = text.slice(from, from + 220);
    return `${from ? "… " : ""}${cut}${from + 220 < text.length ? " …" : ""}`;
  };
  const tell = (link) => {
    link.dataset.excerpt = "told";
    const page = new URL(link.href).pathname;
    const name = Object.keys(window.courseTexts ?? {}).find((name) => page.endsWith(`/${name}.html`));
    const said = name && excerpt(window.courseTexts[name]);
    if (!said) return;
    const below = document.createElement("p");
    below.className = "excerpt";
    below.textContent = said;
    link.closest("li")?.append(below);
  };
  const all = () => list.querySelectorAll("li > a:not([data-excerpt])").forEach(tell);
  const texts = document.createElement("script");
  texts.src = `${document.documentElement.dataset.content_root ?? ""}_static/texts.js`;
  texts.addEventListener("load", () => {
    all();
    new MutationObserver(all).observe(list, { childList: true, subtree: true });
  });
  document.head.append(texts);
});
