"""The schedule of a run, decided purely: events in, commands out."""
