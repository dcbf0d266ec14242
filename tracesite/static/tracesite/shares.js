"use strict";

// A table of shares has a line to add whenever its last one is used.
document.addEventListener("input", ({ target }) => {
  const row = target.closest(".shares tbody tr:last-child");
  if (row !== null && target.value !== "") {
    const added = row.cloneNode(true);
    for (const input of added.querySelectorAll("input")) {
      input.value = "";
      input.removeAttribute("id");
      input.removeAttribute("aria-invalid");
    }
    row.after(added);
  }
});
