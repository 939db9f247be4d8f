"""How many files probes may keep open. Keeping them makes a reading four times cheaper, but a supervisor
of hundreds of jobs must never run out of descriptors because of it."""

import resource


class DescriptorBudget:
    """A share of the process's descriptors. What is refused is opened and closed at every reading instead."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, count: int) -> bool:
        if self.taken + count > self.limit:
            return False
        self.taken += count
        return True

    def give_back(self, count: int) -> None:
        self.taken -= count


def half_of_the_allowed() -> DescriptorBudget:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DescriptorBudget(1 << 20 if soft == resource.RLIM_INFINITY else soft // 2)


BUDGET = half_of_the_allowed()
