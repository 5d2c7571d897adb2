"""Reading and writing files: :mod:`rewind.io.files` for Rewind's own, :mod:`rewind.io.strict` for files of users.

Rewind's own files (CSV, JSON, Parquet, npz) are written atomically. Text, CSV and JSON that users write by hand are
read strictly: whatever nobody can have meant is refused with its file and row.
"""
