-- Rows :from to :to of a ledger with a past: done, a thousand a run, a second apart, ending
-- a day ago.  In the order of their keys, so that 20 million load in minutes.
INSERT INTO effect.ledger (effect_key, action, target, inputs, job_key, fencing_token,
		attempt, state, held, ending, response, created_at, submitted_at, updated_at)
	SELECT effect_key, 'bench', target, '{"amount": 1050, "currency": "EUR"}',
			'loaded-' || n % 100, 1 + n / 1000, 1, 'done', false, 'completed', '{"id": "ch_1"}',
			began + n * step, began + n * step, began + n * step
		FROM (SELECT effect_key, target, row_number() OVER () + :from AS n
				FROM (SELECT effect.effect_key('bench', i::text, d.digest) AS effect_key, i::text AS target
						FROM generate_series(:from, :to) AS i,
							(SELECT effect.input_digest('{"amount": 1050, "currency": "EUR"}') AS digest) AS d
						ORDER BY 1 OFFSET 0) AS sorted) AS numbered,
			(SELECT now() - interval '30 days' AS began, interval '29 days' / cast(:to AS float8) AS step) AS past;

-- The limit's table is given as many, spread as evenly over its index.  A step of a smaller
-- load is a multiple of this one's, so what that has left is part of this grid.
INSERT INTO bench_limit.ledger (effect_key, action, target, inputs, job_key, fencing_token,
		attempt, state, held, ending, response, created_at, submitted_at, updated_at)
	SELECT ((1000000000000000000 + i * :stride)::text || '0000000000000')::uuid, 'bench', i::text,
			'{"amount": 1050, "currency": "EUR"}', 'loaded-' || i % 100, 1 + i / 1000, 1, 'done', false,
			'completed', '{"id": "ch_1"}', began + i * step, began + i * step, began + i * step
		FROM generate_series(1, :to) AS i,
			(SELECT now() - interval '30 days' AS began, interval '29 days' / cast(:to AS float8) AS step) AS past
	ON CONFLICT DO NOTHING;
