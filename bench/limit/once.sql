\set n random(1000000000000000000, 9000000000000000000)
BEGIN;
INSERT INTO bench_limit.ledger (effect_key, action, target, inputs, fencing_token,
		attempt, state, held, ending, created_at, updated_at)
	VALUES (cast(cast(:n AS text) || '0000000000000' AS uuid), 'bench', cast(:n AS text),
		'{"amount": 1050, "currency": "EUR"}', 1, 1, 'done', false, 'applied', clock_timestamp(), clock_timestamp())
	ON CONFLICT DO NOTHING;
INSERT INTO bench_limit.document (body) VALUES ('an invoice');
COMMIT;
