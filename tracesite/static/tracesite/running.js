"use strict";

// On the page of a run that is not finished: says that something new has come, with a link that shows it. The page itself
// stays as it is, since somebody is reading it.
const note = document.getElementById("run-news");
const address = new URL(note.dataset.url, location.href);

let source;
let known; // how the session was at first

const tell = (word) => {
  note.hidden = false;
  document.getElementById("run-news-text").textContent = note.dataset[word];
};

const connect = () => {
  source = new EventSource(address);
  source.addEventListener("monitor_event", (message) => {
    const { event } = JSON.parse(message.data);
    address.searchParams.set("after", event.seq);
    if (event.message_id === note.dataset.message) {
      tell(event.type === "workflow_execute_complete" ? "finished" : "more");
    }
  });
  // A run that is written without events changes the counts of its session.
  source.addEventListener("session_update", (message) => {
    known ??= message.data;
    if (message.data !== known && note.hidden) {
      tell("more");
    }
  });
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
