"""Published results: small stored copies of finished studies, and documents that print and check them.

Tables are rendered from the stored numbers by :mod:`rewind.report`, as in the study itself.
"""
