"""Sums of stages: what rules pass as ``code``, and the parts that each sum stands for."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from rewind.files import digest, remembered, write_json
from rewind.identity.follow import Parts, follow
from rewind.identity.modules import Reader
from rewind.identity.stages import NEVER, STAGES
from rewind.packaged import FOLDER

STORE = Path(".snakemake/rewind/identity")
"""Where the parts of sums are kept: beside Snakemake's own record of what was made with which sum."""


class Identity:
    """Computes the identities of stages; files are read once.

    Args:
        library: folder of the package ``rewind``; this one's.
        memory: see :class:`rewind.identity.modules.Reader`.
    """

    def __init__(self, library: Path | None = None, memory: Path | None = None) -> None:
        self.reader = Reader(library or Path(__file__).parents[1], NEVER, memory)

    def parts(self, stage: str, named: Iterable[str] = (), instead: Mapping[str, Iterable[str]] | None = None) -> Parts:
        """The parts of a stage's identity.

        Args:
            stage: of :data:`rewind.identity.stages.STAGES`.
            named: modules that the stage finds by name at run time, of the library or of the user's own.
            instead: see :func:`rewind.identity.stages.instead`.
        """
        chosen = sorted((place, tuple(roots)) for place, roots in (instead or {}).items())
        return dict(self._parts(stage, tuple(dict.fromkeys(named)), tuple(chosen)))

    @functools.cache  # noqa: B019 - one object lives as long as the process
    def _parts(self, stage: str, named: tuple[str, ...], instead: tuple[tuple[str, tuple[str, ...]], ...]) -> Parts:
        return follow(self.reader, (*STAGES[stage].roots, *named), dict(instead))


def total(stage: str, parts: Parts) -> str:
    """The sum of a stage's parts, 16 hex digits."""
    return digest(stage, parts)


def remember(stage: str, parts: Parts, store: Path = STORE) -> str:
    """The sum of parts, which are kept so that ``rewind why`` can say what changed since."""
    mark = total(stage, parts)
    path = store / f"{mark}.json"
    if not path.is_file():
        with contextlib.suppress(OSError):  # to look at a checkout that is read-only is no fault
            write_json(path, {"stage": stage, "parts": parts})
    return mark


def recall(mark: str, store: Path = STORE) -> tuple[str, Parts] | None:
    """The stage and the parts of a sum, if they were kept."""
    try:
        content = remembered(store / f"{mark}.json")
        return content["stage"], content["parts"]
    except (KeyError, TypeError):
        return None


@functools.cache
def library() -> str:
    """Content hash of all code of the library, comments and all: for what is cheap to do again.

    A wheel and a checkout have the same: the workflow, which only a wheel holds here, is no part of it.
    """
    root, whole = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] != FOLDER:
            whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]
