"""One page and one table over several finished studies, with ranks among what may be compared.

:mod:`rewind.report.board.studies` reads studies, :mod:`rewind.report.board.ranking` groups and ranks methods, and
:mod:`rewind.report.board.site` writes the page and the table.
"""
