"""The one exception whose text is meant for the person at the keyboard."""


class RewindError(Exception):
    """Something the user can mend: the message says what is wrong, where (file, row, key) and what to do.

    Jobs print the message alone, without a traceback; any other exception is a defect of ours and keeps its own.
    """
