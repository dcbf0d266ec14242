// The path of a run: what the agent did, a row for each step and call, with a panel for the selected one. The path of a session has
// its questions and answers as rows, too, with the run between them: a chapter for each question. While the run goes on, the page is
// looked at again when something has happened.
import { noteAddress } from "./address.js";
import { bringIntoSight, zoomBy, zoomOut } from "./axis.js";
import { isFound, listenToFind, markFound, sayPlace, search, stopSearch } from "./find.js";
import { follow, pageNow, replace, said } from "./following.js";
import { copy, duration, filled, isSession, now, part, reader, root, words } from "./page.js";
import { hasTab, panel, stopReading } from "./panel.js";
import { choose, keepInSight, list, paintSoon, refresh, reveal, rowBeside } from "./path.js";
import { pendingFor, soFar } from "./row.js";
import { CHAPTER, endReading, FAILED, foldAll, folded, hasChildren, isFailed, isFolded, isRepeat, openAbove, outline, place, read, readAgain, wholeOutline } from "./rows.js";
import { about, addBack, openTab, showRow, showSection, showSide } from "./side.js";

// --- What is selected -----------------------------------------------------------------------------------------------------

// Which of several failures is selected, in a session among those of all its parts.
const sayFailure = () => {
  const said = document.querySelector("#run-failures .place");
  if (said && reader.view !== "text" && outline.is_whole) {
    const failed = outline.statuses.flatMap((status, row) => (status === FAILED ? [row] : []));
    const number = failed.indexOf(reader.selected) + 1;
    const { before = 0, total = failed.length } = said.dataset;
    said.hidden = !number || Number(total) === 1;
    said.textContent = filled(words.failurePlace, { number: Number(before) + number, total });
  }
};

const lookAt = (row) => {
  reader.selected = row;
  paintSoon();
  sayPlace();
  sayFailure();
  showRow(row);
};

const select = (row) => {
  root.classList.add("is-open"); // before anything is scrolled into sight in it
  // What the panel shows already is not read again, because that would take away what was opened in it.
  if (row !== reader.selected || panel.hidden || panel.dataset.id !== outline.ids[row]) {
    lookAt(row);
  }
  reveal(row);
  bringIntoSight(row);
  noteAddress();
};

// Shows the question and the answer again.
const close = () => {
  if (part("side").contains(document.activeElement)) {
    list.focus({ preventScroll: true });
  }
  reader.selected = -1;
  root.classList.remove("is-open");
  stopReading();
  showSide(false);
  noteAddress();
  sayFailure();
  paintSoon();
};

const deselect = () => {
  if (history.state?.isOpen) {
    history.back(); // popstate closes it
  } else {
    close();
  }
};

// Shows the failure that decided in the panel until a row is selected. The focus does not move, and of a run neither does what is in
// sight: it is read from its beginning, a session may have the failure anywhere.
const openDeciding = () => {
  const row = place.get(root.dataset.deciding);
  if (row !== undefined && reader.selected < 0 && panel.hidden && reader.view !== "text") {
    if (openAbove(row)) {
      choose();
    }
    lookAt(row);
    if (isSession) {
      reveal(row);
    }
  }
};

const move = (by) => {
  const next = rowBeside(by);
  if (next !== undefined) {
    select(next);
  }
};

// The next row in reading order that `isWanted`; after the last comes the first, or where the link `beyond` leads.
const jump = async (isWanted, by, beyond) => {
  await wholeOutline;
  const count = outline.ids.length;
  const from = reader.selected < 0 && by < 0 ? 0 : reader.selected; // before the first row, if none is selected
  for (let far = 1; far <= count; far += 1) {
    const row = (from + by * far + count * 2) % count;
    if (beyond && row !== from + by * far) {
      break;
    }
    if (isWanted(row)) {
      select(row);
      return;
    }
  }
  if (beyond) {
    location.assign(beyond);
  }
};

// To failures, equal ones once, in a session also to those of its other parts.
const goToFailure = (by) =>
  jump((row) => isFailed(row) && !isRepeat(row), by, isSession && part(by > 0 ? "next-failure" : "previous-failure")?.href);

const fold = (row, isClosed) => {
  if (hasChildren(row)) {
    folded[row] = isClosed ? 1 : 0;
    choose();
  }
};

const foldEach = (isClosed) => {
  foldAll(isClosed);
  choose();
};

const show = (view) => {
  const wasText = reader.view === "text";
  reader.view = view;
  root.dataset.view = view;
  root.querySelectorAll("[data-view-button]").forEach((one) => one.setAttribute("aria-pressed", one.dataset.viewButton === view));
  root.querySelectorAll("[data-only]").forEach((tool) => {
    tool.hidden = !tool.dataset.only.split(" ").includes(view);
  });
  part("axis").hidden = view !== "time";
  part("body").hidden = view === "text";
  refresh();
  if (view === "text") {
    stopSearch();
    showSide(false);
    return;
  }
  if (wasText) {
    search();
  }
  if (reader.selected >= 0) {
    reveal(reader.selected);
    showRow(reader.selected);
  }
};

const changeView = (wanted) => {
  show(wanted);
  noteAddress();
  openDeciding();
};

// --- Keys and buttons -----------------------------------------------------------------------------------------------------

const onAxis = (act) => () => reader.view === "time" && act();

const KEYS = {
  j: () => move(1),
  ArrowDown: () => move(1),
  k: () => move(-1),
  ArrowUp: () => move(-1),
  n: () => goToFailure(1),
  p: () => goToFailure(-1),
  ArrowLeft: () => reader.selected >= 0 && fold(reader.selected, true),
  ArrowRight: () => reader.selected >= 0 && fold(reader.selected, false),
  "[": () => jump((row) => outline.calls[row] === CHAPTER, -1),
  "]": () => jump((row) => outline.calls[row] === CHAPTER, 1),
  b: () => outline.bottleneck !== null && select(outline.bottleneck),
  "/": () => part("find")?.focus(),
  "+": onAxis(() => zoomBy(0.5)),
  "-": onAxis(() => zoomBy(2)),
  0: onAxis(zoomOut),
  t: () => changeView(reader.view === "time" ? "steps" : "time"),
  Escape: () => (reader.selected >= 0 || !panel.hidden) && deselect(),
  "?": () => part("help").showModal(),
  ...Object.fromEntries([1, 2, 3, 4, 5, 6].map((number) => [number, () => openTab(number)])),
};

// What parts of the page do when they are pressed. The header and the tools are replaced while the run goes on.
const PRESSED = {
  "copy-link": () => copy(location.href),
  "help-button": KEYS["?"],
  "previous-failure": KEYS.p,
  "next-failure": KEYS.n,
  "fold-all": () => foldEach(true),
  "unfold-all": () => foldEach(false),
  "zoom-in": KEYS["+"],
  "zoom-out": KEYS["-"],
  "zoom-all": KEYS[0],
};

const openMenu = () => document.querySelector("details.menu[open]");

const press = (event) => {
  const menu = openMenu();
  if (menu && (!menu.contains(event.target) || event.target.closest("ul"))) {
    menu.open = false;
  }
  const act = PRESSED[event.target.closest("[data-part]")?.dataset.part];
  const link = event.target.closest('a[href^="?call="]');
  const query = new URLSearchParams(link?.search);
  const row = place.get(query.get("call"));
  if (link && reader.view === "text") {
    // A tab leads to the page of the rows.
    link.href = query.has("tab") ? link.href : `?view=text&call=${query.get("call")}${link.hash || `#call-${query.get("call")}`}`;
  } else if (act) {
    event.preventDefault();
    act();
  } else if (row !== undefined) {
    event.preventDefault();
    reader.tab = query.get("tab") ?? reader.tab;
    select(row);
  }
};

const pressKey = (event) => {
  const menu = openMenu();
  if (menu && event.key === "Escape") {
    menu.open = false;
    menu.querySelector("summary").focus();
    return;
  }
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
  const isOurs = !event.key.startsWith("Arrow") || event.target === list || event.target === document.body;
  const isOfView = reader.view !== "text" || ["?", "t"].includes(event.key);
  if (isOfView && !isTyping && isOurs && !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
};

const listen = () => {
  root.querySelectorAll("[data-view-button]").forEach((one) => one.addEventListener("click", () => changeView(one.dataset.viewButton)));
  list.addEventListener("click", (event) => {
    const row = Number(event.target.closest(".run-row")?.dataset.row ?? -1);
    if (event.target.closest(".run-fold") && hasChildren(row)) {
      fold(row, !isFolded(row));
    } else if (row >= 0) {
      if (outline.calls[row] === CHAPTER && isFolded(row)) {
        fold(row, false);
      }
      select(row);
    }
  });
  document.addEventListener("click", press);
  document.addEventListener("keydown", pressKey);
  document.addEventListener("change", (event) => {
    if (event.target.dataset.part === "failures") {
      reader.onlyFailures = event.target.checked;
      choose();
      if (reader.selected >= 0) {
        reveal(reader.selected);
      }
    }
  });
  addEventListener("popstate", () => {
    const row = place.get(new URLSearchParams(location.search).get("call"));
    if (reader.view !== "text") {
      row === undefined ? close() : select(row);
    }
  });
  listenToFind(
    (by) => {
      reader.tab = "result"; // which says where the match is
      jump(isFound, by);
    },
    () => list.focus(),
  );
};

// --- Beginning, and going on ----------------------------------------------------------------------------------------------

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

// Takes a newer or longer outline. Folds, the selected row and what is in sight stay as they are.
const adopt = (columns) => {
  let hasChanged;
  keepInSight(() => {
    hasChanged = readAgain(columns);
    markFound();
  });
  sayPlace();
  if (hasChanged) {
    showRow(reader.selected);
  }
};

// Brings the parts of the page as it is now into this one; `known` is what the server said of each before.
const replaceParts = (page, known) => {
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
  if (part("failures")) {
    part("failures").checked = reader.onlyFailures;
  }
  document.dispatchEvent(new Event("replaced"));
};

const sayConnection = (isLost) => {
  for (const words of document.querySelectorAll("[data-part=live], [data-part=lost]")) {
    words.hidden = isLost === (words.dataset.part === "live");
  }
};

const MARKS = { running: "●", failed: "✕", done: "✓" };

// Whoever waits in another tab sees in the title how the run is.
const sayState = (title) => {
  const state = Object.keys(MARKS).find((outcome) => document.querySelector(`#run-header .outcome-${outcome}`));
  document.title = `${MARKS[state] ?? ""} ${title}`.trim();
};

// What counts on while nothing comes: how long the run has gone on, and calls without a result.
const tick = () => {
  for (const one of document.querySelectorAll("[data-begun]:not(#run-explorer)")) {
    one.textContent = soFar(one.dataset.begun / 1000);
  }
  for (const row of list.querySelectorAll(".run-row-pending")) {
    row.querySelector(".run-took").textContent = pendingFor(Number(row.dataset.row));
  }
};

const followRun = () => {
  const address = new URL(location.href); // before the selection of a row changes it
  address.searchParams.delete("tab"); // what it reads is read once
  const known = new Map(partsOf(document).map((wanted) => [wanted, said(document.querySelector(wanted))]));
  sayState(document.title);
  tick();
  setInterval(tick, 1000);
  const look = async () => {
    const page = await pageNow(address);
    if (page === null) {
      return;
    }
    const explorer = page.getElementById("run-explorer");
    const columns = explorer && (await outlineBehind(firstRowsOf(page)));
    const isAtTheEnd = isSession && about.scrollTop + about.clientHeight > about.scrollHeight - 60;
    replaceParts(page, known);
    sayState(page.title);
    if (isAtTheEnd) {
      about.scrollTop = about.scrollHeight;
    }
    if (columns) {
      Object.assign(root.dataset, { ...explorer.dataset });
      adopt(columns);
    }
    sayFailure();
    if (!explorer?.dataset.live) {
      delete root.dataset.live;
      end();
    }
  };
  const end = follow(root.dataset.live, look, sayConnection);
};

const start = async () => {
  document.body.classList.add("scripted");
  addBack(deselect);
  const query = new URLSearchParams(location.search);
  const wanted = query.get("call") ?? location.hash.replace("#message-", "");
  const view = query.get("view");
  reader.tab = hasTab(query.get("tab")) ? query.get("tab") : reader.tab;
  root.classList.toggle("is-open", !panel.hidden);
  read(firstRowsOf(document));
  listen();
  const isText = !isSession && (view === "text" || ["page", "open", "q"].some((name) => query.has(name)));
  show(isText ? "text" : ["time", "waterfall"].includes(view) ? "time" : "steps");
  const selectWanted = () => {
    if (reader.view !== "text" && reader.selected < 0 && place.has(wanted)) {
      select(place.get(wanted));
    }
  };
  if (isSession) {
    document.getElementById("run-text").remove();
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
  endReading();
  selectWanted();
  if (!isSession || !(query.has("tab") || location.hash)) {
    openDeciding();
  }
  sayFailure();
  if (root.dataset.live) {
    if (reader.selected < 0) {
      list.scrollTop = list.scrollHeight; // what happened last
    }
    followRun();
  }
};

start();
