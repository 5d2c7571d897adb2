"""How many kernels one training step starts, and how many bytes they read and write: counted, on any machine.

    python benchmarks/step_kernels.py [--clips 16] [--frames 12] [--precision bf16] [--head meanP] …

ViT-B/32 at 224 pixels with random weights, forward and backward to the gradients: with blocks as open_clip computes
them, and as :mod:`rewind.models.autocast` does. What memory takes on a GPU is these bytes over its bandwidth, but for
what stays in its caches; a CPU starts other kernels for attention and convolution, and casts no norms.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import real_step
from gpu_check.speed import restore_blocks
from rewind.losses.infonce import infonce
from rewind.training.grad_cache import exact_step

CAST = "aten._to_copy"


class KernelCount(TorchDispatchMode):
    """Counts operations that compute or copy, below autograd and autocast, and the bytes of their tensors.

    >>> with KernelCount() as count:
    ...     _ = torch.ones(4, 4)[0] + 1
    >>> count.kernels
    Counter({'aten.ones': 1, 'aten.add': 1})
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        given, made = ([x for x in tree_leaves(part) if isinstance(x, Tensor)] for part in ((args, kwargs), result))
        memory = {x.untyped_storage().data_ptr() for x in given}
        is_view = all(x.untyped_storage().data_ptr() in memory for x in made) and not operation._schema.is_mutable
        if not is_view:
            name = str(operation.overloadpacket)
            self.kernels[name] += 1
            self.bytes[name] += sum(x.numel() * x.element_size() for x in (*given, *made))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--head", default="meanP")
    parser.add_argument("--architecture", default=real_step.ARCHITECTURE)
    options = parser.parse_args()
    real_step.FRAMES, real_step.ARCHITECTURE = options.frames, options.architecture
    counts = {}
    for name in ("open_clip", "rewind"):
        model, batch = real_step.example(real_step.PLAIN | {"head": options.head, "batch": options.clips})
        if name == "open_clip":
            restore_blocks(model)
        with KernelCount() as counts[name]:
            exact_step(model, infonce, batch, None, precision=options.precision)
    clips = f"{options.clips} clips × {options.frames} frames"
    print(f"{options.architecture}, {options.head}, {clips}, {options.precision}, on the CPU\n")
    print("| operation | open_clip: kernels | GB | Rewind: kernels | GB |\n|---|---:|---:|---:|---:|")
    theirs, ours = counts.values()
    for name, size in (theirs.bytes | ours.bytes).most_common():
        if size > 0.01 * theirs.bytes.total():
            print(_row(name, theirs, ours, lambda table, name=name: table[name]))
    print(_row("casts", theirs, ours, lambda table: table[CAST]))
    print(_row("**all**", theirs, ours, Counter.total))


def _row(name: str, theirs: KernelCount, ours: KernelCount, of: Any) -> str:
    cells = [cell for count in (theirs, ours) for cell in (f"{of(count.kernels)}", f"{of(count.bytes) / 1e9:.2f}")]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
