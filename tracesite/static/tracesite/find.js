// The search in a path. Rows whose names have what is typed are marked at once, those in which the server finds it when the reader stops
// typing. The text of a run, and what is on other pages of a conversation, is searched by the server alone, which answers with a page.
import { element, filled, part, reader, root, say, visible, words } from "./page.js";
import { outline, stepOf, wholeOutline } from "./rows.js";

const TYPING_MS = 250; // after which a search is asked for

const find = part("find"); // missing in the trash
const everywhere = part("everywhere"); // the link to the search of all parts of a session, if it has several
const wanted = () => find?.value.trim() ?? "";
let found = new Set(); // the rows that match, in order
let matches = new Map(); // what the server found: the places by id
let isCut = false; // whether the server may have found more
let searching = null; // AbortController
let answered = Promise.resolve(false); // whether the server answered the present search

export const isFound = (row) => found.has(row);

export const markFound = () => {
  const typed = wanted().toLowerCase();
  const isNamed = outline.names.map((name) => typed !== "" && name.toLowerCase().includes(typed));
  const isIn = (id, row) => isNamed[outline.named[row]] || matches.has(id) || (typed.length > 7 && id.startsWith(typed));
  found = new Set(outline.ids.flatMap((id, row) => (isIn(id, row) || (stepOf(row) && isIn(stepOf(row).id, row)) ? [row] : [])));
  part("matches").hidden = found.size === 0 || reader.view === "text";
  root.dispatchEvent(new Event("redraw"));
  root.dispatchEvent(new Event("found"));
};

// Whether what the server found in all parts of a session is beside the path.
const isListed = () => everywhere !== null && wanted() === find.defaultValue.trim();

export const sayPlace = () => {
  const number = [...found].indexOf(reader.selected) + 1;
  if (wanted() !== "" && (number || !isListed())) {
    const total = isCut ? `${found.size}+` : found.size;
    say(number ? filled(words.place, { number, total }) : filled(words.found, { number: total }));
  }
};

export const stopSearch = () => {
  searching?.abort();
  searching = null;
  isCut = false;
  part("matches").hidden = true;
  everywhere?.setAttribute("hidden", "");
  say("");
};

const ask = async (now) => {
  const url = new URL(root.dataset.search + (root.dataset.query ?? ""), location.href);
  url.searchParams.set("q", wanted());
  const response = await fetch(url, { signal: now.signal }).catch(() => null);
  const answer = response?.ok ? await response.json().catch(() => null) : null;
  await wholeOutline;
  if (now !== searching) {
    return false;
  }
  if (answer !== null) {
    matches = new Map(answer.matches.map(({ id, places }) => [id, places]));
    isCut = answer.is_cut;
    markFound();
    sayPlace();
  }
  if (answer === null || (answer.error && found.size === 0)) {
    say(answer?.error ?? words.failed);
  }
  return true;
};

export const search = () => {
  stopSearch();
  matches = new Map();
  markFound();
  if (wanted() !== "" && root.dataset.search) {
    if (everywhere && !isListed()) {
      everywhere.href = `?${new URLSearchParams({ q: wanted() })}#conversation`;
      everywhere.hidden = false;
    }
    sayPlace();
    const now = new AbortController();
    searching = now;
    answered = new Promise((resolve) => setTimeout(resolve, TYPING_MS)).then(() => now === searching && ask(now));
  }
};

// The places where a search found the terms in a step or call.
export const placesElement = (id) => {
  const places = (matches.get(id) ?? []).map(({ field, before, match, after }) =>
    element(
      "li",
      "",
      element("span", "quiet", `${field}: `),
      element("bdi", "text", ...visible(before), element("mark", "", ...visible(match)), ...visible(after)),
    ),
  );
  return places.length ? [element("ul", "run-places", ...places)] : [];
};

// Marks what was found of a row in a text, and brings the first place into sight in the element that scrolls.
export const markTexts = (within, id, scrolling) => {
  const terms = (matches.get(id)?.map(({ match }) => match) ?? [wanted()]).filter(Boolean);
  const pattern = new RegExp(terms.map((term) => term.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|"), "gi");
  const walker = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
  const ranges = [];
  while (terms.length && walker.nextNode()) {
    const node = walker.currentNode;
    for (const { index, 0: found } of node.parentElement.closest(".run-places") ? [] : node.data.matchAll(pattern)) {
      ranges.push(new Range());
      ranges.at(-1).setStart(node, index);
      ranges.at(-1).setEnd(node, index + found.length);
    }
  }
  CSS.highlights?.set("found", new Highlight(...ranges));
  const [at, view] = [ranges[0]?.getBoundingClientRect(), scrolling?.getBoundingClientRect()];
  if (at && view && (at.top < view.top || at.bottom > view.bottom)) {
    scrolling.scrollTop += at.top - view.top - view.height / 3;
  }
};

export const listenToFind = (goToMatch, leave) => {
  part("previous-match").addEventListener("click", () => goToMatch(-1));
  part("next-match").addEventListener("click", () => goToMatch(1));
  find?.form.addEventListener("submit", (event) => reader.view !== "text" && event.preventDefault());
  find?.addEventListener("input", () => reader.view !== "text" && search());
  find?.addEventListener("keydown", async (event) => {
    if (reader.view === "text" || !["Enter", "Escape"].includes(event.key)) {
      return;
    }
    event.preventDefault();
    if (event.key === "Escape") {
      leave();
      return;
    }
    const isAnswered = found.size > 0 || (await answered);
    if (found.size) {
      goToMatch(event.shiftKey ? -1 : 1);
    } else if (isAnswered && everywhere && !everywhere.hidden) {
      everywhere.click();
    }
  });
};
