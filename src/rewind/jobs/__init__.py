"""What the workflow's scripts call: one function a stage, from files to files."""
