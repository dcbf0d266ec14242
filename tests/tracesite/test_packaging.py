"""Test the sdist, and the wheel made of it that `pip install tracesite` installs, built from this tree without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import msgspec
import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.system

SOURCES = ["access_app", "messages_app", "traces_app", "tracesite", "templates", "locale"]
# Paths in the wheel that differ from those in the tree: see [tool.setuptools] in pyproject.toml.
MOVED = {"templates": "tracesite/templates", "locale": "tracesite/locale"}
OTHER_FILES = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "manage.py"]
MADE_BY_SETUPTOOLS = ["PKG-INFO", "setup.cfg"]
WITHOUT_DJANGO = [
    "tracesite_sdk.records",
    "tracesite_sdk.normalize.redacted",
    "tracesite_sdk",
    "tracesite_sdk.__main__",
    "tracesite_sdk.recorder.instruments.enabling",
    "tracesite_sdk.recorder.delivery.http_sink",
    "tracesite_sdk.recorder.instruments.model_clients",
    "tracesite_sdk.recorder.capture.results",
    "tracesite_sdk.testing",
    "tracesite_sdk.recorder.tracking.tracker",
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for name in [*SOURCES, "examples"]:  # the examples stay out of both
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in OTHER_FILES:
        shutil.copy(ROOT / name, tree / name)
    target = tmp_path_factory.mktemp("sdist")
    # The hook that every front end calls.
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(target)!r})"
    subprocess.run([sys.executable, "-c", build], check=True, cwd=tree, stdout=subprocess.DEVNULL)
    [built] = target.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel made from the sdist, as a front end does."""
    target = tmp_path_factory.mktemp("wheel")
    command = [
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        target,
        sdist,
    ]
    subprocess.run([sys.executable, "-m", *command], check=True, cwd=target)
    [built] = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `tracesite` in a virtual environment with the wheel and msgspec only, as after a plain install."""
    return installed(wheel, tmp_path_factory.mktemp("venv"))


@pytest.fixture(scope="module")
def server_command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the packages of the server, taken from this environment."""
    command = installed(wheel, tmp_path_factory.mktemp("venv"))
    (site_packages(command.parent.parent) / "server.pth").write_text(sysconfig.get_path("purelib"))
    return command


def installed(wheel: Path, home: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True, cwd=home)
    (site_packages(home) / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    return home / "bin" / "tracesite"


def site_packages(home: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))


def run(command: list[str | Path], home: Path, **environ: str) -> tuple[int, str, str]:
    """Run a command outside the clone, without the environment variables of Tracesite and Django."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TRACESITE", "DJANGO", "XDG"))}
    environ = {**clean, "HOME": str(home), "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", **environ}
    done = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def pins(lock: str) -> dict[str, str]:
    """Return the versions pinned in a lock file of the project."""
    lines = (ROOT / lock).read_text().splitlines()
    return dict(line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith(" "))


def test_server_lock_is_a_part_of_the_whole_lock() -> None:
    server, whole = pins("requirements-server.lock"), pins("requirements.lock")

    assert server.items() <= whole.items()
    assert {"django", "gunicorn", "django-axes"} <= server.keys()
    assert server.keys().isdisjoint({"pytest", "schemathesis", "playwright", "mypy", "langgraph"})


def test_every_package_is_named_in_pyproject() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    of_the_tree = {
        ".".join(path.parent.relative_to(ROOT).parts) for name in SOURCES for path in (ROOT / name).rglob("__init__.py")
    }
    assert named == sorted(of_the_tree | {path.replace("/", ".") for path in MOVED.values()})


def test_wheel_and_sdist_hold_all_modules_templates_catalogues_and_files(wheel: Path, sdist: Path) -> None:
    expected = {}
    for name in SOURCES:
        for path in (ROOT / name).rglob("*"):
            relative = path.relative_to(ROOT)
            is_data = {"static", "recordings"} & set(relative.parts) or path.suffix in {".html", ".json", ".mo", ".sql"}
            if path.is_file() and "__pycache__" not in relative.parts and (path.suffix == ".py" or is_data):
                expected[str(relative)] = str(Path(MOVED.get(name, name)) / relative.relative_to(name))
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(found) == sorted(expected.values())
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    files = {name for name in files if not name.startswith("tracesite.egg-info/")}
    assert sorted(files) == sorted([*expected, *OTHER_FILES, *MADE_BY_SETUPTOOLS])
    check = [sys.executable, "-m", "twine", "check", "--strict", wheel, sdist]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_plain_install_brings_msgspec_and_nothing_else(metadata: Message) -> None:
    requirements = metadata.get_all("Requires-Dist") or []
    assert [name for name in requirements if "extra ==" not in name] == ["msgspec>=0.19"]


def test_wheel_names_its_licence_and_oldest_python(metadata: Message) -> None:
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")


def test_recorder_modules_import_without_django(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        names = archive.namelist()
    modules = [m for m in WITHOUT_DJANGO if {m.replace(".", "/") + end for end in (".py", "/__init__.py")} & set(names)]
    assert modules == WITHOUT_DJANGO
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    # Without site-packages: only the wheel, msgspec and the standard library can be imported.
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(modules)}; print('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("as_module", [False, True])
def test_command_without_server_extra_names_the_extra(command: Path, tmp_path: Path, as_module: bool) -> None:
    start = [command.with_name("python"), "-m", "tracesite"] if as_module else [command]
    code, out, err = run([*start, "serve"], tmp_path)
    assert (code, out) == (1, "")
    assert err == 'The server is not installed, only the recorder. Install it with: pip install "tracesite[server]"\n'


def test_plain_install_records_and_lists_waiting_events(command: Path, tmp_path: Path) -> None:
    agent = (
        "from tracesite_sdk import Privacy, Recorder, Sampling\n"
        "recorder = Recorder('http://127.0.0.1:9', 'ts_key', spool='spool', sampling=Sampling(), privacy=Privacy())\n"
        "with recorder.message('Hello'): pass\n"
        "recorder.close(0.5)"
    )
    python = command.with_name("python")
    assert run([python, "-c", agent], tmp_path)[:2] == (0, "")
    code, out, err = run([python, "-m", "tracesite_sdk", "status", "--spool", "spool"], tmp_path)
    assert (code, out[:46], err) == (1, "http://127.0.0.1:9, key ts_key...: 2 events wa", "")

    _, _, err = run([python, "-c", "import tracesite_sdk.langchain"], tmp_path)
    assert err.endswith("tracesite_sdk.langchain needs langchain-core: pip install langchain-core.\n")

    _, _, err = run([python, "-c", "import tracesite_sdk.openai_agents"], tmp_path)
    assert err.endswith("tracesite_sdk.openai_agents needs openai-agents: pip install openai-agents.\n")


def test_server_extra_that_the_command_names_exists(metadata: Message) -> None:
    assert "server" in (metadata.get_all("Provides-Extra") or [])


def test_installed_command_runs_a_command_of_tracesite(server_command: Path, tmp_path: Path) -> None:
    code, out, err = run([server_command, "purge", "--help"], tmp_path)
    assert (code, out.splitlines()[0][:22], err) == (0, "usage: tracesite purge", "")

    code, out, _ = run([server_command.with_name("python"), "-m", "tracesite", "purge", "--help"], tmp_path)
    assert (code, out.splitlines()[0][:32]) == (0, "usage: python -m tracesite purge")

    assert run([server_command, "list_api_keys"], tmp_path)[2].startswith("The database does not respond: ")

    # As docs/install.md lets a shell ask.
    typed = {"COMP_WORDS": "tracesite list_api", "COMP_CWORD": "1", "DJANGO_AUTO_COMPLETE": "1", "DATABASE_URL": ""}
    assert run([server_command], tmp_path, **typed)[1:] == ("list_api_keys\n", "")


def test_installed_command_keeps_its_data_in_the_home_directory(server_command: Path, tmp_path: Path) -> None:
    show = ["shell", "--verbosity=0", "-c", "from django.conf import settings; print(settings.TRACESITE_DATA_DIR)"]
    code, out, err = run([server_command, *show], tmp_path)
    assert (code, out, err) == (0, f"{tmp_path}/.local/share/tracesite\n", "")
    assert (tmp_path / ".local/share/tracesite/secret_key").stat().st_mode & 0o777 == 0o600

    elsewhere = tmp_path / "elsewhere"
    assert run([server_command, *show], tmp_path, TRACESITE_DATA_DIR=str(elsewhere))[1] == f"{elsewhere}\n"
