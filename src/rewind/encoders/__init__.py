"""Models by name that turn captions and clips into vectors: one module for each library that loads them."""
