"""Results that travel: a finished study in one file, and how such a file is read when somebody else wrote it.

``rewind share`` writes the file, ``rewind board`` reads it. It is a zip archive of members that are not compressed,
with names from a closed list, and a ``manifest.json`` with the SHA-256 of every other member. It holds neither clips
nor captions, and weights only on request.

Whoever reads it trusts nothing: names, sizes and kinds of all members are checked before one is read, every member is
compared with its SHA-256, and what a board needs is unpacked to a temporary folder under names that are checked. No
member is ever run, unpickled or opened by a library that could. A checksum shows that the file is whole, not who wrote
it.
"""

from __future__ import annotations

import contextlib
import re
import stat
import struct
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from rewind.commands import STUDY_RECORD, snakemake_command
from rewind.errors import RewindError, printable_name
from rewind.exports.results import data_digests, first_records, json_text, shared_texts
from rewind.hashing import Sha256, sha256_hex, sha256_of
from rewind.io.files import atomic_write, non_file_kind, reading_user_file
from rewind.io.strict import check_json_escapes, decode_utf8, parse_json, strict_json_decoder
from rewind.packaged import installed_version
from rewind.report.board.studies import StudyCard
from rewind.workflow.checksums import recorded_files, verify_files_below

SHARED_FORMAT = 1
"""Raised when a reader of an older version could misread a file."""

KIND = "rewind results"
SUFFIX = ".rewind.zip"
MANIFEST, CARD = "manifest.json", "card.json"

# ---- What may be in a file, and how much of it ---------------------------------------------------------------------

_NAME = r"[A-Za-z0-9_\-]{1,100}"
_FILE = r"[A-Za-z0-9_\-.]{1,150}"
_RUN = rf"runs/{_NAME}/seed\d{{1,10}}"
BOARD_MEMBERS = (
    re.escape(CARD),
    r"metrics\.csv",
    r"statistics/(intervals|ranks|pairs)\.csv",
    rf"{_RUN}/run\.json",
)
"""Patterns of the members that a board reads."""
NEEDED_MEMBERS = ("metrics.csv", "statistics/intervals.csv")

PACKED = {
    "metrics.csv": r"metrics\.csv",
    "statistics/*.csv": r"statistics/[a-z_]{1,60}\.csv",
    "tables/*": rf"tables/{_FILE}\.(md|tex|csv|txt|json)",
    "ranks/*/seed*.*": rf"ranks/{_NAME}/seed\d{{1,10}}\.(json|parquet)",
    "runs/*/seed*/run.json": rf"{_RUN}/run\.json",
    "runs/*/seed*/history.csv": rf"{_RUN}/history\.csv",
}
"""Files of a folder of results that are packed → pattern of the names that may be. A page or a table as HTML could hold
scripts and is left out."""

WEIGHTS = {"runs/*/seed*/model.safetensors": rf"{_RUN}/model\.safetensors"}
"""The same for weights."""

_MADE = (re.escape(CARD), rf"mteb/{_NAME}/{_NAME}\.json", rf"model-index/{_NAME}\.yaml")
_MEMBER = re.compile("|".join([*_MADE, *PACKED.values(), *WEIGHTS.values()]))
_BOARD_MEMBER = re.compile("|".join(BOARD_MEMBERS))

MAX_MEMBERS = 20_000
MAX_DIRECTORY_BYTES = 16 << 20  # of the list of members, which zipfile reads at once
MAX_READ_BYTES = 32 << 20
"""Size of a member that is read as text; others are only compared with their checksums."""

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the same results give the same bytes


# ---- Writing -------------------------------------------------------------------------------------------------------


def share_study(results: Path, card: StudyCard, out: Path, weights: bool = False) -> tuple[list[str], list[str]]:
    """Pack a finished study: what its jobs recorded, and nothing else that lies there.

    Returns names of the members, in order, and of files that no job recorded, which are left out. With ``weights`` the
    checkpoints of all runs are packed too.

    Raises:
        RewindError: if there are no results, or a file is a link that leads out of the study, not a regular file, or
            not as its job left it.
    """
    files, left_out = _files_to_pack(results, weights)
    recorded = recorded_files(results)
    records = first_records(results, card)
    texts = {CARD: json_text(card.to_json())} | shared_texts(results, card, records)
    members = {name: _described(len(text.encode()), sha256_hex(text.encode())) for name, text in texts.items()}
    for name, path in files.items():
        known = recorded.get(path)
        members[name] = _described(known.bytes, known.sha256) if known else _described_file(path)
    manifest = {
        "kind": KIND,
        "format": SHARED_FORMAT,
        "rewind": installed_version(),
        "study": card.name,
        "data": data_digests(records),
        "members": members,
    }
    with atomic_write(out) as temporary:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, text in {MANIFEST: json_text(manifest), **texts}.items():
                archive.writestr(_member_info(name), text.encode())
            for name, path in files.items():
                with path.open("rb") as source, archive.open(_member_info(name), "w", force_zip64=True) as target:
                    digest = _copied(source, target)
                if digest != members[name]["sha256"]:
                    raise RewindError(f"{path}: it changed while it was packed; share the study again.")
        try:
            with opened_share(temporary):  # what cannot be read again is not handed out
                pass
        except RewindError as error:
            raise RewindError(str(error).replace(str(temporary), str(out))) from error
    return [MANIFEST, *members], left_out


def _copied(source: IO[bytes], target: IO[bytes]) -> str:
    digest = Sha256()
    while block := source.read(1 << 20):
        digest.update(block)
        target.write(block)
    return digest.hex()


def _files_to_pack(results: Path, weights: bool) -> tuple[dict[str, Path], list[str]]:
    """Name of a member → its file; and names of those that no job recorded, where the study has checksums.

    Files of other names are not part of a shared file.
    """
    patterns = PACKED | (WEIGHTS if weights else {})
    found = {
        name: path
        for pattern, names in patterns.items()
        for path in sorted(results.glob(pattern))
        # The study's record has its configuration, which names paths of this machine.
        if re.fullmatch(names, name := path.relative_to(results).as_posix()) and name != STUDY_RECORD
    }
    recorded = recorded_files(results)
    for path in found.values():
        if fault := _file_fault(path, results, recorded):
            raise RewindError(fault)
    verify_files_below(results, "tables", *patterns)
    files = {name: path for name, path in found.items() if not recorded or path in recorded}
    for needed in NEEDED_MEMBERS:
        if needed not in files:
            what = "no job of the study recorded it" if needed in found else "missing"
            command = snakemake_command(results / needed)
            raise RewindError(f"{results / needed}: {what}; run the study first (`{command}`).")
    return files, [name for name in found if name not in files]


def _file_fault(path: Path, results: Path, recorded: Collection[Path]) -> str:
    """What must not be handed on, why, and what to do; empty for a regular file of the study's own."""
    below = [path, *path.parents]
    for part in below[: below.index(results)]:
        if part.is_symlink():
            try:
                inside = part.resolve(strict=True).is_relative_to(results.resolve())
            except (OSError, RuntimeError):  # it leads nowhere, or to itself
                inside = False
            if not inside:
                where = printable_name(part)
                return (
                    f"{where}: a link that leads out of the study; put the study's own file in its place, or remove it."
                )
    if not path.is_file():
        return f"{printable_name(path)}: this is {non_file_kind(path) or 'not a file'}; remove it."
    if not recorded and path.stat().st_nlink > 1:
        return f"{printable_name(path)}: a file with other names (hard links); put a copy in its place, or remove it."
    return ""


def _member_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EARLIEST)
    info.external_attr = (stat.S_IFREG | 0o644) << 16  # the upper 16 bits are the mode of Unix
    info.create_system = 3  # Unix, on every machine
    return info


def _described(size: int, sha256: str) -> dict[str, Any]:
    return {"bytes": size, "sha256": sha256}


def _described_file(path: Path) -> dict[str, Any]:
    return _described(path.stat().st_size, sha256_of(path))


# ---- Reading what another user wrote -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SharedStudy:
    """A shared file that was checked, as far as a board needs it."""

    folder: Path  # temporary, with its numbers, laid out as a folder of results
    card: StudyCard
    manifest: Mapping[str, Any]


@contextlib.contextmanager
def opened_share(path: Path) -> Iterator[SharedStudy]:
    """A file of ``rewind share``, checked, with what a board reads in a temporary folder until the block ends.

    Raises:
        RewindError: naming the file and its member, if it is not such a file, was damaged, was written by a newer
            version, or holds anything that ``rewind share`` does not write: another name or one that leads out of the
            folder, a name twice, a link, a compressed or encrypted member, too many members, or a text that is too long
            or not UTF-8.
    """
    remedy = "ask for the file again"
    with tempfile.TemporaryDirectory(prefix="rewind-share-") as temporary:
        folder = Path(temporary)
        with reading_user_file(path, "file of `rewind share`", remedy), path.open("rb") as stream:
            _check_directory(path, stream)
            with zipfile.ZipFile(stream) as archive:
                members = _checked_members(path, archive)
                manifest = _read_manifest(path, archive, members)
                _unpack(path, archive, members, manifest["members"], folder)
        try:
            card = StudyCard.from_json(_parsed((folder / CARD).read_bytes(), f"{path}: {CARD}"), f"{path}: {CARD}")
            if card.name != manifest["study"]:
                raise RewindError(f"{path}: {MANIFEST} and {CARD} name different studies; {remedy}.")
            yield SharedStudy(folder, card, manifest)
        except RewindError as error:
            # Readers name the files that they read, which a user cannot find.
            raise RewindError(str(error).replace(f"{folder}/", f"{path}: ").replace(str(folder), str(path))) from error


_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")  # the same of zip64, with counts of 8 bytes
_LOCATOR64 = struct.Struct("<4sLQL")  # says where that is; it lies right before the end


def _check_directory(path: Path, stream: BinaryIO) -> None:
    """Refuse what is not a zip archive, or one whose list of members is too long, before Python reads the list."""
    size = stream.seek(0, 2)
    end = _tail(stream, size, _END)
    # end[7] is the length of a comment; with one this would not be the last record of the file.
    if end is None or end[0] != b"PK\x05\x06" or end[7]:
        raise RewindError(f"{path}: not a file of `rewind share`, or not all of it; ask for the file again.")
    count, length = int(end[4]), int(end[5])
    locator = _tail(stream, size - _END.size, _LOCATOR64)
    if locator is not None and locator[0] == b"PK\x06\x07":
        large = _tail(stream, size - _END.size - _LOCATOR64.size, _END64)
        if large is None or large[0] != b"PK\x06\x06":
            raise RewindError(f"{path}: its end is broken; ask for the file again.")
        count, length = max(count, int(large[7])), int(large[8])
    if count > MAX_MEMBERS or length > MAX_DIRECTORY_BYTES:
        raise RewindError(f"{path}: too many members ({count:,}); a shared study has at most {MAX_MEMBERS:,}.")
    stream.seek(0)


def _tail(stream: BinaryIO, end: int, layout: struct.Struct) -> tuple[Any, ...] | None:
    """The record that ends at a position; None where there is no room for it."""
    if end < layout.size:
        return None
    stream.seek(end - layout.size)
    return layout.unpack(stream.read(layout.size))


def _checked_members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """All members by name; none of them is read."""
    members: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise RewindError(f"{path}: too many members ({len(infos):,}); a shared study has at most {MAX_MEMBERS:,}.")
    for info in infos:
        fault = _member_fault(info)
        if not fault and info.filename in members:
            fault = "it is listed twice"
        if fault:
            raise RewindError(f"{path}: member {info.orig_filename!r:.120}: {fault}; do not use this file.")
        members[info.filename] = info
    # Members of a whole file are adjacent: sizes that add up to more are a lie or share their bytes.
    if sum(info.file_size for info in infos) > path.stat().st_size:
        raise RewindError(f"{path}: its members claim to be larger than the file; do not use this file.")
    return members


def _member_fault(info: zipfile.ZipInfo) -> str:
    """What is wrong with a member by the list of members; empty for one that may be read."""
    name = info.orig_filename
    parts = re.split(r"[/\\]", name)
    if ".." in parts or name.startswith(("/", "\\")) or ":" in name:
        return "its name leads out of the folder"
    # zipfile cuts a name at a NUL and changes separators: only where both names agree does a check of one hold for
    # both.
    if name != info.filename or (name != MANIFEST and not _MEMBER.fullmatch(name)):
        return "`rewind share` writes no such member"
    # 0: written on a system without modes.
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
        return "a link or a device, where a file is needed"
    if info.flag_bits & 0x1:
        return "it is encrypted"
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        return "it is compressed, which `rewind share` never does"
    if (name == MANIFEST or _BOARD_MEMBER.fullmatch(name)) and info.file_size > MAX_READ_BYTES:
        return f"{info.file_size:,} bytes, where at most {MAX_READ_BYTES:,} are read"
    return ""


def _read_manifest(path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]) -> dict[str, Any]:
    if MANIFEST not in members:
        raise RewindError(f"{path}: it has no {MANIFEST}, so it is not a file of `rewind share`.")
    where = f"{path}: {MANIFEST}"
    manifest = _parsed(archive.read(members[MANIFEST]), where)
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise RewindError(f"{where}: not that of a shared study; ask for the file again.")
    if manifest.get("format") != SHARED_FORMAT:
        made = manifest.get("format")
        newer = isinstance(made, int) and made > SHARED_FORMAT
        advice = "update Rewind" if newer else "ask for the file again"
        raise RewindError(f"{where}: format {made!r:.40}, where this version reads format {SHARED_FORMAT}; {advice}.")
    listed: Any = manifest.get("members")
    valid = isinstance(listed, dict) and all(
        isinstance(entry, dict)
        and re.fullmatch(r"[0-9a-f]{64}", str(entry.get("sha256")))
        and type(entry.get("bytes")) is int
        for entry in listed.values()
    )
    if not valid or not isinstance(manifest.get("study"), str):
        raise RewindError(f"{where}: its list of members is broken; ask for the file again.")
    different = sorted(set(listed) ^ (set(members) - {MANIFEST}))
    if different:
        what = "is missing" if different[0] in listed else "is not in the manifest"
        raise RewindError(f"{path}: member {different[0]!r:.120} {what}; ask for the file again.")
    for needed in (CARD, *NEEDED_MEMBERS):
        if needed not in listed:
            raise RewindError(f"{path}: member {needed!r} is missing; ask for the file again.")
    return manifest


def _unpack(
    path: Path,
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    listed: Mapping[str, Any],
    folder: Path,
) -> None:
    """Compare every member with its checksum, and write those that a board reads."""
    for name, entry in listed.items():
        digest, size, blocks = Sha256(), 0, []
        wanted = _BOARD_MEMBER.fullmatch(name)
        with archive.open(members[name]) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
                size += len(block)
                if wanted:
                    blocks.append(block)
        if size != entry["bytes"] or digest.hex() != entry["sha256"]:
            raise RewindError(f"{path}: member {name!r} is not as it was packed; ask for the file again.")
        if wanted:
            content = b"".join(blocks)
            decode_utf8(content, f"{path}: {name}")
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _parsed(content: bytes, where: str) -> Any:
    text = decode_utf8(content, where)
    check_json_escapes(text, where)
    return parse_json(text, where, lambda: strict_json_decoder().decode(text))
