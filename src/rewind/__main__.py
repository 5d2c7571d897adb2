"""``python -m rewind``: the same as the command ``rewind``."""

import os  # these two are loaded when Python starts; any other could come from the working folder
import sys


def _forget_working_folder() -> None:
    """Take the working folder off the path, where ``-m`` put it first: a ``torch.py`` there is not ours to import.

    Folders of ``PYTHONPATH`` stay, and so does the folder of a Rewind that runs from its source without installation.
    """
    here, home = os.path.realpath(os.curdir), os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0] or os.curdir) == here != home:
        del sys.path[0]


_forget_working_folder()

from rewind.cli.main import main  # noqa: E402 - nothing of the working folder may be imported before the call above

sys.exit(main())
