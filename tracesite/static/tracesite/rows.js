// The rows of a path, as columns in reading order: what is known of each, which one each belongs to, and which are folded. The first
// rows come with the page, the others after it; while the run goes on they are taken anew.
import { isSession, reader, root } from "./page.js";

const MANY = 100; // rows of which sub-agents, and the chapters of a session, are folded at first
const FEW = 14; // rows of a run that is shown without cuts, because there is room
const LONG = 0.95; // the share of rows whose bars are not cut

export const STATUSES = ["pending", "success", "error"];
export const FAILED = 2;
export const [STEP, CALL, ANSWER, CHAPTER, NOTE] = [0, 1, 2, 3, 4];

export let outline; // the columns
export let parents; // the row above each row, -1 at the top
export let place; // row by id
export let byTime; // rows in the order of their starts
export let folded; // 1 for rows whose rows below are hidden
export let whole; // the time of the run, in milliseconds
export let isAssumed; // no start is known: durations lie one after the other
export let longest; // the duration of a whole bar
export const wordsOf = new Map(); // text, error and note of the rows that were in sight, by id

let newAreFolded = false; // after "Collapse all", also what comes later
export const { promise: wholeOutline, resolve: endReading } = Promise.withResolvers();

export const nameOf = (row) => outline.names[outline.named[row]];

// The step for which a call stands: id, start, took and, where it changes, agent.
export const stepOf = (row) => outline.steps[row];

// When a row began and ended, with the step for which it stands; null if that is unknown.
export const beginOf = (row) => stepOf(row)?.start ?? outline.starts[row];
export const endOf = (row) => {
  const { start = null, took } = stepOf(row) ?? {};
  const end = outline.starts[row] === null ? null : outline.starts[row] + (outline.durations[row] ?? 0);
  return start === null ? end : Math.max(start + (took ?? 0), end ?? 0);
};

// How long a row took, with the step for which it stands.
export const tookOf = (row) => {
  const [step, took] = [stepOf(row)?.took ?? null, outline.durations[row]];
  if (step === null || took === null) {
    return took ?? step;
  }
  return stepOf(row).start === null || outline.starts[row] === null ? Math.max(step, took) : endOf(row) - beginOf(row);
};

export const isCall = (row) => outline.calls[row] === CALL;
export const isPending = (row) => isCall(row) && outline.statuses[row] === 0;
export const isFailed = (row) => outline.statuses[row] === FAILED;
export const isMessage = (row) => outline.calls[row] >= ANSWER;
export const hasChildren = (row) => outline.depths[row + 1] > outline.depths[row];

// When the run of a row began: in a session with its question.
export const runStartOf = (row) => {
  let up = row;
  while (parents[up] >= 0) {
    up = parents[up];
  }
  return outline.calls[up] === CHAPTER ? (outline.starts[up] ?? 0) : whole.from;
};

// Whether a row is the first of equal calls, and whether it is folded to that.
export const isRepeated = (row) => row in outline.repeats;
export const isRepeat = (row) => parents[row] >= 0 && isRepeated(parents[row]);

// The rows of a short run are as high as their words. Beside an axis words have too little room for that.
export const isRoomy = () => reader.view !== "time" && outline.is_whole && outline.ids.length <= FEW;

// Whether what is below a row is hidden. Where only failures are shown, all of them are, equal ones once.
export const isFolded = (row) => folded[row] === 1 && (!reader.onlyFailures || isRepeated(row));

// Rows that are folded as long as nobody has opened them: of the chapters of a long session all but the newest. A session knows how
// many rows it has before they are there.
const startsFolded = (row) => {
  const isLong = (isSession ? Number(root.dataset.rows) : outline.ids.length) > MANY;
  const isOlder = outline.calls[row] === CHAPTER && row < outline.calls.lastIndexOf(CHAPTER);
  return newAreFolded || isRepeated(row) || (isLong && (isOlder || (isCall(row) && hasChildren(row))));
};

export const foldAll = (isClosed) => {
  newAreFolded = isClosed;
  folded.fill(isClosed ? 1 : 0);
};

// Opens what hides a row; returns whether something did.
export const openAbove = (row) => {
  let isHidden = false;
  for (let up = parents[row] ?? -1; up >= 0; up = parents[up]) {
    isHidden ||= folded[up] === 1;
    folded[up] = 0;
  }
  return isHidden;
};

// The outline of a run with the answer as its last row.
const withAnswer = (columns) => {
  const id = root.dataset.message;
  if (id && columns.is_whole && columns.ids.at(-1) !== id) {
    const last = { ids: id, calls: ANSWER, depths: 0, statuses: 1, named: columns.names.push("") - 1, numbers: "", starts: null, durations: null, critical: 0 };
    Object.entries(last).forEach(([column, value]) => columns[column].push(value));
    wordsOf.set(id, { [root.dataset.answerIs ?? "text"]: root.dataset.answer });
  }
  return columns;
};

// Gives rows without any known start one: each begins when the one before it has ended.
const assumeStarts = () => {
  const isUnknown = [...outline.starts, ...Object.values(outline.steps).map(({ start }) => start)].every((start) => start === null);
  isAssumed = isUnknown && outline.durations.some((took) => took !== null);
  let end = 0;
  for (let row = 0; isAssumed && row < outline.ids.length; row += 1) {
    const step = stepOf(row);
    if (step && step.took !== null) {
      step.start = end;
      end += step.took;
    }
    if (outline.durations[row] !== null) {
      outline.starts[row] = end;
      end += hasChildren(row) && isCall(row) && !isRepeated(row) ? 0 : outline.durations[row];
    }
  }
};

export const read = (columns) => {
  outline = withAnswer(columns);
  for (const [row, [id, start, took, agent]] of Object.entries(outline.steps)) {
    outline.steps[row] = { id, start, took, agent };
  }
  Object.entries(outline.words).forEach(([id, said]) => wordsOf.set(id, said));
  const rows = outline.ids.map((_id, row) => row);
  parents = new Int32Array(rows.length).fill(-1);
  folded = Uint8Array.from(rows, (row) => (startsFolded(row) ? 1 : 0));
  place = new Map();
  assumeStarts();
  const isPlaced = !isAssumed && outline.origin !== null && "took" in root.dataset;
  // A run may begin before the first row that has a time.
  whole = { from: isPlaced ? Math.min(Math.round(root.dataset.begun / 1000) - outline.origin, 0) : 0, to: 1 };
  const path = [];
  for (const row of rows) {
    path.length = outline.depths[row];
    parents[row] = path.at(-1) ?? -1;
    path.push(row);
    place.set(outline.ids[row], row);
    if (stepOf(row)) {
      place.set(stepOf(row).id, row);
    }
    whole.to = Math.max(whole.to, endOf(row) ?? 0);
  }
  // A run may end after the last row that has a time.
  whole.to = Math.max(whole.to, isPlaced ? whole.from + Number(root.dataset.took) : 0);
  const known = rows.filter((row) => !isMessage(row)).map(tookOf).filter((took) => took !== null).sort((one, other) => one - other);
  longest = Math.max(known[Math.floor((known.length - 1) * LONG)] ?? 1, 1);
  byTime = rows.sort((one, other) => (beginOf(one) ?? Infinity) - (beginOf(other) ?? Infinity) || one - other);
};

// Takes newer or more rows. Folds stay as they are, and the selected row; returns whether that has changed.
export const readAgain = (columns) => {
  const [was, is] = [outline, columns].map((of) => new Map(of.ids.map((id, row) => [id, `${of.statuses[row]} ${of.durations[row]}`])));
  const folds = new Map(outline.ids.flatMap((id, row) => (hasChildren(row) ? [[id, folded[row]]] : [])));
  const selected = outline.ids[reader.selected];
  // What a row says may have changed with it. What comes again is the words of the first rows.
  columns.ids.filter((id) => root.dataset.live && (was.get(id) !== is.get(id) || !wordsOf.get(id)?.text)).forEach((id) => wordsOf.delete(id));
  read(columns);
  reader.selected = place.get(selected) ?? -1;
  openAbove(reader.selected);
  // What the reader folded stays so, even with the selected row in it.
  outline.ids.forEach((id, row) => {
    folded[row] = folds.get(id) ?? folded[row];
  });
  return reader.selected >= 0 && was.get(selected) !== is.get(selected);
};
