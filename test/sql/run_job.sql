\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- run_job: claim, run fenced, record, release, drain.
--
-- A CALL that must fail is made by a second session.  The notices of those that
-- are not granted stand in the expected output.
SET lock_timeout = '20s';	-- a test may fail, never hang
SET search_path = run_job_test, public;
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS dblink;
DROP ROLE IF EXISTS effect_run_app;
CREATE ROLE effect_run_app;
SELECT effect.grant_worker('effect_run_app') \g /dev/null
DROP SCHEMA IF EXISTS run_job_test CASCADE;
CREATE SCHEMA run_job_test;
GRANT USAGE ON SCHEMA run_job_test TO effect_run_app;

SELECT plan(116);

CREATE FUNCTION self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), session_user) $$;
-- The other session: one statement there; here its SQLSTATE, or what it said.
CREATE FUNCTION pg_temp.other(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM dblink_exec('other', sql);
	RETURN 'ok';
EXCEPTION WHEN OTHERS OR query_canceled THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.said(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	hint text;
BEGIN
	PERFORM dblink_exec('other', sql);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(' / ', message, nullif(hint, ''));
END $$;
SELECT dblink_connect('other', self()) \g /dev/null
SELECT dblink_exec('other', 'SET client_min_messages = error; SET search_path = run_job_test, public') \g /dev/null
CREATE FUNCTION pg_temp.queue(key text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(firing, ' ' ORDER BY queued_at, firing), '-') FROM effect.firing WHERE job_key = key AND finished_at IS NULL $$;
CREATE FUNCTION pg_temp.runs(key text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(coalesce(firing, '-') || ' ' || outcome, ', ' ORDER BY fencing_token) FROM effect.run WHERE job_key = key $$;
-- How the last run of a job ended.
CREATE FUNCTION pg_temp.last(key text) RETURNS text LANGUAGE sql AS $$
	SELECT concat_ws(' ', r.firing, r.outcome, r.detail, l.status) FROM effect.runs r JOIN effect.leases l USING (job_key, fencing_token) WHERE job_key = key $$;
CREATE TABLE note (n int GENERATED ALWAYS AS IDENTITY, token bigint, firing text, checkpoint jsonb, who name DEFAULT current_user, xid xid8 DEFAULT pg_current_xact_id());
CREATE FUNCTION pg_temp.notes() RETURNS text LANGUAGE sql AS $$
	WITH gone AS (DELETE FROM note RETURNING *)
	SELECT coalesce(string_agg(concat_ws(' ', token, firing, checkpoint), ', ' ORDER BY n), '-') FROM gone $$;

-- One run, from claim to release

SELECT effect.set_job('run/a', overlap => 'coalesce', every => '1 month', lease_for => '1 hour') \g /dev/null
CALL effect.run_job('run/a', 'INSERT INTO note (token, firing, checkpoint) VALUES ($1, $2, $3)', 'f1', 'cron');
SELECT is(pg_temp.notes(), '1 f1', '$1 is the token, $2 the firing, $3 no checkpoint yet');
SELECT is((owner, outcome, ended_at IS NOT NULL, detail)::text, '(cron,finished,t,)', 'the run has finished') FROM effect.runs WHERE job_key = 'run/a';
SELECT is((fencing_token, status)::text, '(1,free)', 'the lease is free') FROM effect.leases WHERE job_key = 'run/a';
CALL effect.run_job('run/a', 'INSERT INTO note (token, firing) SELECT 0, pg_typeof($1)::text || pg_typeof($2)::text || pg_typeof($3)::text', 'f2');
SELECT is(pg_temp.notes(), '0 biginttextjsonb', 'bigint, text, jsonb');
SELECT is(owner, 'run_job, pid ' || pg_backend_pid(), 'an owner nobody named says which backend it was') FROM effect.runs WHERE job_key = 'run/a' AND fencing_token = 2;
CALL effect.run_job(job_key => 'run/a', command => 'SELECT 1', firing => 'f3', owner => NULL);
SELECT is(pg_temp.last('run/a'), 'f3 finished free', 'arguments by name');
CALL effect.run_job('run/a', 'INSERT INTO note (token, firing) VALUES ($1, $2)');
SELECT is(firing, effect.firing_of('run/a'), 'no firing: the one that is due now') FROM note;
SELECT is(firing, effect.firing_of('run/a'), 'on the run as well') FROM effect.runs WHERE job_key = 'run/a' AND fencing_token = 4;
DELETE FROM note;
SELECT is_empty($$SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()$$, 'nothing is locked afterwards');
SELECT is_empty($$SELECT event FROM effect.journal WHERE job_key = 'run/a'$$, 'nothing out of the ordinary');

-- Every kind of command
CALL effect.run_job('run/a', 'INSERT INTO note (token) VALUES ($1); INSERT INTO note (token) VALUES ($1 + 100)', 'two');
SELECT is(pg_temp.notes(), '5, 105', 'two statements');
CALL effect.run_job('run/a', 'UPDATE note SET token = 1', 'update');
CALL effect.run_job('run/a', 'SELECT ''{}''::jsonb WHERE false', 'no row');
CALL effect.run_job('run/a', 'SELECT NULL::jsonb', 'null');
CALL effect.run_job('run/a', 'SELECT ''{}''::text', 'text');
CALL effect.run_job('run/a', 'SELECT ''{}''::json', 'json');
CALL effect.run_job('run/a', 'SELECT 1, ''{}''::jsonb', 'second column');
SELECT is(string_agg(firing || ' ' || outcome, ', ' ORDER BY fencing_token), 'update finished, no row finished, null finished, text finished, json finished, second column finished',
	'only a jsonb in the first column asks to go on') FROM effect.runs WHERE job_key = 'run/a' AND fencing_token > 5;
SELECT is(effect.get_checkpoint('run/a'), NULL, 'no checkpoint of any of them');
CALL effect.run_job('run/a', $$DO 'BEGIN INSERT INTO run_job_test.note (token) VALUES (1); PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN INSERT INTO run_job_test.note (token) VALUES (2); END'$$, 'do');
SELECT is(pg_temp.notes(), '2', 'a DO block that catches its own error');
CREATE TABLE fenced (token bigint);
SELECT effect.require_fence('fenced', 'run/a') \g /dev/null
CALL effect.run_job('run/a', 'INSERT INTO fenced VALUES ($1)', 'fenced');
SELECT is(count(*)::int, 1, 'the command is fenced: it may write where a fence is required') FROM fenced;
CALL effect.run_job('run/a', $$SELECT 1 FROM effect.begin_effect('run', $2, '{}', 'run/a', $1) AS e, effect.once('run/once', $2)$$, 'effect');
SELECT is((verdict, fencing_token)::text, '(unknown,)', 'and attempt effects under its token; one left submitted is unknown when the run has ended') FROM effect.explain_effect('run', 'effect');

-- Not granted: a notice, and no error

SET client_min_messages = notice;
\echo # each is not granted, and says so
CALL effect.run_job('run/a', 'SELECT 1/0', 'f1');
SELECT effect.set_job('run/a', paused => true) \g /dev/null
CALL effect.run_job('run/a', 'SELECT 1/0', 'new');
SELECT effect.set_job('run/a', paused => false, at_least_for => '1 hour') \g /dev/null
CALL effect.run_job('run/a', 'SELECT 1/0', 'new');
SELECT effect.set_job('run/a', at_least_for => '0') \g /dev/null
SELECT 1 FROM effect.claim_lease('run/a', 'someone', firing => 'held') \g /dev/null
CALL effect.run_job('run/a', 'SELECT 1/0', 'new');
SELECT effect.set_job('run/queue', overlap => 'queue', queue_limit => 1, lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('run/queue', 'someone', firing => 'held') \g /dev/null
CALL effect.run_job('run/queue', 'SELECT 1/0', 'f1');
CALL effect.run_job('run/queue', 'SELECT 1/0', 'f2');
\echo # so much for that
SET client_min_messages = warning;
SELECT is(count(*)::int, 15, 'no run was made for any of them') FROM effect.run WHERE job_key = 'run/a';
SELECT is(pg_temp.queue('run/queue'), 'f1', 'what is queued is not lost') FROM effect.lease WHERE job_key = 'run/queue';
SELECT effect.release_lease('run/a', 15, 'failed') \g /dev/null
SELECT effect.set_job('run/fail', overlap => 'fail', lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('run/fail', 'someone') \g /dev/null
SELECT is(pg_temp.other($$CALL effect.run_job('run/fail', 'SELECT 1')$$), 'LE002', 'policy fail is an error');

-- An error is recorded on the run, the lease released, and raised again

SELECT is(pg_temp.other($$CALL effect.run_job('run/a', 'INSERT INTO note (token) VALUES ($1); SELECT 1/0', 'e1')$$), '22012', 'the error is raised again, as it was');
SELECT is(pg_temp.notes(), '-', 'what the command wrote is undone');
SELECT is(pg_temp.last('run/a'), 'e1 failed {"error": "division by zero", "sqlstate": "22012"} free', 'the run has failed, with its error; the lease is free');
SELECT is(pg_temp.said($$CALL effect.run_job('run/a', 'DO ''BEGIN RAISE EXCEPTION USING MESSAGE = ''''no "disk"'''', HINT = ''''buy one'''', ERRCODE = ''''XX123''''; END''', 'e1')$$), 'no "disk" / buy one', 'message and hint');
SELECT is(pg_temp.last('run/a'), 'e1 failed {"error": "no \"disk\"", "sqlstate": "XX123"} free', 'recorded whatever it says');
SELECT is(pg_temp.other($$CALL effect.run_job('run/a', 'INSERT INTO note (firing) VALUES ($2)', 'e1')$$), 'ok', 'a firing that failed may be retried');
SELECT is(pg_temp.notes(), 'e1', 'and done');
SELECT is((pg_temp.other(format('CALL effect.run_job(''run/a'', %L, %L)', c, c)), pg_temp.last('run/a') ~ ('^' || f || ' failed .*"sqlstate": "' || want || '".* free$'))::text, format('(%s,t)', want), c)
  FROM (VALUES ('COMMIT', 'COMMIT', '0A000'), ('ROLLBACK', 'ROLLBACK', '0A000'), ('SAVEPOINT s', 'SAVEPOINT s', '0A000'), ('DO ''BEGIN COMMIT; END''', 'DO ''BEGIN COMMIT; END''', '2D000'),
			   ('VACUUM note', 'VACUUM note', '25001'), ('nonsense', 'nonsense', '42601'), ('SELECT $4', 'SELECT \$4', '42P02'), ('COPY note FROM STDIN', 'COPY note FROM STDIN', '0A000'),
			   ('CALL effect.run_job(''run/b'', ''SELECT 1'')', 'CALL effect\.run_job\(''run/b'', ''SELECT 1''\)', '2D000')) AS t (c, f, want);
SELECT matches(pg_temp.said($$CALL effect.run_job('run/a', 'COMMIT', 'COMMIT')$$), 'inside a transaction', 'a command that tries COMMIT is told why not');
CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
SELECT is(pg_temp.other($$CALL effect.run_job('run/a', 'INSERT INTO late VALUES (1), (1)', 'late')$$), '23505', 'an error that comes at COMMIT is raised, too');
SELECT matches(pg_temp.last('run/a'), '^late failed .*late_id_key.*"sqlstate": "23505"} free$', 'recorded, and the lease released');
SELECT is(pg_temp.other('SET statement_timeout = ''100ms'''), 'ok', 'a time limit');
SELECT is(pg_temp.other($$CALL effect.run_job('run/a', 'SELECT pg_sleep(20)', 'slow')$$), '57014', 'ends a command that takes too long');
SELECT matches(pg_temp.last('run/a'), '^slow failed .*"sqlstate": "57014"} free$', 'which is recorded as well');
SELECT is(pg_temp.other('RESET statement_timeout'), 'ok', 'no time limit');

-- The caller's own rights
SELECT effect.set_job('run/app', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is(pg_temp.other('SET ROLE effect_run_app'), 'ok', 'a worker');
SELECT is(pg_temp.other($$CALL effect.run_job('run/app', 'INSERT INTO note (token) VALUES ($1)', 'f1')$$), '42501', 'the command runs with the rights of who calls');
SELECT is(pg_temp.other($$CALL effect.run_job('run/app', 'SELECT * FROM effect.lease', 'f1')$$), '42501', 'and never with those of effect');
GRANT INSERT ON note TO effect_run_app;
SELECT is(pg_temp.other($$CALL effect.run_job('run/app', 'INSERT INTO note (token) VALUES ($1)', 'f1')$$), 'ok', 'granted what it needs');
SELECT is(who, 'effect_run_app'::name, 'it runs as itself') FROM note;
DELETE FROM note;
SELECT is(pg_temp.runs('run/app'), 'f1 failed, f1 failed, f1 finished', 'the runs');
SELECT effect.set_job('run/app', usable_by => ARRAY[current_user]) \g /dev/null
SELECT is(pg_temp.other($$CALL effect.run_job('run/app', 'SELECT 1', 'f2')$$), '42501', 'who may not use the job may not run it');
SELECT is(pg_temp.other('RESET ROLE'), 'ok', 'enough');
REVOKE EXECUTE ON PROCEDURE effect.run_job(text, text, text, text) FROM effect_run_app;
SELECT is(pg_temp.other('SET ROLE effect_run_app'), 'ok', 'a role without the grant');
SELECT is(pg_temp.other($$CALL effect.run_job('run/app', 'SELECT 1', 'f2')$$), '42501', 'may not call it at all');
SELECT is(pg_temp.other('RESET ROLE'), 'ok', 'enough');

-- Inside a transaction: refused, and nothing is claimed

CREATE FUNCTION inside() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL effect.run_job('run/in', 'SELECT 1', 'f1'); END $$;
CREATE PROCEDURE outside(f text) LANGUAGE plpgsql AS $$ BEGIN CALL effect.run_job('run/in', 'INSERT INTO run_job_test.note (firing) VALUES ($2)', f); END $$;
SELECT effect.set_job('run/in', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is(pg_temp.other('BEGIN'), 'ok', 'a transaction block');
SELECT matches(pg_temp.said($$CALL effect.run_job('run/in', 'SELECT 1', 'f1')$$), '^effect\.run_job\(\) cannot be called inside a transaction / CALL it by itself', 'is refused');
SELECT is(pg_temp.other('ROLLBACK; BEGIN'), 'ok', 'again');
SELECT is(pg_temp.other($$CALL effect.run_job('run/in', 'SELECT 1', 'f1')$$), '2D000', 'with 2D000');
SELECT is(pg_temp.other('ROLLBACK'), 'ok', 'rolled back');
SELECT throws_ok('SELECT inside()', '2D000', NULL, 'a function');
SELECT is(pg_temp.other($$DO 'BEGIN CALL effect.run_job(''run/in'', ''SELECT 1'', ''f1''); EXCEPTION WHEN division_by_zero THEN NULL; END'$$), '2D000', 'a block that catches');
SELECT is_empty($$SELECT 1 FROM effect.lease WHERE job_key = 'run/in'$$, 'nothing was claimed');
CALL outside('f1');
DO $$ BEGIN CALL effect.run_job('run/in', 'INSERT INTO run_job_test.note (firing) VALUES ($2)', 'f2'); CALL run_job_test.outside('f3'); END $$;
SELECT is(pg_temp.notes(), 'f1, f2, f3', 'a procedure and a DO block that end transactions may');
SELECT is(pg_temp.other('SET default_transaction_read_only = on'), 'ok', 'READ ONLY');
SELECT is(pg_temp.other($$CALL effect.run_job('run/in', 'SELECT 1', 'f4')$$), '25006', 'is refused');
SELECT is(pg_temp.other($$RESET default_transaction_read_only; SET default_transaction_isolation = 'serializable'$$), 'ok', 'SERIALIZABLE');
SELECT is(pg_temp.other($$CALL effect.run_job('run/in', 'INSERT INTO note (firing) VALUES (current_setting(''transaction_isolation''))', 'f4')$$), 'ok', 'is not');
SELECT is(pg_temp.notes(), 'serializable', 'and the command runs at that level');
SELECT is(pg_temp.other('RESET default_transaction_isolation'), 'ok', 'reset');

-- Misuse

SELECT effect.set_job('run/bare', overlap => 'coalesce') \g /dev/null
SELECT is(pg_temp.other('CALL effect.run_job(' || args || ')'), want, args || ': ' || want)
  FROM (VALUES ('22004', 'NULL, ''SELECT 1'''), ('22004', '''run/a'', NULL'), ('22023', ''' '', ''SELECT 1'''), ('22023', '''run/a'', '''''), ('22023', '''run/a'', ''SELECT 1'', '' '''),
			   ('22023', '''run/a'', ''SELECT 1'', ''x'', '''''), ('22004', '''run/nobody'', ''SELECT 1'''), ('22004', '''run/bare'', ''SELECT 1'''), ('22004', '''run/queue'', ''SELECT 1''')) AS t (want, args);
SELECT is(pg_temp.other('SET effect.require_registered_jobs = on'), 'ok', 'registered jobs only');
SELECT is(pg_temp.other($$CALL effect.run_job('run/nobody', 'SELECT 1')$$), 'LE003', 'LE003');
SELECT is(pg_temp.other('RESET effect.require_registered_jobs'), 'ok', 'reset');

-- The batch loop (case 46): each batch and its checkpoint in a transaction of its own

SELECT effect.set_job('run/batch', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
CREATE TABLE item (id int PRIMARY KEY, sent int NOT NULL DEFAULT 0, until timestamptz);
INSERT INTO item SELECT generate_series(1, 10);
CREATE TABLE poison (id int);
CREATE FUNCTION send(token bigint, f text, upto jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	next int;
BEGIN
	INSERT INTO run_job_test.note (token, firing, checkpoint) VALUES (token, f, upto);
	WITH batch AS (SELECT id FROM run_job_test.item WHERE id > coalesce((upto->>'id')::int, 0) ORDER BY id LIMIT 3),
		 sent AS (UPDATE run_job_test.item i SET sent = sent + 1, until = (SELECT lease_until FROM effect.lease WHERE job_key = 'run/batch') FROM batch b WHERE i.id = b.id RETURNING i.id)
	SELECT max(id) INTO next FROM sent;
	PERFORM 1 / (p.id - p.id) FROM run_job_test.poison p WHERE p.id <= next;
	RETURN jsonb_build_object('id', next) WHERE next IS NOT NULL;
END $$;
INSERT INTO poison VALUES (8);
SELECT is(pg_temp.other($$CALL effect.run_job('run/batch', 'SELECT send($1, $2, $3)', 'digest')$$), '22012', 'the third of four batches fails');
SELECT is(pg_temp.notes(), '1 digest, 1 digest {"id": 3}', '$3 is what the last batch returned');
SELECT is((sum(sent), max(id) FILTER (WHERE sent > 0), effect.get_checkpoint('run/batch'))::text, '(6,6,"{""id"": 6}")', 'two are there, with their checkpoint; of the third nothing is') FROM item;
SELECT is(pg_temp.last('run/batch'), 'digest failed {"error": "division by zero", "sqlstate": "22012"} free', 'the run has failed');
DELETE FROM poison;
CALL effect.run_job('run/batch', 'SELECT send($1, $2, $3)', 'digest');
SELECT is((min(sent), max(sent), count(DISTINCT until))::text, '(1,1,4)', 'the next run goes on: everybody has it once, and the lease is renewed for each batch') FROM item;
SELECT is(count(DISTINCT xid)::int, 3, 'three batches, three transactions') FROM note;
SELECT is(pg_temp.notes(), '2 digest {"id": 6}, 2 digest {"id": 9}, 2 digest {"id": 10}', 'until it returns none');
SELECT is(pg_temp.last('run/batch'), 'digest finished free', 'finished');
SELECT is(effect.get_checkpoint('run/batch'), NULL, 'and cleared its checkpoint');
-- scope job: the next firing goes on from the cursor
SELECT effect.set_job('run/cursor', overlap => 'coalesce', lease_for => '1 hour', checkpoint_scope => 'job') \g /dev/null
CALL effect.run_job('run/cursor', $$INSERT INTO note (firing, checkpoint) VALUES ($2, $3) RETURNING CASE WHEN $3 IS NULL THEN '1'::jsonb END$$, 'monday');
CALL effect.run_job('run/cursor', $$INSERT INTO note (firing, checkpoint) VALUES ($2, $3) RETURNING CASE WHEN $3 = '1' THEN '2'::jsonb END$$, 'tuesday');
SELECT is(pg_temp.notes(), 'monday, monday 1, tuesday 1, tuesday 2', 'checkpoint_scope job carries over');
SELECT is(effect.get_checkpoint('run/cursor'), '2'::jsonb, 'and is kept');

-- The lease is lost meanwhile: LE001, and nothing of it lands

SELECT is(pg_temp.other($$CALL effect.run_job('run/a', 'INSERT INTO note (token) SELECT $1 FROM dblink(self(), ''SELECT effect.revoke_lease(''''run/a'''', ''''test'''')'') AS t (x bigint)', 'lost')$$), 'LE001', 'revoked while the command ran: LE001');
SELECT is(pg_temp.notes(), '-', 'it wrote nothing');
SELECT is(pg_temp.last('run/a'), 'lost revoked free', 'the run stays revoked');
SELECT effect.set_job('run/stolen', overlap => 'coalesce', lease_for => '1 millisecond') \g /dev/null
SELECT is(pg_temp.other($$CALL effect.run_job('run/stolen', 'INSERT INTO note (token) SELECT $1 FROM pg_sleep(0.05), dblink(self(), ''SELECT verdict::text FROM effect.claim_lease(''''run/stolen'''', ''''thief'''', ''''1 hour'''', ''''f2'''')'') AS t (x text)', 'f1')$$), 'LE001', 'taken over while it ran: LE001');
SELECT is(pg_temp.notes(), '-', 'it wrote nothing');
SELECT is(pg_temp.runs('run/stolen'), 'f1 fenced, f2 running', 'it came back and was refused: fenced; the thief goes on');
SELECT is(effect.release_lease('run/stolen', 2), true, 'to the end');
-- in the second batch: what the first one committed stays
SELECT is(pg_temp.other($$CALL effect.run_job('run/batch', 'INSERT INTO note (checkpoint) SELECT $3 FROM (SELECT x FROM dblink(self(), CASE WHEN $3 IS NULL THEN ''SELECT 0'' ELSE ''SELECT effect.revoke_lease(''''run/batch'''', ''''test'''')'' END) AS t (x bigint)) s RETURNING ''1''::jsonb', 'lost')$$), 'LE001', 'revoked in the second batch');
SELECT is(count(*)::int, 1, 'the first one stands') FROM note;
SELECT is(effect.get_checkpoint('run/batch'), '1'::jsonb, 'with its checkpoint');
DELETE FROM note;
SELECT is(checkpoint, '1'::jsonb, 'for the next run of that firing') FROM effect.claim_lease('run/batch', 'w', firing => 'lost');
-- a lease that merely ran out is not lost
SELECT is(pg_temp.other($$CALL effect.run_job('run/stolen', 'SELECT pg_sleep(0.02)', 'f3')$$), 'ok', 'an expired lease that nobody took is not lost');
SELECT is(pg_temp.last('run/stolen'), 'f3 finished free', 'finished');

-- Then the queue is drained

SELECT is(effect.release_lease('run/queue', 1), true, 'a run by hand ends; f1 waits');
SELECT effect.set_job('run/queue', queue_limit => 5) \g /dev/null
CALL effect.run_job('run/queue', 'INSERT INTO note (token, firing) VALUES ($1, $2)', 'f3', 'cron');
SELECT is(pg_temp.notes(), '2 f1, 3 f3', 'the oldest first, then the one that was passed');
SELECT is(pg_temp.queue('run/queue'), '-', 'none is left');
SELECT is(string_agg(DISTINCT owner, ','), 'cron', 'all by the same owner') FROM effect.runs WHERE job_key = 'run/queue' AND fencing_token > 1;
SELECT 1 FROM effect.claim_lease('run/queue', 'someone', firing => 'f4') \g /dev/null
SELECT 1 FROM unnest('{f5,f6,f7}'::text[]) WITH ORDINALITY AS f (f, n), effect.claim_lease('run/queue', 'someone', firing => f) \g /dev/null
SELECT effect.release_lease('run/queue', 4) \g /dev/null
SELECT is(pg_temp.other($$CALL effect.run_job('run/queue', 'INSERT INTO note (token, firing) SELECT $1, $2 WHERE 1 / (CASE $2 WHEN ''f6'' THEN 0 ELSE 1 END) = 1', 'f8')$$), '22012', 'an error ends the draining');
SELECT is(pg_temp.notes(), '5 f5', 'what came before it is done');
SELECT is(pg_temp.runs('run/queue'), 'held finished, f1 finished, f3 finished, f4 finished, f5 finished, f6 failed', 'what failed is recorded');
SELECT is(pg_temp.queue('run/queue'), 'f7 f8', 'the others still wait');
-- one that comes while the command runs
CALL effect.run_job('run/queue', $$INSERT INTO note (token, firing) SELECT $1, $2 || ' ' || x FROM dblink(self(), 'SELECT verdict::text FROM effect.claim_lease(''run/queue'', ''someone'', firing => ''late'')') AS t (x text)$$, 'f9');
SELECT is(pg_temp.notes(), '7 f7 queued, 8 f8 queued, 9 f9 queued, 10 late queued', 'is drained as well, once');
SELECT is(pg_temp.queue('run/queue'), '-', 'none is left');
SELECT is(firing, 'late', 'each has run to its end') FROM effect.firing WHERE job_key = 'run/queue' AND fencing_token = 10;
-- cooling down ends it, too
SELECT 1 FROM effect.claim_lease('run/queue', 'someone', firing => 'g1') \g /dev/null
SELECT 1 FROM effect.claim_lease('run/queue', 'someone', firing => 'g2') \g /dev/null
SELECT effect.release_lease('run/queue', 11) \g /dev/null
SET client_min_messages = notice;
\echo # the queue is not drained while the job cools down
CALL effect.run_job('run/queue', $$SELECT effect.set_job('run/queue', at_least_for => '1 hour')$$, 'g3');
SET client_min_messages = warning;
SELECT is(pg_temp.queue('run/queue'), 'g3', 'what is left waits for the next call');

SELECT * FROM finish();
SELECT dblink_disconnect('other') \g /dev/null
DROP SCHEMA run_job_test CASCADE;
DROP OWNED BY effect_run_app;
DROP ROLE effect_run_app;
