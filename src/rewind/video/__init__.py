"""Video: find source clips, normalise them with their reversed twins, read frames back."""
