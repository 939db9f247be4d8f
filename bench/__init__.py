"""Speed, memory and accuracy as ratios against a baseline or a peer of the same run: `make bench`."""
