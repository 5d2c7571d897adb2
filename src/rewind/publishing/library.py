"""All published results of a checkout, as blocks ask for them."""

from __future__ import annotations

from pathlib import Path

from rewind.errors import RewindError
from rewind.publishing.agree import agreed
from rewind.publishing.store import machines
from rewind.publishing.stored import Stored, read
from rewind.reporting.sheet import Sheet


class Absent(Exception):
    """No published results hold what a block asks for; the text says why."""


class Unreadable(RewindError):
    """A published folder that this version cannot read."""


class Library:
    """All published results of a checkout, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, list[Stored]] = {}

    def machines(self, source: str) -> list[Stored]:
        """Every machine's results, the one whose numbers are printed first."""
        if source not in self._read:
            self._read[source] = [self._folder(folder) for folder in machines(self.root, source)]
        return self._read[source]

    def _folder(self, folder: Path) -> Stored:
        try:
            return read(self.root, folder)
        except RewindError as error:
            raise Unreadable(f"{folder}: {error}") from None

    def sheets(self, source: str, name: str) -> dict[str, Sheet]:
        """Machine → its table."""
        found = self.machines(source)
        sheets = {stored.name: sheet for stored in found if (sheet := stored.sheets.get(name))}
        if len(sheets) < len(found):
            raise Absent(f"{source} was published without the table {name}")
        return sheets

    def sheet(self, source: str, name: str) -> Sheet:
        """A table with the marks on which all machines agree."""
        return agreed(self.sheets(source, name), f"{source}, {name}")
