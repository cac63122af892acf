addEventListener("load", () => setTimeout(async () => {
  const box = document.getElementById("unpacked");
  try {
    const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    box.innerHTML = await new Response(stream).text();
  } catch (error) {
    box.textContent = "Every compile: this browser could not unpack it (" + error + ").";
    return;
  }
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !box.contains(target)) return;
    for (let above = target; above !== box; above = above.parentElement) if (above.tagName === "DETAILS") above.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
}));
