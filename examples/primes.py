"""Count the primes below a limit with a sieve: python3 primes.py --limit N."""

import argparse


def count_primes(limit: int) -> int:
    is_prime = bytearray([1]) * max(limit, 2)
    is_prime[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if is_prime[number]:
            is_prime[number * number :: number] = bytes(len(range(number * number, len(is_prime), number)))
    return sum(is_prime)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=1_000_000)
    limit = parser.parse_args().limit
    print(f"{count_primes(limit):,} primes below {limit:,}")
