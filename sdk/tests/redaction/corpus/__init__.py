"""Corpus for the redaction: generated secrets in the settings agents print them in, and texts that must stay as they are.

``trials`` yields each secret of ``secrets.txt`` in every setting of its group; ``innocents`` yields the snippets of
``innocents/*.txt`` (one a paragraph) and the JSON values of ``innocents/values.jsonl``. A third of both is held out: the
kinds and snippets whose checksum divides by three. Rules are written against the other two thirds.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

_HERE = Path(__file__).resolve().parent
SAMPLES = 3
"""Secrets generated of each kind."""

_URL_SAFE = string.ascii_letters + string.digits + "-_"
_ALPHABETS = {
    "an": string.ascii_letters + string.digits,
    "AN": string.ascii_uppercase + string.digits,
    "al": string.ascii_letters,
    "d": string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "b32": string.ascii_uppercase + "234567",
    "b64": string.ascii_letters + string.digits + "+/",
    "url": _URL_SAFE,
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "dj": string.ascii_lowercase + string.digits + "!@^*(-_=+)",
    "strong": string.ascii_letters + string.digits + "!@%*_-+.",
}
_NAMES = ("Sommer", "dragon", "Liverpool", "monkey", "Passw0rd", "qwerty", "Berlin", "hunter", "starwars", "Tr0ub4dor")
_WORDS = ("swordfish", "letmein", "correcthorse", "iloveyou", "opensesame", "sunshine", "trustnoone", "bluemonday")

# Templates: {env} {snake} {camel} {kebab} {words} {header} are forms of the name, {v} is the value, {q} the value in a URL.
_NAMED = {
    "env": ["{env}={v}", "HOME=/root\n{env}={v}\nPATH=/usr/bin", "# production\n{env}={v}"],
    "shell": ["export {env}={v}", "$ export {env}='{v}' && ./run.sh", '{env}="{v}" python manage.py migrate'],
    "yaml": [
        "{snake}: {v}",
        "service:\n  port: 8080\n  {camel}: {v}\n  debug: false",
        'env:\n  - name: x\n{kebab}: "{v}"',
    ],
    "ini": ["[default]\n{snake} = {v}", "{snake}={v}\nregion=eu-1", '[auth]\n{snake} = "{v}"'],
    "python": ['{snake} = "{v}"', "client = Client(url, {snake}='{v}', timeout=3)", '    self.{snake}: str = "{v}"'],
    "javascript": ['const {camel} = "{v}";', "  {camel}: '{v}',", "config.{camel} = `{v}`;"],
    "go": ['{camel} := "{v}"', '\t{camel}: "{v}",', 'os.Setenv("{env}", "{v}")'],
    "java": ['private static final String {env} = "{v}";', 'props.put("{snake}", "{v}");', 'String {camel} = "{v}";'],
    "command": ["deploy --{kebab} {v} --region eu", "$ tool login --{kebab}={v}", "app --{kebab} '{v}'"],
    "query": ["https://api.acme.dev/v1/items?page=2&{snake}={q}", "GET /cb?{camel}={q}&state=1 HTTP/1.1"],
    "form": ["grant_type=x&{snake}={q}&scope=all", "curl -d '{snake}={q}' https://api.acme.dev/login"],
    "xml": ["<{camel}>{v}</{camel}>", '<add key="{camel}" value="{v}" />', "<conf>\n  <{kebab}>{v}</{kebab}>\n</conf>"],
    "markdown": ["- **{words}**: `{v}`", "| {snake} | `{v}` |\n|---|---|", "Set `{env}` to `{v}` and restart."],
    "log": ["2026-03-01 12:00:01 INFO connect host=db {snake}={v} retries=3", "DEBUG auth: {camel}={v}, user=amy"],
    "diff": ["@@ -1,2 +1,2 @@\n-DEBUG=1\n+{env}={v}", '-  "{camel}": "{v}",', '+    {snake} = "{v}"'],
    "repr": ["{{'user': 'amy', '{snake}': '{v}'}}", "Config(host='db', {snake}='{v}')", "map[{snake}:{v} user:amy]"],
    "docker": ["ENV {env}={v}", "docker run -e {env}={v} -p 80:80 app:1", "      - {env}={v}"],
    "powershell": ['$env:{env} = "{v}"', '${camel} = "{v}"'],
}
_BARE = {
    "prose": ["Please use {v} for the upload.", "I found {v} in the old notes, is it still valid?"],
    "chinese prose": ["请使用{v}登录。", "我的凭证是 {v}，请测试一下"],
    "argument": ["curl https://api.acme.dev/x -u {v}:", 'login("{v}")', "Client('{v}')"],
    "list": ["- {v}\n- other", "1. first\n2. {v}", "a,b,{v},c"],
    "error": ["Error: Incorrect key provided: {v}.", "401 Unauthorized ({v})"],
    "fence": ["```\n{v}\n```", "    {v}"],
}
_WORD = {
    "env": ["{env}={v}", "DEBUG=1\n{env}={v}\nPORT=80"],
    "shell": ["export {env}='{v}'", 'export {env}="{v}"'],
    "yaml": ['{snake}: "{v}"', "db:\n  {snake}: '{v}'"],
    "python": ['{snake} = "{v}"', "connect(host='db', {snake}='{v}')"],
    "javascript": ['const {camel} = "{v}";', "  {camel}: '{v}',"],
    "go": ['{camel} := "{v}"', '\t{camel}: "{v}",'],
    "command": ["deploy --{kebab} {v} --region eu", "app --{kebab}={v}"],
    "query": ["https://api.acme.dev/v1/items?page=2&{snake}={q}"],
    "repr": ["{{'user': 'amy', '{snake}': '{v}'}}", "Config(host='db', {snake}='{v}')"],
    "docker": ["ENV {env}={v}", "docker run -e {env}={v} app:1"],
    "diff": ["@@ -1 +1 @@\n-DEBUG=1\n+{env}={v}"],
}
_HEADER = {
    "http": ["GET /v1/items HTTP/1.1\nHost: api.acme.dev\n{label}: {v}\nAccept: */*"],
    "curl": [
        "curl -H '{label}: {v}' https://api.acme.dev/v1",
        'curl -s -X POST -H "{label}: {v}" https://api.acme.dev/v1',
    ],
    "python": ['headers = {{"{label}": "{v}"}}', "requests.get(url, headers={{'{label}': '{v}', 'Accept': '*/*'}})"],
    "javascript": ['fetch(url, {{ headers: {{ "{label}": "{v}" }} }})', "req.setRequestHeader('{label}', '{v}');"],
    "go": ['req.Header.Set("{label}", "{v}")', "map[{label}:[{v}] Accept:[*/*]]"],
    "verbose": ["> {label}: {v}", "< {label}: {v}\n< Content-Length: 0"],
    "log": ['DEBUG http: send: b"GET / HTTP/1.1\\r\\n{label}: {v}\\r\\n"', "INFO request headers {label}={v}"],
    "yaml": ["headers:\n  {label}: {v}", 'headers:\n  {label}: "{v}"'],
    "nginx": ['proxy_set_header {label} "{v}";'],
    "pairs": ['[["Accept", "*/*"], ["{label}", "{v}"]]', '[{{"name": "{label}", "value": "{v}"}}]'],
}
_URL = {
    "env": ["{env}={v}"],
    "prose": ["Connect to {v} from your laptop."],
    "yaml": ["{snake}: {v}", 'url: "{v}"'],
    "python": ['create_engine("{v}")', "{snake} = '{v}'"],
    "javascript": ["await connect(`{v}`)", 'const url = "{v}";'],
    "shell": ["$ psql {v} -c 'select 1'", "git clone {v}"],
    "log": ["ERROR could not connect to {v}: timeout", "Cloning into x ... {v}"],
    "xml": ['<property name="url" value="{v}"/>', "<url>{v}</url>"],
    "markdown": ["See [the database]({v}).", "`{v}`"],
    "ini": ["[remote]\n\turl = {v}"],
    "diff": ["+{env}={v}"],
}
_PEM = {
    "text": ["{v}"],
    "python": ['KEY = """{v}"""'],
    "env": ['{env}="{e}"'],
    "source": ['const {camel} = "{e}";'],
    "indented": ["{snake}: |\n{i}"],
    "diff": ["@@ -0,0 +1,9 @@\n{d}"],
    "shell": ["$ cat id_rsa\n{v}\n$", "cat > key.pem <<'EOF'\n{v}\nEOF"],
    "quote": ["{m}", "```\n{v}\n```"],
    "xml": ["<key>{v}</key>"],
}
_CJK = {
    "label": ["{label}：{v}", "用户名：amy\n{label}：{v}"],
    "sentence": ["{label}是{v}，请不要外传。", "您的{label}为 {v}"],
    "ascii colon": ["{label}: {v}", "账号: root\n{label}: {v}"],
    "assignment": ["{label}={v}", "{label} = '{v}'"],
    "markdown": ["- **{label}**：`{v}`", "| {label} | {v} |"],
    "xml": ["<{label}>{v}</{label}>"],
    "log": ["2026-03-01 登录 用户=amy {label}={v}"],
    "bracket": ["（{label}：{v}）", "【{label}】{v}"],
}
_GROUPS = {
    "named": _NAMED, "bare": _NAMED | _BARE, "word": _WORD, "header": _HEADER, "url": _URL, "pem": _PEM, "cjk": _CJK,
}  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A secret in one setting. ``value`` holds it, ``secret`` is the string that must be gone."""

    kind: str
    setting: str
    held_out: bool
    value: Any
    secret: str

    def leaks_in(self, redacted: str) -> bool:
        """Return whether twelve characters in a row of the secret (all of it, if it is shorter) are left."""
        pieces = self.secret.split("\n")
        longest = max(pieces, key=len)
        return any(longest[at : at + 12] in redacted for at in range(max(1, len(longest) - 11)))


@dataclass(frozen=True)
class Innocent:
    language: str
    held_out: bool
    value: Any


def trials() -> Iterator[Trial]:
    """Yield every secret in every setting of its group, and as a JSON value, as JSON text and as JSON in JSON text."""
    for line in (_HERE / "secrets.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            kind, group, labels, pattern = (part.strip() for part in line.split(" | "))
            for number in range(SAMPLES):
                yield from _trials_of(kind, group, labels.split(","), pattern, number)


def innocents() -> Iterator[Innocent]:
    """Yield the texts and JSON values that hold no secret."""
    for path in sorted((_HERE / "innocents").iterdir()):
        if path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                yield Innocent(path.stem, _held_out(line), json.loads(line))
        else:
            for snippet in re.split(r"\n\s*\n", path.read_text().strip("\n")):
                yield Innocent(path.stem, _held_out(snippet), snippet)


def _held_out(text: str) -> bool:
    return zlib.crc32(text.encode()) % 3 == 0


def _trials_of(kind: str, group: str, labels: list[str], pattern: str, number: int) -> Iterator[Trial]:
    source = random.Random(f"{kind}/{number}")
    label = labels[number % len(labels)]
    value, secret = _generated(group, pattern, source)
    held_out = _held_out(kind)
    forms = _forms(label, value)
    for setting, templates in _GROUPS[group].items():
        text = templates[(number + len(kind)) % len(templates)].format(**forms)
        gone = quote(secret, safe="") if "{q}" in templates[(number + len(kind)) % len(templates)] else secret
        yield Trial(kind, setting, held_out, text, gone.replace("\n", "\\n") if "{e}" in templates[0] else gone)
    document = {"user": "amy", forms["camel" if number % 2 else "label"]: value, "port": 5432}
    yield Trial(kind, "object", held_out, {"config": document}, secret)
    yield Trial(
        kind, "json", held_out, json.dumps(document, ensure_ascii=False, indent=2 if number % 2 else None), secret
    )
    inner = json.dumps({"output": json.dumps(document, ensure_ascii=False)}, ensure_ascii=False)
    yield Trial(kind, "json in json", held_out, inner, secret)
    if group in ("bare", "pem", "url"):
        yield Trial(
            kind, "prose in json", held_out, json.dumps({"text": f"it is {value} today"}, ensure_ascii=False), secret
        )


def _forms(label: str, value: str) -> dict[str, str]:
    words = [word for word in re.split(r"[_-]", label) if word]
    camel = words[0].lower() + "".join(word.capitalize() for word in words[1:])
    lines = value.split("\n")
    return {
        "label": label,
        "snake": label,
        "env": label.upper().replace("-", "_"),
        "camel": camel,
        "kebab": "-".join(words),
        "words": " ".join(words).capitalize(),
        "header": "-".join(word.capitalize() for word in words),
        "v": value,
        "q": quote(value, safe=""),
        "e": value.replace("\n", "\\n"),
        "i": "\n".join("  " + line for line in lines),
        "d": "\n".join("+" + line for line in lines),
        "m": "\n".join("> " + line for line in lines),
    }


def _generated(group: str, pattern: str, source: random.Random) -> tuple[str, str]:
    """Return a value, and the part of it that is the secret."""
    if group == "pem":
        kind = pattern.strip("' ")
        body = "\n".join(_drawn("b64", 64, source) for _ in range(12))
        return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----", body
    if group == "url":
        scheme, user, rest = (part.strip("'") for part in pattern.split("' '"))
        password = _drawn("an", 12, source)
        return f"{scheme}://{user}:{password}@{rest}", password
    parts = [_part(part, source) for part in re.findall(r"'[^']*'|\S+", pattern)]
    value = "".join(part for part in parts if part != "::")
    if " :: " in pattern:
        return value, value.removeprefix("".join(parts[: parts.index("::")]))
    if group == "header" and len(parts) > 1:
        return value, parts[-1]
    return value, value


def _part(part: str, source: random.Random) -> str:
    if part == "::" or part.startswith("'"):
        return part.strip("'")
    if part in _SPECIAL:
        return _SPECIAL[part](source)
    alphabet, length = part.split(":")
    return _drawn(alphabet, int(length), source)


def _drawn(alphabet: str, length: int, source: random.Random) -> str:
    drawn = "".join(source.choices(_ALPHABETS[alphabet], k=length))
    # A generated secret begins and ends with a letter or digit, as real ones mostly do, so that every setting can hold it.
    return "".join("x" if at in (0, length - 1) and not char.isalnum() else char for at, char in enumerate(drawn))


def _jwt(source: random.Random) -> str:
    claims = {"sub": _drawn("d", 10, source), "iat": source.randrange(1_700_000_000, 1_800_000_000)}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "HS256"}, claims)
    ]
    return ".".join([*parts, _drawn("url", 43, source)])


def _basic(source: random.Random) -> str:
    return base64.b64encode(f"amy:{_drawn('an', 14, source)}".encode()).decode()


def _uuid(source: random.Random) -> str:
    return "-".join(_drawn("hex", length, source) for length in (8, 4, 4, 4, 12))


def _human(source: random.Random) -> str:
    return source.choice(_NAMES) + str(source.randrange(2, 2030)) + source.choice(("", "!", "_x", "%"))


_SPECIAL: dict[str, Callable[[random.Random], str]] = {
    "jwt": _jwt,
    "basic": _basic,
    "uuid": _uuid,
    "human": _human,
    "word": lambda source: source.choice(_WORDS),
    "phrase": lambda source: "-".join(source.sample(_WORDS, 4)),
}
