// One row of a path as an element: number, words, and what came of it; its bar, how long it took, and what it cost.
import { gapsOfRow, placed } from "./axis.js";
import { isFound } from "./find.js";
import { counted, duration, element, filled, isSession, now, reader, root, words } from "./page.js";
import { ANSWER, CHAPTER, FAILED, hasChildren, isCall, isFolded, isMessage, isRepeated, longest, nameOf, NOTE, outline, STATUSES, STEP, stepOf, tookOf, whole, wordsOf } from "./rows.js";

const MOST_INDENTS = 12; // deeper rows stand below each other, so that there is room for their words

const kindOf = (row) => (isCall(row) ? STATUSES[outline.statuses[row]] : "step");

// A bar is as long as something took, behind what came before it in its row; on the axis of time it lies where that was.
const bar = (kind, start, took, isCritical, after = 0) => {
  if (took === null || (reader.view === "time" && start === null)) {
    return [];
  }
  if (reader.view === "time") {
    return [placed(`run-bar run-bar-${kind}${isCritical ? " run-bar-critical" : ""}`, start, start + took)];
  }
  const made = element("span", `run-bar run-bar-${kind}${after + took > longest && after < longest ? " run-bar-cut" : ""}`);
  made.style.left = `${(100 * after) / longest}%`;
  made.style.width = `${(100 * Math.min(took, Math.max(longest - after, 0))) / longest}%`;
  return [made];
};

// The bar of a row, and that of the step for which it stands. A call that has not ended reaches to the newest time that is known, and one
// that never got a result to the end of its run; without an axis it is as long as any, because nobody knows how long it takes.
const bars = (row) => {
  const [start, isCritical, kind] = [outline.starts[row], outline.critical[row] === 1, kindOf(row)];
  const isOpen = start !== null && kind === "pending" && (root.dataset.live || (reader.view === "time" && !isSession));
  const step = stepOf(row) ?? { start: null, took: null };
  const took = outline.durations[row] ?? (isOpen ? (reader.view === "time" ? whole.to - start : longest) : null);
  const behind = reader.view === "time" ? gapsOfRow() : [];
  const made = element("span", "run-track", ...behind, ...bar("step", step.start, step.took, isCritical), ...bar(kind, start, took, isCritical, Math.max(tookOf(row) - took, 0)));
  made.title = made.querySelector(".run-bar-cut") ? words.cut : "";
  return made;
};

// The number of a step, and its agent where that is another one than before.
const stepElements = (row, agent) => {
  const number = element("span", "run-number", outline.numbers[row]);
  number.title = filled(words.step, { number: outline.numbers[row] });
  number.ariaLabel = number.title;
  number.role = "img";
  return agent ? [number, element("bdi", "run-who", agent)] : [number];
};

// What a folded row hides, unless that is more of the same.
const belowElements = (row) => {
  if (!isFolded(row) || !hasChildren(row) || isRepeated(row)) {
    return [];
  }
  const counts = { steps: 0, calls: 0, failures: 0 };
  for (let below = row + 1; outline.depths[below] > outline.depths[row]; below += 1) {
    counts.steps += outline.calls[below] === STEP || stepOf(below) ? 1 : 0;
    counts.calls += isCall(below) ? 1 : 0;
    counts.failures += isCall(below) && outline.statuses[below] === FAILED ? 1 : 0;
  }
  const known = Object.entries(counts).filter(([, number]) => number > 0);
  return [element("span", "run-below", ...known.map(([name, number]) => element("span", `run-${name}`, counted(words[name], number))))];
};

const countElements = (row) => (isRepeated(row) ? [element("span", "run-count", `× ${outline.repeats[row]}`)] : []);

const callElements = (row, said) => {
  const [kind, step, below] = [kindOf(row), stepOf(row), belowElements(row)];
  const came =
    kind === "error"
      ? [element("bdi", "run-error", element("span", "visually-hidden", `${words.error}: `), said.error ?? "")]
      : below.length === 0
        ? [element("bdi", "run-note", kind === "pending" ? words.pending : (said.note ?? ""))]
        : [];
  return [
    ...(step ? stepElements(row, outline.names[step.agent]) : []),
    element("bdi", "tool", nameOf(row)),
    element(
      "span",
      "run-words",
      element("bdi", "run-text", said.text ?? ""),
      ...countElements(row),
      ...came,
      ...below,
    ),
  ];
};

const saidElements = (row, said) => [
  ...([ANSWER, NOTE].includes(outline.calls[row]) ? [element("span", "run-who", nameOf(row) || (said.error ? words.answerError : words.answer))] : []),
  ...(isMessage(row) ? [] : stepElements(row, nameOf(row))),
  said.error ? element("bdi", "run-error", said.error) : element("bdi", "run-said", said.text || (isMessage(row) ? "" : filled(words.step, { number: outline.numbers[row] }))),
  ...countElements(row),
  ...belowElements(row),
];

export const labelElements = (row) => (isCall(row) ? callElements : saidElements)(row, wordsOf.get(outline.ids[row]) ?? {});

// How long a call of a run that goes on has had no result; empty for other rows.
export const pendingFor = (row) => {
  const start = outline.starts[row];
  const isKnown = root.dataset.live && kindOf(row) === "pending" && start !== null && outline.origin !== null;
  return isKnown ? duration(Math.max(Math.round(now()) - outline.origin - start, 0)) : "";
};

// How long what began at `begun`, in milliseconds, has gone on.
export const soFar = (begun) => filled(words.soFar, { duration: duration(Math.max(Math.round(now() - begun), 0)) });

const tookElement = (row) => {
  const [took, step, own] = [tookOf(row), stepOf(row), outline.durations[row]];
  const { begun, so_far: said } = outline.chapters[row] ?? {};
  const counts = begun && root.dataset.live;
  const made = element("span", "run-took", (counts ? soFar(begun) : said) || pendingFor(row) || (took === null ? "" : duration(took)));
  if (counts) {
    made.dataset.begun = 1000 * begun; // in microseconds, as in the page
  }
  made.classList.toggle("run-long", took > longest && !isMessage(row));
  made.title = step && step.took !== null && own !== null ? `${filled(words.step, { number: outline.numbers[row] })}: ${duration(step.took)}, ${nameOf(row)}: ${duration(own)}` : "";
  if (row === outline.bottleneck) {
    made.classList.add("run-bottleneck");
    made.title = words.bottleneckMeans;
    made.prepend(element("span", "visually-hidden", `${words.bottleneck} `));
  }
  return made;
};

// What stands for the outcome of a question without an answer: while the session is followed it may come, and the last one may have it
// in the next part of a long session.
const withoutAnswer = (row) => {
  if (root.dataset.live) {
    return "";
  }
  return "goesOn" in root.dataset && row === outline.calls.lastIndexOf(CHAPTER) ? words.goesOn : words.unanswered;
};

export const rowElement = (row) => {
  const chapter = outline.chapters[row];
  const label = element("span", "run-label", element("span", "run-fold", hasChildren(row) ? (isFolded(row) ? "▸" : "▾") : ""));
  label.style.paddingInlineStart = `${Math.min(outline.depths[row], MOST_INDENTS) * 16}px`;
  label.append(...labelElements(row));
  const isQuestion = outline.calls[row] === CHAPTER && reader.view !== "time";
  const middle = isQuestion ? element("span", chapter ? `outcome outcome-${chapter.outcome}` : "quiet", chapter?.label ?? withoutAnswer(row)) : bars(row);
  const made = element("div", `run-row run-row-${kindOf(row)}`, label, middle, tookElement(row), element("span", "run-cost", outline.costs[row] ?? ""));
  made.id = `run-row-${row}`;
  made.dataset.row = row;
  made.role = "treeitem";
  made.ariaLevel = outline.depths[row] + 1;
  made.ariaExpanded = hasChildren(row) ? !isFolded(row) : null;
  made.classList.toggle("run-row-found", isFound(row));
  made.classList.toggle("run-row-chapter", outline.calls[row] === CHAPTER);
  made.classList.toggle("quiet", outline.calls[row] === NOTE);
  return made;
};
