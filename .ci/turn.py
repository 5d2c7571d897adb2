"""Which of some studies are rehearsed for this commit: rtime each time, and a quarter of the others, by turns.

    python .ci/turn.py STUDY…

The turn follows the time of the commit in steps of three hours, so a commit always gets the same studies, and commits
that land one after another get others. `make rehearse` runs all of them.
"""

import subprocess
import sys

ALWAYS = {"rtime"}  # the main job
TURNS = 4
SECONDS_OF_A_TURN = 3 * 60 * 60


def chosen(studies: list[str], time: int) -> list[str]:
    """Studies of the turn at a time, in seconds since 1970."""
    others = sorted(set(studies) - ALWAYS)
    return sorted({*ALWAYS.intersection(studies), *others[time // SECONDS_OF_A_TURN % TURNS :: TURNS]})


if __name__ == "__main__":
    committed = subprocess.run(
        ["git", "show", "-s", "--format=%ct", "HEAD"], capture_output=True, text=True, check=True
    )
    print(*chosen(sys.argv[1:], int(committed.stdout)))
