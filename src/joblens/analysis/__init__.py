"""Pure: samples and records in, usage, profiles, findings and statistics out."""
