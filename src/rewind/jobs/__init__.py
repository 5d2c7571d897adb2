"""What the workflow's rules run: a function with each rule's name, from files to files."""
