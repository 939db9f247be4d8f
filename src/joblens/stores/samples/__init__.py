"""Binary formats of samples and details."""
