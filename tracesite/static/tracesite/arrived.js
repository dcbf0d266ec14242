"use strict";

// The page waits for the first trace and leads to it. A tab that is hidden does not ask.
const waiting = document.getElementById("first-trace");
const EVERY_MS = 3000;

async function look() {
  if (document.hidden) {
    document.addEventListener("visibilitychange", look, { once: true });
    return;
  }
  try {
    const answer = await fetch(waiting.dataset.url, { headers: { Accept: "application/json" } });
    if (answer.redirected || answer.status === 403) return; // logged out
    if (answer.ok && (await answer.json()).arrived) {
      waiting.textContent = waiting.dataset.found;
      location.assign(waiting.nextElementSibling.href);
      return;
    }
  } catch {
    // The server is away; it may come back.
  }
  setTimeout(look, EVERY_MS);
}

if (waiting) setTimeout(look, EVERY_MS);
