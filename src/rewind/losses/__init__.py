"""Training losses, one module each; a study names one in `training.objective`.

They are importable from here as well, and are called as the training loop calls them:

    >>> import torch
    >>> from rewind.losses import Infonce
    >>> class Dots:
    ...     def similarity(self, text, items):
    ...         return text["text"] @ items["frames"].T
    >>> pairs = {"items": torch.arange(2), "rows": torch.arange(2)}
    >>> loss = Infonce(Infonce.Options())
    >>> round(loss(Dots(), {"text": torch.eye(2)}, {"frames": torch.eye(2)}, pairs).value.item(), 3)
    0.313
"""

from typing import TYPE_CHECKING, Any

from rewind.registry import LOSSES

if TYPE_CHECKING:
    from rewind.losses.cdcr import Cdcr
    from rewind.losses.ceclip import Ceclip
    from rewind.losses.hnac import Hnac
    from rewind.losses.infonce import Infonce
    from rewind.losses.multi_positive import MultiPositive
    from rewind.losses.negclip import Negclip
    from rewind.losses.sanw import Sanw
    from rewind.losses.sigmoid import Sigmoid
    from rewind.losses.tact import Tact
    from rewind.losses.tara import Tara

__all__ = [
    "Cdcr",
    "Ceclip",
    "Hnac",
    "Infonce",
    "MultiPositive",
    "Negclip",
    "Sanw",
    "Sigmoid",
    "Tact",
    "Tara",
]


def __getattr__(name: str) -> Any:
    # On first access: code that only looks for a module in this package must not wait for torch.
    return LOSSES.attribute(name)
