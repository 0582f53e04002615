-- Everybody asks for a job that somebody else holds for a day.
SELECT 1 / cast(verdict = 'held' AS int) AS ok
	FROM effect.claim_lease('held-0', 'client ' || cast(:client_id AS text), '1 minute') \gset
