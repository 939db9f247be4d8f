"""What the samples of one job add up to, kept while they come in."""

from joblens.model.sample import Sample


class RunningSummary:
    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.watched: Sample | None = None

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def watch(self, sample: Sample) -> None:
        """A look between two samples, which may have seen a higher peak."""
        self.watched = sample
