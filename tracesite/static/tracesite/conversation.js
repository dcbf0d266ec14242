// On the page of a session that goes on: brings what is new into the page, without a reload. What has not changed stays as
// it is, with its folds, and so does a form that somebody writes in.
import { follow, pageNow, replace, said } from "./following.js";

const { url } = document.getElementById("conversation-script").dataset;
const messages = (root) => [...root.querySelectorAll("ol.conversation > li")];
const known = new Map(messages(document).map((message) => [message.id, said(message)]));

const show = (page) => {
  const list = document.querySelector("ol.conversation");
  const isAtTheEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 60;
  for (const message of messages(page)) {
    const html = said(message);
    if (known.get(message.id) !== html) {
      const before = document.getElementById(message.id);
      if (before === null) {
        list.append(message);
        known.set(message.id, html);
      } else if (replace(before, message)) {
        known.set(message.id, html);
      }
    }
  }
  for (const part of ["#content h1", "dl.facts", "#more-facts", "nav.paginator", "#conversation-end"]) {
    replace(document.querySelector(part), page.querySelector(part));
  }
  document.querySelector("#content .nothing")?.toggleAttribute("hidden", known.size > 0);
  if (isAtTheEnd) {
    scrollTo(0, document.documentElement.scrollHeight);
  }
};

follow(url, async () => {
  const page = await pageNow(location.href);
  if (page) {
    show(page);
  }
});
