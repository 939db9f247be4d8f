"""A process that claims what it can get and prints it: `claiming_process.py URL NAME MOST`."""

import sys

from joblens.ports.store import Deliveries
from joblens.stores.sqlite import SqliteStore
from tests.builders.tickets import LEASE_S, worker


def opened(url: str) -> Deliveries:
    if "://" not in url:
        return SqliteStore(url)
    from joblens.stores.postgres.store import PostgresStore

    return PostgresStore(url)


def main() -> None:
    url, name, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    deliveries = opened(url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    empty_looks = 0
    while empty_looks < 3:
        claims = deliveries.claim_waiting(worker(name), most, LEASE_S)
        empty_looks = 0 if claims else empty_looks + 1
        for claim in claims:
            sys.stdout.write(f"{claim.job.uuid} {claim.fence}\n")


main()
