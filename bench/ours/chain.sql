-- The effect that one transaction begins the next one completes; the first has none to complete.
-- One statement is one transaction, and stands alone: its begin says go.
\set n random(1000000000000000000, 9000000000000000000)
\if :started
SELECT b.effect_key AS k, 1 / cast(c.verdict = 'done' AND b.verdict = 'go' AS int) AS ok
	FROM effect.complete_effect(:k, :token, '{"id": "ch_1"}') AS c,
		effect.begin_effect('bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}',
			'held-' || cast(:client_id AS text), :token) AS b \gset
\else
SELECT effect_key AS k, 1 / cast(verdict = 'go' AS int) AS ok, 1 AS started
	FROM effect.begin_effect('bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}',
		'held-' || cast(:client_id AS text), :token) \gset
\endif
