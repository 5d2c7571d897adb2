"""``rewind opposites``: propose words of captions that may be opposites in time, for a person to confirm."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from rewind.commands import prepare_command
from rewind.config import Dataset
from rewind.data.annotations import Annotations, twin_of
from rewind.data.opposites import WORD_COLUMNS, propose_opposites
from rewind.errors import RewindError, count_noun
from rewind.io.files import check_output_file, write_csv
from rewind.io.strict import read_user_csv
from rewind.workflow.queries import known_annotations

COLUMNS = (*WORD_COLUMNS.needed, *WORD_COLUMNS.optional)
MAX_TWIN_CAPTIONS = 3
"""Captions of a clip that are compared with as many of its twin."""


def write_opposites(dataset: Dataset, path: Path) -> str:
    """Write proposals as a CSV file; what a person has decided in an earlier one stays.

    Returns the text for the terminal. The proposals are from training captions. The column ``confirmed`` is empty, and
    only rows in which a person writes yes are ever used.

    Raises:
        RewindError: if the captions cannot be known yet, if there is nothing to propose, or if the file is another one.
    """
    check_output_file(path, "--out", _is_table_of_words)
    annotations = known_annotations(dataset, Path("results"))
    if annotations is None:
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: its captions do not exist yet; prepare them "
            f"(`{prepare_command(f'results/data/{dataset.name}')}`), or put its files there."
        )
    decided = _decided(path)
    captions = annotations.captions[annotations.captions["split"] == "train"]
    proposals = propose_opposites(captions["caption"].tolist(), _captions_of_twins(annotations))
    table = pd.DataFrame([asdict(one) for one in proposals], columns=list(COLUMNS))
    pairs = [frozenset((one.word, one.opposite)) for one in proposals]
    table["confirmed"] = [decided.pop(pair, "") for pair in pairs]
    own = [{"word": min(pair), "opposite": max(pair), "confirmed": said} for pair, said in decided.items()]
    table = pd.concat([table, pd.DataFrame(own, columns=list(COLUMNS))], ignore_index=True)
    if table.empty:
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: no training caption has a word that might have an opposite; write a "
            f"CSV {','.join(WORD_COLUMNS.needed)} of your own."
        )
    write_csv(path, table[list(COLUMNS)].fillna(""))
    confirmed = int((table["confirmed"].fillna("") != "").sum())
    return (
        f"{path}: {count_noun(len(table), 'pair')} of words in {len(captions):,} training captions; {confirmed} "
        "decided. Nothing is used before you write yes into the column confirmed."
    )


def _is_table_of_words(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().lstrip("\ufeff").startswith(",".join(WORD_COLUMNS.needed))


def _decided(path: Path) -> dict[frozenset[str], str]:
    """What a person wrote into an earlier file, by pair of words."""
    if not path.is_file():
        return {}
    rows = (row.cells for row in read_user_csv(path, WORD_COLUMNS))
    return {
        frozenset((cells["word"].strip(), cells["opposite"].strip())): cells["confirmed"].strip()
        for cells in rows
        if cells["confirmed"].strip()
    }


def _captions_of_twins(annotations: Annotations) -> list[tuple[str, str]]:
    """Captions of training clips, each with one of the clip's twin."""
    train = annotations.captions[annotations.captions["split"] == "train"]
    by_item = train.groupby("video_id", sort=False)["caption"].apply(lambda texts: texts.tolist()[:MAX_TWIN_CAPTIONS])
    texts = by_item.to_dict()
    pairs = ((own, texts.get(twin_of(str(name)), [])) for name, own in texts.items())
    return [pair for own, others in pairs for pair in itertools.product(own, others)]
