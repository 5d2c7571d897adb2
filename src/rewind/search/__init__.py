"""Search with a finished run: on the command line (``rewind search``) and in the browser (``rewind serve``)."""
