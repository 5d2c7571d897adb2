"""Which emoji show one subject: variants of a pose stay on one side of a split."""

from __future__ import annotations

import re

_PEOPLE = frozenset({"1f468", "1f469", "1f9d1", "1f466", "1f467", "1f9d2"})
SKIN_TONE = re.compile("1f3f[b-f]")
_MODIFIERS = re.compile("-(200d|2640|2642|27a1)")  # joiner, female sign, male sign, facing right
_VARIANT_WORDS = re.compile(
    r"\b(wom[ae]n|m[ae]n|person|people|boy|girl|prince|princess|old|older|santa|mrs|mx|and|face|"
    r"red|orange|yellow|(light )?blue|green|purple|brown|black|white|grey|pink|small|large|not|done|closed|"
    r"up|down|left|right|facing|oncoming|backhand|front|with rain drops|without snow)\b"
)


def subjects_of(labels: dict[str, str]) -> dict[str, str]:
    """Group emoji that show one subject: code points → the smallest code points of its subject.

    Two emoji share a subject if they share, directly or through others,

    - the first code point (``person surfing``, ``woman surfing``; ``bear``, ``polar bear``) or, where that is
      a bare person, what the person is joined with (``man farmer``, ``farmer``; all with red hair); or
    - the label less words of sex, age, colour, direction and size (hearts of all colours; ``taxi``,
      ``oncoming taxi``; ``dog``, ``dog face``), of ``family: man, boy`` only ``family``; moons; clock faces.

    Faces of different expressions stay apart: the captions are about the expression. ``labels`` is the whole
    of emojibase, so that a subject does not depend on the packages in use.
    """
    parent = {code: code for code in labels if not SKIN_TONE.search(code)}

    def root(code: str) -> str:
        while parent[code] != code:
            code = parent[code]
        return code

    holder: dict[str, str] = {}
    for code in sorted(parent):
        for key in _subject_keys(code, labels[code]):
            low, high = sorted((root(code), root(holder.setdefault(key, code))))
            parent[high] = low
    return {code: root(code) for code in parent}


def _subject_keys(code: str, label: str) -> list[str]:
    base, *rest = _MODIFIERS.sub("", code).split("-")
    joined = [part for part in rest if part not in _PEOPLE]
    codes = [f"with {part}" for part in joined[:1]] if base in _PEOPLE else [f"base {base}"]
    return [*codes, f"label {_stem(label.lower())}"]


def _stem(label: str) -> str:
    if re.search(r"\bmoon( face)?$", label):
        return "moon"
    if re.search(r"o’clock$|-thirty$", label):
        return "clock face"
    parts = [" ".join(re.findall(r"[^\W_]+", _VARIANT_WORDS.sub("", part))) for part in label.split(":")]
    return next((part for part in parts if part), "person")
