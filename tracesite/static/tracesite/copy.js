"use strict";

// Buttons that copy the text of another element. Browsers offer the clipboard to pages over HTTPS and on this computer only.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = `✓ ${button.textContent.replace("✓ ", "")}`;
    });
  }
}
