"""Records and samples in the JSON forms of other systems, and back."""
