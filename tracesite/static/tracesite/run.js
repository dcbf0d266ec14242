// The explorer of a run: its tree and its waterfall, with a panel for the selected step or call. The first rows of the outline
// (names, times, statuses) come with the page, the whole outline after it, the payloads of a row when it is selected. Only the
// rows in sight are in the document, so that 50,000 calls scroll like 50. While the run goes on, the page is looked at again
// when something has happened. Trace content becomes text nodes, never HTML.
import { follow, pageNow, replace, said } from "./following.js";

const ROW = 26; // pixels, as in admin.css
const SPARE = 8; // rows above and below those in sight
const MOST_CHILDREN = 200; // values of an object or list that are shown at a time
const MOST_LOADED = 2_000_000; // bytes of a value that the panel loads; a longer one is downloaded
const MOST_MARKS = 300;
const TYPING_MS = 250; // after which a search is asked for
const STATUSES = ["pending", "success", "error"];
const FAILED = 2;
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;

const root = document.getElementById("run-explorer");
const words = JSON.parse(root.dataset.words);
const hidden = JSON.parse(root.dataset.hidden);
const hiddenCharacters = new RegExp(hidden.pattern, "gu");
const part = (name) => root.querySelector(`[data-part="${name}"]`);
const list = part("list");
const rows = part("rows");
const axis = part("axis");
const panel = part("panel");
const find = part("find");
const onlyFailures = part("failures");
const language = document.documentElement.lang;

let outline; // columns in reading order
let parents; // the row above each row, -1 at the top
let place; // row by id
let byTime; // rows in the order of their starts
let folded;
let newAreFolded = false; // after "Collapse all", also what comes later
let found; // 1 for rows that match the search
let foundRows = [];
let matches = new Map(); // what the server found: the places by id
let searching; // AbortController of the search
let announceWhole; // resolves `wholeOutline`
const wholeOutline = new Promise((resolve) => {
  announceWhole = resolve;
});
let shown = []; // the rows of the present view, in order
let selected = -1;
let view = "text";
let span = { from: 0, to: 1 }; // of the waterfall, in milliseconds
let whole = { from: 0, to: 1 };
let loading; // AbortController of the payload that is being read
let painting = false;

// --- Texts --------------------------------------------------------------------------------------------------------------

const element = (name, className, ...content) => {
  const made = document.createElement(name);
  made.className = className;
  made.append(...content);
  return made;
};

// Text in which characters that nobody sees, or that turn the reading direction, are marks that name them.
const visible = (string) => {
  const parts = [];
  let from = 0;
  let count = 0;
  for (const match of string.matchAll(hiddenCharacters)) {
    count += 1;
    if (count > hidden.most) {
      break;
    }
    const code = match[0].codePointAt(0);
    const point = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    const mark = element("span", "mark", hidden.names[code] ?? point);
    mark.title = point;
    parts.push(string.slice(from, match.index), mark);
    from = match.index + match[0].length;
  }
  parts.push(count > hidden.most ? string.slice(from).replaceAll(hiddenCharacters, "\ufffd") : string.slice(from));
  return parts;
};

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

// --- Rows ---------------------------------------------------------------------------------------------------------------

const hasChildren = (row) => row + 1 < outline.depths.length && outline.depths[row + 1] > outline.depths[row];

const read = (columns) => {
  const isZoomed = outline !== undefined && (span.from > whole.from || span.to < whole.to);
  outline = columns;
  const count = outline.ids.length;
  parents = new Int32Array(count).fill(-1);
  folded = new Uint8Array(count).fill(newAreFolded ? 1 : 0);
  found = new Uint8Array(count);
  place = new Map();
  const path = [];
  whole = { from: 0, to: 1 };
  for (let row = 0; row < count; row += 1) {
    path.length = outline.depths[row];
    parents[row] = path.length ? path[path.length - 1] : -1;
    path.push(row);
    place.set(outline.ids[row], row);
    if (outline.starts[row] !== null) {
      whole.to = Math.max(whole.to, outline.starts[row] + (outline.durations[row] ?? 0));
    }
  }
  if (!isZoomed) {
    span = { ...whole };
  }
  byTime = Array.from({ length: count }, (_, row) => row).sort(
    (one, other) => (outline.starts[one] ?? Infinity) - (outline.starts[other] ?? Infinity) || one - other,
  );
};

// Takes a newer or longer outline. Folds, the selected row and what is in sight stay as they are.
const adopt = (columns) => {
  const before = { ids: outline.ids, folded, selected: outline.ids[selected] };
  const isAtTheEnd = outline.is_whole && list.scrollTop > 0 && list.scrollTop + list.clientHeight > list.scrollHeight - ROW;
  const top = Math.floor(list.scrollTop / ROW);
  const topId = outline.ids[shown[top]];
  const rest = list.scrollTop - top * ROW;
  const was = selected < 0 ? null : [outline.statuses[selected], outline.durations[selected]];
  read(columns);
  before.ids.forEach((id, row) => {
    if (place.has(id)) {
      folded[place.get(id)] = before.folded[row];
    }
  });
  selected = place.get(before.selected) ?? -1;
  mark();
  sayPlace();
  refresh();
  const index = topId === undefined ? -1 : shown.indexOf(place.get(topId));
  if (isAtTheEnd) {
    list.scrollTop = list.scrollHeight;
  } else if (index >= 0) {
    list.scrollTop = index * ROW + rest;
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
  root.hidden = outline.ids.length === 0;
  part("is-cut").hidden = !outline.is_cut;
  part("bottleneck").hidden = view === "text" || outline.bottleneck === null;
  root.classList.toggle("run-has-costs", Object.keys(outline.costs).length > 0);
  if (view !== "text") {
    paintAxis();
    choose();
  }
};

// The rows that the view shows, none while the rows that it needs are on their way. A step is not a bar of work of its own where only failures are asked for.
const choose = () => {
  const failures = onlyFailures.checked;
  const isReady = outline.is_whole || (view === "tree" && !failures);
  shown = [];
  if (!isReady) {
    part("empty").hidden = true;
  } else if (view === "waterfall") {
    shown = failures ? byTime.filter((row) => outline.statuses[row] === FAILED) : byTime;
  } else {
    const wanted = failures ? withAncestors((row) => outline.statuses[row] === FAILED) : null;
    let below = Infinity; // rows deeper than this are folded away
    for (let row = 0; row < outline.ids.length; row += 1) {
      if (outline.depths[row] > below) {
        continue;
      }
      below = folded[row] && !failures ? outline.depths[row] : Infinity;
      if (wanted === null || wanted[row]) {
        shown.push(row);
      }
    }
  }
  // The list is as long as the whole run from the first paint on.
  rows.style.height = `${(outline.is_whole ? shown.length : Math.max(shown.length, Number(root.dataset.rows))) * ROW}px`;
  part("empty").hidden = !isReady || shown.length > 0;
  part("loading").hidden = outline.is_whole;
  paintSoon();
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

const bar = (row) => {
  const start = outline.starts[row];
  const track = element("span", "run-track");
  if (start === null) {
    return track;
  }
  // A call that has not ended reaches to the newest time that is known.
  const isOpen = root.dataset.live && outline.calls[row] && STATUSES[outline.statuses[row]] === "pending";
  const took = outline.durations[row] ?? (isOpen ? whole.to - start : 0);
  const width = span.to - span.from;
  const from = Math.max(start, span.from);
  const to = Math.min(start + took, span.to);
  if (to >= from) {
    const made = element("span", `run-bar run-bar-${outline.calls[row] ? STATUSES[outline.statuses[row]] : "step"}`);
    made.classList.toggle("run-bar-critical", outline.critical[row] === 1);
    made.style.left = `${(100 * (from - span.from)) / width}%`;
    made.style.width = `${(100 * (to - from)) / width}%`;
    track.append(made);
  }
  return track;
};

const rowElement = (row, index) => {
  const status = STATUSES[outline.statuses[row]];
  const made = element("div", `run-row run-row-${outline.calls[row] ? status : "step"}`);
  made.id = `run-row-${row}`;
  made.dataset.row = row;
  made.setAttribute("role", "treeitem");
  made.setAttribute("aria-level", outline.depths[row] + 1);
  made.setAttribute("aria-setsize", shown.length);
  made.setAttribute("aria-posinset", index + 1);
  made.setAttribute("aria-selected", row === selected);
  made.classList.toggle("run-row-found", found[row] === 1);
  made.style.transform = `translateY(${index * ROW}px)`;
  const label = element("span", "run-label");
  if (view === "tree") {
    label.style.paddingInlineStart = `${outline.depths[row] * 14}px`;
    if (hasChildren(row)) {
      made.setAttribute("aria-expanded", !folded[row]);
      label.append(element("span", "run-fold", folded[row] ? "▸" : "▾"));
    } else {
      label.append(element("span", "run-fold"));
    }
  }
  const icon = { pending: "…", success: "✓", error: "✗" }[status];
  const sign = element("span", "run-sign", outline.calls[row] ? icon : "");
  if (outline.calls[row]) {
    sign.title = words[status];
  }
  label.append(sign, element("bdi", outline.calls[row] ? "tool" : "", nameOf(row)));
  made.append(label);
  if (view === "waterfall") {
    made.append(bar(row));
  }
  const took = outline.durations[row];
  const end = element("span", "run-took", took === null ? "" : duration(took));
  if (row === outline.bottleneck) {
    end.classList.add("run-bottleneck");
    end.title = words.bottleneckMeans;
    end.prepend(element("span", view === "tree" ? "" : "visually-hidden", `${words.bottleneck} `));
  }
  made.append(end);
  if (view === "tree" && outline.costs[row]) {
    made.append(element("span", "run-cost", outline.costs[row]));
  }
  return made;
};

const paint = () => {
  painting = false;
  const first = Math.max(Math.floor(list.scrollTop / ROW) - SPARE, 0);
  const last = Math.min(Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE, shown.length);
  const made = document.createDocumentFragment();
  for (let index = first; index < last; index += 1) {
    made.append(rowElement(shown[index], index));
  }
  rows.replaceChildren(made);
  const active = document.getElementById(`run-row-${selected}`);
  if (active) {
    list.setAttribute("aria-activedescendant", active.id);
  } else {
    list.removeAttribute("aria-activedescendant");
  }
};

const paintSoon = () => {
  if (!painting) {
    painting = true;
    requestAnimationFrame(paint);
  }
};

const reveal = (row) => {
  let isFolded = false;
  for (let up = parents[row]; up >= 0; up = parents[up]) {
    isFolded ||= folded[up] === 1;
    folded[up] = 0;
  }
  if (isFolded) {
    choose();
  }
  const index = shown.indexOf(row);
  const top = index * ROW;
  if (index >= 0 && (top < list.scrollTop || top + ROW > list.scrollTop + list.clientHeight)) {
    list.scrollTop = top - list.clientHeight / 3;
  }
  // Below a tall head the list may be outside of the window.
  list.scrollIntoView({ block: "nearest" });
};

// --- The axis of the waterfall ------------------------------------------------------------------------------------------

// The times between `span.from` and `span.to` in which nothing is known to run, if they are long enough to be seen.
const gaps = () => {
  const free = [];
  let end = 0;
  for (const row of byTime) {
    const start = outline.starts[row];
    if (start === null) {
      break;
    }
    if (start - end > (span.to - span.from) / 50) {
      free.push({ from: end, to: start });
    }
    end = Math.max(end, start + (outline.durations[row] ?? 0));
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
  paintSoon();
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

class Exact {
  constructor(source) {
    this.source = source; // a number that JavaScript would round
  }
}

const parsed = (string) => {
  const exact = (_key, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? new Exact(context.source)
      : value;
  try {
    return JSON.parse(string, exact);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) {
      return undefined; // no JSON, or too deep: shown as the text that it is
    }
    throw error;
  }
};

const isContainer = (value) => typeof value === "object" && value !== null && !(value instanceof Exact);

// An object or list that is written in a string, as tools like to return.
const inside = (string) => {
  const value = /^\s*[[{]/.test(string) ? parsed(string) : undefined;
  return isContainer(value) ? value : undefined;
};

const leaf = (value) => {
  if (value instanceof Exact) {
    return element("span", "json-number", value.source);
  }
  if (typeof value === "string") {
    if (IMAGE.test(value)) {
      const image = element("img", "json-image");
      image.src = value;
      image.alt = words.image;
      return image;
    }
    return element("span", "json-string", ...visible(value));
  }
  return element("span", "json-number", String(value));
};

const branch = (name, value, isOpen) => {
  const label = name === null ? [] : [element("bdi", "json-name", ...visible(String(name))), ": "];
  const nested = typeof value === "string" ? inside(value) : undefined;
  const container = nested ?? value;
  if (!isContainer(container)) {
    return element("div", "json-leaf", ...label, leaf(value));
  }
  const isList = Array.isArray(container);
  const entries = Object.entries(container);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  const summary = element("summary", "", ...label, element("span", "quiet", size));
  if (nested !== undefined) {
    summary.append(" ", element("span", "tag", words.nested));
  }
  const made = element("details", "json-branch", summary);
  let next = 0;
  const more = () => {
    made.querySelector(":scope > .json-more")?.remove();
    made.append(...entries.slice(next, next + MOST_CHILDREN).map(([key, item]) => branch(key, item, false)));
    next += MOST_CHILDREN;
    if (next < entries.length) {
      const button = element("button", "json-more", `${words.more} (${entries.length - next})`);
      button.type = "button";
      button.addEventListener("click", more);
      made.append(button);
    }
  };
  made.addEventListener("toggle", more, { once: true });
  made.open = isOpen;
  return made;
};

const button = (label, act) => {
  const made = element("button", "", label);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
};

const say = (message) => {
  part("said").textContent = message;
};

const copy = async (string) => {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(string);
  } else {
    // Browsers give the clipboard to pages over HTTPS only.
    const field = element("textarea", "");
    field.value = string;
    panel.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(words.copied);
};

const valueElement = (value) => {
  const head = element("h4", "", value.label, " ");
  const body = element("div", "value code");
  const fill = (string) => {
    const tree = value.is_json || /^\s*[[{"]/.test(string) ? parsed(string) : undefined;
    const isTree = isContainer(tree) || (typeof tree === "string" && inside(tree) !== undefined);
    body.replaceChildren(isTree ? branch(null, tree, true) : element("div", "text", ...visible(string)));
    value.text = string;
  };
  fill(value.text);
  head.append(button(words.copy, () => copy(value.text)));
  const made = element("section", value.column === "error" ? "run-value run-value-error" : "run-value", head, body);
  if (value.is_cut) {
    const link = element("a", "", words.download);
    link.href = value.url;
    const note = element("p", "cut", `${words.cut} `, link, " ");
    if (value.bytes <= MOST_LOADED) {
      const load = async () => {
        const response = await fetch(value.url);
        if (response.ok) {
          fill(await response.text());
          note.remove();
        } else {
          say(words.failed);
        }
      };
      note.append(button(words.load, load));
    }
    made.append(note);
  }
  return made;
};

// The values as they were sent: JSON is not parsed, because JavaScript would round long numbers.
const asJson = (detail) => {
  const fields = detail.values.map(
    (value) =>
      `  ${JSON.stringify(value.column)}: ${value.is_json && !value.is_cut ? value.text.replaceAll("\n", "\n  ") : JSON.stringify(value.text)}`,
  );
  return `{\n${[`  "id": ${JSON.stringify(detail.id)}`, `  "name": ${JSON.stringify(detail.title)}`, ...fields].join(",\n")}\n}`;
};

// More backticks than any run of them in a text, so that nothing in it is Markdown.
const fenceOf = (text, least) => "`".repeat(Math.max(least, ...(text.match(/`+/g) ?? []).map((run) => run.length + 1)));

const asCode = (text) => {
  const line = text.replace(/\s+/g, " ");
  const fence = fenceOf(line, 1);
  const space = line.startsWith("`") || line.endsWith("`") ? " " : "";
  return `${fence}${space}${line}${space}${fence}`;
};

const asMarkdown = (detail) => {
  const facts = detail.facts.map(([label, fact]) => `- ${label}: ${asCode(fact)}`).join("\n");
  const values = detail.values.map((value) => {
    const fence = fenceOf(value.text, 3);
    return `**${value.label}**\n\n${fence}${value.is_json ? "json" : ""}\n${value.text}\n${fence}`;
  });
  return [`### ${asCode(detail.title)}`, facts, ...values].join("\n\n");
};

const asCurl = (detail) =>
  `curl -H "Authorization: Bearer $TRACESITE_API_KEY" '${new URL(detail.api, location.origin).href}'`;

const asPython = (detail) => {
  const args = detail.values.find((value) => value.column === "args")?.text ?? "{}";
  const tool = /^[A-Za-z_]\w*$/.test(detail.title) ? detail.title : `tools[${JSON.stringify(detail.title)}]`;
  // A JSON string is a Python string, too.
  return `import json\n\narguments = json.loads(${JSON.stringify(args)})\nresult = ${tool}(**arguments)\n`;
};

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

// What the model of a step was asked, read from its own page when it is unfolded.
const inputElement = (url) => {
  const made = element("details", "run-input", element("summary", "", words.input));
  const read = async () => {
    const input = (await pageNow(url))?.getElementById("model-input");
    made.append(input ?? element("p", "nothing", words.failed));
  };
  made.addEventListener("toggle", read, { once: true });
  return made;
};

const showDetail = (detail) => {
  const title = element("h3", "", element("bdi", "", detail.title));
  const facts = element("dl", "facts");
  for (const [label, fact] of detail.facts) {
    facts.append(element("div", "", element("dt", "", label), element("dd", "", element("bdi", "", fact))));
  }
  const tools = element("p", "run-copy", `${words.copyAs} `, button("JSON", () => copy(asJson(detail))));
  tools.append(button("Markdown", () => copy(asMarkdown(detail))));
  if (detail.is_call) {
    tools.append(button("curl", () => copy(asCurl(detail))), button("Python", () => copy(asPython(detail))));
  }
  if (detail.page) {
    const link = element("a", "", detail.is_call ? words.open : words.openInput);
    link.href = detail.page;
    tools.append(" ", link);
  }
  const input = detail.page && !detail.is_call ? [inputElement(detail.page)] : [];
  const errors = detail.values.filter((value) => value.column === "error");
  const others = detail.values.filter((value) => value.column !== "error");
  const isSame = panel.dataset.id === detail.id;
  const top = panel.scrollTop;
  panel.replaceChildren(
    title,
    ...errors.map(valueElement),
    facts,
    ...placesElement(detail.id),
    tools,
    ...input,
    ...others.map(valueElement),
  );
  panel.scrollTop = isSame ? top : 0;
  panel.dataset.id = detail.id;
};

const select = (row) => {
  selected = row;
  reveal(row);
  bringIntoSight(row);
  paintSoon();
  const id = outline.ids[row];
  const query = new URLSearchParams({ view, call: id });
  history.replaceState(null, "", `?${query}#call-${id}`);
  sayPlace();
  return load(row);
};

// Shows the first failure in the panel until a row is selected. Neither the focus nor what is in sight moves.
const openFirstFailure = () => {
  const row = selected < 0 && view !== "text" ? outline.statuses.indexOf(FAILED) : -1;
  if (row >= 0) {
    selected = row;
    paintSoon();
    load(row);
  }
};

// Reads the payloads of a row and shows them in the panel.
const load = async (row) => {
  const id = outline.ids[row];
  loading?.abort();
  loading = new AbortController();
  panel.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${root.dataset.url}${id}/`, { signal: loading.signal });
    if (response.ok) {
      showDetail(await response.json());
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
  const index = shown.indexOf(selected);
  const next = index < 0 ? (by > 0 ? 0 : shown.length - 1) : index + by;
  if (next >= 0 && next < shown.length) {
    select(shown[next]);
  }
};

// The next row in reading order, or in the order of time, that `isWanted`; after the last comes the first.
const jump = async (isWanted, by) => {
  await wholeOutline;
  const order = view === "waterfall" ? byTime : outline.ids.map((_id, row) => row);
  const from = selected < 0 ? (by > 0 ? -1 : 0) : order.indexOf(selected);
  for (let far = 1; far <= order.length; far += 1) {
    const row = order[(from + by * far + order.length * 2) % order.length];
    if (isWanted(row)) {
      select(row);
      return;
    }
  }
};

const goToMatch = (by) => jump((row) => found[row] === 1, by);

const fold = (row, isFolded) => {
  if (view === "tree" && hasChildren(row)) {
    folded[row] = isFolded ? 1 : 0;
    choose();
  }
};

// Marks the rows whose names have what is looked for, and those in which the server found it.
const mark = () => {
  const wanted = find.value.trim().toLowerCase();
  const names = outline.names.map((name) => wanted !== "" && name.toLowerCase().includes(wanted));
  foundRows = [];
  for (let row = 0; row < outline.ids.length; row += 1) {
    const isNamed = names[outline.named[row]] || (wanted.length > 7 && outline.ids[row].startsWith(wanted));
    found[row] = isNamed || matches.has(outline.ids[row]) ? 1 : 0;
    if (found[row]) {
      foundRows.push(row);
    }
  }
  part("matches").hidden = foundRows.length === 0;
  paintSoon();
};

const sayPlace = () => {
  if (find.value.trim() === "") {
    return;
  }
  const number = foundRows.indexOf(selected) + 1;
  const total = searching?.isCut ? `${foundRows.length}+` : foundRows.length;
  say(number ? filled(words.place, { number, total }) : filled(words.found, { number: total }));
};

// Asks the server, which searches the payloads, when the reader stops typing.
const search = () => {
  clearTimeout(searching?.timer);
  searching?.control.abort();
  matches = new Map();
  mark();
  const query = find.value.trim();
  if (query === "") {
    searching = undefined;
    say("");
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
  view = wanted;
  root.dataset.view = view;
  for (const tab of root.querySelectorAll("[data-view-button]")) {
    tab.setAttribute("aria-pressed", tab.dataset.viewButton === view);
  }
  axis.hidden = view !== "waterfall";
  part("body").hidden = view === "text";
  for (const tool of root.querySelectorAll("[data-only]")) {
    tool.hidden = !tool.dataset.only.split(" ").includes(view);
  }
  refresh();
  if (view !== "text" && selected >= 0) {
    reveal(selected);
  }
};

const KEYS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  n: () => jump((row) => outline.statuses[row] === FAILED, 1),
  p: () => jump((row) => outline.statuses[row] === FAILED, -1),
  ArrowLeft: () => selected >= 0 && fold(selected, true),
  ArrowRight: () => selected >= 0 && fold(selected, false),
  b: () => outline.bottleneck !== null && select(outline.bottleneck),
  "/": () => find.focus(),
  "+": () => view === "waterfall" && zoomBy(0.5),
  "-": () => view === "waterfall" && zoomBy(2),
  0: () => view === "waterfall" && zoom(whole.from, whole.to),
  "?": () => part("help").showModal(),
};

const listen = () => {
  for (const tab of root.querySelectorAll("[data-view-button]")) {
    tab.addEventListener("click", () => {
      show(tab.dataset.viewButton);
      const id = selected >= 0 ? outline.ids[selected] : "";
      history.replaceState(null, "", `?${new URLSearchParams({ view, ...(id && { call: id }) })}${id && `#call-${id}`}`);
      openFirstFailure();
    });
  }
  list.addEventListener("scroll", paintSoon, { passive: true });
  addEventListener("resize", paintSoon);
  rows.addEventListener("click", (event) => {
    const row = Number(event.target.closest(".run-row")?.dataset.row ?? -1);
    if (event.target.closest(".run-fold") && hasChildren(row)) {
      fold(row, !folded[row]);
    } else if (row >= 0) {
      select(row);
    }
  });
  // Links to failed calls elsewhere on the page keep the view.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="?call="]');
    const row = link ? place.get(new URLSearchParams(link.search).get("call")) : undefined;
    if (view === "text" || row === undefined) {
      return;
    }
    event.preventDefault();
    if (link.closest(".failure-bar")) {
      location.href = `${link.search}&view=${view}${link.hash}`; // the server knows the place of the failure
    } else {
      select(row);
      list.scrollIntoView({ block: "nearest" });
    }
  });
  onlyFailures.addEventListener("change", () => {
    choose();
    if (selected >= 0) {
      reveal(selected);
    }
  });
  find.addEventListener("input", search);
  find.addEventListener("keydown", (event) => {
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
  part("previous-match").addEventListener("click", () => goToMatch(-1));
  part("next-match").addEventListener("click", () => goToMatch(1));
  part("bottleneck").addEventListener("click", KEYS.b);
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
  part("help-button").addEventListener("click", KEYS["?"]);
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
    const isTyping = event.target.closest("input, textarea, select, dialog");
    const isArrow = event.key.startsWith("Arrow");
    const isOurs = !isArrow || event.target === list;
    if (view === "text" || isTyping || !isOurs || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) {
      return;
    }
    event.preventDefault();
    KEYS[event.key]();
  });
};

// --- Beginning, and going on --------------------------------------------------------------------------------------------

// The parts of the page that change while the run goes on.
const PARTS = ["#content h1", "#run-notes", "#message-facts", "#more-facts", "#run-failures", "#run-text", "#run-state", "#answer"];

const firstRowsOf = (page) => JSON.parse(page.getElementById("run-first-rows").textContent);

// The whole outline: what came with the page, if it has all rows. Undefined if the server does not answer.
const outlineBehind = async (firstRows) => {
  if (firstRows.is_whole) {
    return firstRows;
  }
  const response = await fetch(root.dataset.url).catch(() => null);
  return response?.ok ? response.json() : undefined;
};

const followRun = () => {
  const address = location.href; // before the selection of a row changes it
  const known = new Map(PARTS.map((wanted) => [wanted, said(document.querySelector(wanted))]));
  const end = follow(root.dataset.live, async () => {
    const page = await pageNow(address);
    if (page === null) {
      return;
    }
    const explorer = page.getElementById("run-explorer");
    const columns = explorer && (await outlineBehind(firstRowsOf(page)));
    for (const wanted of PARTS) {
      const after = page.querySelector(wanted);
      const html = said(after);
      if (html !== known.get(wanted) && replace(document.querySelector(wanted), after)) {
        known.set(wanted, html);
      }
    }
    if (columns) {
      root.dataset.rows = explorer.dataset.rows;
      adopt(columns);
    }
    if (!explorer?.dataset.live) {
      delete root.dataset.live;
      end();
    }
  });
};

const start = async () => {
  const query = new URLSearchParams(location.search);
  const wanted = query.get("call");
  if (wanted && !location.hash) {
    location.hash = `call-${wanted}`; // a login on the way loses it
  }
  const asked = query.get("view");
  const isText = asked === "text" || (asked === null && ["call", "page", "open", "q"].some((name) => query.has(name)));
  read(firstRowsOf(document));
  listen();
  show(isText ? "text" : asked === "waterfall" ? "waterfall" : "tree");
  const selectWanted = () => {
    if (view !== "text" && selected < 0 && place.has(wanted)) {
      select(place.get(wanted));
      root.scrollIntoView(); // what the address names may be below what is in sight
    }
  };
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
  openFirstFailure();
  if (root.dataset.live) {
    followRun();
  }
};

start();
