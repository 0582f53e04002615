-- One statement of a hundred rows.  The step spreads their keys over the whole index, as
-- digests would be.
\set n random(1000000000000000000, 1079999999999999999)
INSERT INTO bench_limit.ledger (effect_key, action, target, inputs, job_key, fencing_token,
		attempt, state, held, created_at, submitted_at, updated_at)
	SELECT cast(cast(:n + g * 79000000000000000 AS text) || '0000000000000' AS uuid), 'bench',
			cast(cast(:n AS bigint) + g AS text), '{}', 'held-' || cast(:client_id AS text), :token,
			1, 'submitted', true, clock_timestamp(), clock_timestamp(), clock_timestamp()
		FROM generate_series(1, 100) AS g;
