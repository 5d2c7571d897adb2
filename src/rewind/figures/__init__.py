"""The figures that a study publishes: functions from tables or arrays to a matplotlib ``Figure``."""
