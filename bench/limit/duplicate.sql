-- The key of one of the rows that were loaded: it conflicts every time.
\set n random(1, :rows) * :stride + 1000000000000000000
INSERT INTO bench_limit.ledger (effect_key, action, target, inputs, job_key, fencing_token,
		attempt, state, held, created_at, submitted_at, updated_at)
	VALUES (cast(cast(:n AS text) || '0000000000000' AS uuid), 'bench', cast(:n AS text),
		'{"amount": 1050, "currency": "EUR"}', 'held-' || cast(:client_id AS text), :token,
		1, 'submitted', true, clock_timestamp(), clock_timestamp(), clock_timestamp())
	ON CONFLICT DO NOTHING;
