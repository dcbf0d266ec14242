// The path of a run: what the agent did, a row for each step and call, with a panel for the selected one. The path of a session has
// its questions and answers as rows, too, with the run between them: a chapter for each question. The first rows come with
// the page, the others after it, the words of a row when it comes into sight, its values when it is selected. Only the rows in
// sight are in the document, so that 50,000 calls scroll like 50. While the run goes on, the page is looked at again when
// something has happened. Trace content becomes text nodes, never HTML; only thoughts come as HTML that the server has cleaned.
import { follow, pageNow, replace, said } from "./following.js";
import { asCurl, asJson, asMarkdown, asPython, button, copy, element, say, valueElement, visible, words } from "./values.js";

const SPARE = 8; // rows above and below those in sight
const MOST_WORDS = 100; // rows whose words are asked for at a time
const MOST_MARKS = 300;
const MAP_PLACES = 400; // on the map at the edge
const FEW = 14; // rows of a run that is shown without cuts, because there is room
const MANY = 100; // rows of which sub-agents, and the chapters of a session, are folded at first
const MOST_INDENTS = 12; // deeper rows stand below each other, so that there is room for their words
const TYPING_MS = 250; // after which a search is asked for
const LONG = 0.95; // the share of rows whose bars are not cut
const STATUSES = ["pending", "success", "error"];
const FAILED = 2;
const STEP = 0;
const CALL = 1;
const ANSWER = 2;
const CHAPTER = 3;
const NOTE = 4;

const root = document.getElementById("run-explorer");
const part = (name) => root.querySelector(`[data-part="${name}"]`);
const list = part("list");
const rows = part("rows");
const axis = part("axis");
const side = part("side");
const panel = part("panel");
const about = part("about");
const aboutTabs = part("about-tabs"); // of a session
const isSession = aboutTabs !== null;
const sections = isSession ? [...about.querySelectorAll(":scope > section")] : [];
const find = part("find"); // missing in the trash
const heightOfRows = () => parseFloat(getComputedStyle(root).getPropertyValue("--row"));

let rowHeight = heightOfRows(); // higher in a narrow window
let outline; // columns in reading order
let parents; // the row above each row, -1 at the top
let place; // row by id
let byTime; // rows in the order of their starts
let folded;
let newAreFolded = false; // after "Collapse all", also what comes later
let onlyFailures = false;
let isAssumed; // no start is known: durations lie one after the other
let longest; // the duration of a whole bar
let found; // 1 for rows that match the search
let foundRows = [];
let matches = new Map(); // what the server found: the places by id
let searching; // AbortController of the search
let announceWhole; // resolves `wholeOutline`
const wholeOutline = new Promise((resolve) => {
  announceWhole = resolve;
});
const wordsOf = new Map(); // of the rows that were in sight: text, error and note by id
const asked = new Set(); // the rows whose words are on their way, without those that changed meanwhile
let isAsking = false;
let shown = []; // the rows of the present view, in order
let indexOf = new Int32Array(0); // in `shown` by row, -1 for a row that the view does not show
const drawn = new Map(); // the rows in the document: their elements
let viewHeight = 0; // of the list: noted, because asking for it makes the browser compute the layout
let selected = -1;
let view = "text";
let tab = "result";
let detail; // of the selected row
let span = { from: 0, to: 1 }; // of the time axis, in milliseconds
let whole = { from: 0, to: 1 };
let loading; // AbortController of the values that are being read
let painting = false;

// --- Texts --------------------------------------------------------------------------------------------------------------

// A text of the server with its numbers, as Python writes them: "%(number).1f s".
const filled = (template, numbers) =>
  template.replace(/%\((\w+)\)(d|s|\.1f)/g, (_all, name, form) => (form === ".1f" ? numbers[name].toFixed(1) : String(numbers[name])));

// As `duration` in messages_app/safe_text.py.
const duration = (ms) => {
  if (ms < 1000) {
    return filled(words.milliseconds, { number: ms });
  }
  if (ms < 59_950) {
    return filled(words.seconds, { number: ms / 1000 });
  }
  const whole = Math.round(ms / 1000);
  return whole < 3600
    ? filled(words.minutes, { minutes: Math.floor(whole / 60), seconds: whole % 60 })
    : filled(words.hours, { hours: Math.floor(whole / 3600), minutes: Math.floor(whole / 60) % 60 });
};

const nameOf = (row) => outline.names[outline.named[row]];

// The step for which a call stands: id, start, duration and, where it changes, agent.
const [STEP_ID, STEP_START, STEP_TOOK, STEP_AGENT] = [0, 1, 2, 3];
const stepOf = (row) => outline.steps[row];

// When a row began and ended, with the step for which it stands; null if that is unknown.
const beginOf = (row) => stepOf(row)?.[STEP_START] ?? outline.starts[row];
const endOf = (row) => {
  const end = outline.starts[row] === null ? null : outline.starts[row] + (outline.durations[row] ?? 0);
  const [start, took] = stepOf(row)?.slice(STEP_START) ?? [null];
  return start === null ? end : Math.max(start + (took ?? 0), end ?? 0);
};

// --- Rows ---------------------------------------------------------------------------------------------------------------

const isMessage = (row) => outline.calls[row] >= ANSWER;

const hasChildren = (row) => row + 1 < outline.depths.length && outline.depths[row + 1] > outline.depths[row];

// Whether a call is one of the equal calls that are folded to the first of them, but not that one.
const isRepeat = (row) => parents[row] >= 0 && parents[row] in outline.repeats;

// A session knows how many rows it has before they are there.
const isLong = () => (isSession ? Number(root.dataset.rows) : outline.ids.length) > MANY;

// Rows that are folded as long as nobody has opened them.
const startsFolded = (row) =>
  newAreFolded || row in outline.repeats || (isLong() && (outline.calls[row] === CHAPTER || (outline.calls[row] === CALL && hasChildren(row))));

// Whether what is below a row is hidden. Where only failures are shown, all of them are, equal ones once.
const isFolded = (row) => folded[row] === 1 && (!onlyFailures || row in outline.repeats);

// The outline of a run with the answer as its last row.
const withAnswer = (columns) => {
  const id = root.dataset.message;
  if (id && columns.is_whole && columns.ids.at(-1) !== id) {
    const last = { ids: id, calls: ANSWER, depths: 0, statuses: 1, named: columns.names.push("") - 1, numbers: "", starts: null, durations: null, critical: 0 };
    for (const [column, value] of Object.entries(last)) {
      columns[column].push(value);
    }
    wordsOf.set(id, { text: root.dataset.answer });
  }
  return columns;
};

// Gives rows without any known start one: each begins when the one before it has ended.
const assumeStarts = () => {
  isAssumed = outline.starts.every((start) => start === null) && outline.durations.some((took) => took !== null);
  let end = 0;
  isAssumed &&= Object.values(outline.steps).every((step) => step[STEP_START] === null);
  for (let row = 0; isAssumed && row < outline.ids.length; row += 1) {
    const step = stepOf(row);
    if (step && step[STEP_TOOK] !== null) {
      step[STEP_START] = end;
      end += step[STEP_TOOK];
    }
    if (outline.durations[row] !== null) {
      outline.starts[row] = end;
      end += hasChildren(row) && outline.calls[row] === CALL && !(row in outline.repeats) ? 0 : outline.durations[row];
    }
  }
};

const read = (columns) => {
  const isZoomed = outline !== undefined && (span.from > whole.from || span.to < whole.to);
  outline = withAnswer(columns);
  for (const [id, said] of Object.entries(outline.words)) {
    wordsOf.set(id, said);
  }
  const count = outline.ids.length;
  parents = new Int32Array(count).fill(-1);
  folded = Uint8Array.from({ length: count }, (_, row) => (startsFolded(row) ? 1 : 0));
  found = new Uint8Array(count);
  place = new Map();
  const path = [];
  whole = { from: 0, to: 1 };
  assumeStarts();
  for (let row = 0; row < count; row += 1) {
    path.length = outline.depths[row];
    parents[row] = path.length ? path[path.length - 1] : -1;
    path.push(row);
    place.set(outline.ids[row], row);
    if (stepOf(row)) {
      place.set(stepOf(row)[STEP_ID], row);
    }
    whole.to = Math.max(whole.to, endOf(row) ?? 0);
  }
  const known = outline.durations.filter((took, row) => took !== null && !isMessage(row)).sort((one, other) => one - other);
  longest = Math.max(known[Math.floor((known.length - 1) * LONG)] ?? 1, 1);
  if (!isZoomed) {
    span = { ...whole };
  }
  byTime = Array.from({ length: count }, (_, row) => row).sort(
    (one, other) => (beginOf(one) ?? Infinity) - (beginOf(other) ?? Infinity) || one - other,
  );
};

// Takes a newer or longer outline. Folds, the selected row and what is in sight stay as they are.
const adopt = (columns) => {
  const folds = new Map(); // of the rows that could be folded
  outline.ids.forEach((id, row) => hasChildren(row) && folds.set(id, folded[row]));
  const selectedId = outline.ids[selected];
  const isAtTheEnd = outline.is_whole && list.scrollTop > 0 && list.scrollTop + list.clientHeight > list.scrollHeight - rowHeight;
  const top = Math.floor(list.scrollTop / rowHeight);
  const topId = outline.calls[shown[top]] === ANSWER ? undefined : outline.ids[shown[top]]; // new rows come before the answer
  const rest = list.scrollTop - top * rowHeight;
  const was = selected < 0 ? null : [outline.statuses[selected], outline.durations[selected]];
  read(columns);
  selected = place.get(selectedId) ?? -1;
  openAbove(selected);
  outline.ids.forEach((id, row) => {
    folded[row] = folds.get(id) ?? folded[row]; // what the reader folded stays so, even with the selected row in it
  });
  mark();
  sayPlace();
  refresh();
  const index = (topId === undefined ? undefined : indexOf[place.get(topId)]) ?? -1;
  if (isAtTheEnd) {
    list.scrollTop = list.scrollHeight;
  } else if (index >= 0) {
    list.scrollTop = index * rowHeight + rest;
  }
  if (selected >= 0 && was && (was[0] !== outline.statuses[selected] || was[1] !== outline.durations[selected])) {
    load(selected);
  }
  if (outline.is_whole) {
    announceWhole();
  }
};

// Shows the outline as it is now.
const refresh = () => {
  part("is-cut").hidden = !outline.is_cut;
  part("assumed").hidden = !isAssumed;
  if (view !== "text") {
    paintAxis();
    choose();
  }
};

// The rows of a short run are as high as their words.
const isRoomy = () => outline.is_whole && outline.ids.length <= FEW;

// The rows that the view shows, none while the rows that it needs are on their way.
const choose = () => {
  list.classList.toggle("roomy", isRoomy());
  const isReady = outline.is_whole || (view === "steps" && !onlyFailures);
  shown = [];
  indexOf = new Int32Array(outline.ids.length).fill(-1);
  if (isReady) {
    const wanted = onlyFailures ? withAncestors((row) => outline.statuses[row] === FAILED) : null;
    let below = Infinity; // rows deeper than this are folded away
    for (let row = 0; row < outline.ids.length; row += 1) {
      if (outline.depths[row] > below) {
        continue;
      }
      below = isFolded(row) ? outline.depths[row] : Infinity;
      if (wanted === null || wanted[row]) {
        indexOf[row] = shown.length;
        shown.push(row);
      }
    }
  }
  // The list is as long as the whole run from the first paint on.
  const height = (outline.is_whole || isSession ? shown.length : Math.max(shown.length, Number(root.dataset.rows))) * rowHeight;
  rows.style.height = isRoomy() ? "" : `${height}px`;
  part("empty").hidden = !isReady || shown.length > 0;
  part("loading").hidden = outline.is_whole;
  paintMarks();
  redraw();
};

const withAncestors = (isWanted) => {
  const wanted = new Uint8Array(outline.ids.length);
  for (let row = 0; row < wanted.length; row += 1) {
    for (let up = row; isWanted(row) && up >= 0 && !wanted[up]; up = parents[up]) {
      wanted[up] = 1;
    }
  }
  return wanted;
};

// A bar is as long as something took; on the axis of time it lies where that was.
const bar = (kind, start, took, isCritical) => {
  if (took === null || (view === "time" && start === null)) {
    return [];
  }
  const width = view === "steps" ? longest : span.to - span.from;
  const from = view === "steps" ? 0 : Math.max(start - span.from, 0);
  const to = view === "steps" ? Math.min(took, longest) : Math.min(start + took - span.from, width);
  if (to < from) {
    return [];
  }
  const made = element("span", `run-bar run-bar-${kind}`);
  made.classList.toggle("run-bar-critical", view === "time" && isCritical);
  made.classList.toggle("run-bar-cut", view === "steps" && took > longest);
  made.style.left = `${(100 * from) / width}%`;
  made.style.width = `${(100 * (to - from)) / width}%`;
  return [made];
};

// The bar of a row, and on the axis of time that of the step for which it stands.
const bars = (row) => {
  const [start, isCritical] = [outline.starts[row], outline.critical[row] === 1];
  const kind = outline.calls[row] === CALL ? STATUSES[outline.statuses[row]] : "step";
  // A call that has not ended reaches to the newest time that is known.
  const isOpen = root.dataset.live && start !== null && kind === "pending";
  const [stepStart, stepTook] = (view === "time" && stepOf(row)?.slice(STEP_START)) || [null, null];
  return element(
    "span",
    "run-track",
    ...bar(kind, start, outline.durations[row] ?? (isOpen ? whole.to - start : null), isCritical),
    ...bar("step", stepStart, stepTook, isCritical),
  );
};

// The number of a step, and its agent where that is another one than before.
const stepElements = (row, agent) => {
  const number = element("span", "run-number", outline.numbers[row]);
  number.ariaLabel = filled(words.step, { number: outline.numbers[row] });
  number.role = "img";
  return agent ? [number, element("bdi", "run-who", agent)] : [number];
};

const counted = ([one, many], number) => filled(number === 1 ? one : many, { number });

// What a folded row hides, unless that is more of the same.
const belowElements = (row) => {
  if (!isFolded(row) || !hasChildren(row) || row in outline.repeats) {
    return [];
  }
  const counts = { steps: 0, calls: 0, failures: 0 };
  for (let below = row + 1; outline.depths[below] > outline.depths[row]; below += 1) {
    counts.steps += outline.calls[below] === STEP || stepOf(below) ? 1 : 0;
    counts.calls += outline.calls[below] === CALL ? 1 : 0;
    counts.failures += outline.statuses[below] === FAILED ? 1 : 0;
  }
  const known = Object.entries(counts).filter(([, number]) => number > 0);
  return [element("span", "run-below", ...known.map(([name, number]) => element("span", `run-${name}`, counted(words[name], number))))];
};

const label = (row) => {
  const made = element("span", "run-label");
  made.style.paddingInlineStart = `${Math.min(outline.depths[row], MOST_INDENTS) * 16}px`;
  made.append(element("span", "run-fold", hasChildren(row) ? (isFolded(row) ? "▸" : "▾") : ""));
  const said = wordsOf.get(outline.ids[row]);
  const name = nameOf(row);
  if (outline.calls[row] === CALL) {
    const status = STATUSES[outline.statuses[row]];
    if (stepOf(row)) {
      made.append(...stepElements(row, outline.names[stepOf(row)[STEP_AGENT]]));
    }
    made.append(element("bdi", "tool", name), element("bdi", "run-text", said?.text ?? ""));
    if (row in outline.repeats) {
      made.append(element("span", "run-count", `× ${outline.repeats[row]}`));
    }
    const below = belowElements(row);
    if (status === "error") {
      made.append(element("bdi", "run-error", element("span", "visually-hidden", `${words.error}: `), said?.error ?? ""));
    } else if (below.length === 0) {
      made.append(element("bdi", "run-note", status === "pending" ? words.pending : (said?.note ?? "")));
    }
    made.append(...below);
    return made;
  }
  if (outline.calls[row] === ANSWER || outline.calls[row] === NOTE) {
    made.append(element("span", "run-who", name || words.answer));
  } else if (outline.calls[row] !== CHAPTER) {
    made.append(...stepElements(row, name));
  }
  made.append(element("bdi", "run-said", said?.text || (isMessage(row) ? "" : filled(words.step, { number: outline.numbers[row] }))));
  made.append(...belowElements(row));
  return made;
};

const rowElement = (row, index) => {
  const made = element("div", `run-row run-row-${outline.calls[row] === CALL ? STATUSES[outline.statuses[row]] : "step"}`);
  made.id = `run-row-${row}`;
  made.dataset.row = row;
  made.setAttribute("role", "treeitem");
  made.setAttribute("aria-level", outline.depths[row] + 1);
  made.setAttribute("aria-setsize", shown.length);
  made.setAttribute("aria-posinset", index + 1);
  if (hasChildren(row)) {
    made.setAttribute("aria-expanded", !isFolded(row));
  }
  made.classList.toggle("run-row-found", found[row] === 1);
  made.style.transform = isRoomy() ? "" : `translateY(${index * rowHeight}px)`;
  const took = outline.durations[row];
  const end = element("span", "run-took", took === null ? "" : duration(took));
  end.classList.toggle("run-long", took > longest && !isMessage(row));
  if (row === outline.bottleneck) {
    end.classList.add("run-bottleneck");
    end.title = words.bottleneckMeans;
    end.prepend(element("span", "visually-hidden", `${words.bottleneck} `));
  }
  const chapter = outline.chapters[row];
  made.classList.toggle("run-row-chapter", outline.calls[row] === CHAPTER);
  made.classList.toggle("quiet", outline.calls[row] === NOTE);
  const middle = chapter && view !== "time" ? element("span", `outcome outcome-${chapter.outcome}`, chapter.label) : bars(row);
  made.append(label(row), middle, end, element("span", "run-cost", outline.costs[row] ?? ""));
  return made;
};

// --- The map at the edge: where failures and calls without a result are, what is in sight, and what is selected ----------------

const shareOf = (index) => (100 * index) / Math.max(shown.length, viewHeight / rowHeight);

const paintMarks = () => {
  const marks = new Map();
  shown.forEach((row, index) => {
    const status = STATUSES[outline.statuses[row]];
    const place = Math.floor((shareOf(index) * MAP_PLACES) / 100);
    if (outline.calls[row] === CALL && status !== "success" && marks.get(place)?.status !== "error") {
      marks.set(place, { status, index });
    }
  });
  part("marks").replaceChildren(
    ...[...marks.values()].map(({ status, index }) => {
      const made = element("span", `run-map-mark run-map-${status}`);
      made.style.top = `${shareOf(index)}%`;
      return made;
    }),
  );
};

const paintMap = (top) => {
  const inSight = part("window");
  inSight.style.top = `${shareOf(top / rowHeight)}%`;
  inSight.style.height = `${shareOf(viewHeight / rowHeight)}%`;
  const index = indexOf[selected] ?? -1;
  part("here").hidden = index < 0;
  part("here").style.top = `${shareOf(index)}%`;
};

// Rows that stay in sight keep their elements: while one scrolls, only those that come into sight are made.
const paint = () => {
  painting = false;
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
    const row = shown[index];
    const made = drawn.get(row) ?? rowElement(row, index);
    made.ariaSelected = row === selected;
    drawn.set(row, made);
    if (made === next) {
      next = next.nextSibling;
    } else {
      rows.insertBefore(made, next);
    }
  }
  if (drawn.has(selected)) {
    list.setAttribute("aria-activedescendant", `run-row-${selected}`);
  } else {
    list.removeAttribute("aria-activedescendant");
  }
  paintMap(top);
  readWords(shown.slice(first, last));
};

const paintSoon = () => {
  if (!painting) {
    painting = true;
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
  const ids = inSight.map((row) => outline.ids[row]).filter((id) => !wordsOf.has(id));
  if (isAsking || ids.length === 0) {
    return;
  }
  isAsking = true;
  const some = ids.slice(0, MOST_WORDS);
  some.forEach((id) => asked.add(id));
  const response = await fetch(`${root.dataset.wordsUrl}?${new URLSearchParams(some.map((id) => ["id", id]))}`).catch(() => null);
  const answer = response?.ok ? await response.json() : null;
  isAsking = false;
  if (answer) {
    asked.forEach((id) => wordsOf.set(id, answer[id] ?? {}));
    redraw([...asked].map((id) => place.get(id)));
  }
  asked.clear();
};

// Opens what hides a row; returns whether something did.
const openAbove = (row) => {
  let isHidden = false;
  for (let up = parents[row] ?? -1; up >= 0; up = parents[up]) {
    isHidden ||= folded[up] === 1;
    folded[up] = 0;
  }
  return isHidden;
};

const reveal = (row) => {
  if (openAbove(row)) {
    choose();
  }
  if (isRoomy()) {
    requestAnimationFrame(() => document.getElementById(`run-row-${row}`)?.scrollIntoView({ block: "nearest" }));
    return;
  }
  const top = indexOf[row] * rowHeight;
  if (top >= 0 && (top < list.scrollTop || top + rowHeight > list.scrollTop + viewHeight)) {
    list.scrollTop = top - viewHeight / 3;
  }
};

// --- The axis of time ---------------------------------------------------------------------------------------------------

// The times between `span.from` and `span.to` in which nothing is known to run, if they are long enough to be seen.
const gaps = () => {
  const free = [];
  let end = 0;
  for (const row of byTime) {
    const start = beginOf(row);
    if (start === null) {
      break;
    }
    if (start - end > (span.to - span.from) / 50) {
      free.push({ from: end, to: start });
    }
    end = Math.max(end, endOf(row));
  }
  return free;
};

const paintAxis = () => {
  const width = span.to - span.from;
  const at = (ms) => (100 * (ms - span.from)) / width;
  const made = [];
  for (const gap of gaps()) {
    const from = Math.max(at(gap.from), 0);
    const to = Math.min(at(gap.to), 100);
    if (to > from) {
      const strip = element("span", "run-gap");
      strip.style.left = `${from}%`;
      strip.style.width = `${to - from}%`;
      strip.title = `${words.gap}: ${duration(gap.to - gap.from)}`;
      made.push(strip);
    }
  }
  const failed = byTime.filter((row) => outline.statuses[row] === FAILED && outline.starts[row] !== null);
  for (const row of failed.slice(0, MOST_MARKS)) {
    if (at(outline.starts[row]) >= 0 && at(outline.starts[row]) <= 100) {
      const mark = element("span", "run-failure-mark");
      mark.style.left = `${at(outline.starts[row])}%`;
      made.push(mark);
    }
  }
  for (const share of [0, 0.25, 0.5, 0.75]) {
    const tick = element("span", "run-tick", duration(Math.round(span.from + share * width)));
    tick.style.left = `${100 * share}%`;
    made.push(tick);
  }
  part("times").replaceChildren(...made);
};

const zoom = (from, to) => {
  const width = Math.max(to - from, 1);
  const start = Math.min(Math.max(from, whole.from), Math.max(whole.to - width, whole.from));
  span = { from: start, to: Math.min(start + width, whole.to) };
  paintAxis();
  redraw();
};

// Zooms around the selected row, or around the middle.
const zoomBy = (factor) => {
  const start = selected >= 0 ? outline.starts[selected] : null;
  const middle = start === null ? (span.from + span.to) / 2 : start + (outline.durations[selected] ?? 0) / 2;
  const half = ((span.to - span.from) * factor) / 2;
  zoom(middle - half, middle + half);
};

// Moves the part of the run that is in sight until the bar of a row is in it.
const bringIntoSight = (row) => {
  const start = outline.starts[row];
  if (start !== null && (start > span.to || start + (outline.durations[row] ?? 0) < span.from)) {
    const half = (span.to - span.from) / 2;
    zoom(start - half, start + half);
  }
};

// --- The panel ----------------------------------------------------------------------------------------------------------

// The places where a search found the terms in a step or call.
const placesElement = (id) => {
  const places = (matches.get(id) ?? []).map((found) =>
    element(
      "li",
      "",
      element("span", "quiet", `${found.field}: `),
      element("bdi", "text", ...visible(found.before), element("mark", "", ...visible(found.match)), ...visible(found.after)),
    ),
  );
  return places.length ? [element("ul", "run-places", ...places)] : [];
};

// A part that the server makes.
const partElement = (address) => {
  const made = element("div", "run-part");
  pageNow(address, loading.signal).then((page) => made.append(...(page?.body.children ?? [element("p", "nothing", words.failed)])));
  return made;
};

// What the call of the last good run that is most like this one gave.
const goodElement = () => {
  const made = element("div", "run-good");
  const load = async () => {
    const response = await fetch(detail.good).catch(() => null);
    const good = response?.ok ? await response.json() : { problem: words.failed };
    made.replaceChildren(
      ...(good.problem ? [element("p", "nothing", good.problem)] : [linkElement([words.good, good.url]), ...valuesOf(good, "args", ...RESULT)]),
    );
  };
  made.append(button(words.good, load));
  return made;
};

const linkElement = ([text, url]) => {
  const link = element("a", "", text);
  link.href = url;
  return element("p", "", link);
};

const factsElement = () => {
  const facts = element("dl", "facts");
  for (const [label, fact] of detail.facts) {
    facts.append(element("div", "", element("dt", "", label), element("dd", "", element("bdi", "", fact))));
  }
  return facts;
};

const jsonElement = () => {
  const copies = element("p", "run-copy", `${words.copyAs} `, button("JSON", () => copy(asJson(detail))), button("Markdown", () => copy(asMarkdown(detail))));
  if (detail.is_call) {
    copies.append(button("curl", () => copy(asCurl(detail))), button("Python", () => copy(asPython(detail))));
  }
  return [copies, element("pre", "value code", ...visible(asJson(detail)))];
};

const RESULT = ["error", "thought", "output", "data", "attachments", "reflection", "reasoning"];

const valuesOf = (shown, ...columns) => shown.values.filter((value) => columns.includes(value.column)).map(valueElement);

// The tabs of a call or step: what each shows.
const TABS = {
  result: () => [...placesElement(detail.id), ...valuesOf(detail, ...RESULT), ...(detail.good ? [goodElement()] : [])],
  arguments: () => valuesOf(detail, "args"),
  input: () => [partElement(`${detail.input}?part`)],
  span: () => [
    factsElement(),
    ...(detail.parent ? [linkElement([words.parent, `?call=${detail.parent}`])] : []),
    ...valuesOf(detail, "usage", "metadata", "raw"),
    ...(detail.span ? [partElement(detail.span)] : []),
  ],
  json: jsonElement,
  similar: () => detail.links.map(linkElement),
};

const hasTab = (name) =>
  ({ arguments: detail.is_call, input: detail.input !== "", similar: detail.links.length > 0 })[name] ?? true;

const showTab = (wanted) => {
  const present = hasTab(wanted) ? wanted : "result";
  for (const one of panel.querySelectorAll("[role=tab]")) {
    one.hidden = !hasTab(one.dataset.tab);
    one.ariaSelected = one.dataset.tab === present;
    one.tabIndex = one.dataset.tab === present ? 0 : -1;
  }
  const content = TABS[present]();
  const shownIn = panel.querySelector("[role=tabpanel]");
  shownIn.setAttribute("aria-labelledby", `run-tab-${present}`);
  shownIn.replaceChildren(...(content.length ? content : [element("p", "nothing", detail.is_pending && present === "result" ? words.pending : words.nothing)]));
};

const tabsElement = () => {
  const made = element("div", "tabs");
  made.role = "tablist";
  for (const name of Object.keys(TABS)) {
    const one = button(words[`tab_${name}`], () => {
      tab = name;
      showTab(tab);
      noteAddress();
      panel.querySelector(".panel-body").scrollTop = 0;
    });
    one.role = "tab";
    one.id = `run-tab-${name}`;
    one.dataset.tab = name;
    one.setAttribute("aria-controls", "run-tabpanel");
    made.append(one);
  }
  made.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const all = [...made.children].filter((one) => !one.hidden);
    if (by) {
      const next = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
      next.focus();
      next.click();
      event.stopPropagation();
    }
  });
  return made;
};

// On a phone what is selected lies over the path.
const backButton = () => {
  const made = button("←", deselect);
  made.className = "back";
  made.ariaLabel = words.back;
  return made;
};

// What keeps the focus when another row is shown, by place.
const FOCUSED_IN_PANEL = [".back", "[role=tab][aria-selected=true]", ".panel-body"];

const showDetail = () => {
  const row = place.get(detail.id);
  const title = element("h2", "", element("bdi", detail.is_call ? "tool" : "", detail.title));
  if (detail.telling) {
    title.append(" ", element("bdi", "run-text", detail.telling));
  }
  const status = detail.is_call ? STATUSES[outline.statuses[row]] : "";
  // The step for which a call stands is shown from the call.
  const step = stepOf(row);
  const isStep = step?.[STEP_ID] === detail.id;
  const [start, took] = isStep ? step.slice(STEP_START) : [outline.starts[row], outline.durations[row]];
  const facts = element("p", "quiet");
  if (status) {
    facts.append(element("span", `badge badge-${status}`, words[status]), " ");
  }
  facts.append([took === null || took === undefined ? "" : duration(took), isAssumed || !start ? "" : filled(words.into, { time: duration(start) })].filter(Boolean).join(" · "));
  if (step) {
    const other = isStep ? nameOf(row) : filled(words.step, { number: outline.numbers[row] });
    facts.append(" ", button(other, () => load(row, isStep ? outline.ids[row] : step[STEP_ID])));
  }
  const content = element("div", "");
  content.role = "tabpanel";
  content.id = "run-tabpanel";
  const isSame = panel.dataset.id === detail.id;
  const top = panel.querySelector(".panel-body")?.scrollTop ?? 0;
  const body = element("div", "panel-body", title, facts, content);
  body.tabIndex = 0;
  const focused = FOCUSED_IN_PANEL.find((one) => panel.querySelector(one)?.contains(document.activeElement));
  panel.replaceChildren(element("div", "tab-line", backButton(), tabsElement()), body);
  panel.dataset.id = detail.id;
  showTab(tab);
  body.scrollTop = isSame ? top : 0;
  if (focused) {
    panel.querySelector(focused).focus({ preventScroll: true });
  }
};

const showSide = (isRow) => {
  panel.hidden = !isRow;
  about.hidden = isRow;
  aboutTabs?.toggleAttribute("hidden", isRow);
};

// Shows a section of what is known of a session: its conversation, details, or events, which are read from now on.
const showSection = (wanted) => {
  const present = sections.find((section) => section.id === wanted) ?? sections[0];
  for (const section of sections) {
    section.hidden = section !== present;
  }
  for (const link of aboutTabs.querySelectorAll("a")) {
    link.ariaCurrent = link.hash === `#${present.id}` ? "true" : null;
  }
  if (present.dataset.script) {
    import(present.dataset.script);
  }
};

// Brings a message of the conversation into sight.
const showMessage = (id) => {
  if (isSession) {
    showSection("conversation");
    const message = document.getElementById(`message-${id}`);
    message?.querySelector(".bubble-system > details")?.setAttribute("open", "");
    about.scrollTop += message ? message.getBoundingClientRect().top - about.getBoundingClientRect().top : 0;
  }
};

// Puts what is selected into the address, which leads there again. What opens over the path is a new entry of the history, so that
// the browser's Back closes it.
const noteAddress = () => {
  const query = new URLSearchParams(location.search);
  const opens = selected >= 0 && !query.has("call") && getComputedStyle(side).position === "fixed";
  ["view", "call", "tab", "page", "open", "q"].forEach((name) => query.delete(name));
  const noted = { ...(view !== "steps" && { view }), ...(selected >= 0 && { call: outline.ids[selected], ...(tab !== "result" && { tab }) }) };
  Object.entries(noted).forEach((one) => query.set(...one));
  history[opens ? "pushState" : "replaceState"](opens ? { isOpen: true } : history.state, "", location.pathname + (query.size ? `?${query}` : ""));
};

const select = (row) => {
  selected = row;
  reveal(row);
  bringIntoSight(row);
  paintSoon();
  root.classList.add("is-open");
  noteAddress();
  sayPlace();
  sayFailure();
  return load(row);
};

// Shows the question and the answer again.
const deselect = () => {
  if (history.state?.isOpen) {
    history.back(); // popstate closes it
  } else {
    close();
  }
};

const close = () => {
  if (side.contains(document.activeElement)) {
    list.focus({ preventScroll: true });
  }
  selected = -1;
  root.classList.remove("is-open");
  loading?.abort();
  showSide(false);
  noteAddress();
  sayFailure();
  paintSoon();
};

// Shows the failure that decided in the panel until a row is selected. Neither the focus nor what is in sight moves.
const openDeciding = () => {
  const row = selected < 0 && panel.hidden && view !== "text" ? (place.get(root.dataset.deciding) ?? -1) : -1;
  if (row >= 0) {
    selected = row;
    if (openAbove(row)) {
      choose();
    }
    paintSoon();
    sayFailure();
    load(row);
  }
};

// Reads the values of a row and shows them in the panel.
const load = async (row, id = outline.ids[row]) => {
  loading?.abort();
  if (isMessage(row)) {
    showSide(false);
    showMessage(id);
    return;
  }
  showSide(true);
  loading = new AbortController();
  panel.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${root.dataset.url}${id}/`, { signal: loading.signal });
    if (response.ok) {
      detail = await response.json();
      showDetail();
    } else {
      panel.replaceChildren(element("p", "nothing", words.failed));
    }
    panel.removeAttribute("aria-busy");
  } catch (error) {
    if (error.name === "AbortError") {
      return; // another row was selected meanwhile
    }
    panel.replaceChildren(element("p", "nothing", words.failed));
  }
};

// --- Moving about -------------------------------------------------------------------------------------------------------

const move = (by) => {
  const index = indexOf[selected] ?? -1;
  const next = index < 0 ? (by > 0 ? 0 : shown.length - 1) : index + by;
  if (next >= 0 && next < shown.length) {
    select(shown[next]);
  }
};

// The next row in reading order that `isWanted`; after the last comes the first.
const jump = async (isWanted, by) => {
  await wholeOutline;
  const count = outline.ids.length;
  const from = selected < 0 && by < 0 ? 0 : selected; // before the first row, if none is selected
  for (let far = 1; far <= count; far += 1) {
    const row = (from + by * far + count * 2) % count;
    if (isWanted(row)) {
      select(row);
      return;
    }
  }
};

// Which of several failures is selected.
const sayFailure = () => {
  const failed = document.querySelector("#run-failures .place");
  if (failed && view !== "text" && outline.is_whole) {
    const isFailure = selected >= 0 && outline.statuses[selected] === FAILED;
    const number = outline.statuses.slice(0, selected + 1).filter((status) => status === FAILED).length;
    const total = outline.statuses.filter((status) => status === FAILED).length;
    failed.hidden = !isFailure || total === 1;
    failed.textContent = filled(words.failurePlace, { number, total });
  }
};

const goToMatch = (by) => jump((row) => found[row] === 1, by);

const fold = (row, isClosed) => {
  if (hasChildren(row)) {
    folded[row] = isClosed ? 1 : 0;
    choose();
  }
};

// Marks the rows whose names have what is looked for, and those in which the server found it.
const mark = () => {
  const wanted = find?.value.trim().toLowerCase() ?? "";
  const names = outline.names.map((name) => wanted !== "" && name.toLowerCase().includes(wanted));
  foundRows = [];
  for (let row = 0; row < outline.ids.length; row += 1) {
    const ids = [outline.ids[row], stepOf(row)?.[STEP_ID] ?? ""];
    const isNamed = names[outline.named[row]] || (wanted.length > 7 && ids.some((id) => id.startsWith(wanted)));
    found[row] = isNamed || ids.some((id) => matches.has(id)) ? 1 : 0;
    if (found[row]) {
      foundRows.push(row);
    }
  }
  part("matches").hidden = foundRows.length === 0;
  redraw();
};

const sayPlace = () => {
  if (!find || find.value.trim() === "") {
    return;
  }
  const number = foundRows.indexOf(selected) + 1;
  const total = searching?.isCut ? `${foundRows.length}+` : foundRows.length;
  say(number ? filled(words.place, { number, total }) : filled(words.found, { number: total }));
};

const stopSearch = () => {
  clearTimeout(searching?.timer);
  searching?.control.abort();
  searching = undefined;
  part("matches").hidden = true;
  say("");
};

// Asks the server, which searches the payloads, when the reader stops typing.
const search = () => {
  stopSearch();
  matches = new Map();
  mark();
  const query = find.value.trim();
  if (query === "") {
    return;
  }
  sayPlace();
  const now = { control: new AbortController(), isCut: false };
  searching = now;
  now.done = new Promise((resolve) => {
    now.finish = resolve;
  });
  now.timer = setTimeout(() => ask(now, query).finally(now.finish), TYPING_MS);
};

const ask = async (now, query) => {
  try {
    const url = `${root.dataset.search}?${new URLSearchParams({ q: query })}`;
    const response = await fetch(url, { signal: now.control.signal });
    if (!response.ok) {
      say(words.failed);
      return;
    }
    const answer = await response.json();
    await wholeOutline;
    if (now !== searching) {
      return;
    }
    matches = new Map(answer.matches.map((match) => [match.id, match.places]));
    now.isCut = answer.is_cut;
    mark();
    if (answer.error && foundRows.length === 0) {
      say(answer.error);
    } else {
      sayPlace();
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      say(words.failed);
    }
  }
};

const show = (wanted) => {
  const wasText = view === "text";
  view = wanted;
  root.dataset.view = view;
  for (const tab of root.querySelectorAll("[data-view-button]")) {
    tab.setAttribute("aria-pressed", tab.dataset.viewButton === view);
  }
  axis.hidden = view !== "time";
  part("body").hidden = view === "text";
  for (const tool of root.querySelectorAll("[data-only]")) {
    tool.hidden = !tool.dataset.only.split(" ").includes(view);
  }
  viewHeight = list.clientHeight;
  refresh();
  if (view === "text") {
    // The server searches for the text of the page.
    stopSearch();
    showSide(false);
    return;
  }
  if (wasText && !isSession && find.value.trim() !== "") {
    search();
  }
  if (selected >= 0) {
    reveal(selected);
    load(selected);
  }
};

const showOfTab = (number) => (panel.hidden ? aboutTabs?.querySelectorAll("a") : panel.querySelectorAll("[role=tab]:not([hidden])"))?.[number - 1]?.click();

// Failures, equal ones once.
const isAim = (row) => outline.statuses[row] === FAILED && !isRepeat(row);

const KEYS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  n: () => jump(isAim, 1),
  p: () => jump(isAim, -1),
  ArrowLeft: () => selected >= 0 && fold(selected, true),
  ArrowRight: () => selected >= 0 && fold(selected, false),
  b: () => outline.bottleneck !== null && select(outline.bottleneck),
  "/": () => find?.focus(),
  "+": () => view === "time" && zoomBy(0.5),
  "-": () => view === "time" && zoomBy(2),
  0: () => view === "time" && zoom(whole.from, whole.to),
  t: () => changeView(view === "time" ? "steps" : "time"),
  Escape: () => (selected >= 0 || !panel.hidden) && deselect(),
  "?": () => part("help").showModal(),
  ...Object.fromEntries([1, 2, 3, 4, 5, 6].map((number) => [number, () => showOfTab(number)])),
};

const changeView = (wanted) => {
  show(wanted);
  noteAddress();
  openDeciding();
};

// The rows of a run are searched as somebody types; a session and the text by the server, which answers with another page.
const listenToFind = () => {
  find.form.addEventListener("submit", (event) => view !== "text" && event.preventDefault());
  find.addEventListener("input", () => view !== "text" && search());
  find.addEventListener("keydown", (event) => {
    if (view === "text") {
      return;
    }
    if (event.key === "Enter") {
      event.preventDefault();
      const by = event.shiftKey ? -1 : 1;
      if (foundRows.length) {
        goToMatch(by);
      } else {
        searching?.done.then(() => foundRows.length && goToMatch(by));
      }
    } else if (event.key === "Escape") {
      list.focus();
    }
  });
};

const listen = () => {
  for (const one of root.querySelectorAll("[data-view-button]")) {
    one.addEventListener("click", () => changeView(one.dataset.viewButton));
  }
  list.addEventListener("scroll", paintSoon, { passive: true });
  new ResizeObserver(() => {
    viewHeight = list.clientHeight;
    paintSoon();
  }).observe(list);
  part("map").addEventListener("pointerdown", (event) => {
    const box = part("map").getBoundingClientRect();
    list.scrollTop = ((event.clientY - box.top) / box.height) * Math.max(shown.length * rowHeight, list.clientHeight) - list.clientHeight / 2;
  });
  addEventListener("resize", () => {
    const top = list.scrollTop / rowHeight;
    rowHeight = heightOfRows();
    refresh();
    list.scrollTop = top * rowHeight;
  });
  rows.addEventListener("click", (event) => {
    const row = Number(event.target.closest(".run-row")?.dataset.row ?? -1);
    if (event.target.closest(".run-fold") && hasChildren(row)) {
      fold(row, !isFolded(row));
    } else if (row >= 0) {
      select(row);
    }
  });
  // The header and the tools are replaced while the run goes on.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="?call="]');
    const query = new URLSearchParams(link?.search);
    const wanted = query.get("call");
    const row = place.get(wanted);
    const pressed = event.target.closest("[data-part]")?.dataset.part;
    const menu = document.querySelector("details.menu[open]");
    if (menu && (!menu.contains(event.target) || event.target.closest("ul"))) {
      menu.open = false;
    }
    if (view === "text" && query.has("tab")) {
      return; // the page of the rows
    }
    if (view === "text" && link) {
      link.href = `?view=text&call=${wanted}${link.hash || `#call-${wanted}`}`;
    } else if (row !== undefined) {
      event.preventDefault();
      if (link.rel) {
        KEYS[link.rel === "next" ? "n" : "p"]();
      } else {
        tab = query.get("tab") ?? tab;
        select(row);
      }
    } else if (pressed === "copy-link") {
      copy(location.href);
    } else if (pressed === "help-button") {
      KEYS["?"]();
    } else if (pressed === "previous-failure" || pressed === "next-failure") {
      KEYS[pressed[0]]();
    }
  });
  addEventListener("popstate", () => {
    const row = place.get(new URLSearchParams(location.search).get("call"));
    if (view !== "text" && row === undefined) {
      close();
    } else if (view !== "text") {
      select(row);
    }
  });
  document.addEventListener("change", (event) => {
    if (event.target.dataset.part === "failures") {
      onlyFailures = event.target.checked;
      choose();
      if (selected >= 0) {
        reveal(selected);
      }
    }
  });
  aboutTabs?.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link) {
      event.preventDefault();
      showSection(link.hash.slice(1));
      about.scrollTop = 0;
    }
  });
  if (root.dataset.search) {
    listenToFind();
  }
  part("previous-match").addEventListener("click", () => goToMatch(-1));
  part("next-match").addEventListener("click", () => goToMatch(1));
  part("fold-all").addEventListener("click", () => {
    newAreFolded = true;
    folded.fill(1);
    choose();
  });
  part("unfold-all").addEventListener("click", () => {
    newAreFolded = false;
    folded.fill(0);
    choose();
  });
  part("zoom-in").addEventListener("click", () => zoomBy(0.5));
  part("zoom-out").addEventListener("click", () => zoomBy(2));
  part("zoom-all").addEventListener("click", () => zoom(whole.from, whole.to));
  let pressed = null; // where a range of time began to be dragged
  const times = part("times");
  const timeAt = (event) => {
    const box = times.getBoundingClientRect();
    return span.from + ((span.to - span.from) * (event.clientX - box.left)) / box.width;
  };
  times.addEventListener("pointerdown", (event) => {
    pressed = timeAt(event);
    times.setPointerCapture(event.pointerId);
  });
  times.addEventListener("pointerup", (event) => {
    const [from, to] = [pressed, timeAt(event)].sort((one, other) => one - other);
    if (to - from > (span.to - span.from) / 100) {
      zoom(from, to);
    }
  });
  document.addEventListener("keydown", (event) => {
    const menu = document.querySelector("details.menu[open]");
    if (menu && event.key === "Escape") {
      menu.open = false;
      menu.querySelector("summary").focus();
      return;
    }
    const isTyping = event.target.closest("input, textarea, select, dialog");
    const isArrow = event.key.startsWith("Arrow");
    const isOurs = !isArrow || event.target === list || event.target === document.body;
    if ((view === "text" && event.key !== "?" && event.key !== "t") || isTyping || !isOurs || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) {
      return;
    }
    event.preventDefault();
    KEYS[event.key]();
  });
};

// --- Beginning, and going on --------------------------------------------------------------------------------------------

// The parts of the page that change while the run goes on.
const PARTS = [
  ...["#run-header", "#run-losses", "#run-notes", "#message-facts", "#run-failures", "#run-counts", "#run-text", "#run-state", "#answer"],
  ...["#session-facts", "#plan"],
];

// The selectors of those that a page has, and of the messages of a conversation, which others may follow.
const partsOf = (page) => [
  ...PARTS.filter((wanted) => page.querySelector(wanted) && document.querySelector(wanted)),
  ...[...page.querySelectorAll("ol.conversation > li[id]")].map(({ id }) => `#${id}`),
];

const firstRowsOf = (page) => JSON.parse(page.getElementById("run-first-rows").textContent);

// The whole outline: what came with the page, if it has all rows. Undefined if the server does not answer.
const outlineBehind = async (firstRows) => {
  if (firstRows.is_whole) {
    return firstRows;
  }
  const response = await fetch(root.dataset.url + (root.dataset.query ?? "")).catch(() => null);
  return response?.ok ? response.json() : undefined;
};

// What a row says may have changed with it: the words that came anew are those of the first rows.
const forgetWords = (columns) => {
  columns.ids.forEach((id, row) => {
    const known = place.get(id);
    const hasChanged = known === undefined || outline.statuses[known] !== columns.statuses[row] || outline.durations[known] !== columns.durations[row];
    if (hasChanged) {
      asked.delete(id);
    }
    if (hasChanged || !wordsOf.get(id)?.text) {
      wordsOf.delete(id);
    }
  });
};

const followRun = () => {
  const address = new URL(location.href); // before the selection of a row changes it
  address.searchParams.delete("tab"); // what it reads is read once
  const known = new Map(partsOf(document).map((wanted) => [wanted, said(document.querySelector(wanted))]));
  const end = follow(root.dataset.live, async () => {
    const page = await pageNow(address);
    if (page === null) {
      return;
    }
    const explorer = page.getElementById("run-explorer");
    const columns = explorer && (await outlineBehind(firstRowsOf(page)));
    const isAtTheEnd = isSession && about.scrollTop + about.clientHeight > about.scrollHeight - 60;
    for (const wanted of partsOf(page)) {
      const before = document.querySelector(wanted);
      const after = page.querySelector(wanted);
      const html = said(after);
      if (before === null) {
        document.querySelector("ol.conversation").append(after);
        document.querySelector("#conversation > .nothing")?.remove();
      }
      if (html !== known.get(wanted) && (before === null || replace(before, after))) {
        known.set(wanted, html);
      }
    }
    if (isAtTheEnd) {
      about.scrollTop = about.scrollHeight;
    }
    if (part("failures")) {
      part("failures").checked = onlyFailures;
    }
    sayFailure();
    if (columns) {
      Object.assign(root.dataset, { rows: explorer.dataset.rows, answer: explorer.dataset.answer, deciding: explorer.dataset.deciding });
      forgetWords(columns);
      adopt(columns);
    }
    if (!explorer?.dataset.live) {
      delete root.dataset.live;
      end();
    }
  });
};

const start = async () => {
  document.body.classList.add("scripted");
  if (isSession) {
    aboutTabs.prepend(backButton());
    document.getElementById("run-text").remove();
  } else {
    about.before(element("div", "tab-line about-back", backButton()));
  }
  const query = new URLSearchParams(location.search);
  const wanted = query.get("call") ?? location.hash.replace("#message-", "");
  const wantedView = query.get("view");
  tab = Object.hasOwn(TABS, query.get("tab")) ? query.get("tab") : tab;
  root.classList.toggle("is-open", !panel.hidden);
  panel.querySelector(".back")?.replaceWith(backButton());
  read(firstRowsOf(document));
  listen();
  const isText = !isSession && (wantedView === "text" || ["page", "open", "q"].some((name) => query.has(name)));
  show(isText ? "text" : ["time", "waterfall"].includes(wantedView) ? "time" : "steps");
  const selectWanted = () => {
    if (view !== "text" && selected < 0 && place.has(wanted)) {
      select(place.get(wanted));
    }
  };
  if (isSession) {
    showSection(query.get("tab") ?? location.hash.slice(1));
    root.classList.toggle("is-open", query.has("q") || query.has("tab"));
  }
  selectWanted();
  if (!outline.is_whole) {
    const columns = await outlineBehind(outline);
    if (columns === undefined) {
      part("loading").textContent = words.failed;
    } else {
      adopt(columns);
    }
  }
  announceWhole();
  selectWanted();
  openDeciding();
  sayFailure();
  if (root.dataset.live) {
    followRun();
  }
};

start();
