"""Pictures in documents, ``docs/images/<study>_<picture>.png``: copied from a study's figures, or of its page."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import atomic, read_json, write_json
from rewind.provenance import file_hash
from rewind.publishing.documents import documents
from rewind.publishing.store import machines

IMAGES = "docs/images"
PAGE = "report"  # <study>_report.png shows the explorer of report.html
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SIZE = (1440, 1000)
_EXPLORER = "<style>header, nav, main > :not(#explorer) { display: none !important }</style>"
_SHOWN = re.compile(r"!\[[^\]]*\]\((?:docs/)?images/([\w.-]+)\.png\)")


def shown(root: Path, study: str) -> list[str]:
    """Pictures of a study that documents show, by the names of its figures."""
    texts = [file.read_text(encoding="utf-8") for file in documents(root)]
    names = dict.fromkeys(name for text in texts for name in _SHOWN.findall(text))
    return [name.removeprefix(f"{study}_") for name in names if name.startswith(f"{study}_")]


def copy(root: Path, study: str, results: Path, folder: Path) -> list[str]:
    """Bring the pictures of documents up to date and note their hashes in the published record.

    Returns:
        A line for each, also for what could not be made.
    """
    said, hashes = [], {}
    for picture in shown(root, study):
        target = f"{IMAGES}/{study}_{picture}.png"
        try:
            if picture == PAGE:
                photograph(results / "report.html", root / target)
            else:
                _copied(results / f"figures/{picture}.png", root / target)
        except RewindError as error:
            said.append(f"{target}: not updated: {error}")
            continue
        hashes[target] = file_hash(root / target)
        said.append(f"{target}: written")
    write_json(folder / "record.json", read_json(folder / "record.json") | {"pictures": hashes})
    return said


def faults(root: Path, studies: list[str]) -> tuple[list[str], list[str]]:
    """Pictures that are not those of the published results; and pictures that were never published."""
    wrong, unknown = [], []
    for study in studies:
        folders = machines(root, study)
        hashes = read_json(folders[0] / "record.json").get("pictures", {}) if folders else {}
        for picture in shown(root, study):
            target = f"{IMAGES}/{study}_{picture}.png"
            if target not in hashes:
                unknown.append(target)
            elif not (root / target).is_file() or file_hash(root / target) != hashes[target]:
                wrong.append(f"{target}: not the picture that was published with {study}, {folders[0].name}")
    return wrong, unknown


def _copied(source: Path, target: Path) -> None:
    if not source.is_file():
        raise RewindError(f"{source}: no such file")
    with atomic(target) as draft:
        shutil.copyfile(source, draft)


def photograph(page: Path, target: Path) -> None:
    """The explorer of a page, as a browser without a window shows it.

    Raises:
        RewindError: if there is no browser, no page, or no picture came out.
    """
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise RewindError(f"none of {', '.join(BROWSERS)} is on PATH")
    if not page.is_file():
        raise RewindError(f"{page}: no such file")
    # The browser's own folders are temporary, and the page is our own: containers seldom allow its sandbox.
    with tempfile.TemporaryDirectory() as folder, atomic(target) as draft:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
        options += [
            f"--window-size={SIZE[0]},{SIZE[1]}",
            "--virtual-time-budget=5000",
            f"--screenshot={draft.resolve()}",
        ]
        # A browser without a window pictures the top of a page, wherever it is scrolled to.
        shown = Path(folder) / "page.html"
        shown.write_text(page.read_text(encoding="utf-8").replace("</head>", f"{_EXPLORER}</head>", 1), "utf-8")
        address = shown.as_uri()
        try:
            done = subprocess.run([program, *options, address], capture_output=True, text=True, timeout=120, cwd=folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RewindError(f"{Path(program).name} did not take the picture: {error}") from None
        if not draft.is_file() or not draft.read_bytes().startswith(b"\x89PNG"):
            lines = done.stderr.strip().splitlines() or ["it gave no message"]
            raise RewindError(f"{Path(program).name} took no picture: {lines[-1]}")
