"""Workers and processes on other nodes of a job."""
