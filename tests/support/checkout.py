"""Where this checkout is, for tests that read its files or start its commands."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
CHALLENGE = GOLDEN / "challenge"
