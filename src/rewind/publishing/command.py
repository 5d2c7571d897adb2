"""``rewind publish``: store a finished study's results and print documents from them, or check that they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import read_json
from rewind.publishing import pictures, store
from rewind.publishing.compare import comparison
from rewind.publishing.documents import Comparison, compare, difference, rewrite
from rewind.publishing.record import where
from rewind.publishing.stored import benchmark, read


@dataclass(frozen=True)
class Wishes:
    """The command line.

    Attributes:
        source: a study or a benchmark; None: nothing new is stored.
        results: its results; None: where the workflow or the benchmark puts them.
        machine: name of the machine's folder; None: by its instructions or GPU.
        check: write nothing.
        compare: print two machines' results beside each other.
    """

    source: str | None = None
    results: Path | None = None
    machine: str | None = None
    check: bool = False
    compare: list[str] | None = None


def publish(wishes: Wishes, root: Path = Path()) -> int:
    """Run the command in a checkout; its exit code.

    Raises:
        RewindError: outside a checkout, for results that cannot be published, or for faulty markers.
    """
    if not (root / "README.md").is_file() or not (root / "docs").is_dir():
        raise RewindError("README.md and docs/ are not here; run `rewind publish` in the root of a checkout.")
    if wishes.compare is not None:
        print(_compared(root, wishes.source, wishes.compare))
        return 0
    if wishes.check:
        return _check(root)
    if wishes.source:
        _store(root, wishes)
    found = compare(root)
    for name in rewrite(root, found):
        print(f"{name}: written")
    _warn(root, found, wishes.source)
    return 0


def _store(root: Path, wishes: Wishes) -> None:
    name = wishes.source
    if (root / f"config/studies/{name}.yaml").is_file():
        results = wishes.results or Path("results") / name
        folder = store.publish_study(root, name, results, wishes.machine)
    else:
        benchmark(root, name)
        results = wishes.results or Path(f"results/{name}.csv")
        folder = store.publish_benchmark(root, name, results, wishes.machine)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {where(read_json(folder / 'record.json'))}; {size / 1000:.0f} kB")
    first = store.machines(root, name)[0]
    if first == folder and results.is_dir():
        for line in pictures.copy(root, name, results, folder):
            print(line)
    elif first != folder:
        print(f"numbers and pictures in documents stay those of {first.name}, the first machine by name")


def _check(root: Path) -> int:
    found = compare(root)
    wrong, _ = pictures.faults(root, _studies(root))
    for block, body in found.changed:
        print(difference(block, body), end="\n\n")
    for line in wrong:
        print(line)
    _warn(root, found)
    if found.changed or wrong or found.untrue:
        print("documents do not print what is published: `rewind publish` writes it")
        return 1
    print("documents print what is published")
    return 0


def _warn(root: Path, found: Comparison, source: str | None = None) -> None:
    """What no results vouch for, and results whose study has changed since; of everything, or of one source."""
    for block, reason in found.untrue:
        print(f"no longer true, rewrite it: {block.file}:{block.line}: {' '.join(block.body.split())} ({reason})")
    for block, reason in found.typed:
        if source in (None, block.what.split()[0]):
            print(f"typed, not yet published: {block.file}:{block.line}: {_short(block.what)} ({reason})")
    studies = [study for study in _studies(root) if source in (None, study)]
    for target in pictures.faults(root, studies)[1]:
        print(f"not yet published: {target}")
    for study in studies:
        for folder in store.machines(root, study):
            if not (root / f"config/studies/{study}.yaml").is_file():
                print(f"{folder}: there is no config/studies/{study}.yaml any more")
            elif changed := store.changed_keys(study, folder):
                print(f"{folder}: config/studies/{study}.yaml has changed since: {'; '.join(changed[:3])}")


def _short(what: str) -> str:
    return what if len(what) <= 60 else f"{what[:60].rstrip()} …"


def _studies(root: Path) -> list[str]:
    records = [read_json(file) for file in sorted((root / store.FOLDER).glob("*/*/record.json"))]
    return list(dict.fromkeys(record["name"] for record in records if record["kind"] == "study"))


def _compared(root: Path, source: str | None, names: list[str]) -> str:
    if not source:
        raise RewindError("name the study: rewind publish demo --compare avx2 avx512")
    there = {folder.name: folder for folder in store.machines(root, source)}
    chosen = names or list(there)
    unknown = [name for name in chosen if name not in there]
    if unknown or len(chosen) != 2:
        listed = ", ".join(there) or "none"
        raise RewindError(f"--compare takes two machines of {source}; published are: {listed}.")
    return comparison(*(read(root, there[name]) for name in chosen))
