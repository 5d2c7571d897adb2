"""Video: find source clips, normalise them together with their time-reversed twins, and read frames back."""
