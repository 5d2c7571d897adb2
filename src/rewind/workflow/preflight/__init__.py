"""Checks before the first job: everything that is known to fail is reported at once, under the key that causes it.

:mod:`~rewind.workflow.preflight.checks` lists them in their order; the other modules say what each looks at.
"""
