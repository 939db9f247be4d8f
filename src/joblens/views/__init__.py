"""Values into text for people. No decisions, no reading."""
