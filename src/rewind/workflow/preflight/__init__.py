"""Checks before the first job: everything that is known to fail is reported at once, under the key that causes it.

Files, annotations, models and splits of studies, and the settings of a Slurm cluster.
"""
