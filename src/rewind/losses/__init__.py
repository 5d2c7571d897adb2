"""Training losses, one module each; a study chooses one by its module's name (`training.objective`)."""
