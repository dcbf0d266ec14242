// The events of a session as they happen: all from the first on, then each as it comes. Every event has a number. Whatever
// becomes of the connection, the next one goes on after the last number that was received.
import { element, visible } from "./page.js";

const root = document.getElementById("events");
const scroller = root.closest(".about");
const list = document.getElementById("live-events");
const most = Number(list.dataset.most);
const ended = JSON.parse(root.dataset.ended);
const clock = new Intl.DateTimeFormat("en-GB", {
  timeZone: root.dataset.zone,
  timeStyle: "medium",
});
const silence = 2500 * Number(root.dataset.heartbeat);

let source;
let last = 0;
let watch;
let isEnded = false;
let isClosed = false; // for good
let received = []; // events that are not in the list yet

const say = (word) => {
  document.getElementById("live-connection").textContent = root.dataset[word];
  root.dataset.state = word;
};

// Begins anew where a connection neither brings anything nor ends.
const hear = () => {
  clearTimeout(watch);
  watch = setTimeout(open, silence);
};

const close = () => {
  source?.close();
  clearTimeout(watch);
};

const end = (word) => {
  isClosed = true;
  close();
  say(word);
};

// In the zone of the reader, to the millisecond; see times.js for what pointing at it shows.
const timeOf = (timestamp) => {
  const made = element("time", "quiet", `${clock.format(new Date(timestamp))}.${timestamp.slice(20, 23)}`);
  made.dateTime = timestamp;
  made.title = `${timestamp.slice(0, 19).replace("T", " ")} UTC`;
  return made;
};

const rowOf = (event) => {
  const row = element("li", `live-event live-${event.level}`);
  row.dataset.seq = event.seq;
  row.append(
    element("span", "live-seq", event.seq),
    timeOf(event.timestamp),
    element("bdi", "live-type", event.type),
    element("bdi", "quiet", ...visible(event.agent ?? "")),
  );
  const json = JSON.stringify(event.data);
  if (json !== "{}") {
    const details = element("details", "", element("summary", "", ...visible(json.length > 120 ? `${json.slice(0, 120)}…` : json)));
    const unfold = () => details.append(element("pre", "", ...visible(JSON.stringify(event.data, null, 2))));
    details.addEventListener("toggle", unfold, { once: true });
    row.append(details);
  }
  return row;
};

// All events of a frame come into the list together: to look whether the end is in sight, and to go there, makes the
// browser lay out the page, which takes the longer the more events there are.
const paint = () => {
  const isAtTheEnd = scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 60;
  const isTooMuch = list.childElementCount + received.length > most;
  const rows = document.createDocumentFragment();
  rows.append(...received.slice(-most).map(rowOf));
  received = [];
  list.append(rows);
  document.getElementById("live-nothing").hidden = true;
  if (isTooMuch) {
    while (list.childElementCount > most) {
      list.firstElementChild.remove();
    }
    document.getElementById("live-earlier").hidden = false;
  }
  if (isAtTheEnd) {
    scroller.scrollTop = scroller.scrollHeight;
  }
};

const show = (event) => {
  if (event.seq <= last) {
    return;
  }
  last = event.seq;
  received.push(event);
  if (received.length === 1) {
    requestAnimationFrame(paint);
  }
};

const update = ({ status }) => {
  if (status !== undefined) {
    isEnded = ended.includes(status);
    say(isEnded ? "over" : "live");
  }
};

function open() {
  source?.close();
  source = new EventSource(`${root.dataset.url}&after=${last}`);
  const on = (type, act) =>
    source.addEventListener(type, (message) => {
      hear();
      act(JSON.parse(message.data));
    });
  source.onopen = () => {
    hear();
    say(isEnded ? "over" : "live");
  };
  source.onerror = () => {
    say("lost");
    hear(); // where the browser gave up, we go on
  };
  on("session_update", (message) => update(message.data));
  on("monitor_event", (message) => show(message.event));
  on("heartbeat", () => {});
  on("events_dropped", open); // they are there: read on from the last that was received
  on("session_deleted", () => end("deleted"));
  on("refused", () => end("refused"));
}

// A browser has six connections to a server over HTTP/1.1: a tab that nobody looks at holds none, and catches up later.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    close();
  } else if (!isClosed) {
    hear();
    open();
  }
});

say("connecting");
if (!document.hidden) {
  hear();
  open();
}
