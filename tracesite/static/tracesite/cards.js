"use strict";

// On a phone each row of a list is a card whose cells say what they hold (admin.css). Cells without a value are left out there.
// Without this script the table scrolls sideways.
const table = document.getElementById("result_list");
if (table !== null) {
  const labels = [...table.tHead.rows[0].cells].map((header) => header.querySelector(".text")?.textContent.trim() ?? "");
  for (const row of table.tBodies[0].rows) {
    // A row of errors of a form has one cell for all columns.
    if (row.cells.length === labels.length) {
      for (const cell of row.cells) {
        if (!["", "-", "—"].includes(cell.textContent.trim())) {
          cell.dataset.label = labels[cell.cellIndex];
        }
      }
    }
  }
  // The box above the cards has no column that would say what it is for.
  const all = document.getElementById("action-toggle");
  if (all !== null) {
    all.closest("th").dataset.label = all.ariaLabel ?? "";
  }
  table.classList.add("as-cards");
}
