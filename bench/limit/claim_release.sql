-- One row updated twice, two commits, and no thought of who else might want it.
\set j random(0, :jobs / :clients - 1) * :clients + :client_id
UPDATE bench_limit.lease
	SET owner = 'bench', fencing_token = fencing_token + 1, lease_until = clock_timestamp() + interval '1 minute',
		granted_at = clock_timestamp()
	WHERE job_key = 'free-' || cast(:j AS text);
UPDATE bench_limit.lease SET owner = NULL WHERE job_key = 'free-' || cast(:j AS text);
