-- Jobs held for a day, one a client, all under token 1.
SELECT count(*) FROM generate_series(0, 63) AS j, effect.claim_lease('held-' || j, 'bench', '1 day') AS c
	WHERE c.verdict = 'granted' AND c.fencing_token = 1;
INSERT INTO bench_limit.lease SELECT * FROM effect.lease WHERE job_key LIKE 'held-%';
INSERT INTO bench_textbook.lease SELECT job_key, owner, fencing_token, lease_until FROM effect.lease WHERE job_key LIKE 'held-%';
