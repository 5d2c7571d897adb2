"""What ran on what, for the page: every run, the sweep, what of the data set is usable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.files import read_csv, read_json
from rewind.jobs.report import Files
from rewind.reporting.page.parts import grid, paragraph
from rewind.reporting.results import Results

UNUSABLE_SHOWN = 50


def runs(files: Files, results: Results) -> list[str]:
    rows: list[dict[str, Any]] = []
    commits, versions, commands, data = (Counter[str]() for _ in range(4))
    for (method, seed), path in files.records.items():
        record = read_json(path)
        git = record.get("git") or {}
        commits[_code(record, git)] += 1
        versions[", ".join(f"{name} {version}" for name, version in record.get("packages", {}).items())] += 1
        commands[str(record.get("command"))] += 1
        data[record.get("data_digest") or "of a version that kept no hash"] += 1
        rows.append(
            {
                "method": results.labels[method],
                "seed": str(seed),
                "trained parameters": record.get("trained_parameters"),
                "best epoch": (record.get("best") or {}).get("epoch"),
                "seconds": record.get("seconds"),
                "memory (MB)": record.get("peak_memory_mb"),
                "device": ", ".join(filter(None, [*_devices(record), record.get("instance")])),
                "code": record.get("code"),
            }
        )
    numbers = ("trained parameters", "best epoch", "seconds", "memory (MB)")
    table = pd.DataFrame(rows, dtype=object)
    return [
        grid(table, under("Every run, from its run.json", results.given), numbers),
        paragraph("Commits: " + "; ".join(f"{name} ({count} runs)" for name, count in commits.items()) + "."),
        paragraph("Packages: " + "; ".join(versions) + "."),
        paragraph("Content of the data set: " + "; ".join(data) + "."),
        paragraph("Commands: " + "; ".join(f"{typed} ({count} runs)" for typed, count in commands.items()) + "."),
    ]


def _code(record: dict[str, Any], git: dict[str, Any]) -> str:
    """The commit that a run was computed with; of a release from a package, its version."""
    if git.get("commit") is None and record.get("version"):
        return f"none, version {record['version']}"
    return f"{str(git.get('commit'))[:10]}{' with edits' if git.get('dirty') else ''}"


def _devices(record: dict[str, Any]) -> list[str]:
    return (record.get("hardware") or {}).get("devices", [])


def under(title: str, given: str) -> str:
    return f"{title}, {given}" if given else title


def sweep(files: Files, table: str, given: str) -> list[str]:
    best = read_json(files.best)
    chosen = paragraph(f"{best['max_frames']} frames a clip, chosen {best['chosen']}.")
    rows = read_csv(table)
    if "valid_sum" not in rows or rows.empty:
        return [chosen]
    return [chosen, grid(rows.astype(object), under("Validation scores of the sweep", given), tuple(rows.columns))]


def coverage(files: Files, data: Path, noun: str) -> list[str]:
    items, report = read_csv(data / "items.csv"), read_csv(files.videos)
    usable = items.assign(usable=items["status"] == "ok", twin=items["reversed"] == 1)
    rows = [
        {
            "split": split,
            "originals": int((~part["twin"]).sum()),
            "usable": int((part["usable"] & ~part["twin"]).sum()),
            "twins": int(part["twin"].sum()),
            "usable twins": int((part["usable"] & part["twin"]).sum()),
        }
        for split, part in usable.groupby("split", sort=False)
    ]
    bad = report[report["status"] != "ok"]
    found = [
        grid(
            pd.DataFrame(rows).astype(object),
            f"{noun.capitalize()} by split",
            ("originals", "usable", "twins", "usable twins"),
        )
    ]
    if bad.empty:
        return [*found, paragraph(f"All {len(report):,} source {noun} are usable.")]
    shown = bad[["item_id", "status", "reason"]].head(UNUSABLE_SHOWN)
    more = f"; the first {len(shown)}" if len(bad) > len(shown) else ""
    return [*found, grid(shown, f"{len(bad):,} of {len(report):,} source {noun} are not usable{more}")]
