"""What the documents print of finished studies: stored small, rendered again by the product's own tables, checked."""
