"""Event log and log files of a recipe's job."""
