"""The worker: claims jobs from the store, renews their leases, runs them."""
