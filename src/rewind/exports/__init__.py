"""Exchange with other evaluation tools: ``rewind export`` writes their formats, ``rewind import`` reads scores."""
