"""Text that people write (configuration, later workflow specs) into values, with line numbers."""
