// The axis of time above the rows, which a reader zooms by buttons, keys, or by dragging over it. `span` is the part of the run that it shows.
import { duration, element, filled, isSession, part, reader, root, words } from "./page.js";
import { beginOf, byTime, endOf, isAssumed, isFailed, isPending, outline, whole } from "./rows.js";

const MOST_MARKS = 300;
const TICK_WIDTH = 100; // at least, in pixels
const TICK_WORDS = 48; // of the last tick, in pixels
const DAY = 86_400_000;
const DISTANCES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, DAY / 2];

const times = part("times");
let free = []; // beginnings and ends of the times without a row that are long enough to be seen
let zoomed = null; // null for the whole run, also while it grows

export const span = () => zoomed ?? whole;

// An element where a time is on the axis; what is outside of the part that it shows is cut off.
export const placed = (name, from, to, ...content) => {
  const width = (span().to - span().from) / 100;
  const made = element("span", name, ...content);
  made.style.left = `${(from - span().from) / width}%`;
  made.style.width = to === null ? "" : `${(to - from) / width}%`;
  return made;
};

// The times of the run that its rows leave out: nothing ran, or it was not recorded. A call without a result may have run until the end.
const findGaps = () => {
  const found = [];
  let end = whole.from;
  for (const row of byTime) {
    const start = beginOf(row);
    if (start === null) {
      break;
    }
    found.push([end, start]);
    end = Math.max(end, isPending(row) && !isSession ? whole.to : endOf(row));
  }
  return [...found, [end, whole.to]];
};

// Whether a time is longer than one part of so many of what the axis shows.
const isLongerThan =
  (parts) =>
  ([from, to]) =>
    to - from > (span().to - span().from) / parts;

const gapElement = ([from, to]) => {
  const said = filled(words.gap, { duration: duration(to - from) });
  const made = placed("run-gap", from, to, element("span", "", said));
  made.title = said;
  return made;
};

// The long ones, to lie behind the bars of a row.
export const gapsOfRow = () => free.filter(isLongerThan(10)).map(gapElement);

// Round times, as many as there is room for, but none whose words would be cut off.
const ticks = ({ from: left, to: right }) => {
  const [from, to] = [left - whole.from, right - whole.from];
  const least = (to - from) / Math.max(Math.floor(times.clientWidth / TICK_WIDTH), 2);
  const distance = DISTANCES.find((one) => one >= least) ?? Math.ceil(least / DAY) * DAY;
  const first = Math.ceil(from / distance);
  const last = to - (to - from) * Math.max(TICK_WORDS / times.clientWidth, 1 / 20);
  const count = Math.floor(last / distance) - first + 1;
  return Array.from({ length: Math.max(count, 0) }, (_none, number) => (first + number) * distance);
};

export const paintAxis = () => {
  free = isAssumed ? [] : findGaps().filter(isLongerThan(50));
  const failed = byTime.filter((row) => isFailed(row) && outline.starts[row] !== null).slice(0, MOST_MARKS);
  times.replaceChildren(
    ...free.map(gapElement),
    ...failed.map((row) => placed("run-failure-mark", outline.starts[row], null)),
    ...ticks(span()).map((at) => placed("run-tick", at + whole.from, null, duration(at))),
  );
};

const zoom = (from, to) => {
  const width = Math.max(to - from, 1);
  const start = Math.min(Math.max(from, whole.from), Math.max(whole.to - width, whole.from));
  zoomed = width < whole.to - whole.from ? { from: start, to: start + width } : null;
  paintAxis();
  root.dispatchEvent(new Event("redraw"));
};

export const zoomOut = () => zoom(whole.from, whole.to);

// Zooms around the selected row, or around the middle.
export const zoomBy = (factor) => {
  const { from, to } = span();
  const start = outline.starts[reader.selected] ?? null;
  const middle = start === null ? (from + to) / 2 : start + (outline.durations[reader.selected] ?? 0) / 2;
  const half = ((to - from) * factor) / 2;
  zoom(middle - half, middle + half);
};

// Moves the part of the run that is in sight until the bar of a row is in it.
export const bringIntoSight = (row) => {
  const { from, to } = span();
  const start = outline.starts[row];
  if (start !== null && (start > to || start + (outline.durations[row] ?? 0) < from)) {
    zoom(start - (to - from) / 2, start + (to - from) / 2);
  }
};

const timeAt = (event) => {
  const box = times.getBoundingClientRect();
  return span().from + ((span().to - span().from) * (event.clientX - box.left)) / box.width;
};

let pressed = null; // where a range of time began to be dragged
times.addEventListener("pointerdown", (event) => {
  pressed = timeAt(event);
  times.setPointerCapture(event.pointerId);
});
times.addEventListener("pointerup", (event) => {
  const [from, to] = [pressed, timeAt(event)].sort((one, other) => one - other);
  if (to - from > (span().to - span().from) / 100) {
    zoom(from, to);
  }
});
