"use strict";

// The arrow keys go through the bars of a chart, which are one stop of the Tab key.
for (const chart of document.querySelectorAll("svg.chart")) {
  const bars = [...chart.querySelectorAll("a")];
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step && bars[bars.indexOf(document.activeElement) + step];
    if (next) {
      event.preventDefault();
      next.focus();
    }
  });
}
