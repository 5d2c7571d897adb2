"""``report.html``: one self-contained page per study. The files beside the modules are its style and its script."""
