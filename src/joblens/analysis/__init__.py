"""Usage, profiles, findings and statistics, computed purely from samples and records."""
