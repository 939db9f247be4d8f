"""Series and bars to draw."""
