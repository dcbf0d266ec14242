// A button that sends its form to another page shows the part of the answer that it names here, where the form stays as it is.
// Without this script the answer opens in a new tab.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-shows]");
  if (button === null) {
    return;
  }
  event.preventDefault();
  const response = await fetch(button.formAction, { method: "POST", body: new FormData(button.form) });
  const answer = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(button.dataset.shows);
  if (answer === null) {
    button.form.requestSubmit(button); // such as the page of a login that has ended
    return;
  }
  document.getElementById(button.dataset.shows).replaceWith(answer);
});
