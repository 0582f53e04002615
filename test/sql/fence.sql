\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- fence: a transaction that says whose it is commits only while that is true
-- (doc/fence.md).
--
-- The stale run is played by a second session, so that its COMMIT may fail;
-- the races themselves are in the isolation specs.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
CREATE EXTENSION IF NOT EXISTS dblink;
DROP ROLE IF EXISTS effect_fence_app, effect_fence_other;
CREATE ROLE effect_fence_app;
CREATE ROLE effect_fence_other;
SELECT effect.grant_worker('effect_fence_app') \g /dev/null
DROP SCHEMA IF EXISTS fence_test CASCADE;
CREATE SCHEMA fence_test;
GRANT USAGE, CREATE ON SCHEMA fence_test TO effect_fence_app;
SET search_path = fence_test, public;

SELECT plan(167);

CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
-- The other session: one statement there, its SQLSTATE here.
CREATE FUNCTION pg_temp.other(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM dblink_exec('other', sql);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SELECT dblink_connect('other', pg_temp.self()) \g /dev/null
SELECT dblink_exec('other', 'SET client_min_messages = error; SET search_path = fence_test, public') \g /dev/null

-- LE001 at the call, LE001 at COMMIT

CREATE TABLE note (who text);
SELECT 1 FROM effect.claim_lease('fence/a', 'w1', '1 hour') \g /dev/null
SELECT lives_ok($$SELECT effect.fence('fence/a', 1)$$, 'a current token may fence');
SELECT is(effect.is_current('fence/a', 1), true, 'and is current');
SELECT throws_ok($$SELECT effect.fence('fence/a', 2)$$, 'LE003', NULL, 'a token that was never committed: LE003, not LE001');
SELECT throws_ok($$SELECT effect.is_current('fence/a', 2)$$, 'LE003', NULL, 'for is_current too');
SELECT throws_ok($$SELECT effect.fence('fence/nobody', 1)$$, 'LE003', NULL, 'a job that never had a lease');

BEGIN;
SELECT effect.fence('fence/a', 1) \g /dev/null
INSERT INTO note VALUES ('w1');
COMMIT;
SELECT is(count(*)::int, 1, 'a fenced transaction of the holder commits') FROM note;

SELECT is(pg_temp.other('BEGIN'), 'ok', 'the stale run begins');
SELECT is(pg_temp.other($$DO 'BEGIN PERFORM effect.fence(''fence/a'', 1); END'$$), 'ok', 'its fence passes: nobody has stolen yet');
SELECT is(pg_temp.other($$INSERT INTO note VALUES ('stale')$$), 'ok', 'it writes');
SELECT is(effect.revoke_lease('fence/a', 'test'), 1::bigint, 'revoked meanwhile, without waiting for it');
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'and granted to another') FROM effect.claim_lease('fence/a', 'w2', '1 hour');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'its COMMIT fails with LE001');
SELECT is(count(*)::int, 1, 'and leaves no row') FROM note;
SELECT throws_ok($$SELECT effect.fence('fence/a', 1)$$, 'LE001', NULL, 'later it is fenced at the call');
SELECT is(effect.is_current('fence/a', 1), false, 'is_current says false and raises nothing');
SELECT throws_like($$SELECT effect.fence('fence/a', 1)$$, 'fenced: token 1 of job "fence/a" is superseded', 'the error names token and job');
SELECT is((owner, fencing_token, status)::text, '(w2,2,live)', 'the successor is untouched') FROM effect.leases WHERE job_key = 'fence/a';

-- The fence of a transaction covers whatever it writes, and is gone after it.
SELECT is(pg_temp.other(format($$BEGIN ISOLATION LEVEL %s; DO 'BEGIN PERFORM effect.fence(''fence/a'', 2); END'; INSERT INTO note VALUES ('iso')$$, level)), 'ok',
		  level || ': fenced')
  FROM (VALUES ('READ COMMITTED')) AS t (level);
SELECT is(pg_temp.other('COMMIT'), 'ok', 'commits while current');
SELECT is(pg_temp.other($$BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM note; DO 'BEGIN PERFORM effect.fence(''fence/a'', 2); END'; INSERT INTO note VALUES ('rr')$$), 'ok', 'REPEATABLE READ: fenced');
SELECT is(effect.release_lease('fence/a', 2), true, 'its lease is released elsewhere');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'LE001 at COMMIT although its snapshot is older');
SELECT is(fencing_token::int, 3, 'the next run') FROM effect.claim_lease('fence/a', 'w3', '1 hour');
SELECT is(pg_temp.other($$BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM note; DO 'BEGIN PERFORM effect.fence(''fence/a'', 3); END'; INSERT INTO note VALUES ('ser')$$), 'ok', 'SERIALIZABLE: fenced');
SELECT is(effect.revoke_lease('fence/a', 'test'), 3::bigint, 'revoked');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'LE001 at COMMIT');
SELECT is(fencing_token::int, 4, 'the next run') FROM effect.claim_lease('fence/a', 'w4', '1 hour');
SELECT is(pg_temp.other($$BEGIN; UPDATE note SET who = 'stale' WHERE effect.is_current('fence/a', 4)$$), 'ok', 'is_current in a WHERE clause');
SELECT is(effect.revoke_lease('fence/a', 'test'), 4::bigint, 'revoked');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'registers the same commit check');
SELECT is(count(*)::int, 0, 'nothing was updated') FROM note WHERE who = 'stale';
SELECT is(fencing_token::int, 5, 'the next run') FROM effect.claim_lease('fence/a', 'w5', '1 hour');
BEGIN;
UPDATE note SET who = 'stale' WHERE effect.is_current('fence/a', 4);
COMMIT;
SELECT is(count(*)::int, 0, 'a superseded token updates no row and commits') FROM note WHERE who = 'stale';
BEGIN READ ONLY;
SELECT is(effect.is_current('fence/a', 5), true, 'in a READ ONLY transaction is_current only answers');
SELECT is(effect.is_current('fence/a', 4), false, 'either way');
SELECT throws_ok($$SELECT effect.fence('fence/a', 5)$$, '25006', NULL, 'and fence refuses');
COMMIT;

-- Two-phase commit checks at PREPARE.
SELECT is(pg_temp.other($$BEGIN; DO 'BEGIN PERFORM effect.fence(''fence/a'', 5); END'; INSERT INTO note VALUES ('2pc')$$), 'ok', 'to be prepared');
SELECT is(effect.revoke_lease('fence/a', 'test'), 5::bigint, 'revoked before');
SELECT is(pg_temp.other($$PREPARE TRANSACTION 'effect_fence_a'$$), 'LE001', 'PREPARE TRANSACTION is refused');
SELECT is(pg_temp.other('ROLLBACK'), 'ok', 'and rolled back');
-- (should it have been prepared all the same, it must not block what follows)
SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts WHERE gid = 'effect_fence_a' AND database = current_database() \gexec
SELECT is(fencing_token::int, 6, 'the next run') FROM effect.claim_lease('fence/a', 'w6', '1 hour');

-- Releasing in the fenced transaction is the normal end.

SELECT 1 FROM effect.claim_lease('fence/end', 'w1', '1 hour') \g /dev/null
BEGIN;
SELECT effect.fence('fence/end', 1) \g /dev/null
INSERT INTO note VALUES ('last words');
SELECT is(effect.release_lease('fence/end', 1), true, 'released in the fenced transaction');
COMMIT;
SELECT is(count(*)::int, 1, 'it commits') FROM note WHERE who = 'last words';
SELECT is((status, (SELECT outcome FROM effect.runs WHERE job_key = 'fence/end'))::text, '(free,finished)', 'run and lease have ended') FROM effect.leases WHERE job_key = 'fence/end';
SELECT throws_ok($$SELECT effect.fence('fence/end', 1)$$, 'LE001', NULL, 'after it the token is worth nothing');
SELECT 1 FROM effect.claim_lease('fence/end', 'w1', '1 hour') \g /dev/null
BEGIN;
SELECT effect.release_lease('fence/end', 2) \g /dev/null
SELECT throws_ok($$SELECT effect.fence('fence/end', 2)$$, 'LE001', NULL, 'a fence after the release is too late');
COMMIT;
SELECT 1 FROM effect.claim_lease('fence/end', 'w1', '1 hour') \g /dev/null
BEGIN;
SELECT effect.fence('fence/end', 3) \g /dev/null
SAVEPOINT s;
SELECT effect.release_lease('fence/end', 3) \g /dev/null
RELEASE s;
COMMIT;
SELECT is(status, 'free', 'released in a savepoint, it commits as well') FROM effect.leases WHERE job_key = 'fence/end';
SELECT 1 FROM effect.claim_lease('fence/end', 'w1', '1 hour') \g /dev/null
BEGIN;
SELECT effect.fence('fence/end', 4) \g /dev/null
SELECT effect.renew_lease('fence/end', 4, '2 hours') IS NOT NULL \g /dev/null
COMMIT;
SELECT is(status, 'live', 'renewed in the fenced transaction, it commits') FROM effect.leases WHERE job_key = 'fence/end';
-- an expired lease that nobody took does not fence
UPDATE effect.lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE job_key = 'fence/end';
BEGIN;
SELECT effect.fence('fence/end', 4) \g /dev/null
INSERT INTO note VALUES ('late but alone');
COMMIT;
SELECT is(count(*)::int, 1, 'the clock never decides whether a write lands: expired and not taken commits') FROM note WHERE who = 'late but alone';

-- Savepoints, EXCEPTION blocks, procedures

CREATE TABLE guarded (id int PRIMARY KEY, v text);
SELECT lives_ok($$SELECT effect.require_fence('guarded')$$, 'a table may require a fence');
SELECT throws_ok($$INSERT INTO guarded VALUES (1, 'x')$$, 'LE007', NULL, 'INSERT without a fence');
SELECT throws_ok($$UPDATE guarded SET v = 'x'$$, 'LE007', NULL, 'UPDATE, also of no row');
SELECT throws_ok($$DELETE FROM guarded$$, 'LE007', NULL, 'DELETE');
SELECT throws_ok($$TRUNCATE guarded$$, 'LE007', NULL, 'TRUNCATE');
SELECT throws_ok($$MERGE INTO guarded g USING (VALUES (1)) AS s (id) ON g.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'm')$$, 'LE007', NULL, 'MERGE');
SELECT throws_ok($$INSERT INTO guarded VALUES (1, 'x') ON CONFLICT DO NOTHING$$, 'LE007', NULL, 'INSERT ON CONFLICT');
SELECT lives_ok($$SELECT * FROM guarded$$, 'reading needs none');
BEGIN;
SELECT effect.fence('fence/a', 6) \g /dev/null
INSERT INTO guarded VALUES (1, 'fenced');
UPDATE guarded SET v = 'fenced twice';
COMMIT;
SELECT is(v, 'fenced twice', 'a fenced transaction writes') FROM guarded;
BEGIN;
SAVEPOINT s;
SELECT effect.fence('fence/a', 6) \g /dev/null
ROLLBACK TO s;
SELECT throws_ok($$INSERT INTO guarded VALUES (2, 'x')$$, 'LE007', NULL, 'a fence taken in a savepoint goes with its rollback');
RELEASE s;
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT effect.fence('fence/a', 6) \g /dev/null
RELEASE s;
SELECT lives_ok($$INSERT INTO guarded VALUES (2, 'x')$$, 'and stays when the savepoint is released');
SAVEPOINT s2;
SELECT effect.fence('fence/a', 6) \g /dev/null
ROLLBACK TO s2;
SELECT lives_ok($$INSERT INTO guarded VALUES (3, 'x')$$, 'a second fence in a later savepoint does not take the first away');
COMMIT;
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT effect.fence('fence/a', 6) \g /dev/null
RELEASE b;
ROLLBACK TO a;
SELECT throws_ok($$INSERT INTO guarded VALUES (9, 'x')$$, 'LE007', NULL, 'released inside one that is rolled back: gone');
COMMIT;
SELECT throws_ok($$INSERT INTO guarded VALUES (9, 'x')$$, 'LE007', NULL, 'the next transaction starts without a fence');
DO $$
BEGIN
	BEGIN
		PERFORM effect.fence('fence/a', 6);
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	BEGIN
		INSERT INTO guarded VALUES (9, 'x');
	EXCEPTION WHEN SQLSTATE 'LE007' THEN
		PERFORM set_config('fence.caught', 'LE007', false);
	END;
	PERFORM effect.fence('fence/a', 6);
	INSERT INTO guarded VALUES (4, 'fenced again');
END $$;
SELECT is(current_setting('fence.caught'), 'LE007', 'an EXCEPTION block that caught has forgotten its fence');
SELECT is(v, 'fenced again', 'fence again, and write') FROM guarded WHERE id = 4;
CREATE PROCEDURE twice() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM effect.fence('fence/a', 6);
	INSERT INTO guarded VALUES (5, 'first');
	COMMIT;
	INSERT INTO guarded VALUES (6, 'second');
END $$;
SELECT is(pg_temp.other('CALL twice()'), 'LE007', 'after COMMIT in a procedure the fence is gone, and require_fence notices');
SELECT is((count(*) FILTER (WHERE id = 5), count(*) FILTER (WHERE id = 6))::text, '(1,0)', 'what was fenced is committed, the rest is not') FROM guarded;

-- A fence of a rolled-back savepoint is not checked at COMMIT.
BEGIN;
SAVEPOINT s;
SELECT effect.fence('fence/a', 6) \g /dev/null
ROLLBACK TO s;
SELECT effect.revoke_lease('fence/a', 'test') \g /dev/null
INSERT INTO note VALUES ('unfenced');
COMMIT;
SELECT is(count(*)::int, 1, 'a forgotten fence does not fail the COMMIT') FROM note WHERE who = 'unfenced';
SELECT is(fencing_token::int, 7, 'the next run') FROM effect.claim_lease('fence/a', 'w7', '1 hour');

-- require_fence: a named job, again, and not everywhere

SELECT lives_ok($$SELECT effect.require_fence('guarded', 'fence/end')$$, 'requiring it again, of one job');
SELECT is(count(*)::int, 1, 'replaces the trigger') FROM pg_trigger WHERE tgrelid = 'guarded'::regclass AND NOT tgisinternal;
BEGIN;
SELECT effect.fence('fence/a', 7) \g /dev/null
SELECT throws_ok($$INSERT INTO guarded VALUES (7, 'x')$$, 'LE007', NULL, 'another job''s fence does not count');
SELECT effect.fence('fence/end', 4) \g /dev/null
SELECT lives_ok($$INSERT INTO guarded VALUES (7, 'x')$$, 'that job''s does');
COMMIT;
SELECT lives_ok($$SELECT effect.require_fence('guarded', E'it''s a \\ job|"x"')$$, 'a job key of any spelling');
SELECT 1 FROM effect.claim_lease(E'it''s a \\ job|"x"', 'w1', '1 hour') \g /dev/null
BEGIN;
SELECT effect.fence(E'it''s a \\ job|"x"', 1) \g /dev/null
SELECT lives_ok($$INSERT INTO guarded VALUES (8, 'x')$$, 'is told apart');
COMMIT;
SELECT lives_ok($$SELECT effect.drop_fence('guarded')$$, 'drop_fence takes it back');
SELECT lives_ok($$INSERT INTO guarded VALUES (10, 'x')$$, 'and every write passes again');
SELECT throws_ok($$SELECT effect.drop_fence('guarded')$$, '42704', NULL, 'there is none to drop');

CREATE TABLE parted (id int, v text) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_23 PARTITION OF parted FOR VALUES IN (2, 3) PARTITION BY LIST (id);
CREATE TABLE parted_2 PARTITION OF parted_23 FOR VALUES IN (2);
SELECT lives_ok($$SELECT effect.require_fence('parted')$$, 'a partitioned table');
SELECT throws_ok(format('INSERT INTO %I VALUES (%s)', part, id), 'LE007', NULL, 'marks ' || part)
  FROM (VALUES ('parted', 1), ('parted_1', 1), ('parted_23', 2), ('parted_2', 2)) AS t (part, id);
SELECT throws_ok($$SELECT effect.require_fence('parted_1')$$, '42809', NULL, 'a lone partition is refused');
CREATE TABLE parted_3 PARTITION OF parted_23 FOR VALUES IN (3);
SELECT bag_eq($$SELECT target::text, gap, next_step FROM effect.fence_gaps() WHERE target::text LIKE 'parted%'$$,
	$$VALUES ('parted_3', 'partition without a fence: a write that names it passes', 'SELECT effect.require_fence(''parted'');')$$,
	'fence_gaps lists a later partition once, and what closes the gap');
SELECT effect.require_fence('parted') \g /dev/null
SELECT is_empty($$SELECT * FROM effect.fence_gaps() WHERE target::text LIKE 'parted%'$$, 'which does close it');
SELECT lives_ok($$SELECT effect.drop_fence('parted')$$, 'dropped');
SELECT is_empty($$SELECT tgrelid::regclass FROM pg_trigger WHERE tgfoid = 'effect.check_fence'::regproc$$, 'from every partition');

CREATE TABLE base (id int);
CREATE TABLE child () INHERITS (base);
SELECT effect.require_fence('child') \g /dev/null
SELECT bag_eq($$SELECT target::text, gap FROM effect.fence_gaps()$$,
	$$VALUES ('base', 'inheritance parent without a fence: a write that names it reaches child')$$, 'an inheritance parent is a gap');
SELECT effect.drop_fence('child') \g /dev/null
SELECT effect.require_fence('base') \g /dev/null
SELECT bag_eq($$SELECT target::text, gap FROM effect.fence_gaps()$$,
	$$VALUES ('child', 'child table without a fence: a write that names it passes')$$, 'so is a child table');
SELECT effect.require_fence('child') \g /dev/null
SELECT is_empty($$SELECT * FROM effect.fence_gaps()$$, 'both fenced: no gap');
ALTER TABLE base DISABLE TRIGGER ALL;
SELECT bag_eq($$SELECT target::text, gap, next_step FROM effect.fence_gaps()$$,
	$$VALUES ('base', 'trigger is disabled: every write passes', 'ALTER TABLE base ENABLE TRIGGER effect_require_fence;')$$, 'a disabled trigger is a gap');
ALTER TABLE base ENABLE REPLICA TRIGGER effect_require_fence;
SELECT isnt_empty($$SELECT * FROM effect.fence_gaps() WHERE target = 'base'::regclass$$, 'one that fires under the replica role alone is a gap');
ALTER TABLE base ENABLE ALWAYS TRIGGER effect_require_fence;
SELECT is_empty($$SELECT * FROM effect.fence_gaps()$$, 'ENABLE ALWAYS is none');
ALTER TABLE base ENABLE TRIGGER ALL;
SET session_replication_role = replica;
SELECT bag_eq($$SELECT target::text, gap FROM effect.fence_gaps()$$,
	$$VALUES ('base', 'this session has the replica role: its writes pass'), ('child', 'this session has the replica role: its writes pass')$$, 'the replica role is a gap');
RESET session_replication_role;
SELECT effect.drop_fence('base'), effect.drop_fence('child') \g /dev/null

CREATE VIEW note_view AS SELECT * FROM note;
SELECT throws_ok($$SELECT effect.require_fence('note_view')$$, '42809', NULL, 'a view is refused');
CREATE FOREIGN DATA WRAPPER effect_fence_fdw;
CREATE SERVER effect_fence_server FOREIGN DATA WRAPPER effect_fence_fdw;
CREATE FOREIGN TABLE far (id int) SERVER effect_fence_server;
SELECT throws_ok($$SELECT effect.require_fence('far')$$, '42809', NULL, 'a foreign table is refused');
SET ROLE effect_fence_app;
SELECT throws_ok($$SELECT effect.require_fence('note')$$, '42501', NULL, 'another''s table is refused');
SELECT throws_ok($$SELECT effect.drop_fence('note')$$, '42501', NULL, 'for dropping too');
SELECT throws_ok($$SELECT effect.keep_token_monotonic('note', 'who')$$, '42501', NULL, 'and for keep_token_monotonic');
CREATE TABLE own (id int);
SELECT lives_ok($$SELECT effect.require_fence('own')$$, 'a worker may fence its own table');
SELECT throws_ok($$INSERT INTO own VALUES (1)$$, 'LE007', NULL, 'which then holds for it');
SELECT lives_ok($$SELECT effect.drop_fence('own')$$, 'and take it back');
RESET ROLE;

-- fenced_insert

CREATE TABLE sink (
	id int GENERATED ALWAYS AS IDENTITY,
	n numeric(10, 2) NOT NULL DEFAULT 1,
	double_n numeric GENERATED ALWAYS AS (n * 2) STORED,
	"Mixed ""Case" text,
	tags text[],
	doc jsonb,
	at timestamptz DEFAULT '2026-01-01 00:00:00+00',
	who text DEFAULT current_user);
SELECT is(effect.fenced_insert('fence/a', 7, 'sink', '{"n": 2.5}'),
	'{"id": 1, "n": 2.50, "double_n": 5.00, "Mixed \"Case": null, "tags": null, "doc": null, "at": "2026-01-01T00:00:00+00:00", "who": "postgres"}'::jsonb
	|| jsonb_build_object('who', current_user, 'at', to_jsonb('2026-01-01 00:00:00+00'::timestamptz)),
	'the row as stored: identity, defaults and generated columns filled in');
SELECT is(effect.fenced_insert('fence/a', 7, 'sink', '{"tags": ["a", "b,c"], "doc": {"x": [1]}, "Mixed \"Case": "it''s"}') - '{at,who,double_n}'::text[],
	'{"id": 2, "n": 1, "Mixed \"Case": "it''s", "tags": ["a", "b,c"], "doc": {"x": [1]}}'::jsonb, 'arrays, documents, names in their exact spelling');
SELECT is(effect.fenced_insert('fence/a', 7, 'sink', '{}') -> 'id', '3', 'no member: all defaults');
SELECT is(effect.fenced_insert('fence/a', 7, 'sink', '{"who": null}') -> 'who', 'null', 'a null member is NULL, not the default');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"N": 1}')$$, '42703', NULL, 'an unknown member is an error');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"ctid": "(0,1)"}')$$, '42703', NULL, 'so is a system column');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"n); DROP TABLE sink; --": 1}')$$, '42703', NULL, 'and an attempt at injection');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"id": 1}')$$, '428C9', NULL, 'an ALWAYS identity may not be named');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"double_n": 1}')$$, '428C9', NULL, 'nor a generated column');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"n": null}')$$, '23502', NULL, 'constraints apply');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', '{"n": "x"}')$$, '22P02', NULL, 'types apply');
SELECT throws_ok(format($$SELECT effect.fenced_insert('fence/a', 7, 'sink', %L)$$, bad), '22023', NULL, 'new_row must be an object, not ' || bad)
  FROM unnest('{[],"[{\"n\": 1}]",1,"null","\"n\""}'::text[]) AS bad;
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 'sink', NULL)$$, '22004', NULL, 'NULL new_row');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, NULL, '{}')$$, '22004', NULL, 'NULL target');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 7, 0, '{}')$$, '42P01', NULL, 'a target that is not there');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 99, 'sink', '{}')$$, 'LE003', NULL, 'a token that was never committed');
SELECT is(effect.fenced_insert('fence/a', 6, 'sink', '{}'), NULL, 'superseded: NULL');
SELECT is(count(*)::int, 4, 'and nothing is written') FROM sink;
SELECT is(pg_temp.other($$BEGIN; DO 'BEGIN PERFORM effect.fenced_insert(''fence/a'', 7, ''sink'', ''{}''); END'$$), 'ok', 'inserted, still open');
SELECT is(effect.revoke_lease('fence/a', 'test'), 7::bigint, 'revoked meanwhile');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'LE001 at COMMIT');
SELECT is(fencing_token::int, 8, 'the next run') FROM effect.claim_lease('fence/a', 'w8', '1 hour');
SELECT effect.require_fence('sink', 'fence/a') \g /dev/null
SELECT ok(effect.fenced_insert('fence/a', 8, 'sink', '{}') IS NOT NULL, 'fenced_insert satisfies require_fence');
SELECT effect.drop_fence('sink') \g /dev/null

-- the target's triggers, the caller's rights, row security
CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN new.v = 'no' THEN NULL ELSE new END; END $$;
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.v := upper(new.v); RETURN new; END $$;
CREATE TABLE trig (id int, v text);
CREATE TRIGGER a_suppress BEFORE INSERT ON trig FOR EACH ROW EXECUTE FUNCTION suppress();
CREATE TRIGGER b_shout BEFORE INSERT ON trig FOR EACH ROW EXECUTE FUNCTION shout();
SELECT is(effect.fenced_insert('fence/a', 8, 'trig', '{"id": 1, "v": "yes"}'), '{"id": 1, "v": "YES"}'::jsonb, 'triggers of the target apply');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 8, 'trig', '{"id": 2, "v": "no"}')$$, '09000', NULL, 'a row that a trigger suppressed is an error, never a silent loss');
SELECT is(count(*)::int, 1, 'nothing of it stays') FROM trig;
SELECT is(effect.fenced_insert('fence/a', 8, 'note_view', '{"who": "view"}'), '{"who": "view"}'::jsonb, 'through an updatable view');
CREATE TABLE tenant (id int, who text DEFAULT current_user);
ALTER TABLE tenant ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_rows ON tenant TO effect_fence_app USING (who = current_user);
SET ROLE effect_fence_app;
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 8, 'tenant', '{"id": 1}')$$, '42501', NULL, 'as the caller: without the right to insert it is refused');
RESET ROLE;
GRANT SELECT, INSERT ON tenant TO effect_fence_app;
SET ROLE effect_fence_app;
SELECT is(effect.fenced_insert('fence/a', 8, 'tenant', '{"id": 1}'), '{"id": 1, "who": "effect_fence_app"}'::jsonb, 'with it it works, and current_user is the caller');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 8, 'tenant', '{"id": 1, "who": "postgres"}')$$, '42501', NULL, 'row security applies');
SELECT throws_ok($$SELECT effect.fenced_insert('fence/a', 8, 'effect.lease', '{"job_key": "x"}')$$, '42501', NULL, 'effect''s own tables are out of a worker''s reach');
SELECT is(current_user, 'effect_fence_app'::name, 'and the caller is who it was');
RESET ROLE;

-- keep_token_monotonic

CREATE TABLE fed (id int PRIMARY KEY, v text, token bigint, small smallint, t text, n int);
INSERT INTO fed VALUES (1, 'a', 5), (2, 'b', NULL);
SELECT lives_ok($$SELECT effect.keep_token_monotonic('fed', 'token')$$, 'a bigint column');
SELECT is(tgenabled, 'A'::"char", 'ENABLE ALWAYS') FROM pg_trigger WHERE tgrelid = 'fed'::regclass AND NOT tgisinternal;
SELECT throws_ok($$UPDATE fed SET token = 4 WHERE id = 1$$, 'LE001', NULL, 'a token never goes down');
SELECT throws_ok($$UPDATE fed SET token = NULL WHERE id = 1$$, 'LE001', NULL, 'nor away');
SELECT lives_ok($$UPDATE fed SET v = 'a2', token = 5 WHERE id = 1$$, 'the same is the same run');
SELECT lives_ok($$UPDATE fed SET v = 'a3' WHERE id = 1$$, 'a write that leaves it alone passes');
SELECT lives_ok($$UPDATE fed SET token = 6 WHERE id = 1$$, 'up');
SELECT lives_ok($$UPDATE fed SET token = 1 WHERE id = 2$$, 'from NULL');
SELECT throws_ok($$INSERT INTO fed (id, token) VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET token = excluded.token$$, 'LE001', NULL, 'an upsert of a late message');
SET session_replication_role = replica;
SELECT throws_ok($$UPDATE fed SET token = 4 WHERE id = 1$$, 'LE001', NULL, 'also under the replica role');
RESET session_replication_role;
SELECT throws_ok($$SELECT effect.keep_token_monotonic('fed', 't')$$, '42804', NULL, 'a text column');
SELECT throws_ok($$SELECT effect.keep_token_monotonic('fed', 'nope')$$, '42703', NULL, 'a column that is not there');
SELECT throws_ok($$SELECT effect.keep_token_monotonic('fed', 'ctid')$$, '42703', NULL, 'a system column');
SELECT throws_ok($$SELECT effect.keep_token_monotonic('fed', NULL)$$, '22004', NULL, 'NULL');
SELECT throws_ok($$SELECT effect.keep_token_monotonic('note_view', 'who')$$, '42809', NULL, 'a view');
SELECT lives_ok($$SELECT effect.keep_token_monotonic('fed', 'small')$$, 'a smallint column, which replaces the other');
SELECT lives_ok($$UPDATE fed SET token = 1, small = 3 WHERE id = 1$$, 'token is free again');
SELECT throws_ok($$UPDATE fed SET small = 2 WHERE id = 1$$, 'LE001', NULL, 'small is kept');
SELECT lives_ok($$SELECT effect.keep_token_monotonic('fed', 'n'); UPDATE fed SET n = 1$$, 'an integer column');
SELECT throws_ok($$UPDATE fed SET n = 0$$, 'LE001', NULL, 'is kept');

CREATE TABLE fed_parted (id int, token bigint) PARTITION BY LIST (id);
CREATE TABLE fed_1 PARTITION OF fed_parted FOR VALUES IN (1);
SELECT lives_ok($$SELECT effect.keep_token_monotonic('fed_parted', 'token')$$, 'a partitioned table');
CREATE TABLE fed_2 (token bigint, id int);
ALTER TABLE fed_parted ATTACH PARTITION fed_2 FOR VALUES IN (2);
INSERT INTO fed_parted VALUES (1, 5), (2, 5);
SELECT throws_ok($$UPDATE fed_parted SET token = 4 WHERE id = 1$$, 'LE001', NULL, 'through the parent');
SELECT throws_ok($$UPDATE fed_1 SET token = 4$$, 'LE001', NULL, 'through the partition');
SELECT throws_ok($$UPDATE fed_2 SET token = 4$$, 'LE001', NULL, 'through a later one, with other column numbers');
SELECT throws_ok($$UPDATE fed_parted SET id = 2, token = 4 WHERE id = 1$$, 'LE001', NULL, 'and when the row moves');
SET session_replication_role = replica;
SELECT throws_ok($$UPDATE fed_1 SET token = 4$$, 'LE001', NULL, 'replica role, a partition');
SELECT throws_ok($$UPDATE fed_2 SET token = 4$$, 'LE001', NULL, 'replica role, a later partition');
RESET session_replication_role;
SELECT lives_ok($$SELECT effect.keep_token_monotonic('fed_parted', 'token')$$, 'asking again is harmless');

SELECT dblink_disconnect('other') \g /dev/null
SELECT * FROM finish();
DROP SCHEMA fence_test CASCADE;
DROP FOREIGN DATA WRAPPER effect_fence_fdw CASCADE;
DROP OWNED BY effect_fence_app, effect_fence_other;
DROP ROLE effect_fence_app, effect_fence_other;
