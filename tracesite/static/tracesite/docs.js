"use strict";

// Shows the OpenAPI document. A session of the admin may try things out: its CSRF token goes along.
const csrfToken = () => document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
const root = document.getElementById("swagger-ui");

// So that its keys scroll it, as they scroll a page.
root.focus({ preventScroll: true });

SwaggerUIBundle({
  url: root.dataset.schema,
  domNode: root,
  deepLinking: true,
  validatorUrl: null, // would ask a server elsewhere
  syntaxHighlight: false, // has colours of its own
  showMutatedRequest: false, // the token is of this login, and not for a copied command
  defaultModelsExpandDepth: 0,
  requestInterceptor: (request) => {
    const token = csrfToken();
    if (token && new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = token;
    }
    return request;
  },
});
