"""The figures that a study publishes, each a pure function from tables or arrays to a Figure."""
