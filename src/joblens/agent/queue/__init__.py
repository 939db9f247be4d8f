"""Queue worker: claims jobs from the store, renews their leases, runs them.

A claim is a compare-and-set that increments the job's fencing token and grants a lease by the store's clock.
Writes of the worker carry the token; a store ignores writes under an older one. The worker renews its leases
several times within each; the answer has the jobs that were cancelled and those that it no longer holds.
Launchers of a killed worker end their jobs. When the lease has expired (at once on the same machine, where
the end of the owner is visible), another worker takes the ticket back, unless the job must not run twice:
then it is `lost`. Only a worker that could reach the store for a whole lease without a gap may do that, so an
outage of the store or a suspended machine costs no job. While the store is unavailable nothing is claimed,
running jobs continue, and their writes wait in the journal."""
