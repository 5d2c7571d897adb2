"""Snakemake's own linter as a gate: fails on anything but the findings accepted here.

Run as ``python workflow/lint.py``. (``snakemake --lint json`` still prints text, so the text is read.)
"""

import re
import subprocess
import sys

# The whole workflow runs in one pinned environment (envs/), which `make` or the container provides; docs/cluster.md,
# "Container", says why no rule names it.
ACCEPTED = {"Specify a conda environment or container for each rule."}
FINDING = re.compile(r"^    \* (?P<title>.+?):?$")


def main() -> int:
    """Print what remains of the linter's findings; 0 if nothing does."""
    done = subprocess.run([sys.executable, "-m", "snakemake", "--lint"], capture_output=True, text=True)
    text = done.stdout + done.stderr
    found, place = [], ""
    for line in text.splitlines():
        if line.startswith("Lints for"):
            place = line
        elif match := FINDING.match(line):
            found.append((place, match["title"]))
    if not found and "Congratulations" not in text:
        print(text)  # the workflow could not be read at all
        return 1
    remaining = [(place, title) for place, title in found if title not in ACCEPTED]
    for place, title in remaining:
        print(f"{place}\n    {title}")
    print(f"snakemake --lint: {len(remaining)} findings, {len(found) - len(remaining)} accepted")
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main())
