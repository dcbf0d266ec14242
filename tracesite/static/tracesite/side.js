// What is beside the path, and on a phone over it: the panel of a step or call, otherwise question and answer, or what is known of a session.
import { markTexts } from "./find.js";
import { button, element, isSession, part, words } from "./page.js";
import { panel, readDetail, stopReading } from "./panel.js";
import { labelElements } from "./row.js";
import { isMessage, outline, parents } from "./rows.js";

export const about = part("about");
const tabs = part("about-tabs"); // of a session
const head = element("div", "tab-line side-head"); // on a phone
const sections = isSession ? [...about.querySelectorAll(":scope > section")] : [];

export const showSide = (isRow) => {
  panel.hidden = !isRow;
  about.hidden = isRow;
  tabs?.toggleAttribute("hidden", isRow);
};

// Shows a section of what is known of a session: its conversation, details, or events, which are read from now on.
export const showSection = (wanted) => {
  const present = sections.find((section) => section.id === wanted) ?? sections[0];
  sections.forEach((section) => {
    section.hidden = section !== present;
  });
  tabs.querySelectorAll("a").forEach((link) => {
    link.ariaCurrent = link.hash === `#${present.id}` ? "true" : null;
  });
  if (present.dataset.script) {
    import(present.dataset.script);
  }
};

// Brings a message of the conversation into sight.
const showMessage = (id) => {
  showSection("conversation");
  const message = document.getElementById(`message-${id}`);
  message?.querySelector(".bubble-system > details")?.setAttribute("open", "");
  about.scrollTop += message ? message.getBoundingClientRect().top - about.getBoundingClientRect().top : 0;
};

// The row that lies over the path, with the number of its step, and the ways to other failures.
const sayRow = (row) => {
  let step = row;
  while (outline.numbers[step] === "" && parents[step] >= 0) {
    step = parents[step];
  }
  const number = step === row ? [] : [element("span", "run-number", outline.numbers[step])];
  const ways = ["previous-failure", "next-failure"].flatMap((name) => part(name)?.cloneNode(true) ?? []);
  head.replaceChildren(head.firstChild, element("span", "run-label", ...number, ...labelElements(row)), ...ways);
};

// Shows what a row stands for.
export const showRow = (row) => {
  sayRow(row);
  showSide(!isMessage(row));
  if (!isMessage(row)) {
    readDetail(outline.ids[row]);
    return;
  }
  stopReading();
  if (isSession) {
    showMessage(outline.ids[row]);
  }
  markTexts(document.getElementById(`message-${outline.ids[row]}`) ?? about, outline.ids[row], about);
};

// Opens one of the tabs that there are, by its number.
export const openTab = (number) =>
  (panel.hidden ? tabs?.querySelectorAll("a") : panel.querySelectorAll("[role=tab]:not([hidden])"))?.[number - 1]?.click();

// The way back from what lies over the path.
export const addBack = (act) => {
  const back = button("←", act);
  back.ariaLabel = words.back;
  head.prepend(back);
  part("side").prepend(head);
};

tabs?.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link) {
    event.preventDefault();
    showSection(link.hash.slice(1));
    about.scrollTop = 0;
  }
});
