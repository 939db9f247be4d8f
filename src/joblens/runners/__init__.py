"""Ways to workers: brokers that carry the news that there is a job."""
