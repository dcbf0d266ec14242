"use strict";

// Pages show times in the zone that the reader chose. Pointing at one shows how long ago that was, the time on the clock of
// this computer, and UTC. What goes on says how long ago its last event was.
const language = document.documentElement.lang;
const local = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "long" });
const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
const UNITS = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

const ago = (instant) => {
  const seconds = Math.round((instant - Date.now()) / 1000);
  const [unit, length] = UNITS.find(([, least]) => Math.abs(seconds) >= least) ?? UNITS.at(-1);
  return relative.format(Math.trunc(seconds / length), unit);
};

// When it is pointed at: a page may have hundreds of times, and stays open for hours.
document.addEventListener("pointerover", (event) => {
  const time = event.target.closest("time[datetime]");
  if (time !== null) {
    time.dataset.utc ??= time.title;
    const instant = new Date(time.dateTime);
    time.title = `${ago(instant)}\n${local.format(instant)}\n${time.dataset.utc}`;
  }
});

const tick = () => {
  for (const time of document.querySelectorAll(".live time")) {
    time.textContent = ago(Math.min(new Date(time.dateTime), Date.now()));
  }
};

tick();
setInterval(tick, 1000);
document.addEventListener("replaced", tick);
