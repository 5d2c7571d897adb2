"""What the workflow's rules run: a function of each rule's name, from files to files."""
