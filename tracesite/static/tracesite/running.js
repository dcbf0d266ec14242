"use strict";

// On the page of a run that is not finished: says that something new has come, with a link that shows it. The page itself
// stays as it is, since somebody is reading it.
const note = document.getElementById("run-news");
const source = new EventSource(note.dataset.url);
let isKnown = false; // the first update after a connection is how the session is, and no news

const tell = (word) => {
  note.hidden = false;
  document.getElementById("run-news-text").textContent = note.dataset[word];
};

source.onopen = () => {
  isKnown = false;
};
source.addEventListener("monitor_event", (message) => {
  const { event } = JSON.parse(message.data);
  if (event.message_id === note.dataset.message) {
    tell(event.type === "workflow_execute_complete" ? "finished" : "more");
  }
});
// A run that is written without events changes the counts of its session.
source.addEventListener("session_update", () => {
  if (isKnown && note.hidden) {
    tell("more");
  }
  isKnown = true;
});
source.addEventListener("session_deleted", () => source.close());
source.addEventListener("refused", () => source.close());
