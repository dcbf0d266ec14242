// A button that names a part of the answer to its form shows that part here, where the form stays as it is.
// Without this script the answer is a page.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-shows]");
  if (button === null) {
    return;
  }
  event.preventDefault();
  if (!button.formNoValidate && !button.form.reportValidity()) {
    return;
  }
  const response = await fetch(button.formAction, { method: "POST", body: new FormData(button.form, button) });
  const answer = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(button.dataset.shows);
  if (answer === null) {
    button.form.requestSubmit(button); // such as the page of a login that has ended
    return;
  }
  document.getElementById(button.dataset.shows).replaceWith(answer);
});
