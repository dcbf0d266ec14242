// A click on a row of a list shows it beside the list; the arrows go through the rows, Enter opens one, Escape closes the panel. The
// address names the row, so that Back finds the panel again. On narrow windows, and without this script, the link leads to its page.
const list = document.getElementById("changelist");
const table = document.getElementById("result_list");
const wide = window.matchMedia("(min-width: 1200px)");
const ROW = /\/change\/.*$/;
let panel = null;
let shown = null;

const linkOf = (row) => row?.querySelector("th a[href*='/change/']");
const idOf = (row) => linkOf(row)?.pathname.split("/").at(-3);

const close = () => {
  panel?.remove();
  panel = null;
  shown?.classList.remove("is-peeked");
  linkOf(shown)?.focus();
  shown = null;
  list.classList.remove("with-peek");
  history.replaceState(null, "", location.pathname + location.search);
};

const show = async (row) => {
  shown?.classList.remove("is-peeked");
  shown = row;
  row.classList.add("is-peeked");
  row.scrollIntoView({ block: "nearest" });
  linkOf(row).focus({ preventScroll: true });
  const { pathname, search } = linkOf(row);
  const response = await fetch(pathname.replace(ROW, "/peek/") + search);
  if (shown !== row) {
    return; // The reader has gone on meanwhile.
  }
  if (!response.ok) {
    location.assign(linkOf(row).href);
    return;
  }
  if (panel === null) {
    panel = document.createElement("aside");
    panel.className = "peek";
    panel.tabIndex = -1;
    panel.ariaLabel = table.dataset.peek;
    list.append(panel);
    list.classList.add("with-peek");
  }
  // The server has escaped it.
  panel.innerHTML = await response.text();
  panel.scrollTop = 0;
  panel.querySelector("[data-part='close-peek']").addEventListener("click", close);
  history.replaceState(null, "", `#peek-${idOf(row)}`);
};

const keys = {
  ArrowDown: () => shown.nextElementSibling,
  ArrowUp: () => shown.previousElementSibling,
};
keys.j = keys.ArrowDown;
keys.k = keys.ArrowUp;

if (table !== null) {
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tbody tr");
    const elsewhere = event.target.closest("a, input, button, label");
    const isPlain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    // The link of the row that is shown, which has the focus, opens its page.
    const shows = elsewhere === null || (elsewhere === linkOf(row) && row !== shown);
    if (wide.matches && isPlain && linkOf(row) && shows) {
      event.preventDefault();
      show(row);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (shown === null || event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (event.key === "Escape") {
      close();
    } else if (event.key === "Enter" && !event.target.closest("a, button, summary")) {
      location.assign(linkOf(shown).href);
    } else if (event.key in keys) {
      event.preventDefault();
      const row = keys[event.key]();
      if (row !== null) {
        show(row);
      }
    }
  });
  const named = [...table.tBodies[0].rows].find((row) => linkOf(row) && location.hash === `#peek-${idOf(row)}`);
  if (named !== undefined && wide.matches) {
    show(named);
  }
}
