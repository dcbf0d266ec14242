// The facets of a list come after its rows, which need not wait for them. Their values complete what is typed into the search:
// `outc` becomes `outcome:failed`.
const facets = document.getElementById("facets");
const searched = document.getElementById("searchbar");

const quoted = (value) => (/[\s"]/.test(value) ? `"${value.replaceAll('"', "")}"` : value);

const complete = (words) => {
  const list = document.createElement("datalist");
  list.id = "search-words";
  searched.after(list);
  searched.setAttribute("list", list.id);
  searched.addEventListener("input", () => {
    const [before, last] = /^(.*?)(\S*)$/s.exec(searched.value).slice(1);
    const fitting = last === "" ? [] : words.filter((word) => word.includes(last) && word !== last);
    list.replaceChildren(...fitting.slice(0, 12).map((word) => new Option(`${before}${word} `, `${before}${word} `)));
  });
};

const load = async () => {
  const response = await fetch(facets.dataset.url);
  if (response.status !== 200) {
    facets.hidden = true;
    return;
  }
  // The server has escaped it.
  facets.innerHTML = await response.text();
  const words = [...facets.querySelectorAll("a[data-value]")].map(
    (link) => `${link.closest("section").dataset.parameter}:${quoted(link.dataset.value)}`,
  );
  complete(words);
};

if (facets !== null) {
  load();
}

// A list of which rows still run is read again while one only looks at it.
const AGAIN_MS = 15_000;
const isUsed = () =>
  document.visibilityState !== "visible" ||
  document.activeElement !== document.body ||
  document.querySelector("#result_list :is(.action-select:checked, .is-peeked), .filter-bar details[open]") !== null;

if (document.querySelector("#result_list .outcome-running") !== null) {
  setInterval(() => isUsed() || location.reload(), AGAIN_MS);
}
