"""What every configuration model shares."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Keys(BaseModel):
    """A block of a YAML file: unknown keys are refused, values cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def key(default: Any, description: str, **bounds: Any) -> Any:
    """A key with its default, its meaning for ``config/README.md``, and its bounds."""
    return Field(default, description=description, **bounds)


def required(description: str, **bounds: Any) -> Any:
    """A key that the file must give."""
    return Field(..., description=description, **bounds)
