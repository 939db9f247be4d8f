"""Pictures of jobs and runs: what is drawn (`chart`), made by one module a subject, drawn by one a form."""
