"""Plain files beside the store: history lines, sample lines, time-series databases, Parquet."""
