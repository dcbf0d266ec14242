"use strict";
// Keep what a reader expanded when the page is left and the browser goes back to it: the page itself comes anew.

const key = `expanded ${location.pathname}${location.search}`;
const expanded = new Set(JSON.parse(sessionStorage.getItem(key) ?? "[]"));

if (performance.getEntriesByType("navigation")[0]?.type === "back_forward") {
  for (const id of expanded) {
    document.getElementById(id)?.setAttribute("open", "");
  }
} else {
  expanded.clear();
}
document.addEventListener("toggle", ({ target }) => {
  if (target.id) {
    expanded[target.open ? "add" : "delete"](target.id);
    sessionStorage.setItem(key, JSON.stringify([...expanded]));
  }
}, true); // toggle does not bubble
