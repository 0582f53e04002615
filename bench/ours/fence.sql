BEGIN;
SELECT effect.fence('held-' || cast(:client_id AS text), :token);
INSERT INTO bench_ours.document (body) VALUES ('an invoice');
COMMIT;
