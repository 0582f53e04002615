-- Jobs that are free, for claims: the rows a first release would have left.
INSERT INTO effect.lease (job_key, owner, fencing_token, lease_until, lease_for, granted_at)
	SELECT 'free-' || j, NULL, 1, now(), '1 minute', now() FROM generate_series(0, :jobs - 1) AS j
	ON CONFLICT DO NOTHING;
INSERT INTO bench_limit.lease SELECT * FROM effect.lease WHERE job_key LIKE 'free-%' ON CONFLICT DO NOTHING;
