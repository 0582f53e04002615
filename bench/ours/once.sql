\set n random(1000000000000000000, 9000000000000000000)
BEGIN;
SELECT 1 / cast(effect.once('bench', cast(:n AS text), '{"amount": 1050, "currency": "EUR"}') AS int) AS ok \gset
INSERT INTO bench_ours.document (body) VALUES ('an invoice');
COMMIT;
