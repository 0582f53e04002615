-- Two statements by key, two commits.
\set n random(1000000000000000000, 9000000000000000000)
INSERT INTO bench_limit.ledger (effect_key, action, target, inputs, job_key, fencing_token,
		attempt, state, held, created_at, submitted_at, updated_at)
	VALUES (cast(cast(:n AS text) || '0000000000000' AS uuid), 'bench', cast(:n AS text),
		'{"amount": 1050, "currency": "EUR"}', 'held-' || cast(:client_id AS text), :token,
		1, 'submitted', true, clock_timestamp(), clock_timestamp(), clock_timestamp());
UPDATE bench_limit.ledger
	SET state = 'done', held = false, ending = 'completed', response = '{"id": "ch_1"}', updated_at = clock_timestamp()
	WHERE effect_key = cast(cast(:n AS text) || '0000000000000' AS uuid);
