// Follows a session whose page is open, and brings new parts of the page into it without a reload.

const LEAST_MS = 500; // between two looks

// Calls `look` each time after something has happened in the session at the address of its event stream: never two at once,
// and at most half of the time, because a long page costs the server as much as it takes. Calls `sayConnection` with whether the
// connection is lost. Returns a function that ends it.
export const follow = (url, look, sayConnection) => {
  const address = new URL(url, location.href);
  let source;
  let asked = false; // something has come since the last look
  let looking = false;
  let ended = false;

  const lookSoon = async () => {
    asked = true;
    if (looking) {
      return;
    }
    looking = true;
    while (asked && !document.hidden && !ended) {
      asked = false;
      const begun = performance.now();
      await look();
      const took = performance.now() - begun;
      await new Promise((resolve) => setTimeout(resolve, Math.max(LEAST_MS, took)));
    }
    looking = false;
  };

  const connect = () => {
    source = new EventSource(address);
    source.onopen = () => sayConnection(false);
    source.onerror = () => sayConnection(true);
    source.addEventListener("monitor_event", (message) => {
      address.searchParams.set("after", JSON.parse(message.data).event.seq);
      lookSoon();
    });
    // The first one says how the session is, others what changed.
    source.addEventListener("session_update", lookSoon);
    source.addEventListener("session_deleted", () => source.close());
    source.addEventListener("refused", () => source.close());
  };

  // A browser has six connections to a server over HTTP/1.1: tabs that nobody looks at hold none.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden && !ended) {
      connect();
    }
  });
  if (!document.hidden) {
    connect();
  }
  return () => {
    ended = true;
    source?.close();
  };
};

// The page as it is now; null if the server does not answer: one that restarts is asked again at the next event.
export const pageNow = async (address, signal) => {
  const response = await fetch(address, { signal }).catch(() => null);
  return response?.ok ? new DOMParser().parseFromString(await response.text(), "text/html") : null;
};

// What the server said, without the token that every answer has anew.
export const said = (element) => {
  const copy = element.cloneNode(true);
  for (const token of copy.querySelectorAll("[name=csrfmiddlewaretoken]")) {
    token.remove();
  }
  return copy.outerHTML;
};

const isWrittenIn = (part) =>
  [...part.querySelectorAll("textarea, input[type=search]")].some((text) => text === document.activeElement || text.value !== text.defaultValue);

const keepFolds = (before, after) => {
  const folds = after.querySelectorAll("details");
  for (const [place, fold] of before.querySelectorAll("details").entries()) {
    if (folds[place]) {
      folds[place].open = fold.open;
    }
  }
};

const FOCUSED = "summary, a, button";

// Puts the new form of a part into the page, with its folds and its focus as they were; false while somebody writes in it.
export const replace = (before, after) => {
  if (!before || !after || isWrittenIn(before)) {
    return false;
  }
  keepFolds(before, after);
  const focused = [...before.querySelectorAll(FOCUSED)].indexOf(document.activeElement);
  before.replaceWith(after);
  after.querySelectorAll(FOCUSED)[focused]?.focus({ preventScroll: true });
  return true;
};
