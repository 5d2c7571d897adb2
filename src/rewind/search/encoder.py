"""Queries of a run on vectors: encoded by the network that made the data set's caption vectors."""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from rewind.encoders.sides import text_encoder
from rewind.errors import RewindError
from rewind.files import read_json
from rewind.models.embeddings import NO_TOWER
from rewind.search.trust import refuse_encoders
from rewind.study.embeddings import EmbeddingsSource, MadeFrom

READY = "source/ready.json"  # says how the vectors were made


class QueryEncoder:
    """Stands where a backbone stands in other runs; it only prepares text.

    Args:
        keys: how the vectors were made.
        device: where the network runs.
    """

    tokenizer = max_words = None  # the network takes any text

    def __init__(self, keys: MadeFrom, device: torch.device) -> None:
        self.encode, self.unit = text_encoder(keys, device), keys.unit

    @torch.inference_mode()
    def prepare_text(self, captions: list[str]) -> Tensor:
        """Vectors (n, dt), as those of the data set's captions."""
        found = self.encode(captions).float()
        return F.normalize(found, dim=1) if self.unit else found


def query_encoder(data: Path, device: torch.device, trust: bool = False) -> QueryEncoder:
    """The encoder of the data set in ``data``.

    Args:
        data: ``results/data/<dataset>``.
        device: where its network runs.
        trust: also load code that is not Rewind's.

    Raises:
        RewindError: if its vectors were not made here, or by code that was not trusted.
    """
    content = read_json(data / READY)
    try:
        source = EmbeddingsSource.model_validate(content["source"])
    except (KeyError, TypeError, ValidationError):
        raise RewindError(
            f"{data / READY}: does not say how the vectors were made; make it again with "
            "`snakemake --cores all prepared`."
        ) from None
    if source.made_from is None:
        raise RewindError(f"{data}: {NO_TOWER} A data set with source.made_from can be searched.")
    if not trust:
        refuse_encoders(source.made_from, data / READY)
    return QueryEncoder(source.made_from, device)
