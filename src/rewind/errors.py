"""The one exception whose text is meant for the person at the keyboard, and how it lists faults."""


class RewindError(Exception):
    """Something the user can mend: the message says what is wrong, where (file, row, key) and what to do.

    Jobs print the message alone, without a traceback; any other exception is a defect of ours and keeps its own.
    """


LISTED = 10


def listed(faults: list[str]) -> str:
    """The first faults, a line each, and how many there are besides: for messages that name what must be mended."""
    more = [f"  … and {len(faults) - LISTED} more"] if len(faults) > LISTED else []
    return "\n".join([*faults[:LISTED], *more])
