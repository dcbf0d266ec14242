// The values of a step or call: JSON as a tree that unfolds, images of data, whole values on request, and copies in other forms.
// Only thoughts come as HTML that the server has cleaned; all else becomes text nodes.
import { button, copy, element, say, visible, words } from "./page.js";

const MOST_CHILDREN = 200; // values of an object or list that are shown at a time
const MOST_LOADED = 2_000_000; // bytes of a value that is loaded; a longer one is downloaded
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;

class Exact {
  constructor(source) {
    this.source = source; // a number that JavaScript would round
  }
}

const parsed = (string) => {
  const isExact = (value, source) => typeof value !== "number" || source === undefined || String(value) === source;
  const exact = (_key, value, context) => (isExact(value, context?.source) ? value : new Exact(context.source));
  try {
    return JSON.parse(string, exact);
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) {
      return undefined; // no JSON, or too deep: shown as the text that it is
    }
    throw error;
  }
};

const isContainer = (value) => typeof value === "object" && value !== null && !(value instanceof Exact);

// An object or list that is written in a string, as tools like to return.
const inside = (string) => {
  const value = typeof string === "string" && /^\s*[[{]/.test(string) ? parsed(string) : undefined;
  return isContainer(value) ? value : undefined;
};

const leaf = (value) => {
  if (value instanceof Exact) {
    return element("span", "json-number", value.source);
  }
  if (typeof value === "string") {
    if (IMAGE.test(value)) {
      const image = element("img", "json-image");
      image.src = value;
      image.alt = words.image;
      return image;
    }
    return element("span", "json-string", ...visible(value));
  }
  return element("span", "json-number", String(value));
};

const branch = (name, value, isOpen) => {
  const label = name === null ? [] : [element("bdi", "json-name", ...visible(String(name))), ": "];
  const nested = inside(value);
  const container = nested ?? value;
  if (!isContainer(container)) {
    return element("div", "json-leaf", ...label, leaf(value));
  }
  const isList = Array.isArray(container);
  const entries = Object.entries(container);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  const summary = element("summary", "", ...label, element("span", "quiet", size));
  if (nested !== undefined) {
    summary.append(" ", element("span", "tag", words.nested));
  }
  const made = element("details", "json-branch", summary);
  let next = 0;
  const more = () => {
    made.querySelector(":scope > .json-more")?.remove();
    made.append(...entries.slice(next, next + MOST_CHILDREN).map(([key, item]) => branch(key, item, false)));
    next += MOST_CHILDREN;
    if (next < entries.length) {
      const rest = button(`${words.more} (${entries.length - next})`, more);
      rest.className = "json-more";
      made.append(rest);
    }
  };
  made.addEventListener("toggle", more, { once: true });
  made.open = isOpen;
  return made;
};

export const valueElement = (value) => {
  const head = element("h3", "", value.label, " ");
  const body = element("div", "");
  const fill = (string, html) => {
    value.text = string;
    if (html) {
      // The server has made it of Markdown, and removed what is not on its list.
      body.className = "value prose";
      body.innerHTML = html;
      return;
    }
    body.className = "value code";
    const tree = value.is_json || /^\s*[[{"]/.test(string) ? parsed(string) : undefined;
    const isTree = isContainer(tree) || inside(tree) !== undefined;
    body.replaceChildren(isTree ? branch(null, tree, true) : element("div", "text", ...visible(string)));
  };
  fill(value.text, value.html);
  head.append(button(words.copy, () => copy(value.text)));
  const made = element("section", value.column === "error" ? "run-value run-value-error" : "run-value", head, body);
  if (value.is_cut) {
    const link = element("a", "", words.download);
    link.href = value.url;
    const note = element("p", "cut", value.note && `${value.note} `, link, " ");
    if (value.bytes <= MOST_LOADED) {
      const load = async () => {
        const response = await fetch(value.url);
        if (response.ok) {
          fill(await response.text());
          note.remove();
        } else {
          say(words.failed);
        }
      };
      note.append(button(words.load, load));
    }
    made.append(note);
  }
  return made;
};

// The values as they were sent: JSON is not parsed, because JavaScript would round long numbers.
export const asJson = (detail) => {
  const fields = detail.values.map(
    (value) =>
      `  ${JSON.stringify(value.column)}: ${value.is_json && !value.is_cut ? value.text.replaceAll("\n", "\n  ") : JSON.stringify(value.text)}`,
  );
  const known = Object.entries({ id: detail.id, name: detail.title, ...detail.times }).map(([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  return `{\n${[...known, ...fields].join(",\n")}\n}`;
};

// More backticks than any run of them in a text, so that nothing in it is Markdown.
const fenceOf = (text, least) => "`".repeat(Math.max(least, ...(text.match(/`+/g) ?? []).map((run) => run.length + 1)));

const asCode = (text) => {
  const line = text.replace(/\s+/g, " ");
  const fence = fenceOf(line, 1);
  const space = line.startsWith("`") || line.endsWith("`") ? " " : "";
  return `${fence}${space}${line}${space}${fence}`;
};

export const asMarkdown = (detail) => {
  const facts = detail.facts.map(([label, fact]) => `- ${label}: ${asCode(fact)}`).join("\n");
  const values = detail.values.map((value) => {
    const fence = fenceOf(value.text, 3);
    return `**${value.label}**\n\n${fence}${value.is_json ? "json" : ""}\n${value.text}\n${fence}`;
  });
  return [`### ${asCode(detail.title)}`, facts, ...values].join("\n\n");
};

export const asCurl = (detail) =>
  `curl -H "Authorization: Bearer $TRACESITE_API_KEY" '${new URL(detail.api, location.origin).href}'`;

export const asPython = (detail) => {
  const args = detail.values.find((value) => value.column === "args")?.text ?? "{}";
  const tool = /^[A-Za-z_]\w*$/.test(detail.title) ? detail.title : `tools[${JSON.stringify(detail.title)}]`;
  // A JSON string is a Python string, too.
  return `import json\n\narguments = json.loads(${JSON.stringify(args)})\nresult = ${tool}(**arguments)\n`;
};
