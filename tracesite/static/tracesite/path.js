// The path as a list that scrolls, with a map at its edge. Only the rows in sight are in the document, so that 50,000 calls scroll
// like 50. The words of a row are read when it comes into sight.
import { paintAxis } from "./axis.js";
import { element, isSession, part, reader, root } from "./page.js";
import { rowElement } from "./row.js";
import { ANSWER, CHAPTER, isCall, isFailed, isFolded, isRoomy, openAbove, outline, parents, place, isAssumed, STATUSES, wordsOf } from "./rows.js";

const SPARE = 8; // rows above and below those in sight
const MOST_WORDS = 100; // rows whose words are asked for at a time
const MAP_PLACES = 400; // on the map at the edge

export const list = part("list");
const rows = part("rows");
const heightOfRows = () => parseFloat(getComputedStyle(root).getPropertyValue("--row"));

let rowHeight = heightOfRows(); // higher in a narrow window, there highest beside an axis
let viewHeight = 0; // of the list: noted, because asking for it makes the browser compute the layout
let shown = []; // the rows of the present view, in order
let indexOf = new Int32Array(0); // in `shown` by row, -1 for a row that the view does not show
let isAsking = false; // for words
let isPainting = false;
const drawn = new Map(); // the rows in the document: their elements

// --- The map: where failures and calls without a result are, what is in sight, and what is selected -----------------------

const shareOf = (index) => index / Math.max(shown.length, viewHeight / rowHeight);
const percentOf = (index) => `${100 * shareOf(index)}%`;

// What is folded away is marked where it is folded.
const paintMarks = () => {
  const marks = new Map();
  let index = -1;
  outline.ids.forEach((_id, row) => {
    index = Math.max(index, indexOf[row]);
    const status = STATUSES[outline.statuses[row]];
    const at = Math.floor(shareOf(index) * MAP_PLACES);
    if (index >= 0 && (isCall(row) || isFailed(row)) && status !== "success" && marks.get(at)?.status !== "error") {
      marks.set(at, { status, index });
    }
  });
  part("marks").replaceChildren(
    ...[...marks.values()].map(({ status, index }) => {
      const made = element("span", `run-map-mark run-map-${status}`);
      made.style.top = percentOf(index);
      return made;
    }),
  );
};

const paintMap = (top) => {
  const [inSight, here, index] = [part("window"), part("here"), indexOf[reader.selected] ?? -1];
  inSight.style.top = percentOf(top / rowHeight);
  inSight.style.height = percentOf(viewHeight / rowHeight);
  here.hidden = index < 0;
  here.style.top = percentOf(index);
};

// --- The rows in sight ----------------------------------------------------------------------------------------------------

const draw = (row, index) => {
  const made = rowElement(row);
  made.ariaSetSize = shown.length;
  made.ariaPosInSet = index + 1;
  made.style.transform = isRoomy() ? "" : `translateY(${index * rowHeight}px)`;
  drawn.set(row, made);
  return made;
};

// The question above the first row in sight stays there.
const paintChapter = (first) => {
  let up = shown[first] ?? -1;
  while (parents[up] >= 0) {
    up = parents[up];
  }
  const isAbove = outline.calls[up] === CHAPTER && indexOf[up] < first;
  part("chapter").replaceChildren(...(isAbove ? [rowElement(up)] : []));
  part("chapter").firstChild?.removeAttribute("id");
};

// Rows that stay in sight keep their elements: while one scrolls, only those that come into sight are made.
const paint = () => {
  isPainting = false;
  const top = list.scrollTop;
  const first = isRoomy() ? 0 : Math.max(Math.floor(top / rowHeight) - SPARE, 0);
  const last = isRoomy() ? shown.length : Math.min(Math.ceil((top + viewHeight) / rowHeight) + SPARE, shown.length);
  for (const [row, made] of drawn) {
    if (indexOf[row] < first || indexOf[row] >= last) {
      made.remove();
      drawn.delete(row);
    }
  }
  let next = rows.firstChild;
  for (let index = first; index < last; index += 1) {
    const made = drawn.get(shown[index]) ?? draw(shown[index], index);
    made.ariaSelected = shown[index] === reader.selected;
    if (made === next) {
      next = next.nextSibling;
    } else {
      rows.insertBefore(made, next);
    }
  }
  list.setAttribute("aria-activedescendant", drawn.get(reader.selected)?.id ?? "");
  paintMap(top);
  paintChapter(isRoomy() ? 0 : Math.ceil(top / rowHeight));
  readWords(shown.slice(first, last));
};

export const paintSoon = () => {
  if (!isPainting) {
    isPainting = true;
    requestAnimationFrame(paint);
  }
};

// Makes rows anew, all of them if none is given, because they look different now.
const redraw = (changed = [...drawn.keys()]) => {
  for (const row of changed) {
    drawn.get(row)?.remove();
    drawn.delete(row);
  }
  paintSoon();
};

// Asks for the words of rows in sight that have none yet. One request at a time: who scrolls far asks for what he sees at its end.
const readWords = async (inSight) => {
  const ids = inSight.map((row) => outline.ids[row]).filter((id) => !wordsOf.has(id)).slice(0, MOST_WORDS);
  if (isAsking || ids.length === 0) {
    return;
  }
  isAsking = true;
  const asked = outline;
  const response = await fetch(`${root.dataset.wordsUrl}?${new URLSearchParams(ids.map((id) => ["id", id]))}`).catch(() => null);
  const answer = response?.ok ? await response.json() : null;
  isAsking = false;
  // Rows that were read anew meanwhile may say something else.
  if (answer && asked === outline) {
    ids.forEach((id) => wordsOf.set(id, answer[id] ?? {}));
    redraw(ids.map((id) => place.get(id)));
  } else if (answer) {
    paintSoon();
  }
};

// --- The rows of the view -------------------------------------------------------------------------------------------------

// The rows with failures, and those above them.
const withFailures = () => {
  const wanted = new Uint8Array(outline.ids.length);
  for (let row = 0; row < wanted.length; row += 1) {
    for (let up = row; isFailed(row) && up >= 0 && !wanted[up]; up = parents[up]) {
      wanted[up] = 1;
    }
  }
  return wanted;
};

// Chooses the rows that the view shows: none while those that it needs are on their way.
export const choose = () => {
  list.classList.toggle("roomy", isRoomy());
  const isReady = outline.is_whole || (reader.view === "steps" && !reader.onlyFailures);
  const wanted = reader.onlyFailures ? withFailures() : null;
  shown = [];
  indexOf = new Int32Array(outline.ids.length).fill(-1);
  let below = Infinity; // rows deeper than this are folded away
  for (let row = 0; isReady && row < outline.ids.length; row += 1) {
    if (outline.depths[row] <= below) {
      below = isFolded(row) ? outline.depths[row] : Infinity;
      if (wanted === null || wanted[row]) {
        indexOf[row] = shown.length;
        shown.push(row);
      }
    }
  }
  // The list is as long as the whole run from the first paint on.
  const count = outline.is_whole || isSession ? shown.length : Math.max(shown.length, Number(root.dataset.rows));
  rows.style.height = isRoomy() ? "" : `${count * rowHeight}px`;
  part("empty").hidden = !isReady || shown.length > 0;
  part("loading").hidden = outline.is_whole;
  paintMarks();
  redraw();
};

// Shows the rows as they are now.
export const refresh = () => {
  part("is-cut").hidden = !outline.is_cut;
  part("assumed").hidden = !isAssumed;
  if (reader.view !== "text") {
    rowHeight = heightOfRows();
    viewHeight = list.clientHeight;
    paintAxis();
    choose();
  }
};

export const reveal = (row) => {
  if (openAbove(row)) {
    choose();
  }
  if (isRoomy()) {
    requestAnimationFrame(() => drawn.get(row)?.scrollIntoView({ block: "nearest" }));
    return;
  }
  const top = indexOf[row] * rowHeight;
  if (top >= 0 && (top < list.scrollTop + part("chapter").clientHeight || top + rowHeight > list.scrollTop + viewHeight)) {
    list.scrollTop = top - viewHeight / 3;
  }
};

// The row of the view that is so many below the selected one, undefined behind either end.
export const rowBeside = (by) => {
  const index = indexOf[reader.selected] ?? -1;
  return index < 0 ? shown.at(by > 0 ? 0 : -1) : shown[index + by];
};

// Takes other rows by `act` and keeps those in sight: new ones come before the answer.
export const keepInSight = (act) => {
  const isAtTheEnd = outline.is_whole && list.scrollTop + list.clientHeight > list.scrollHeight - rowHeight;
  const top = Math.floor(list.scrollTop / rowHeight);
  const id = outline.calls[shown[top]] === ANSWER ? undefined : outline.ids[shown[top]];
  const rest = list.scrollTop - top * rowHeight;
  act();
  refresh();
  const index = indexOf[place.get(id)] ?? -1;
  if (isAtTheEnd) {
    list.scrollTop = list.scrollHeight;
  } else if (index >= 0) {
    list.scrollTop = index * rowHeight + rest;
  }
};

list.addEventListener("scroll", paintSoon, { passive: true });
new ResizeObserver(() => {
  viewHeight = list.clientHeight;
  paintSoon();
}).observe(list);
root.addEventListener("redraw", () => redraw());
part("map").addEventListener("pointerdown", (event) => {
  const box = part("map").getBoundingClientRect();
  list.scrollTop = ((event.clientY - box.top) / box.height) * Math.max(shown.length * rowHeight, list.clientHeight) - list.clientHeight / 2;
});
addEventListener("resize", () => {
  const top = list.scrollTop / rowHeight;
  refresh();
  list.scrollTop = top * rowHeight;
});
