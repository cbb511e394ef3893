"""What docs/how-to/containers.md has a cluster run: an image without rights, and commands that persist has."""

import re
from collections.abc import Iterator
from typing import Any

import click
import yaml

from persist.cli.root import main
from persist.settings import Settings
from tests.markdown import CONTAINERS

_FILES = dict(re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", CONTAINERS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
_INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "CMD"}


def objects() -> list[dict[str, Any]]:
    return [one for name, text in _FILES.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text)]


def pods(found: object) -> Iterator[dict[str, Any]]:
    """Every description of a pod, however deep a kind of object has it."""
    if isinstance(found, dict):
        if "containers" in found:
            yield found
        for value in found.values():
            yield from pods(value)
    elif isinstance(found, list):
        for value in found:
            yield from pods(value)


def test_the_page_has_these_files() -> None:
    assert list(_FILES) == ["Dockerfile", "upgrade.yaml", "agent.yaml"]
    assert [one["kind"] for one in objects()] == ["Job", "Deployment", "CronJob"]


def test_the_image_runs_as_a_user_without_rights() -> None:
    lines = [line.split(" ", 1) for line in _FILES["Dockerfile"].splitlines()]
    assert {word for word, _ in lines} <= _INSTRUCTIONS
    words = [word for word, _ in lines]
    assert words[0] == "FROM"
    assert words[-2:] == ["USER", "CMD"]
    user = lines[-2][1]
    assert user == "10001:10001"
    assert yaml.safe_load(lines[-1][1])[:2] == ["persist", "work"]


def test_every_container_may_write_nothing_and_become_nobody() -> None:
    found = [pod for one in objects() for pod in pods(one)]
    assert len(found) == 3
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        for container in pod["containers"]:
            context = container["securityContext"]
            assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_every_command_and_setting_exists() -> None:
    containers = [container for one in objects() for pod in pods(one) for container in pod["containers"]]
    probes = [container["startupProbe"]["exec"]["command"] for container in containers if "startupProbe" in container]
    commands = [container["command"] for container in containers if "command" in container] + probes
    commands.append(yaml.safe_load(_FILES["Dockerfile"].splitlines()[-1].removeprefix("CMD ")))
    assert len(commands) == 4
    ports = [container["readinessProbe"]["httpGet"]["port"] for container in containers if "readinessProbe" in container]
    assert [f"0.0.0.0:{port}" in commands[-1] for port in ports] == [True]
    for program, name, *options in commands:
        command = main.get_command(click.Context(main), name)
        assert program == "persist"
        assert command is not None
        root = click.Context(main, **main.context_settings)  # a command keeps the names of its help from its first context
        command.make_context(name, list(options), parent=root)  # a wrong option raises
    variables = {one["name"] for container in containers for one in container["env"]}
    assert {name.removeprefix("PERSIST_").lower() for name in variables} <= Settings.model_fields.keys()
