"use strict";

// Shows the OpenAPI document. A session of the admin may try things out: its CSRF token goes along.
const csrfToken = () => document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
const root = document.getElementById("swagger-ui");

// Dark where the admin was made dark, or else where the system is.
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const darken = () => {
  const theme = localStorage.getItem("theme") ?? "auto";
  const isDark = theme === "dark" || (theme === "auto" && systemIsDark.matches);
  document.documentElement.classList.toggle("dark-mode", isDark);
};
darken();
systemIsDark.addEventListener("change", darken);

SwaggerUIBundle({
  url: root.dataset.schema,
  domNode: root,
  deepLinking: true,
  validatorUrl: null, // would ask a server elsewhere
  requestInterceptor: (request) => {
    const token = csrfToken();
    if (token && new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = token;
    }
    return request;
  },
});
