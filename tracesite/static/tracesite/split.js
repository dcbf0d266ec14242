// The border between the path and what is selected, which the reader moves with the pointer or the arrow keys. Its place is the
// same on all pages, and is remembered by this browser.
const KEY = "tracesite-split";
const LEAST = 25; // percent of the window, for each side
const STEP = 2;

const split = document.querySelector(".split");
const border = document.createElement("div");

const place = (percent) => {
  const share = Math.round(Math.min(Math.max(percent, LEAST), 100 - LEAST));
  split.style.setProperty("--path-share", `${share}%`);
  border.ariaValueNow = share;
  localStorage.setItem(KEY, share);
};

const share = () => (100 * split.firstElementChild.getBoundingClientRect().width) / split.getBoundingClientRect().width;

if (split.children.length > 1) {
  border.className = "split-border";
  border.role = "separator";
  border.tabIndex = 0;
  border.ariaOrientation = "vertical";
  border.ariaLabel = split.dataset.border;
  border.ariaValueMin = LEAST;
  border.ariaValueMax = 100 - LEAST;
  split.firstElementChild.after(border);
  border.ariaValueNow = Math.round(share());
  if (localStorage.getItem(KEY)) {
    place(Number(localStorage.getItem(KEY)));
  }
  border.addEventListener("pointerdown", (event) => border.setPointerCapture(event.pointerId));
  border.addEventListener("pointermove", (event) => {
    if (border.hasPointerCapture(event.pointerId)) {
      const box = split.getBoundingClientRect();
      place((100 * (event.clientX - box.left)) / box.width);
    }
  });
  border.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (by) {
      event.preventDefault();
      event.stopPropagation();
      place(share() + by);
    }
  });
  border.addEventListener("dblclick", () => {
    split.style.removeProperty("--path-share");
    localStorage.removeItem(KEY);
  });
}
