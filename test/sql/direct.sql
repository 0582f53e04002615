\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- direct: rows that are written without a statement obey what a statement would.
SET client_min_messages = warning;

SELECT plan(47);

CREATE FUNCTION pg_temp.key(target text) RETURNS uuid LANGUAGE sql AS
	$$ SELECT effect.effect_key('direct', target, effect.input_digest('{}')) $$;
-- One effect from its begin to its end, and a lease taken and given back.
CREATE FUNCTION pg_temp.work(target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	told text;
	token bigint;
BEGIN
	SELECT b.verdict INTO told FROM effect.begin_effect('direct', target) b;
	IF told <> 'go_after_commit' THEN
		RETURN told;
	END IF;
	SELECT m.verdict INTO told FROM effect.mark_unknown(pg_temp.key(target), 1, 'x') m;
	SELECT c.verdict INTO told FROM effect.complete_effect(pg_temp.key(target), 1, '{"a": 1}') c;
	SELECT l.fencing_token INTO token FROM effect.claim_lease('direct/' || target, 'w', '1 hour') l;
	PERFORM effect.renew_lease('direct/' || target, token, '2 hours');
	RETURN told || ' ' || effect.release_lease('direct/' || target, token);
END $$;
SELECT is(pg_temp.work('plain'), 'done true', 'tables as they were made');
SELECT is((SELECT (state, ending, held, response, attempt)::text FROM effect.ledger WHERE effect_key = pg_temp.key('plain')), '(done,completed,f,"{""a"": 1}",1)', 'the effect as it was written');
SELECT is((SELECT (outcome, owner, ended_at >= started_at, role_name = session_user, application_name = current_setting('application_name'), client_addr IS NOT DISTINCT FROM inet_client_addr())::text
	FROM effect.run WHERE job_key = 'direct/plain'), '(finished,w,t,t,t,t)', 'the run');
SELECT is((SELECT (owner IS NULL, fencing_token, lease_for = '1 hour', lease_until > granted_at + interval '1 hour')::text FROM effect.lease WHERE job_key = 'direct/plain'), '(t,1,t,t)', 'and the lease');

-- Somebody's own triggers fire, of every kind.
CREATE TABLE direct_log (kind text, target text);
CREATE FUNCTION direct_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO direct_log VALUES (TG_OP || ' ' || TG_WHEN || ' ' || TG_TABLE_NAME, to_jsonb(NEW) ->> TG_ARGV[0]);
	RETURN NEW;
END $$;
CREATE FUNCTION direct_statement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO direct_log SELECT TG_OP || ' statement', n.target FROM news n;
	RETURN NULL;
END $$;
CREATE TRIGGER z_row BEFORE INSERT OR UPDATE ON effect.ledger FOR EACH ROW EXECUTE FUNCTION direct_row('target');
SELECT is(pg_temp.work('before'), 'done true', 'with a BEFORE trigger of somebody''s own');
SELECT is((SELECT string_agg(kind, ', ' ORDER BY kind) FROM direct_log), 'INSERT BEFORE ledger, UPDATE BEFORE ledger, UPDATE BEFORE ledger', 'it fires for the begin, the doubt and the answer');
DROP TRIGGER z_row ON effect.ledger;
TRUNCATE direct_log;
CREATE TRIGGER z_row AFTER INSERT OR UPDATE ON effect.lease FOR EACH ROW EXECUTE FUNCTION direct_row('job_key');
CREATE TRIGGER z_row AFTER INSERT OR UPDATE ON effect.run FOR EACH ROW EXECUTE FUNCTION direct_row('job_key');
SELECT is(pg_temp.work('after'), 'done true', 'with AFTER triggers');
SELECT is((SELECT string_agg(kind, ', ' ORDER BY kind) FROM direct_log WHERE target = 'direct/after'),
	'INSERT AFTER lease, INSERT AFTER run, UPDATE AFTER lease, UPDATE AFTER lease, UPDATE AFTER run', 'they fire for the claim, the renewal and the release');
DROP TRIGGER z_row ON effect.lease;
DROP TRIGGER z_row ON effect.run;
TRUNCATE direct_log;
CREATE TRIGGER z_new AFTER INSERT ON effect.ledger REFERENCING NEW TABLE AS news FOR EACH STATEMENT EXECUTE FUNCTION direct_statement();
CREATE TRIGGER z_upd AFTER UPDATE ON effect.ledger REFERENCING NEW TABLE AS news FOR EACH STATEMENT EXECUTE FUNCTION direct_statement();
SELECT is(pg_temp.work('statement'), 'done true', 'with statement triggers and their transition tables');
SELECT is((SELECT string_agg(kind, ', ' ORDER BY kind) FROM direct_log WHERE target = 'statement'), 'INSERT statement, UPDATE statement, UPDATE statement', 'they see the rows');
DROP TRIGGER z_new ON effect.ledger;
DROP TRIGGER z_upd ON effect.ledger;
SELECT is(pg_temp.work('plain again'), 'done true', 'and without them again');
SELECT is((SELECT count(*) FROM direct_log WHERE target = 'plain again'), 0::bigint, 'nothing fires');

-- Constraints, columns, indexes, rules, row security.
ALTER TABLE effect.ledger ADD CONSTRAINT direct_check CHECK (target <> 'refused' AND response IS DISTINCT FROM '{"a": 2}');
SELECT throws_ok($$SELECT effect.begin_effect('direct', 'refused')$$, '23514', NULL, 'a CHECK of somebody''s own holds for an insert');
SELECT is(verdict::text, 'go', 'the next call is none the worse for it') FROM effect.begin_effect('direct', 'checked');
SELECT throws_ok($$SELECT effect.complete_effect(pg_temp.key('checked'), 1, '{"a": 2}')$$, '23514', NULL, 'and for an update');
SELECT is(verdict::text, 'done', 'here neither') FROM effect.complete_effect(pg_temp.key('checked'), 1, '{"a": 3}');
ALTER TABLE effect.ledger DROP CONSTRAINT direct_check;
SELECT is(verdict::text, 'go', 'dropped, it holds no more') FROM effect.begin_effect('direct', 'refused');
ALTER TABLE effect.ledger ADD COLUMN extra int DEFAULT 7 NOT NULL;
SELECT is(pg_temp.work('column'), 'done true', 'with another column');
SELECT is((SELECT extra FROM effect.ledger WHERE effect_key = pg_temp.key('column')), 7, 'its default is filled in');
ALTER TABLE effect.ledger DROP COLUMN extra;
SELECT is(pg_temp.work('no column'), 'done true', 'and dropped again');
CREATE INDEX direct_target_idx ON effect.ledger (target);
CREATE INDEX direct_lower_idx ON effect.ledger (lower(target)) WHERE response IS NOT NULL;
CREATE INDEX direct_state_idx ON effect.ledger USING brin (updated_at);
SELECT is(pg_temp.work('Index'), 'done true', 'with other indexes, of other kinds');
SET enable_seqscan = off;
SELECT is((SELECT count(*) FROM effect.ledger WHERE target = 'Index'), 1::bigint, 'the row is in one');
SELECT is((SELECT count(*) FROM effect.ledger WHERE lower(target) = 'index' AND response IS NOT NULL), 1::bigint, 'and in the other, since it is done');
DROP INDEX effect.direct_lower_idx, effect.direct_state_idx;
SELECT is(pg_temp.work('btree'), 'done true', 'with another btree');
SELECT is((SELECT count(*) FROM effect.ledger WHERE target = 'btree'), 1::bigint, 'the row is in it');
RESET enable_seqscan;
DROP INDEX effect.direct_target_idx;
REINDEX TABLE effect.ledger;
REINDEX TABLE CONCURRENTLY effect.ledger;
REINDEX TABLE CONCURRENTLY effect.lease;
SELECT is(pg_temp.work('reindexed'), 'done true', 'with indexes of another OID');
VACUUM FULL effect.ledger;
SELECT is(pg_temp.work('rewritten'), 'done true', 'in another file');
CREATE RULE direct_rule AS ON UPDATE TO effect.lease DO ALSO INSERT INTO direct_log VALUES ('rule', NEW.job_key);
SELECT is(pg_temp.work('rule'), 'done true', 'with a rule');
SELECT is((SELECT count(*) FROM direct_log WHERE target = 'direct/rule'), 2::bigint, 'it applies');
DROP RULE direct_rule ON effect.lease;
ALTER TABLE effect.ledger ENABLE ROW LEVEL SECURITY;
SELECT is(pg_temp.work('policy'), 'done true', 'with row security, which the owner is exempt from');
ALTER TABLE effect.ledger DISABLE ROW LEVEL SECURITY;
CREATE TABLE direct_child () INHERITS (effect.lease);
SELECT is(pg_temp.work('child'), 'done true', 'with a child');
DROP TABLE direct_child;

-- Who writes: the owner, with the rights the owner has.
CREATE ROLE effect_direct_owner;
GRANT USAGE ON SCHEMA effect TO effect_direct_owner;
GRANT ALL ON ALL TABLES IN SCHEMA effect TO effect_direct_owner;
GRANT ALL ON ALL SEQUENCES IN SCHEMA effect TO effect_direct_owner;
ALTER TABLE effect.lease OWNER TO effect_direct_owner;
SELECT is(pg_temp.work('owner'), 'done true', 'as an owner who is no superuser');
REVOKE INSERT ON effect.ledger FROM effect_direct_owner;
SELECT throws_ok($$SELECT effect.begin_effect('direct', 'not owned')$$, '42501', NULL, 'without the right to insert there is no begin');
GRANT INSERT ON effect.ledger TO effect_direct_owner;
REVOKE UPDATE ON effect.run FROM effect_direct_owner;
SELECT throws_ok($$SELECT pg_temp.work('not owned')$$, '42501', NULL, 'nor a release without the right to update');
DO $$ BEGIN EXECUTE format('ALTER TABLE effect.lease OWNER TO %I', current_user); END $$;
DROP OWNED BY effect_direct_owner;
DROP ROLE effect_direct_owner;

-- Large values are stored out of line, and stay where they are when others change.
SELECT string_agg(md5(n::text), '') AS large FROM generate_series(1, 3000) AS n \gset
SELECT is(verdict::text, 'go', 'inputs of 96 kB') FROM effect.begin_effect('direct', 'large', jsonb_build_object('in', :'large'));
SELECT is(verdict::text, 'done', 'and an answer of 96 kB')
  FROM effect.complete_effect(effect.effect_key('direct', 'large', effect.input_digest(jsonb_build_object('in', :'large'))), 1, jsonb_build_object('out', :'large'));
SELECT is((SELECT (md5(inputs ->> 'in') = md5(:'large'), md5(response ->> 'out') = md5(:'large'))::text FROM effect.ledger WHERE target = 'large'), '(t,t)', 'both are there');
SELECT is(response ->> 'out' = :'large', true, 'and are told again') FROM effect.begin_effect('direct', 'large', jsonb_build_object('in', :'large'));

-- All steps are HOT.
VACUUM FULL effect.ledger;
BEGIN;
SELECT pg_stat_get_xact_tuples_updated('effect.ledger'::regclass) AS updated, pg_stat_get_xact_tuples_hot_updated('effect.ledger'::regclass) AS hot \gset
SELECT is(pg_temp.work('hot'), 'done true', 'two updates of an effect');
SELECT is(pg_stat_get_xact_tuples_updated('effect.ledger'::regclass) - :updated, 2::bigint, 'are two');
SELECT is(pg_stat_get_xact_tuples_hot_updated('effect.ledger'::regclass) - :hot, 2::bigint, 'and HOT');
COMMIT;

-- A transaction sees what it wrote, and a savepoint takes it back.
SET client_min_messages = error;
BEGIN;
SELECT is(pg_temp.work('own'), 'done true', 'done in this transaction');
SELECT is(verdict::text, 'done', 'and seen in it') FROM effect.begin_effect('direct', 'own');
SAVEPOINT s;
SELECT 1 FROM effect.begin_effect('direct', 'taken back') \g /dev/null
ROLLBACK TO s;
SELECT is(verdict::text, 'go_after_commit', 'rolled back, it never was') FROM effect.begin_effect('direct', 'taken back');
SAVEPOINT s;
SELECT throws_ok($$UPDATE effect.ledger SET attempt = 0 WHERE effect_key = pg_temp.key('taken back')$$, 'LE012', NULL, 'a guard speaks in the middle');
SELECT is(verdict::text, 'done', 'and nothing is left of it') FROM effect.complete_effect(pg_temp.key('taken back'), 1);
COMMIT;

SELECT throws_ok($$INSERT INTO effect.lease VALUES ('direct/plain', 'w', 9, now(), '1 hour', NULL, NULL, now())$$, '23505', NULL, 'the key is unique as ever');

SELECT * FROM finish();
DROP FUNCTION direct_row, direct_statement;
DROP TABLE direct_log;
