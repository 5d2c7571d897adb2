"""Tables: cells and their markup, numbers of a study and their marks, and the sentences below; no files, no study."""
