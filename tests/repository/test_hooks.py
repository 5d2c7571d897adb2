"""The hooks of .pre-commit-config.yaml run what `make lint` runs, with the same tools."""

from __future__ import annotations

import re
import tomllib

import yaml

from checkout import ROOT

HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
# Reads the whole workflow, which takes too long before every commit.
LEFT_OUT = {"python workflow/lint.py"}


def linted() -> set[str]:
    """What `make lint` calls, without paths and without the words that forbid it to write."""
    rule = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
    assert rule
    calls = re.findall(r"\$\(BIN\)/(.+)", rule[1])
    return {
        re.sub(
            r" (--check|src|tests|benchmarks|tools|\.ci|workflow|docs/site|Snakefile|workflow/rules)(?= |$)", "", call
        )
        for call in calls
    }


def test_all_that_make_lint_runs_has_a_hook():
    entries = {
        hook["entry"].removeprefix(".venv/bin/").removesuffix(" --fix") for repo in HOOKS for hook in repo["hooks"]
    }
    assert len(linted()) >= 6
    assert linted() - entries == LEFT_OUT


def test_hooks_call_tools_that_the_project_pins():
    assert [repo["repo"] for repo in HOOKS] == ["local"], "a repository elsewhere has versions of its own"
    assert all(hook["entry"].startswith(".venv/bin/") for repo in HOOKS for hook in repo["hooks"])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pinned = {line.split("==")[0] for line in (ROOT / "envs/constraints.txt").read_text().split()}
    for name in (re.split(r"[\[><=]", entry)[0] for extra in ("dev", "docs", "hooks") for entry in extras[extra]):
        assert {name, name.replace("-", "_"), name.capitalize()} & pinned, name
