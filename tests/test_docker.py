"""The Docker image: built and started where Docker runs, its file read elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import time

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from sdk.tests.paths import ROOT
from tracesite.serving.embedded_postgres import major_version, program_directories


def has_docker() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each as its name and the rest of its lines."""
    lines = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line]


def test_dockerfile_makes_an_image_without_root_and_compiler() -> None:
    found = instructions((ROOT / "Dockerfile").read_text())
    bases = [rest for name, rest in found if name == "FROM"]
    image = found[max(index for index, (name, _) in enumerate(found) if name == "FROM") :]

    assert all(re.match(r"python:3\.1[123]-slim-\w+( AS \w+)?$", base) for base in bases)
    assert {"git", "gcc", "apt-get", "curl"}.isdisjoint(" ".join(rest for _, rest in found).split())
    assert [rest for name, rest in image if name == "USER"] == ["tracesite"]
    assert [name for name, _ in image].index("USER") > [name for name, _ in image].index("RUN")
    [health] = [rest for name, rest in image if name == "HEALTHCHECK"]
    assert "/readyz" in health
    assert [rest for name, rest in image if name in ("ENTRYPOINT", "VOLUME")] == ["/data", '["tracesite"]']
    assert "--require-hashes -r /src/requirements-server.lock" in " ".join(rest for _, rest in found)


def test_image_gets_what_the_wheel_is_made_of() -> None:
    """Docker copies nothing that `.dockerignore` does not name, such as the data directory of this clone."""
    everything, *rest = (ROOT / ".dockerignore").read_text().split()
    named = {line[1:] for line in rest if line.startswith("!")}
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} - {"benchmarks", "tests"}
    assert everything == "*"
    files = {"LICENSE", "README.md", "pyproject.toml", "setup.py", "requirements-server.lock"}
    assert named == packages | {"sdk", "locale", "templates"} | files
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.system
@pytest.mark.skipif(not has_docker(), reason="no Docker daemon answers here")
def test_container_serves_the_demo() -> None:
    subprocess.run(["docker", "build", "--quiet", "--tag", "tracesite-test", ROOT], check=True)
    options = ["--publish", "127.0.0.1::8000", "--env", "TRACESITE_ALLOWED_HOSTS=127.0.0.1"]
    command = ["docker", "run", "--detach", "--rm", *options, "tracesite-test", "serve", "--host", "0.0.0.0", "--demo"]
    container = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        deadline = time.monotonic() + 120
        health = ["docker", "inspect", "--format", "{{.State.Health.Status}}", container]
        while subprocess.run(health, check=True, capture_output=True, text=True).stdout.strip() != "healthy":
            assert time.monotonic() < deadline
            time.sleep(1)
        who = subprocess.run(["docker", "exec", container, "id", "-u"], check=True, capture_output=True, text=True)
        assert who.stdout.strip() == "10001"
    finally:
        subprocess.run(["docker", "stop", container], check=True, capture_output=True)


@pytest.mark.system
def test_compose_file_names_settings_commands_and_volumes_that_exist() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    assert set(compose["volumes"]) == {
        volume.partition(":")[0] for one in services.values() for volume in one["volumes"]
    }
    variables = set(services["tracesite"]["environment"])
    assert variables <= set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.M))
    assert services["tracesite"]["environment"] == services["migrate"]["environment"] == services["work"]["environment"]
    for name in ("migrate", "tracesite", "work"):
        command, *options = services[name]["command"].split()
        parser = load_command_class(get_commands()[command], command).create_parser("tracesite", command)
        parser.parse_args(options)
    install = (ROOT / "docs" / "install.md").read_text()
    said = re.findall(r"docker compose exec tracesite tracesite (\w+)(.*)", install)
    for command, options in said:
        parser = load_command_class(get_commands()[command], command).create_parser("tracesite", command)
        parser.parse_args(options.split())
    assert len(said) == 3
    version = int(services["postgres"]["image"].partition(":")[2])
    assert [directory for directory in program_directories() if (major_version(directory / "pg_dump") or 0) >= version]
    # As for a server of its own.
    given = dict(re.findall(r"-c (\w+)=(\w+)", services["postgres"]["command"]))
    config = (ROOT / "docs" / "production" / "postgresql.conf").read_text()
    assert given.items() <= dict(re.findall(r"^(\w+) = (\w+)$", config, re.M)).items()
