-- One of the effects that were loaded as done.
\set n random(1, :rows)
SELECT 1 / cast(verdict = 'done' AS int) AS ok
	FROM effect.begin_effect('bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}',
		'held-' || cast(:client_id AS text), :token) \gset
