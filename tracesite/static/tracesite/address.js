// Puts what is selected into the address, which leads there again.
import { part, reader } from "./page.js";
import { outline } from "./rows.js";

// What opens over the path of a phone is a new entry of the history, so that the browser's Back closes it.
export const noteAddress = () => {
  const { view, selected, tab } = reader;
  const query = new URLSearchParams(location.search);
  const opens = selected >= 0 && !query.has("call") && getComputedStyle(part("side")).position === "fixed";
  ["view", "call", "tab", "page", "open", "q"].forEach((name) => query.delete(name));
  const noted = { ...(view !== "steps" && { view }), ...(selected >= 0 && { call: outline.ids[selected], ...(tab !== "result" && { tab }) }) };
  Object.entries(noted).forEach((one) => query.set(...one));
  history[opens ? "pushState" : "replaceState"](opens ? { isOpen: true } : history.state, "", location.pathname + (query.size ? `?${query}` : ""));
};
