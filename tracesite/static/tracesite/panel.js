// The panel beside the path: a step or call with its tabs. The tab stays while one goes through the rows.
import { noteAddress } from "./address.js";
import { markTexts, placesElement } from "./find.js";
import { pageNow } from "./following.js";
import { button, copy, duration, element, filled, isSession, part, reader, root, visible, words } from "./page.js";
import { isAssumed, nameOf, outline, place, runStartOf, STATUSES, stepOf } from "./rows.js";
import { asCurl, asJson, asMarkdown, asPython, valueElement } from "./values.js";

const RESULT = ["error", "thought", "output", "data", "attachments", "reflection", "reasoning"];
const FOCUSED = ["[role=tab][aria-selected=true]", ".panel-body"]; // what keeps the focus when another row is shown

export const panel = part("panel");
// What came with the page of a row: its values, and the part of the server that its tab has. Each is used once.
let given = JSON.parse(document.getElementById("run-detail")?.textContent ?? "null");
let givenPart = panel.querySelector(".run-part");
let detail; // of the selected row
let loading; // AbortController of what is being read

const linkElement = ([text, url]) => {
  const link = element("a", "", text);
  link.href = url;
  return element("p", "", link);
};

const valuesOf = (shown, ...columns) => shown.values.filter((value) => columns.includes(value.column)).map(valueElement);

// A part that the server makes.
const partElement = (address) => {
  const made = givenPart ?? element("div", "run-part");
  if (givenPart) {
    givenPart = null;
    return made;
  }
  pageNow(address, loading.signal).then((page) => {
    made.append(...(page?.body.children ?? [element("p", "nothing", words.failed)]));
    markFound(panel.querySelector(".panel-body"));
  });
  return made;
};

// What the call of the last good run that is most like this one gave.
const goodElement = () => {
  const load = async () => {
    const response = await fetch(detail.good).catch(() => null);
    const good = response?.ok ? await response.json() : { problem: words.failed };
    made.replaceChildren(
      ...(good.problem ? [element("p", "nothing", good.problem)] : [linkElement([words.good, good.url]), ...valuesOf(good, "args", ...RESULT)]),
    );
  };
  const made = element("div", "run-good", button(words.good, load));
  return made;
};

const factsElement = () =>
  element("dl", "facts", ...detail.facts.map(([label, fact]) => element("div", "", element("dt", "", label), element("dd", "", element("bdi", "", fact)))));

const jsonElement = () => {
  const forms = { JSON: asJson, Markdown: asMarkdown, ...(detail.is_call && { curl: asCurl, Python: asPython }) };
  const copies = Object.entries(forms).map(([name, form]) => button(name, () => copy(form(detail))));
  return [element("p", "run-copy", `${words.copyAs} `, ...copies), element("pre", "value code", ...visible(asJson(detail)))];
};

// The tabs of a call or step: whether it has them, and what each shows.
const TABS = {
  result: [() => true, () => [...placesElement(detail.id), ...valuesOf(detail, ...(detail.values[0]?.column === "args" ? ["args"] : []), ...RESULT), ...(detail.good && (isSession || root.dataset.good) ? [goodElement()] : [])]],
  arguments: [() => detail.is_call, () => valuesOf(detail, "args")],
  input: [() => detail.input !== "", () => [partElement(`${detail.input}?part`)]],
  span: [
    () => true,
    () => [
      ...(detail.span ? [partElement(detail.span)] : []),
      factsElement(),
      ...(detail.parent ? [linkElement([words.parent, `?call=${detail.parent}`])] : []),
      ...valuesOf(detail, "usage", "metadata", "raw"),
    ],
  ],
  json: [() => true, jsonElement],
  similar: [() => detail.links.length > 0, () => [...(detail.similar ? [partElement(detail.similar)] : []), ...detail.links.map(linkElement)]],
};

export const hasTab = (name) => Object.hasOwn(TABS, name);

const markFound = (scrolling) => {
  const content = panel.querySelector("[role=tabpanel]");
  if (content) {
    markTexts(content, detail.id, scrolling);
  }
};

// What is found meanwhile, and what is in a branch of JSON that opens, moves nothing.
root.addEventListener("found", () => markFound());
panel.addEventListener("toggle", () => requestAnimationFrame(() => markFound()), true);

// What a call without a result, or a step without a thought, says. What the model asked for is in the calls below a step.
const emptyResult = () => (detail.is_pending ? words.pending : detail.is_call ? words.nothing : words.noText);

const showTab = () => {
  const present = TABS[reader.tab][0]() ? reader.tab : "result";
  for (const one of panel.querySelectorAll("[role=tab]")) {
    one.hidden = !TABS[one.dataset.tab][0]();
    one.textContent = words[one.dataset.tab === "span" && !detail.span ? "tab_details" : `tab_${one.dataset.tab}`];
    one.ariaSelected = one.dataset.tab === present;
    one.tabIndex = one.dataset.tab === present ? 0 : -1;
  }
  const content = TABS[present][1]();
  const shownIn = panel.querySelector("[role=tabpanel]");
  shownIn.setAttribute("aria-labelledby", `run-tab-${present}`);
  shownIn.replaceChildren(...(content.length ? content : [element("p", "nothing", present === "result" ? emptyResult() : words.nothing)]));
  requestAnimationFrame(() => markFound(panel.querySelector(".panel-body")));
};

const tabElement = (name) => {
  const made = button("", () => {
    reader.tab = name;
    showTab();
    noteAddress();
    panel.querySelector(".panel-body").scrollTop = 0;
  });
  made.role = "tab";
  made.id = `run-tab-${name}`;
  made.dataset.tab = name;
  made.setAttribute("aria-controls", "run-tabpanel");
  return made;
};

const tabsElement = () => {
  const made = element("div", "tabs", ...Object.keys(TABS).map(tabElement));
  made.role = "tablist";
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

// The status of a call, and when in its run a step or call began and how long it took, in milliseconds; null if unknown.
const timesOf = ({ id, is_call: isOfCall }) => {
  const row = place.get(id);
  const step = stepOf(row);
  const { start, took } = step?.id === id ? step : { start: outline.starts[row], took: outline.durations[row] };
  return { ...(isOfCall && { status: STATUSES[outline.statuses[row]] }), started_after_ms: isAssumed || start === null ? null : start - runStartOf(row), duration_ms: took };
};

// The status of a call, how long it took, and when; the model of a step; and the step for which it stands, which is shown from the call.
const headElement = (row) => {
  const step = stepOf(row);
  const isStep = step?.id === detail.id;
  const { status, started_after_ms: start, duration_ms: took } = detail.times;
  const times = [took === null ? "" : duration(took), start ? filled(words.into, { time: duration(start) }) : "", detail.is_call ? "" : detail.model];
  const made = element("p", "quiet", ...(detail.is_call ? [element("span", `badge badge-${status}`, words[status]), " "] : []), times.filter(Boolean).join(" · "));
  if (step) {
    const other = isStep ? nameOf(row) : filled(words.step, { number: outline.numbers[row] });
    const itsTook = isStep ? outline.durations[row] : step.took;
    made.append(" · ", button(other, () => readDetail(isStep ? outline.ids[row] : step.id)), itsTook === null ? "" : ` ${duration(itsTook)}`, detail.is_call && detail.model ? ` · ${detail.model}` : "");
  }
  return made;
};

const showDetail = () => {
  const title = element("h2", "", element("bdi", detail.is_call ? "tool" : "", detail.title));
  if (detail.telling) {
    title.append(" ", element("bdi", "run-text", detail.telling));
  }
  const content = element("div", "");
  content.role = "tabpanel";
  content.id = "run-tabpanel";
  const top = panel.dataset.id === detail.id ? panel.querySelector(".panel-body").scrollTop : 0;
  const body = element("div", "panel-body", title, headElement(place.get(detail.id)), content);
  body.tabIndex = 0;
  const focused = FOCUSED.find((one) => panel.querySelector(one)?.contains(document.activeElement));
  panel.replaceChildren(element("div", "tab-line", tabsElement()), body);
  panel.dataset.id = detail.id;
  showTab();
  body.scrollTop = top;
  if (focused) {
    panel.querySelector(focused).focus({ preventScroll: true });
  }
};

export const stopReading = () => loading?.abort();

const valuesBehind = async (id, signal) => {
  const [known, response] = given?.id === id ? [given] : [null, await fetch(`${root.dataset.url}${id}/`, { signal }).catch(() => null)];
  given = null;
  return known ?? (response?.ok ? response.json().catch(() => null) : null);
};

// Reads the values of a step or call and shows them.
export const readDetail = async (id) => {
  stopReading();
  loading = new AbortController();
  const { signal } = loading;
  panel.ariaBusy = "true";
  const read = await valuesBehind(id, signal);
  if (signal.aborted) {
    return; // another row was selected meanwhile
  }
  panel.ariaBusy = null;
  if (read === null) {
    panel.replaceChildren(element("p", "nothing", words.failed));
  } else {
    detail = { ...read, times: timesOf(read) };
    showDetail();
  }
};
