"""results/README.md names what the rules make, and cleaning leaves it."""

from __future__ import annotations

import re
import subprocess

import pytest

from checkout import ROOT
from rule_files import rule_files

PAGE = ROOT / "results/README.md"
NAMES = {"part": "/seed<k>", "seed": "<k>", "method": "<method>", "frames": "<n>", "shard": "<i>", "shards": "<m>"}


def made() -> dict[str, set[str]]:
    """Paths below ``study`` and ``dataset`` that rules write, with the rule's name."""
    found = {"study": set(), "dataset": set()}
    for text in rule_files().values():
        for rule in re.split(r"^(?=rule |use rule )", text, flags=re.M)[1:]:
            name = re.match(r"(?:use rule \w+ as |rule )(\w+)", rule)[1]
            for block in re.findall(r"^    (?:output|log|benchmark):\n((?:        .*\n)+)", rule, re.M):
                for kind, path in re.findall(r'"results/(?:data/)?\{(study|dataset)\}/([^"]*)"', block):
                    path = re.sub(r"\{(\w+)\}", lambda m: NAMES.get(m[1], f"<{m[1]}>"), path)
                    found[kind].add((name, path))
    return found


def test_the_page_names_what_every_rule_makes():
    data, study = PAGE.read_text().split("\n## ")[1:]
    for kind, part in (("dataset", data), ("study", study)):
        rows = [
            [re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3]]
            for row in re.findall(r"^\|.*$", part, re.M)
        ]
        listed = [(path, rules) for paths, rules in rows for path in paths]
        for rule, path in made()[kind]:
            own = [
                rules
                for name, rules in listed
                if path == name.rstrip("/") or (name[-1] == "/" and path.startswith(name))
            ]
            assert own, f"{rule} makes {path}"
            assert any(rule in rules or not rules for rules in own), f"{path} is made by {rule}"
    rules = {name for found in made().values() for name, _ in found}
    assert len(rules) > 30, "the rules were read"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without git")
def test_git_tracks_the_page_and_nothing_else_of_results():
    def ignored(path: str) -> bool:
        return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 0

    assert not ignored("results/README.md")
    assert all(ignored(f"results/{path}") for path in ("demo/metrics.csv", "data/shapes/items.csv", ".state", "x.csv"))


def test_cleaning_leaves_the_page(tmp_path):
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    for name in ("results/README.md", "results/demo/tables/a.md", "results/.state/x", ".snakemake/log/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["Makefile", "README.md", "results"]
    (tmp_path / "results/README.md").unlink()
    (tmp_path / "results").rmdir()
    subprocess.run(["make", "clean"], cwd=tmp_path, check=True, capture_output=True)
