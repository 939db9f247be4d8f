"""Reports to share: one HTML file with pages of the dashboard and their data, or a PDF."""
