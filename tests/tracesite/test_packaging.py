"""Test the sdists, and the wheels made of them that `pip install` takes, built from this tree without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from sdk.tests.paths import ROOT

pytestmark = pytest.mark.system

OF_THE_SDK = "status, drain, failures, show, diff, errors, search, tools, cost, login, skill, mcp"
"""Its commands."""

APPS = ["access_app", "messages_app", "traces_app", "tracesite"]
# Paths in the wheel that differ from those in the tree: see setup.py.
MOVED = {"templates": "tracesite/templates", "locale": "tracesite/locale"}
OTHER_FILES = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in", "manage.py"]
SDK_FILES = ["pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"]
MADE_BY_SETUPTOOLS = ["PKG-INFO", "setup.cfg"]
NO_PRODUCT = ["examples", "benchmarks", "tests"]


class Distribution(NamedTuple):
    """What is built of a directory: the sdist, and the wheel made of it as `pip install` does."""

    sdist: Path
    wheel: Path

    @property
    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            return Parser().parsestr(archive.read(name).decode())

    @property
    def requirements(self) -> list[str]:
        return [name for name in self.metadata.get_all("Requires-Dist") or [] if "extra ==" not in name]

    @property
    def modules(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return sorted(name for name in archive.namelist() if ".dist-info/" not in name)


def build(tree: Path, home: Path) -> Distribution:
    (home / "sdist").mkdir()
    # The hook that every front end calls.
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(home / 'sdist')!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tree, stdout=subprocess.DEVNULL)
    [sdist] = (home / "sdist").glob("*.tar.gz")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", home]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, sdist], check=True, cwd=home)
    [wheel] = home.glob("*.whl")
    return Distribution(sdist, wheel)


def copied(names: list[str], source: Path, tree: Path) -> Path:
    """Copy from the clone, because to build leaves files behind."""
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source / name, tree / name)
    return tree


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    names = [*SDK_FILES, "tracesite_sdk", "tests"]
    return build(copied(names, ROOT / "sdk", tmp_path_factory.mktemp("sdk")), tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    names = [*APPS, *MOVED, *OTHER_FILES, *NO_PRODUCT, "sdk"]
    return build(copied(names, ROOT, tmp_path_factory.mktemp("server")), tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def command(sdk: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `tracesite` in a virtual environment with the SDK and msgspec only, as after `pip install tracesite-sdk`."""
    return installed(tmp_path_factory.mktemp("venv"), sdk)


@pytest.fixture(scope="module")
def server_command(sdk: Distribution, server: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the server, whose other packages are taken from this environment."""
    command = installed(tmp_path_factory.mktemp("venv"), sdk, server)
    (site_packages(command.parent.parent) / "server.pth").write_text(sysconfig.get_path("purelib"))
    return command


def installed(home: Path, *distributions: Distribution) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
    wheels = [distribution.wheel for distribution in distributions]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", *wheels], check=True, cwd=home)
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


def test_server_wheel_and_sdist_hold_the_product_and_nothing_else(server: Distribution) -> None:
    expected = {}
    for name in [*APPS, *MOVED]:
        for path in (ROOT / name).rglob("*"):
            relative = path.relative_to(ROOT)
            is_data = {"static", "recordings"} & set(relative.parts) or path.suffix in {".html", ".json", ".mo", ".sql"}
            is_ours = path.suffix == ".py" or path.name == "py.typed" or is_data
            if path.is_file() and "__pycache__" not in relative.parts and is_ours:
                expected[str(relative)] = str(Path(MOVED.get(name, name)) / relative.relative_to(name))
    assert server.modules == sorted(expected.values())
    assert sources(server) == sorted([*expected, *OTHER_FILES, *MADE_BY_SETUPTOOLS])


def test_sdk_wheel_and_sdist_hold_the_product_and_nothing_else(sdk: Distribution) -> None:
    home = ROOT / "sdk"
    expected = [str(path.relative_to(home)) for path in (home / "tracesite_sdk").rglob("*.py")]
    expected += ["tracesite_sdk/py.typed", "tracesite_sdk/reading/SKILL.md"]
    assert sdk.modules == sorted(expected)
    assert sources(sdk) == sorted([*expected, *SDK_FILES, *MADE_BY_SETUPTOOLS])


def sources(distribution: Distribution) -> list[str]:
    with tarfile.open(distribution.sdist) as archive:
        files = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    return sorted(file for file in files if ".egg-info/" not in file)


def test_metadata_is_as_package_indexes_want_it(sdk: Distribution, server: Distribution) -> None:
    for built in (sdk, server):
        check = [sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.sdist]
        checked = subprocess.run(check, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout
        assert (built.metadata["License-Expression"], built.metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")


def test_sdk_brings_msgspec_and_server_the_sdk_of_its_version(sdk: Distribution, server: Distribution) -> None:
    assert sdk.requirements == ["msgspec>=0.19"]
    assert server.metadata["Version"] == sdk.metadata["Version"]
    assert f"tracesite-sdk=={sdk.metadata['Version']}" in server.requirements


def test_sdk_imports_without_other_packages(sdk: Distribution, tmp_path: Path) -> None:
    with zipfile.ZipFile(sdk.wheel) as archive:
        archive.extractall(tmp_path)
    needs_others = {"tracesite_sdk.langchain", "tracesite_sdk.openai_agents", "tracesite_sdk.pytest_plugin"}
    needs_others |= {"tracesite_sdk.recorder.snapshots.langchain_messages", "tracesite_sdk.reading.mcp_bridge"}
    paths = [Path(name) for name in sdk.modules if name.endswith(".py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths} - needs_others
    assert "tracesite_sdk.recorder.recording" in modules
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    # Without site-packages: only the wheel, msgspec and the standard library can be imported.
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(sorted(modules))}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("as_module", [False, True])
def test_command_of_the_server_without_server_names_it(command: Path, tmp_path: Path, as_module: bool) -> None:
    start = [command.with_name("python"), "-m", "tracesite_sdk"] if as_module else [command]
    code, out, err = run([*start, "serve"], tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        f"`serve` is not a command of the SDK: {OF_THE_SDK} are. The server, which has the others, is not installed. "
        "Install it with: pip install tracesite\n"
    )


def test_sdk_records_and_lists_waiting_events(command: Path, tmp_path: Path) -> None:
    agent = (
        "from tracesite_sdk import Privacy, Recorder, Sampling\n"
        "recorder = Recorder('http://127.0.0.1:9', 'ts_key', spool='spool', sampling=Sampling(), privacy=Privacy())\n"
        "with recorder.message('Hello'): pass\n"
        "recorder.close(0.5)"
    )
    python = command.with_name("python")
    assert run([python, "-c", agent], tmp_path)[:2] == (0, "")
    code, out, err = run([command, "status", "--spool", "spool"], tmp_path)
    assert (code, out[:46], err) == (1, "http://127.0.0.1:9, key ts_key...: 2 events wa", "")
    assert run([command], tmp_path) == (0, f"Commands of the SDK, each with --help: {OF_THE_SDK}\n", "")

    _, _, err = run([python, "-c", "import tracesite_sdk.langchain"], tmp_path)
    assert err.endswith("tracesite_sdk.langchain needs langchain-core: pip install langchain-core.\n")

    _, _, err = run([python, "-c", "import tracesite_sdk.openai_agents"], tmp_path)
    assert err.endswith("tracesite_sdk.openai_agents needs openai-agents: pip install openai-agents.\n")


def test_sdk_has_its_skill_and_names_the_extra_of_mcp(command: Path, tmp_path: Path) -> None:
    code, out, err = run([command, "skill"], tmp_path)
    assert (code, out.splitlines()[:2], err) == (0, ["---", "name: tracesite"], "")

    settings = {"TRACESITE_URL": "http://127.0.0.1:9", "TRACESITE_KEY": "ts_key"}
    code, out, err = run([command, "mcp"], tmp_path, **settings)
    assert (code, out) == (3, "")
    assert err == "tracesite: tracesite mcp needs the package mcp: pip install 'mcp>=2.3,<3'\n"

    assert run([command, "failures"], tmp_path, **settings)[0] == 3


def test_command_of_the_sdk_runs_where_the_server_is(server_command: Path, tmp_path: Path) -> None:
    code, out, err = run([server_command, "status", "--spool", "spool"], tmp_path)
    assert (code, out, err) == (0, "No events wait.\n", "")
    assert run([server_command, "help"], tmp_path)[1].startswith(
        f"Commands of the SDK, each with --help: {OF_THE_SDK}\n"
    )


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
