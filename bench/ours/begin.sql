\set n random(1000000000000000000, 9000000000000000000)
SELECT 1 / cast(verdict = 'go' AS int) AS ok
	FROM effect.begin_effect('bench', cast(:n AS text), '{}', 'held-' || cast(:client_id AS text), :token) \gset
