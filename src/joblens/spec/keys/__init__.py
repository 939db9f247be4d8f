"""Tables of all keys of files, and their readers."""
