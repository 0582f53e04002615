-- A job that no other client asks for.
\set j random(0, :jobs / :clients - 1) * :clients + :client_id
SELECT fencing_token AS t, 1 / cast(verdict = 'granted' AS int) AS ok
	FROM effect.claim_lease('free-' || cast(:j AS text), 'bench', '1 minute') \gset
SELECT 1 / cast(effect.release_lease('free-' || cast(:j AS text), :t) AS int) AS ok \gset
