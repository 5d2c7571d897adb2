"""Sizes of memory that AWS Batch gives, where its plugin would put the smallest in the place of any other."""

from __future__ import annotations

from rewind.errors import RewindError

BATCH_MEMORY = {
    1: range(2048, 8193, 1024),
    2: range(4096, 16385, 1024),
    4: range(8192, 30721, 1024),
    8: range(16384, 61441, 4096),
    16: range(32768, 122881, 8192),
}
"""Cores → sizes in MB, as snakemake-executor-plugin-aws-batch 0.2.1 has them."""


def batch_memory(cores: int, wanted: int) -> int:
    """The smallest size that holds what a job wants, in MB.

    Raises:
        RewindError: if there is none for this number of cores.
    """
    enough = [size for size in BATCH_MEMORY.get(cores, ()) if size >= wanted]
    if enough:
        return enough[0]
    known = "; ".join(f"{n}: up to {sizes[-1]:,} MB" for n, sizes in BATCH_MEMORY.items())
    raise RewindError(
        f"AWS Batch has no {wanted:,} MB for a job of {cores} cores. Cores and the most memory of each: {known}. "
        "Change threads and mem_mb (--set-threads, --set-resources, or `resources` of the study)."
    )
