"""Store a finished study's results and update the documents, or check that they are up to date."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pandas as pd

import documents
import store
from documents import DocumentComparison, block_diff, compare_documents, rewrite_documents
from library import StoredResults, check_same_rows, read_stored
from rewind.errors import RewindError
from rewind.io.files import read_json
from rewind.tables.render import render_text
from rewind.tables.table import Cell, RowGroup, Table, format_number
from store import describe_record, load_benchmark

# ---- The results of two machines side by side, and where they exclude one another ----------------------------------

# Of a metric without error, such as that of chance, the interval's ends and the value may differ in the last bit.
_TOLERANCE = 1e-9
_APPENDIX_PREFIXES = ("pairs_", "seeds_")  # of tables that are too long to be shown


def comparison_text(first: StoredResults, second: StoredResults) -> str:
    """Tables with both machines' columns, cells whose interval excludes the other's value, and marks that differ.

    Raises:
        RewindError: for tables of different rows or columns.
    """
    study = first.record["name"]
    ours, theirs = first.tables.all(), second.tables.all()
    tables = {name: {first.name: ours[name], second.name: theirs[name]} for name in ours if name in theirs}
    texts = []
    for name, pair in tables.items():
        check_same_rows(pair, f"{study}, {name}")
        texts += [] if name.startswith(_APPENDIX_PREFIXES) else [render_text(side_by_side_table(pair))]
    texts += [_excluded_text(first, second, name) for name in first.intervals if name in second.intervals]
    texts.append(_differing_marks(tables))
    return "\n".join(texts)


def side_by_side_table(tables: dict[str, Table]) -> Table:
    """One table with each column of numbers once per machine.

    Args:
        tables: machine → the table, of two machines.
    """
    (first, left), (second, right) = tables.items()
    label_columns = [column for column, head in enumerate(left.columns) if not head.number]
    number_columns = [column for column, head in enumerate(left.columns) if head.number]
    heads = [left.columns[column] for column in label_columns]
    for column in number_columns:
        title = left.columns[column].name
        heads += [replace(left.columns[column], title=title, arrow="", group=name) for name in (first, second)]
    parts = tuple(
        RowGroup(
            ours.title,
            tuple(
                (
                    *(a[column] for column in label_columns),
                    *chain.from_iterable((a[column], b[column]) for column in number_columns),
                )
                for a, b in zip(ours.rows, theirs.rows, strict=True)
            ),
        )
        for ours, theirs in zip(left.groups, right.groups, strict=True)
    )
    return replace(left, columns=tuple(heads), groups=parts)


def excluded_rows(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows of which one machine's interval does not contain the other's estimate.

    Args:
        first, second: rows of two machines with the columns estimate, low and high; the other columns name a row.

    Returns:
        The rows, with ``key`` (their name), ``in_one`` and ``in_other`` (whether the first and the second machine's
        interval contains the other's estimate); and the number of rows that were compared.
    """
    keys = [c for c in ("method", "setting", "direction", "split", "scoring", "quantity", "metric") if c in first]
    merged = first.merge(second, on=keys, suffixes=("_one", "_other"))
    merged = merged[merged[["low_one", "low_other"]].notna().all(axis=1)]
    merged["in_one"] = _holds_point(merged, "one", "other")
    merged["in_other"] = _holds_point(merged, "other", "one")
    excluded = merged[~(merged["in_one"] & merged["in_other"])]
    return excluded.assign(key=[", ".join(row) for row in excluded[keys].itertuples(index=False)]), len(merged)


def _holds_point(rows: pd.DataFrame, interval: str, point: str) -> pd.Series:
    inside = rows[f"low_{interval}"] - _TOLERANCE <= rows[f"estimate_{point}"]
    return inside & (rows[f"estimate_{point}"] <= rows[f"high_{interval}"] + _TOLERANCE)


def _excluded_text(first: StoredResults, second: StoredResults, name: str) -> str:
    rows, count = excluded_rows(first.intervals[name], second.intervals[name])
    lines = [f"{name}: {len(rows)} of {count} cells have an interval that does not contain the other machine's value"]
    for row in rows.to_dict("records"):
        shown = [
            f"{machine.name} {format_number(row[f'estimate_{side}'], 3)} "
            f"[{format_number(row[f'low_{side}'], 3)}, {format_number(row[f'high_{side}'], 3)}]"
            + ("" if row[f"in_{side}"] else " does not contain the other")
            for machine, side in ((first, "one"), (second, "other"))
        ]
        lines.append(f"  {row['key']}: {'; '.join(shown)}")
    return "\n".join(lines) + "\n"


def _differing_marks(pairs: dict[str, dict[str, Table]]) -> str:
    lines = []
    for name, tables in pairs.items():
        (first, left), (second, right) = tables.items()
        for at, head in enumerate(left.columns):
            labels, ours, theirs = left.cells(0), left.cells(at), right.cells(at)
            for label, x, y in zip(labels, ours, theirs, strict=True):
                if (x.marks, x.bold) != (y.marks, y.bold):
                    where = f"{name}, {label.text}, {head.name}"
                    lines.append(f"  {where}: {first} {_mark_text(x)}, {second} {_mark_text(y)}")
    return "\n".join([f"marks: {len(lines)} cells differ", *lines]) + "\n"


def _mark_text(cell: Cell) -> str:
    text = f"{'*' if cell.bold else ''}{f'({cell.marks})' if cell.marks else ''}"
    return text or "none"


# ---- The command ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishOptions:
    """The options of the command line.

    Attributes:
        source: a study or a benchmark; None: nothing new is stored.
        results: its results; None: where the workflow or the benchmark puts them.
        machine: name of the machine's folder; None: named after its instruction set or GPU.
        check: write nothing; report whether the documents are up to date.
        compare: names of two machines to print side by side (empty: the only two); None: no comparison.

    >>> PublishOptions("demo", check=True).machine is None
    True
    """

    source: str | None = None
    results: Path | None = None
    machine: str | None = None
    check: bool = False
    compare: list[str] | None = None


def publish(options: PublishOptions, root: Path = Path()) -> int:
    """Run the command in a checkout and return its exit code.

    Args:
        options: of the command.
        root: of the checkout.

    Raises:
        RewindError: outside a checkout, for results that cannot be published, or for faulty markers.
    """
    if not (root / "README.md").is_file() or not (root / "docs").is_dir():
        raise RewindError("README.md and docs/ are not here; run `python tools/publish` in the root of a checkout.")
    if options.compare is not None:
        print(_compare_machines(root, options.source, options.compare))
        return 0
    if options.check:
        return _check_documents(root)
    if options.source:
        _store_results(root, options.source, options)
    comparison = compare_documents(root)
    for name in rewrite_documents(root, comparison):
        print(f"{name}: written")
    _print_warnings(root, comparison, options.source)
    return 0


def _store_results(root: Path, name: str, options: PublishOptions) -> None:
    if (root / f"config/studies/{name}.yaml").is_file():
        results = options.results or Path("results") / name
        folder = store.publish_study(root, name, results, options.machine)
    else:
        module = load_benchmark(root, name)
        results = options.results or Path(getattr(module, "FIGURES", f"results/{name}.csv"))
        folder = store.publish_benchmark(root, name, results, options.machine)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {describe_record(read_json(folder / 'record.json'))}; {size / 1000:.0f} kB")
    first_folder = store.machine_folders(root, name)[0]
    if first_folder == folder and results.is_dir():
        for line in documents.copy_pictures(root, name, results, folder):
            print(line)
    elif first_folder != folder:
        print(f"numbers and pictures in documents stay those of {first_folder.name}, the first machine by name")


def _check_documents(root: Path) -> int:
    comparison = compare_documents(root)
    faults, _ = documents.picture_faults(root, _published_studies(root))
    for block, body in comparison.changed:
        print(block_diff(block, body), end="\n\n")
    for line in faults:
        print(line)
    _print_warnings(root, comparison)
    if comparison.changed or faults or comparison.untrue:
        print("documents do not print what is published: `python tools/publish` writes it")
        return 1
    print("documents print what is published")
    return 0


def _print_warnings(root: Path, comparison: DocumentComparison, source: str | None = None) -> None:
    """Print what published results do not support, and results whose study has changed since; of one source, or all."""
    for block, reason in comparison.untrue:
        print(f"no longer true, rewrite it: {block.file}:{block.line}: {' '.join(block.body.split())} ({reason})")
    for block, reason in comparison.typed:
        if source in (None, block.what.split()[0]):
            print(f"typed, not yet published: {block.file}:{block.line}: {_shorten(block.what)} ({reason})")
    studies = [study for study in _published_studies(root) if source in (None, study)]
    for target in documents.picture_faults(root, studies)[1]:
        print(f"not yet published: {target}")
    for study in studies:
        for folder in store.machine_folders(root, study):
            if not (root / f"config/studies/{study}.yaml").is_file():
                print(f"{folder}: there is no config/studies/{study}.yaml any more")
            elif changed := store.changed_keys(study, folder):
                print(f"{folder}: config/studies/{study}.yaml has changed since: {'; '.join(changed[:3])}")


def _shorten(what: str) -> str:
    return what if len(what) <= 60 else f"{what[:60].rstrip()} …"


def _published_studies(root: Path) -> list[str]:
    records = [read_json(file) for file in sorted((root / store.PUBLISHED_FOLDER).glob("*/*/record.json"))]
    return list(dict.fromkeys(record["name"] for record in records if record["kind"] == "study"))


def _compare_machines(root: Path, source: str | None, names: list[str]) -> str:
    if not source:
        raise RewindError("name the study: python tools/publish demo --compare avx2 avx512")
    folders = {folder.name: folder for folder in store.machine_folders(root, source)}
    machines = names or list(folders)
    unknown = [name for name in machines if name not in folders]
    if unknown or len(machines) != 2:
        available = ", ".join(folders) or "none"
        raise RewindError(f"--compare takes two machines of {source}; published are: {available}.")
    return comparison_text(*(read_stored(root, folders[name]) for name in machines))
