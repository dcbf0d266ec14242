"use strict";

// Buttons that copy the text of another element, or the address of the page. Browsers offer the clipboard to pages over HTTPS and on this computer only.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies)?.textContent ?? location.href);
      button.textContent = `✓ ${button.textContent.replace("✓ ", "")}`;
    });
  }
}
