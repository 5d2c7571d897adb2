"""Models: towers (backbones), heads, baselines, and models that are read from files."""
