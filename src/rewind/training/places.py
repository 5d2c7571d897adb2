"""Where a training state lies: a file of this machine, or an object behind an fsspec URL that outlives the machine."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from rewind.errors import RewindError
from rewind.files import atomic
from rewind.packaged import page

KEY = "resources.state_folder"
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
# What is put there is one object, which appears as a whole or not at all. Elsewhere a draft is renamed.
_WHOLE = frozenset({*_PACKAGES, "memory"})


class Place(Protocol):
    """One file, wherever it is; its text is what messages call it."""

    def reading(self) -> contextlib.AbstractContextManager[Path | None]:
        """A local file with the content, or None if there is none."""

    def writing(self) -> contextlib.AbstractContextManager[Path]:
        """A local draft, which replaces the content as a whole once the block ends without an error."""

    def beside(self, suffix: str) -> Place:
        """The same place with another suffix."""

    def move(self, other: Any) -> None:
        """Go to another place of the same kind; nothing happens if there is nothing here."""

    def remove(self) -> None:
        """Delete the content if there is any."""


def place_of(path: str | Path) -> Place:
    """The place that a path or a URL names; ``file://`` is a path."""
    text = str(path)
    if not is_url(text):
        return LocalPlace(Path(text).expanduser())
    if text.startswith("file://"):
        return LocalPlace(Path(unquote(urlsplit(text).path)))
    return RemotePlace(text)


def is_url(text: str) -> bool:
    """Whether a folder is given as a URL and not as a path."""
    return "://" in text


def url_faults(text: str) -> list[str]:
    """Why nothing can be kept at a folder or URL, as far as this can be told without going there."""
    if not is_url(text):
        return []
    parts = urlsplit(text)
    if parts.username or parts.password:
        return [
            f"{KEY}: the URL holds a name or a password, which logs would show; give credentials in the "
            f"environment or in the provider's own file ({page('cluster.md')})"
        ]
    try:
        _fsspec().get_filesystem_class(parts.scheme)
    except RewindError as error:
        return [str(error)]
    except ImportError:
        return [_missing(text)]
    except ValueError:
        return [f"{KEY}: {text}: fsspec knows no {parts.scheme}://; give a path, or a URL such as s3://bucket/folder"]
    return []


def check_state(saved: Any) -> None:
    """Refuse what is no training state: a file may be whole and hold something else.

    Raises:
        RewindError: saying so.
    """
    if not isinstance(saved, dict) or not {"fingerprint", "state"} <= saved.keys():
        raise RewindError("it holds something else than a training state")


class LocalPlace:
    """A file of this machine, or of a file system that it shares."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        yield self.path if self.path.exists() else None

    def writing(self) -> contextlib.AbstractContextManager[Path]:
        return atomic(self.path)

    def beside(self, suffix: str) -> LocalPlace:
        return LocalPlace(self.path.with_suffix(suffix))

    def move(self, other: LocalPlace) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(other.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class RemotePlace:
    """An object behind a URL that fsspec understands (https://filesystem-spec.readthedocs.io).

    A content is uploaded from a finished local file: an object store shows it as a whole or not at all, and to any
    other file system it goes under a name of its own and is renamed.

    Raises:
        RewindError: wherever the store cannot be used, with what to do about it.
    """

    def __init__(self, url: str) -> None:
        self.url, self.scheme = url, urlsplit(url).scheme
        with self._told():
            # Listings are never kept: another machine writes there too.
            self.store, self.key = _fsspec().core.url_to_fs(url, use_listings_cache=False)
        self.proven = False

    def __str__(self) -> str:
        return self.url

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        with tempfile.TemporaryDirectory(prefix="rewind-state-") as folder:
            path = Path(folder) / "state.pt"
            with self._told():
                self._prove()
                try:
                    self.store.get_file(self.key, str(path))
                except FileNotFoundError:
                    path = None
            yield path

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="rewind-state-") as folder:
            draft = Path(folder) / "state.pt"
            yield draft
            with self._told():
                self._put(draft)

    def beside(self, suffix: str) -> RemotePlace:
        head, _, name = self.url.rpartition("/")
        return RemotePlace(f"{head}/{Path(name).with_suffix(suffix).name}")

    def move(self, other: RemotePlace) -> None:
        with self._told(), contextlib.suppress(FileNotFoundError):
            self.store.mv(self.key, other.key)

    def remove(self) -> None:
        with self._told(), contextlib.suppress(FileNotFoundError):
            self.store.rm_file(self.key)

    def _put(self, draft: Path) -> None:
        if self.scheme in _WHOLE:
            self.store.put_file(str(draft), self.key)
            return
        passing = f"{self.key}.{uuid.uuid4().hex}.part"
        self.store.makedirs(self.key.rpartition("/")[0], exist_ok=True)
        try:
            self.store.put_file(str(draft), passing)
            self.store.mv(passing, self.key)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self.store.rm_file(passing)

    def _prove(self) -> None:
        """Write something and delete it: what cannot be written must come to light before hours of training."""
        if self.proven:
            return
        trial = f"{self.key}.trial"  # one name, so that a run deletes what a killed one left
        if self.scheme not in _WHOLE:
            self.store.makedirs(self.key.rpartition("/")[0], exist_ok=True)
        self.store.pipe_file(trial, b"rewind writes its training state here\n")
        with contextlib.suppress(FileNotFoundError):  # another process of this run did it
            self.store.rm_file(trial)
        self.proven = True

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except RewindError:
            raise
        except ImportError:
            raise RewindError(f"{_missing(self.url)}.") from None
        except Exception as error:  # every store has its own
            raise RewindError(f"{KEY}: {self.url}: {_said(error)}. The last saved state, if any, is kept.") from None


def _said(error: Exception) -> str:
    name, text = type(error).__name__, str(error).rstrip(".")
    if "Credential" in name or "Token" in name:
        return (
            f"no credentials ({text}): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the "
            "machine a role"
        )
    if isinstance(error, PermissionError):
        return f"access is refused ({text}): the credentials need the right to read, write and delete there"
    if isinstance(error, FileNotFoundError):
        return f"no such bucket or folder ({text}): make it, or correct the key"
    return (
        f"the store cannot be used ({name}: {text}): check the address (of S3 that is not Amazon's: AWS_ENDPOINT_URL) "
        "and the network, and start again"
    )


def _missing(url: str) -> str:
    package = _PACKAGES.get(urlsplit(url).scheme)
    if package == "s3fs":
        return f"{KEY}: {url} needs the package s3fs, which is not installed: pip install 'rewind-bench[cloud]'"
    wanted = f"the package {package}" if package else "another package of fsspec"
    return f"{KEY}: {url} needs {wanted}, which is not installed: pip install {package or '(see its documentation)'}"


def _fsspec() -> ModuleType:
    try:
        return importlib.import_module("fsspec")
    except ImportError:
        raise RewindError(f"{KEY}: a URL needs the package fsspec: pip install 'rewind-bench[cloud]'.") from None
