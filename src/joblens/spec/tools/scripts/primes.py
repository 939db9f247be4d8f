"""Counts the primes below a limit with a sieve. Parameters are options: --limit N --repeat N."""

import argparse

KNOWN = {10: 4, 100: 25, 1_000: 168, 10_000: 1_229, 100_000: 9_592, 1_000_000: 78_498, 10_000_000: 664_579}


def primes_below(limit):
    is_prime = bytearray([1]) * max(limit, 2)
    is_prime[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, len(is_prime), number)))
    return sum(is_prime)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    count = 0
    for _ in range(given.repeat):
        count = primes_below(given.limit)
    print(f"limit={given.limit} primes={count}")
    return 0 if KNOWN.get(given.limit, count) == count else 1


if __name__ == "__main__":
    raise SystemExit(main())
