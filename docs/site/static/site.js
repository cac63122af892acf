// A hit in the glossary says which term it is: Sphinx gives the page's title alone.
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("search-results");
  const name = (link) => {
    link.dataset.term = "told";
    link.textContent += `: ${decodeURIComponent(link.hash.slice(6)).replaceAll("-", " ")}`;
  };
  if (list) new MutationObserver(() => list.querySelectorAll('a[href*="#term-"]:not([data-term])').forEach(name)).observe(list, { childList: true, subtree: true });
});
