// A page with a path, of a run or of a session: its parts, its words in the language of the reader, and what the reader looks at.
// Trace content becomes text nodes, never HTML.

export const root = document.getElementById("run-explorer");
export const words = JSON.parse(root.dataset.words);
const hidden = JSON.parse(root.dataset.hidden);
const hiddenCharacters = new RegExp(hidden.pattern, "gu");

export const part = (name) => root.querySelector(`[data-part="${name}"]`);
export const isSession = part("about-tabs") !== null;

// `selected` is a row, -1 for none.
export const reader = { view: "text", selected: -1, tab: "result", onlyFailures: false };

export const element = (name, className, ...content) => {
  const made = document.createElement(name);
  made.className = className;
  made.append(...content);
  return made;
};

// Text in which characters that nobody sees, or that turn the reading direction, are marks that name them.
export const visible = (string) => {
  const parts = [];
  let from = 0;
  let count = 0;
  for (const match of string.matchAll(hiddenCharacters)) {
    count += 1;
    if (count > hidden.most) {
      break;
    }
    const code = match[0].codePointAt(0);
    const point = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    const mark = element("span", "mark", hidden.names[code] ?? point);
    mark.title = point;
    parts.push(string.slice(from, match.index), mark);
    from = match.index + match[0].length;
  }
  parts.push(count > hidden.most ? string.slice(from).replaceAll(hiddenCharacters, "\ufffd") : string.slice(from));
  return parts;
};

export const button = (label, act) => {
  const made = element("button", "", label);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
};

export const say = (message) => {
  part("said").textContent = message;
};

export const copy = async (string) => {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(string);
  } else {
    // Browsers give the clipboard to pages over HTTPS only.
    const field = element("textarea", "");
    field.value = string;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  say(words.copied);
};

// A text of the server with its numbers, as Python writes them: "%(number).1f s".
export const filled = (template, numbers) =>
  template.replace(/%\((\w+)\)(d|s|\.1f)/g, (_all, name, form) => (form === ".1f" ? numbers[name].toFixed(1) : String(numbers[name])));

// As `duration` in messages_app/safe_text.py.
export const duration = (ms) => {
  const [seconds, minutes] = [Math.round(ms / 1000), Math.floor(Math.round(ms / 1000) / 60)];
  if (ms < 59_950) {
    return ms < 1000 ? filled(words.milliseconds, { number: ms }) : filled(words.seconds, { number: ms / 1000 });
  }
  return minutes < 60 ? filled(words.minutes, { minutes, seconds: seconds % 60 }) : filled(words.hours, { hours: Math.floor(minutes / 60), minutes: minutes % 60 });
};

// The time of the server in milliseconds since 1970, because clocks of readers differ from it.
const ahead = Number(root.dataset.now) / 1000 - Date.now();
export const now = () => Date.now() + ahead;

// Words for one and for more.
export const counted = ([one, many], number) => filled(number === 1 ? one : many, { number });
