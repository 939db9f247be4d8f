"""Dashboard: modules and style sheets, bundled into one script and one style sheet."""
