// The head of a table stays in sight while one scrolls, unless the table is so wide that it scrolls sideways in a frame of its own.
for (const frame of document.querySelectorAll(".results, .wide-table")) {
  const table = frame.querySelector("table");
  const sizes = new ResizeObserver(() => frame.classList.toggle("fits", table.offsetWidth <= frame.clientWidth));
  sizes.observe(frame);
  sizes.observe(table);
}
