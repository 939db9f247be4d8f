"""Dashboard: modules and style sheets for browsers, and the one script and style sheet made of them."""
