"""Jobs whose owner was killed: adopt them, finalize their records, clean up. Background supervisor."""
