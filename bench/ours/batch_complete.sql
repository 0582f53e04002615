-- A batch is begun first and completed after its answers are in: two commits for 100 effects.
\set n random(1000000000000000000, 9000000000000000000)
SELECT 1 / cast(count(*) FILTER (WHERE verdict = 'go') = 100 AS int) AS ok, array_agg(effect_key) AS keys
	FROM effect.begin_effects('bench',
		ARRAY(SELECT cast(cast(:n AS bigint) + g AS text) FROM generate_series(1, 100) AS g),
		job_key => 'held-' || cast(:client_id AS text), fencing_token => :token) \gset
SELECT 1 / cast(count(*) FILTER (WHERE verdict = 'done') = 100 AS int) AS ok
	FROM effect.complete_effects(cast(:keys AS uuid[]), :token,
		array_fill(cast('{"id": "ch_1"}' AS jsonb), ARRAY[100])) \gset
