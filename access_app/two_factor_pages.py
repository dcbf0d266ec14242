"""The step of a login that asks for its code, the page on which users set two-factor login up, and the middleware that demands it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.views import LoginView
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.audit.trail import actor_of

from . import two_factor as factors
from .login_form import LoginForm
from .mounting import view_of

OPEN_PAGES = ("admin:two_factor", "admin:logout", "admin:login", "admin:password_change", "set_language", "healthz")
"""Pages for a login that has yet to set up its second factor."""
WRONG_CODE = gettext_lazy("This code is not valid. Each code works once; after a wrong one, wait a moment.")


class CodeField(forms.CharField):
    """A code of an app, or a recovery code."""

    def __init__(self, **kwargs: Any) -> None:
        # Not type=number: codes begin with zeros, and recovery codes have letters.
        attrs = {"autocomplete": "one-time-code", "autocapitalize": "none", "spellcheck": "false"}
        super().__init__(max_length=factors.LONGEST_CODE, widget=forms.TextInput(attrs=attrs), **kwargs)


class LoginCodeForm(forms.Form):
    """The second step of a login: the code of the user whose password was right in the first one."""

    code = CodeField(label=gettext_lazy("Code"), help_text=gettext_lazy("From your app, or a recovery code."))

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.user: Any = None
        self.fields["code"].widget.attrs["autofocus"] = True

    def clean(self) -> None:
        passed, code = factors.passed_in(self.request.session), self.cleaned_data.get("code")
        # Through the backends, so that wrong codes count towards the lockout.
        if passed is not None and code:
            self.user = authenticate(self.request, username=passed.get_username(), passed=passed, code=code)
        if self.user is None:
            raise ValidationError(WRONG_CODE)
        LoginForm(self.request).confirm_login_allowed(self.user)

    def get_user(self) -> Any:
        return self.user


class CodeLoginView(LoginView):
    """Ask for the code on a page of its own, which only the right password leads to."""

    template_name = "admin/login.html"
    authentication_form = LoginCodeForm  # type: ignore[assignment]  # a login without name and password

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if factors.passed_in(request.session) is None:
            return redirect("admin:login")
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        page = {
            "title": _("Log in"),
            "app_path": self.request.get_full_path(),
            "has_single_sign_on": False,
            "passed": factors.passed_in(self.request.session),
        }
        return super().get_context_data(**admin.site.each_context(self.request) | page | kwargs)


class PasswordForm(forms.Form):
    password = forms.CharField(
        label=gettext_lazy("Your password"),
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, request: HttpRequest, data: Any = None) -> None:
        super().__init__(data)
        self.request = request

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        # Through the backends, so that wrong passwords count towards the lockout.
        if (
            authenticate(self.request, username=self.request.user.get_username(), password=password)
            != self.request.user
        ):
            raise ValidationError(_("This is not your password."))
        return password


class CodeForm(forms.Form):
    code = CodeField(label=gettext_lazy("Code"))

    def refuse(self) -> None:
        self.add_error("code", WRONG_CODE)


def two_factor(request: HttpRequest) -> HttpResponse:
    """Show a user the state of the own two-factor login; turn it on or off, and make new recovery codes."""
    user = request.user
    assert isinstance(user, get_user_model()), "the admin lets nobody else in"
    action = request.POST.get("action", "") if request.method == "POST" else ""
    is_on = factors.has_second_factor(user)
    forms_shown: dict[str, forms.Form] = {"password": PasswordForm(request), "code": CodeForm()}
    codes: list[str] | None = None
    if action == "begin" and not is_on and user.has_usable_password():
        form = forms_shown["password"] = PasswordForm(request, request.POST)
        if form.is_valid():
            factors.begin(user)
            return redirect("admin:two_factor")
    elif action == "cancel":
        factors.cancel(user)
        return redirect("admin:two_factor")
    elif action in ("confirm", "codes", "off"):
        code_form = forms_shown["code"] = CodeForm(request.POST)
        if code_form.is_valid():
            code = code_form.cleaned_data["code"]
            if action == "confirm":
                codes = factors.confirm(user, code, actor=actor_of(request))
                accepted = codes is not None
            else:
                accepted = is_on and factors.verify(user, code)
            if not accepted:
                code_form.refuse()
            elif action == "codes":
                codes = factors.make_recovery_codes(user)
            elif action == "off":
                factors.remove(user)
                messages.success(request, _("Two-factor login is off."))
                return redirect("admin:two_factor")
    is_on = factors.has_second_factor(user)
    app = None if is_on else factors.begun(user)
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": _("Two-factor login"),
        "is_on": is_on,
        "is_demanded": factors.must_set_up(user, request.session),
        "key": app and factors.key_text(app),
        "qr_code": app and factors.qr_code(app),
        "forms": forms_shown,
        "codes": codes,
        "codes_left": factors.recovery_codes_left(user) if is_on else 0,
    }
    return render(request, "admin/two_factor.html", context)


class TwoFactorMiddleware:
    """Send logins that must set up their second factor to that page; other addresses answer 403 to them."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *view: Any) -> HttpResponse | None:
        match = request.resolver_match
        assert match is not None, "Django resolved the address to call the view"
        if view_of(match) in OPEN_PAGES or not factors.must_set_up(request.user, request.session):
            return None
        if request.path.startswith(reverse("admin:index")):
            return redirect("admin:two_factor")
        raise PermissionDenied(_("Set up two-factor login first: %(page)s") % {"page": reverse("admin:two_factor")})
