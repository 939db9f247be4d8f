"""Files that people write (configuration, workflows, recipes, tools), parsed into values."""
