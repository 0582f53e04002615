-- What asking costs at the least: the row, by its key.
SELECT owner, lease_until > clock_timestamp() FROM bench_limit.lease WHERE job_key = 'held-0';
