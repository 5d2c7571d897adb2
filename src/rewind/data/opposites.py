"""Captions that say the opposite of another one: from a file of captions, or from a table of opposite words.

Both are CSV files of the user's, told apart by their columns:

- ``caption_id,opposite``: a caption of the opposite direction, a row for each; a caption may have several.
- ``word,opposite,confirmed``: a word or several ("picks up") and what takes its place; both ways. Only rows whose
  ``confirmed`` is yes count, because which words are opposites of each other in a data set is for a person to say
  (``rewind opposites`` proposes rows).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewind.data.tokenizers import plain_text
from rewind.errors import RewindError
from rewind.io.schema import FILLED, ID, OPTIONAL, TEXT, RowChecks, Schema, tell_left_out
from rewind.io.strict import read_user_csv, read_user_text

CAPTION_COLUMNS = Schema({"caption_id": ID, "opposite": FILLED}, others=True, unique=(("caption_id", "opposite"),))
WORD_COLUMNS = Schema(
    {"word": FILLED, "opposite": FILLED, "confirmed": TEXT, "captions": OPTIONAL, "example": OPTIONAL}
)
YES, NO = ("yes", "y", "true", "1"), ("no", "n", "false", "0", "")

OPPOSITE_VERBS = (
    ("open", "close"),
    ("push", "pull"),
    ("enter", "leave"),
    ("enter", "exit"),
    ("arrive", "depart"),
    ("approach", "leave"),
    ("rise", "fall"),
    ("rise", "sink"),
    ("raise", "lower"),
    ("lift", "lower"),
    ("climb", "descend"),
    ("ascend", "descend"),
    ("grow", "shrink"),
    ("expand", "contract"),
    ("inflate", "deflate"),
    ("fill", "empty"),
    ("fold", "unfold"),
    ("wrap", "unwrap"),
    ("roll", "unroll"),
    ("tie", "untie"),
    ("lock", "unlock"),
    ("cover", "uncover"),
    ("load", "unload"),
    ("pack", "unpack"),
    ("zip", "unzip"),
    ("button", "unbutton"),
    ("plug", "unplug"),
    ("screw", "unscrew"),
    ("attach", "detach"),
    ("connect", "disconnect"),
    ("assemble", "disassemble"),
    ("build", "demolish"),
    ("insert", "remove"),
    ("add", "remove"),
    ("appear", "disappear"),
    ("appear", "vanish"),
    ("advance", "retreat"),
    ("accelerate", "decelerate"),
    ("start", "stop"),
    ("begin", "end"),
    ("melt", "freeze"),
    ("light", "extinguish"),
    ("brighten", "darken"),
    ("tighten", "loosen"),
    ("stretch", "compress"),
    ("bend", "straighten"),
    ("throw", "catch"),
    ("drop", "lift"),
    ("give", "take"),
    ("put", "take"),
    ("inhale", "exhale"),
    ("emerge", "submerge"),
    ("stand", "sit"),
)
"""Pairs of verbs that may be opposites in time; what is proposed, never what is used."""
OPPOSITE_WORDS = (
    ("up", "down"),
    ("in", "out"),
    ("into", "out of"),
    ("on", "off"),
    ("onto", "off"),
    ("forward", "backward"),
    ("forwards", "backwards"),
    ("toward", "away from"),
    ("towards", "away from"),
    ("left", "right"),
    ("to", "from"),
    ("before", "after"),
    ("clockwise", "counterclockwise"),
    ("upward", "downward"),
    ("upwards", "downwards"),
    ("inward", "outward"),
    ("together", "apart"),
)
_IRREGULAR = {
    "rise": ("rises", "rising", "rose", "risen"),
    "fall": ("falls", "falling", "fell", "fallen"),
    "sink": ("sinks", "sinking", "sank", "sunk"),
    "leave": ("leaves", "leaving", "left", "left"),
    "grow": ("grows", "growing", "grew", "grown"),
    "shrink": ("shrinks", "shrinking", "shrank", "shrunk"),
    "build": ("builds", "building", "built", "built"),
    "begin": ("begins", "beginning", "began", "begun"),
    "freeze": ("freezes", "freezing", "froze", "frozen"),
    "bend": ("bends", "bending", "bent", "bent"),
    "throw": ("throws", "throwing", "threw", "thrown"),
    "catch": ("catches", "catching", "caught", "caught"),
    "give": ("gives", "giving", "gave", "given"),
    "take": ("takes", "taking", "took", "taken"),
    "put": ("puts", "putting", "put", "put"),
    "stand": ("stands", "standing", "stood", "stood"),
    "sit": ("sits", "sitting", "sat", "sat"),
    "light": ("lights", "lighting", "lit", "lit"),
    "tie": ("ties", "tying", "tied", "tied"),
    "untie": ("unties", "untying", "untied", "untied"),
}
_DOUBLED = ("stop", "drop", "wrap", "unwrap", "zip", "unzip", "plug", "unplug")
"""Verbs whose last consonant is written twice before -ing and -ed."""


# ---- Tables of opposite words --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OppositeWords:
    """Words and what takes their places; both ways.

    >>> words = OppositeWords.of([("opens", "closes"), ("picks up", "puts down")])
    >>> words.rewrite("A man opens a box and picks up a cup."), words.rewrite("a dog runs")
    ('A man closes a box and puts down a cup.', None)
    """

    opposites: Mapping[str, str]  # in lower case

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> OppositeWords:
        """From pairs; of two pairs with one word the first counts."""
        opposites: dict[str, str] = {}
        for word, opposite in pairs:
            opposites.setdefault(word, opposite)
            opposites.setdefault(opposite, word)
        return cls(opposites)

    def rewrite(self, caption: str) -> str | None:
        """The caption with every listed word replaced at once, longer ones first; None if it has none of them.

        A capital letter at the beginning of a word stays one.
        """
        changed = self._pattern.sub(self._replace, caption)
        return changed if plain_text(changed) != plain_text(caption) else None

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        words = sorted(self.opposites, key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words)) or '(?!)'})(?!\w)", re.IGNORECASE)

    def _replace(self, match: re.Match[str]) -> str:
        word = match.group()
        opposite = self.opposites[plain_text(word)]
        return opposite[:1].upper() + opposite[1:] if word[:1].isupper() else opposite


# ---- Files ---------------------------------------------------------------------------------------------------------


def read_opposites(path: str | Path, captions: Mapping[str, str]) -> dict[str, list[str]]:
    """Captions of the opposite direction, by the id of the caption whose opposite they are.

    Rows of other captions than ``captions`` (id → text, of a split) are left out, and so is an opposite with the words
    of its own caption; both are counted.

    Raises:
        RewindError: naming file and row, for columns of neither kind, an empty cell, a word with two opposites, a value
            of ``confirmed`` that is neither yes nor no, or if not one caption has an opposite.
    """
    found = _read_captions(path, captions) if _names_captions(path) else _read_words(path, captions)
    if not found:
        raise RewindError(
            f"{path}: not one of the {len(captions):,} training captions has an opposite in this file; look at its "
            "ids, or its words."
        )
    return found


def check_opposites(path: str | Path, known: Collection[str] | None = None) -> None:
    """Refuse what :func:`read_opposites` refuses whatever the captions are.

    ``known`` are the ids of all captions of the data set, if they are known before the first job.
    """
    if _names_captions(path):
        checks = RowChecks(CAPTION_COLUMNS, {} if known is None else {"caption_id": known}, "the data set")
        for _ in read_user_csv(path, CAPTION_COLUMNS, "(`training.hard_negatives`)", checks):
            pass
    elif known is None:
        read_word_pairs(path)


def _names_captions(path: str | Path) -> bool:
    """Whether a file is of opposites by caption, and not by word."""
    return "caption_id" in read_user_text(path, "(`training.hard_negatives`)").partition("\n")[0]


def _read_captions(path: str | Path, captions: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    left_out: Counter[str] = Counter()
    for row in read_user_csv(path, CAPTION_COLUMNS, "(`training.hard_negatives`)"):
        caption_id, opposite = row.cells["caption_id"], " ".join(row.cells["opposite"].split())
        if caption_id not in captions:
            left_out["rows of captions that are not trained on"] += 1
        elif plain_text(opposite) == plain_text(captions[caption_id]):
            left_out["opposites with the words of their own caption"] += 1
        else:
            found.setdefault(caption_id, []).append(opposite)
    tell_left_out(path, left_out)
    return found


def _read_words(path: str | Path, captions: Mapping[str, str]) -> dict[str, list[str]]:
    words = OppositeWords.of(read_word_pairs(path))
    rewritten = {name: words.rewrite(text) for name, text in captions.items()}
    return {name: [text] for name, text in rewritten.items() if text is not None}


def read_word_pairs(path: str | Path) -> list[tuple[str, str]]:
    """The confirmed pairs of a table of opposite words, in lower case; a table without any is refused."""
    pairs: dict[str, tuple[str, int]] = {}
    result = []
    for row in read_user_csv(path, WORD_COLUMNS, "(`training.hard_negatives`)"):
        where = f"{path}: row {row.number}"
        word, opposite = (plain_text(row.cells[name]) for name in ("word", "opposite"))
        confirmed = row.cells["confirmed"].strip().lower()
        if confirmed not in (*YES, *NO):
            raise RewindError(f"{where}: confirmed is {confirmed!r}; write yes or no.")
        if confirmed in NO:
            continue
        if word == opposite:
            raise RewindError(f"{where}: {word!r} cannot be its own opposite; correct the row.")
        for one, other in ((word, opposite), (opposite, word)):
            if pairs.setdefault(one, (other, row.number))[0] != other:
                raise RewindError(
                    f"{where}: {one!r} has another opposite, {pairs[one][0]!r}, in row {pairs[one][1]}; confirm one "
                    "of them."
                )
        result.append((word, opposite))
    if not result:
        raise RewindError(
            f"{path}: no row is confirmed: read the rows, and write yes into the column confirmed of those that are "
            "opposites in your clips."
        )
    return result


# ---- Proposals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proposal:
    """Two words that may be opposites, and how many captions have one of them."""

    word: str
    opposite: str
    captions: int
    example: str


def propose_opposites(captions: Sequence[str], twins: Sequence[tuple[str, str]] = ()) -> list[Proposal]:
    """Pairs of words that occur in captions and may be opposites in time, the most frequent first.

    ``twins`` are captions of a clip and of its reversed twin. Where two of them differ only in one word, or in one run
    of words, these are proposed first: a person wrote them as opposites.

    >>> found = propose_opposites(["a man opens a box", "she closes it"])
    >>> [(one.word, one.opposite, one.captions) for one in found]
    [('opens', 'closes', 2)]
    """
    differing = Counter(pair for first, second in twins if (pair := _only_difference(first, second)))
    known = [pair for pair, count in differing.most_common() if count > 1]
    known += [*_inflected_pairs(), *OPPOSITE_WORDS]
    lowered = [f" {' '.join(_words(caption))} " for caption in captions]
    proposals: dict[frozenset[str], Proposal] = {}
    for word, opposite in known:
        having = [n for n, text in enumerate(lowered) if f" {word} " in text or f" {opposite} " in text]
        if having:
            proposals.setdefault(
                frozenset((word, opposite)), Proposal(word, opposite, len(having), captions[having[0]])
            )
    return sorted(proposals.values(), key=lambda one: -one.captions)


def _words(caption: str) -> list[str]:
    return re.findall(r"[^\W_]+", caption.lower())


def _only_difference(first: str, second: str) -> tuple[str, str] | None:
    """The words in which two captions differ, if that is one run of words of each; None otherwise."""
    a, b = _words(first), _words(second)
    begin = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = next(
        (n for n, (x, y) in enumerate(zip(reversed(a[begin:]), reversed(b[begin:]), strict=False)) if x != y),
        min(len(a), len(b)) - begin,
    )
    parts = " ".join(a[begin : len(a) - end]), " ".join(b[begin : len(b) - end])
    short = all(part and len(part.split()) <= 3 for part in parts)
    return (min(parts), max(parts)) if short else None


def _inflected_pairs() -> list[tuple[str, str]]:
    """Every form of each pair of verbs: opens/closes, opening/closing, opened/closed."""
    pairs = []
    for first, second in OPPOSITE_VERBS:
        pairs += list(dict.fromkeys(zip(_forms(first), _forms(second), strict=True)))
    return pairs


def _forms(verb: str) -> tuple[str, ...]:
    if verb in _IRREGULAR:
        return (verb, *_IRREGULAR[verb])
    stem = verb + verb[-1] if verb in _DOUBLED else verb
    third = f"{verb}es" if verb.endswith(("s", "sh", "ch", "x")) else f"{verb}s"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return (verb, f"{verb[:-1]}ies", f"{verb}ing", f"{verb[:-1]}ied", f"{verb[:-1]}ied")
    if verb.endswith("e"):
        return (verb, third, f"{verb[:-1]}ing", f"{verb}d", f"{verb}d")
    return (verb, third, f"{stem}ing", f"{stem}ed", f"{stem}ed")
