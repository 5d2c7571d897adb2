"""Where a training state is stored: a local file, or an object behind an fsspec URL that outlives the machine.

A store's content is replaced as a whole or not at all (`resources.state_folder`).
"""

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
from rewind.io.files import atomic_write
from rewind.packaged import docs_page

STATE_FOLDER_KEY = "resources.state_folder"
_FSSPEC_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
# An upload there writes one object, which appears as a whole or not at all. Elsewhere a temporary file is renamed.
_ATOMIC_SCHEMES = frozenset({*_FSSPEC_PACKAGES, "memory"})


class CheckpointStore(Protocol):
    """One file, wherever it is; its text is what messages call it."""

    def reading(self) -> contextlib.AbstractContextManager[Path | None]:
        """A local file with the content, or None if there is no content."""

    def writing(self) -> contextlib.AbstractContextManager[Path]:
        """A local temporary file, which replaces the content as a whole once the block ends without an error."""

    def beside(self, suffix: str) -> CheckpointStore:
        """The store of the same path with another suffix."""

    def move(self, other: Any) -> None:
        """Rename to another store of the same kind; nothing happens if there is no content."""

    def remove(self) -> None:
        """Delete the content if there is any."""


def open_checkpoint_store(path: str | Path) -> CheckpointStore:
    """The store that a path or a URL names; ``file://`` is a path.

    >>> str(open_checkpoint_store("file:///scratch/my%20study/state.pt"))
    '/scratch/my study/state.pt'
    """
    text = str(path)
    if not is_url(text):
        return LocalStore(Path(text).expanduser())
    if text.startswith("file://"):
        return LocalStore(Path(unquote(urlsplit(text).path)))
    return RemoteStore(text)


def is_url(text: str) -> bool:
    """Whether a folder is given as a URL and not as a path."""
    return "://" in text


def state_folder_problems(text: str) -> list[str]:
    """Why nothing can be stored at a folder or URL, as far as this can be known without accessing it."""
    if not is_url(text):
        return []
    parts = urlsplit(text)
    if parts.username or parts.password:
        return [
            f"{STATE_FOLDER_KEY}: the URL holds a name or a password, which logs would show; give credentials in the "
            f"environment or in the provider's own file ({docs_page('cluster.md')})"
        ]
    try:
        _fsspec().get_filesystem_class(parts.scheme)
    except RewindError as error:
        return [str(error)]
    except ImportError:
        return [_missing_package_message(text)]
    except ValueError:
        return [
            f"{STATE_FOLDER_KEY}: {text}: fsspec knows no {parts.scheme}://; give a path, or a URL such as "
            "s3://bucket/folder"
        ]
    return []


def check_training_state(saved: Any) -> None:
    """Refuse what is not a training state: a file may be undamaged and hold something else."""
    if not isinstance(saved, dict) or not {"fingerprint", "state"} <= saved.keys():
        raise RewindError("it does not hold a training state")


class LocalStore:
    """A file of this machine, or of a file system that it shares."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        yield self.path if self.path.exists() else None

    def writing(self) -> contextlib.AbstractContextManager[Path]:
        return atomic_write(self.path)

    def beside(self, suffix: str) -> LocalStore:
        return LocalStore(self.path.with_suffix(suffix))

    def move(self, other: LocalStore) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.replace(other.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


class RemoteStore:
    """An object behind a URL that fsspec understands (https://filesystem-spec.readthedocs.io).

    The content is uploaded from a finished local file: an object store shows it as a whole or not at all, and on any
    other file system it is uploaded under a temporary name and renamed.
    """

    def __init__(self, url: str) -> None:
        self.url, self.scheme = url, urlsplit(url).scheme
        with self._explained_errors():
            # No cache of listings: another machine writes there too.
            self.store, self.key = _fsspec().core.url_to_fs(url, use_listings_cache=False)
        self.write_tested = False

    def __str__(self) -> str:
        return self.url

    @contextlib.contextmanager
    def reading(self) -> Iterator[Path | None]:
        with tempfile.TemporaryDirectory(prefix="rewind-state-") as folder:
            path: Path | None = Path(folder) / "state.pt"
            with self._explained_errors():
                self._test_writing()
                try:
                    self.store.get_file(self.key, str(path))
                except FileNotFoundError:
                    path = None
            yield path

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="rewind-state-") as folder:
            path = Path(folder) / "state.pt"
            yield path
            with self._explained_errors():
                self._put(path)  # not reached if the block raised

    def beside(self, suffix: str) -> RemoteStore:
        head, _, name = self.url.rpartition("/")
        return RemoteStore(f"{head}/{Path(name).with_suffix(suffix).name}")

    def move(self, other: RemoteStore) -> None:
        with self._explained_errors(), contextlib.suppress(FileNotFoundError):
            self.store.mv(self.key, other.key)

    def remove(self) -> None:
        with self._explained_errors(), contextlib.suppress(FileNotFoundError):
            self.store.rm_file(self.key)

    def _put(self, path: Path) -> None:
        if self.scheme in _ATOMIC_SCHEMES:
            self.store.put_file(str(path), self.key)
            return
        temporary = f"{self.key}.{uuid.uuid4().hex}.part"
        self.store.makedirs(self.key.rpartition("/")[0], exist_ok=True)
        try:
            self.store.put_file(str(path), temporary)
            self.store.mv(temporary, self.key)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self.store.rm_file(temporary)  # left there only if the upload or the renaming failed

    def _test_writing(self) -> None:
        """Write something and delete it: a store that refuses writing must be found before hours of training."""
        if self.write_tested:
            return
        trial = f"{self.key}.trial"  # always the same name, so that a run deletes what a killed one left
        if self.scheme not in _ATOMIC_SCHEMES:
            self.store.makedirs(self.key.rpartition("/")[0], exist_ok=True)
        self.store.pipe_file(trial, b"rewind writes its training state here\n")
        with contextlib.suppress(FileNotFoundError):  # another process of this run has deleted it
            self.store.rm_file(trial)
        self.write_tested = True

    @contextlib.contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except RewindError:
            raise
        except ImportError:
            raise RewindError(f"{_missing_package_message(self.url)}.") from None
        except Exception as error:  # every store raises its own types
            raise RewindError(
                f"{STATE_FOLDER_KEY}: {self.url}: {_explain_store_error(error)}. The last saved state, if any, is kept."
            ) from None


def _explain_store_error(error: Exception) -> str:
    name, text = type(error).__name__, str(error).rstrip(".")
    if "Credential" in name or "Token" in name:
        return (
            f"no credentials ({text}): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or give the "
            "machine a role"
        )
    if isinstance(error, PermissionError):
        return f"access is refused ({text}): the credentials need the right to read, write and delete there"
    if isinstance(error, FileNotFoundError):
        return f"no such bucket or folder ({text}): create it, or correct the key"
    return (
        f"the store cannot be used ({name}: {text}): check the address (of S3 that is not Amazon's: AWS_ENDPOINT_URL) "
        "and the network, and start again"
    )


def _missing_package_message(url: str) -> str:
    package = _FSSPEC_PACKAGES.get(urlsplit(url).scheme)
    needed = f"the package {package}" if package else "another package of fsspec"
    install = "'rewind-bench[cloud]'" if package == "s3fs" else package or "(see its documentation)"
    return f"{STATE_FOLDER_KEY}: {url} needs {needed}, which is not installed: pip install {install}"


def _fsspec() -> ModuleType:
    """The package fsspec, imported only where a URL is used: most studies have none, and need not install it."""
    try:
        return importlib.import_module("fsspec")
    except ImportError:
        raise RewindError(
            f"{STATE_FOLDER_KEY}: a URL needs the package fsspec: pip install 'rewind-bench[cloud]'."
        ) from None


def state_path(path: str, folder: str | None = None) -> str:
    """Where a run's state is: ``results/<study>/.state/…``, or ``<folder>/<study>/…`` if a folder or URL is given.

    >>> state_path("results/demo/.state/runs/a/seed0.pt", "s3://bucket/states/")
    's3://bucket/states/demo/runs/a/seed0.pt'
    """
    if not folder:
        return path
    study_folder, _, rest = path.partition("/.state/")
    return "/".join([folder.rstrip("/"), Path(study_folder).name, rest])
