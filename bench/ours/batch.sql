\set n random(1000000000000000000, 9000000000000000000)
SELECT 1 / cast(count(*) FILTER (WHERE verdict = 'go') = 100 AS int) AS ok
	FROM effect.begin_effects('bench',
		ARRAY(SELECT cast(cast(:n AS bigint) + g AS text) FROM generate_series(1, 100) AS g),
		job_key => 'held-' || cast(:client_id AS text), fencing_token => :token) \gset
