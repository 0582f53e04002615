-- As many statements as ours/fence.sql has, without the fence.
BEGIN;
SELECT 1;
INSERT INTO bench_limit.document (body) VALUES ('an invoice');
COMMIT;
