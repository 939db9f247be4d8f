"""Tables of all keys that files may have, and their readers."""
