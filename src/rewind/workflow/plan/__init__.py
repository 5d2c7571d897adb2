"""What every stage reads, which keys and code its output depends on, and what it asks of the machine."""
