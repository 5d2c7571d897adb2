"""``report.html``: one self-contained page per study.

The page's style sheets and scripts are the .css and .js files in this folder; its templates are in
``report/templates``.
"""
