"""Running a run: checks, driver in front or in the background, what is shown, what follows its end."""
