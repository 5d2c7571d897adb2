"""``report.html``: one self-contained page per study.

The page's templates, style sheets and scripts are the .html, .css and .js files in this folder.
"""
