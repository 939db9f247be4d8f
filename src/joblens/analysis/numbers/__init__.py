"""Usage, rates, profiles and statistics from samples."""
