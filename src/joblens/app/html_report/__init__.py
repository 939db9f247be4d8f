"""Reports to share: one file with the pages of the dashboard and the data of some jobs, or a PDF of it."""
