"""Models on the hub: packages that read them, and what is there without a network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rewind import compat
from rewind.errors import RewindError
from rewind.files import raise_machine_fault
from rewind.study.encoding import Encoding

T = TypeVar("T")


def package(name: str) -> None:
    """Refuse a library that is not installed; it is not imported.

    Raises:
        RewindError: with the command that installs it.
    """
    if not compat.installed(name):
        extra = name.replace("_", "-")
        raise RewindError(
            f"encoder: the package {extra} is not installed: `pip install 'rewind-bench[{extra}]'`, or `pip install "
            "'rewind-bench[models]'` for all that encoders use."
        )


def offline() -> bool:
    """Whether the hub's client was told to stay away from the network."""
    return any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def cached(repository: str, names: Iterable[str], revision: str | None = None) -> bool:
    """Whether one of these files of a repository is in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, name, revision=revision), str) for name in names)


def cached_file(repository: str, name: str, revision: str | None = None) -> str | None:
    """Where a file of a repository is in the hub's cache; None where it is not."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, name, revision=revision)
    return found if isinstance(found, str) else None


def cache_folder() -> str:
    """Where the hub's client keeps files."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return HF_HUB_CACHE


def check_cached(encoding: Encoding, repository: str, names: list[str], remedy: str) -> None:
    """Refuse a repository of which nothing is here where nothing can be fetched.

    Args:
        encoding: names the model.
        repository: ``owner/name`` on the hub.
        names: files, any one of which is needed.
        remedy: what else to do.

    Raises:
        RewindError: naming the file and the cache.
    """
    if offline() and not cached(repository, names, encoding.revision):
        raise RewindError(
            f"name: {encoding.name}: HF_HUB_OFFLINE is set, and {repository}/{names[0]} is not in {cache_folder()}: "
            f"fetch it there once with a network (`hf download {repository}`), or {remedy}."
        )


def loaded(encoding: Encoding, load: Callable[[], T], remedy: str) -> T:
    """What ``load`` gives; a failure of network, disk or files becomes a sentence.

    Raises:
        RewindError: with the library's reason.
    """
    try:
        return load()
    except RewindError:
        raise
    except Exception as error:  # what is raised depends on the library and on the hub's client
        raise_machine_fault(error, encoding.name)
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RewindError(f"name: {encoding.name}: cannot be loaded ({reason}). {remedy}") from error


@contextlib.contextmanager
def missing_weights() -> Iterator[set[str]]:
    """Within, the names of weights that models of transformers are loaded without are collected.

    The library draws these at random and says so in its log alone; whoever loads through another library cannot ask.
    """
    kind = compat.transformers().PreTrainedModel
    load, missing = vars(kind)["from_pretrained"], set[str]()

    def noting(cls: Any, /, *arguments: Any, output_loading_info: bool = False, **keys: Any) -> Any:
        model, found = load.__func__(cls, *arguments, output_loading_info=True, **keys)
        missing.update(found["missing_keys"])
        return (model, found) if output_loading_info else model

    kind.from_pretrained = classmethod(noting)
    try:
        yield missing
    finally:
        kind.from_pretrained = load
