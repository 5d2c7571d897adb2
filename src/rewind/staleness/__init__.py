"""What would run again and why, and edits that are accepted as changing nothing."""
