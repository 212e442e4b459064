// Folding, the filter, and buttons that copy commands. Without this script the page can still be read and folded.
(() => {
  const articles = [...document.querySelectorAll("details.experiment")];
  const folded = [...document.querySelectorAll("details.folded")];
  if (innerWidth < 1020) document.querySelector("details.contents").open = false;
  const open = (id) => {
    const target = id && document.getElementById(id);
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    return target;
  };
  const follow = () => { const target = open(decodeURIComponent(location.hash.slice(1))); if (target) target.scrollIntoView(); };
  addEventListener("hashchange", follow);
  follow();
  addEventListener("beforeprint", () => folded.forEach((a) => { a.open = true; }));
  document.querySelectorAll("[data-fold]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => folded.forEach((a) => { a.open = button.dataset.fold === "open"; }));
  });
  const filter = document.getElementById("filter");
  filter.closest("label").hidden = false;
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (text) => wanted.every((word) => text.toLowerCase().includes(word));
    for (const article of articles) {
      const text = article.dataset.filterText + " " + article.closest("section").querySelector("h2").textContent;
      article.hidden = !fits(text);
      document.querySelectorAll(`[data-to="${article.id}"]`).forEach((e) => { e.hidden = article.hidden; });
    }
  });
  document.querySelectorAll("details.again").forEach((again) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "copy";
    button.addEventListener("click", () => {
      navigator.clipboard?.writeText(again.querySelector("code").textContent).then(() => { button.textContent = "copied"; });
    });
    again.append(button);
  });
})();
