-- Claimed, submitted, done: a commit each.  (The sub-select does not fence: the lease can be
-- taken between its reading and the commit.  That is the textbook's fault, not this script's.)
\set n random(1000000000000000000, 9000000000000000000)
INSERT INTO bench_textbook.effect (key, action, target, inputs, job, token, state)
	SELECT 'bench:' || cast(:n AS text), 'bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}',
			'held-' || cast(:client_id AS text), :token, 'claimed'
		WHERE (SELECT token FROM bench_textbook.lease WHERE job = 'held-' || cast(:client_id AS text)) = :token
	ON CONFLICT DO NOTHING;
UPDATE bench_textbook.effect SET state = 'submitted', updated_at = now()
	WHERE key = 'bench:' || cast(:n AS text) AND state = 'claimed'
		AND token = (SELECT token FROM bench_textbook.lease WHERE job = 'held-' || cast(:client_id AS text));
UPDATE bench_textbook.effect SET state = 'done', response = '{"id": "ch_1"}', updated_at = now()
	WHERE key = 'bench:' || cast(:n AS text) AND state = 'submitted'
		AND token = (SELECT token FROM bench_textbook.lease WHERE job = 'held-' || cast(:client_id AS text));
