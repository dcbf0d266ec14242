// Says above a list how many rows have come since it was read. It asks seldom, and not while nobody looks at the page, for the newest
// message; only when that is another one it reads the list, of which the audit log has each reading.
import { pageNow } from "./following.js";

const EVERY_MS = 30_000;
const table = document.querySelector("#result_list[data-news]");

const keysOf = (list) => [...list.tBodies[0].rows].map((row) => row.querySelector("th a")?.pathname);

const newest = async () => {
  const answer = await fetch(table.dataset.arrived).catch(() => null);
  return answer?.ok && !answer.redirected ? (await answer.json()).newest : null;
};

const say = (number) => {
  const link = document.querySelector(".news") ?? document.createElement("a");
  link.className = "news page-link";
  link.href = location.href;
  link.textContent = table.dataset.news.replace("%s", number);
  document.querySelector(".list-tools").prepend(link);
};

const count = async () => {
  const list = (await pageNow(location.href))?.querySelector("#result_list");
  if (list) {
    const known = new Set(keysOf(table));
    const now = keysOf(list);
    const first = now.findIndex((key) => known.has(key));
    const number = first === -1 ? now.length : first;
    if (number > 0) {
      say(first === -1 ? `${number}+` : String(number));
    }
  }
};

const look = async (before) => {
  if (document.hidden) {
    document.addEventListener("visibilitychange", () => look(before), { once: true });
    return;
  }
  const found = (await newest()) ?? before;
  if (before && found !== before) {
    await count();
  }
  setTimeout(() => look(found), EVERY_MS);
};

if (table !== null) {
  look(null);
}
