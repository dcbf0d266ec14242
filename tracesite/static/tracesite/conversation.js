"use strict";

// On the page of a session that goes on: brings what is new into the page, without a reload. What has not changed stays as
// it is, with its folds, and so does a form that somebody writes in.
const address = new URL(document.currentScript.dataset.url, location.href);
const LEAST_MS = 500; // between two looks

let source;
let asked = false; // something has come since the last look
let looking = false;

// What the server said, without the token that every answer has anew.
const said = (element) => {
  const copy = element.cloneNode(true);
  for (const token of copy.querySelectorAll("[name=csrfmiddlewaretoken]")) {
    token.remove();
  }
  return copy.outerHTML;
};

const messages = (root) => [...root.querySelectorAll("ol.conversation > li")];
const known = new Map(messages(document).map((message) => [message.id, said(message)]));

const isWrittenIn = (part) =>
  [...part.querySelectorAll("textarea")].some((text) => text === document.activeElement || text.value !== text.defaultValue);

const keepFolds = (before, after) => {
  const folds = after.querySelectorAll("details");
  for (const [place, fold] of before.querySelectorAll("details").entries()) {
    if (folds[place]) {
      folds[place].open = fold.open;
    }
  }
};

const FOCUSED = "summary, a, button";

const replace = (before, after) => {
  if (!before || !after || isWrittenIn(before)) {
    return false;
  }
  keepFolds(before, after);
  const focused = [...before.querySelectorAll(FOCUSED)].indexOf(document.activeElement);
  before.replaceWith(after);
  after.querySelectorAll(FOCUSED)[focused]?.focus({ preventScroll: true });
  return true;
};

const show = (page) => {
  const list = document.querySelector("ol.conversation");
  const isAtTheEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 60;
  for (const message of messages(page)) {
    const html = said(message);
    if (known.get(message.id) !== html) {
      const before = document.getElementById(message.id);
      if (before === null) {
        list.append(message);
        known.set(message.id, html);
      } else if (replace(before, message)) {
        known.set(message.id, html);
      }
    }
  }
  for (const part of ["#content h1", "dl.facts", "nav.paginator", "#conversation-end"]) {
    replace(document.querySelector(part), page.querySelector(part));
  }
  document.querySelector("#content .nothing")?.toggleAttribute("hidden", known.size > 0);
  if (isAtTheEnd) {
    scrollTo(0, document.documentElement.scrollHeight);
  }
};

const look = async () => {
  if (looking) {
    return;
  }
  looking = true;
  while (asked && !document.hidden) {
    asked = false;
    // A server that restarts is asked again at the next event.
    const response = await fetch(location.href).catch(() => null);
    if (response?.ok) {
      show(new DOMParser().parseFromString(await response.text(), "text/html"));
    }
    await new Promise((resolve) => setTimeout(resolve, LEAST_MS));
  }
  looking = false;
};

const ask = () => {
  asked = true;
  look();
};

const connect = () => {
  source = new EventSource(address);
  source.addEventListener("monitor_event", (message) => {
    address.searchParams.set("after", JSON.parse(message.data).event.seq);
    ask();
  });
  // The first one says how the session is, others what changed.
  source.addEventListener("session_update", ask);
  source.addEventListener("session_deleted", () => source.close());
  source.addEventListener("refused", () => source.close());
};

// A browser has six connections to a server over HTTP/1.1: tabs that nobody looks at hold none.
document.addEventListener("visibilitychange", () => {
  source?.close();
  if (!document.hidden) {
    connect();
  }
});
if (!document.hidden) {
  connect();
}
