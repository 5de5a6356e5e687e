const field = name => document.getElementById(name);
const articles = [...document.querySelectorAll("article")].map(article => ({
  article,
  chapter: article.parentElement.dataset.chapter,
  kind: article.dataset.kind,
  holds: article.dataset.holds === "true",
  words: (article.id + " " + article.textContent).toLowerCase(),
}));

function passes(claim) {
  const chapter = field("chapter").value, kind = field("kind").value, errata = field("errata").value;
  const wanted = field("find").value.toLowerCase().split(/\s+/).filter(Boolean), wrong = claim.kind === "erratum";
  return (!chapter || claim.chapter === chapter) && (!kind || claim.kind === kind)
    && (errata === "only" ? wrong : errata === "none" ? !wrong : true)
    && (!field("failed").checked || !claim.holds) && wanted.every(word => claim.words.includes(word));
}

function filter() {
  let shown = 0;
  for (const claim of articles) shown += !(claim.article.hidden = !passes(claim));
  for (const part of document.querySelectorAll(".chapter")) part.hidden = !part.querySelector("article:not([hidden])");
  field("count").textContent = `${shown} of ${articles.length} claims`;
  field("none").hidden = shown > 0;
}

for (const name of ["chapter", "kind", "errata", "find", "failed"]) field(name).addEventListener("input", filter);
window.addEventListener("hashchange", () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target || !target.hidden) return;
  for (const name of ["chapter", "kind", "errata", "find"]) field(name).value = "";
  field("failed").checked = false;
  filter();
  target.scrollIntoView();
});
filter();
