-- A begin by itself says go, and is one durable commit; so is the complete.
\set n random(1000000000000000000, 9000000000000000000)
SELECT effect_key AS k, 1 / cast(verdict = 'go' AS int) AS ok
	FROM effect.begin_effect('bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}',
		'held-' || cast(:client_id AS text), :token) \gset
SELECT 1 / cast(verdict = 'done' AS int) AS ok
	FROM effect.complete_effect(:k, :token, '{"id": "ch_1"}') \gset
