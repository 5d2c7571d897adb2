"""One module per source format; each turns raw files into items and captions."""
