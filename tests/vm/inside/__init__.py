"""Programs that run in the machine under test and print JSON on their last line."""
