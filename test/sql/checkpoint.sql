\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- checkpoint: where a long job goes on; batch and checkpoint are both there or
-- neither.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
CREATE EXTENSION IF NOT EXISTS dblink;
DROP SCHEMA IF EXISTS checkpoint_test CASCADE;
CREATE SCHEMA checkpoint_test;
SET search_path = checkpoint_test, public;

SELECT plan(82);

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
SELECT dblink_exec('other', 'SET client_min_messages = error; SET search_path = checkpoint_test, public') \g /dev/null
CREATE FUNCTION pg_temp.run_out(key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT lease_until > clock_timestamp() FROM effect.lease WHERE job_key = key) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;

-- save and get

SELECT effect.set_job('checkpoint/a', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is(effect.get_checkpoint('checkpoint/a'), NULL, 'none: from the start');
SELECT is((verdict, checkpoint)::text, '(granted,)', 'the first run of a firing has none') FROM effect.claim_lease('checkpoint/a', 'w1', firing => 'f1');
SELECT is(effect.save_checkpoint('checkpoint/a', 1, '{"row": 100}'), true, 'the holder saves one');
SELECT is(effect.get_checkpoint('checkpoint/a'), '{"row": 100}'::jsonb, 'it is there');
SELECT is(effect.save_checkpoint('checkpoint/a', 1, '[1, "two", null]'), true, 'the next one replaces it');
SELECT is(effect.get_checkpoint('checkpoint/a'), '[1, "two", null]'::jsonb, 'any jsonb will do');
SELECT is((firing, fencing_token, saved_at <= clock_timestamp())::text, '(f1,1,t)', 'it knows firing and run') FROM effect.checkpoint WHERE job_key = 'checkpoint/a';
SELECT is(effect.save_checkpoint('checkpoint/a', 1, NULL), true, 'NULL clears');
SELECT is(effect.get_checkpoint('checkpoint/a'), NULL, 'it is gone');
SELECT is(effect.save_checkpoint('checkpoint/a', 1, NULL), true, 'clearing nothing is no error');
SELECT is(effect.save_checkpoint('checkpoint/a', 1, 'null'), true, 'a JSON null is a value');
SELECT is(effect.get_checkpoint('checkpoint/a'), 'null'::jsonb, 'and is kept as one');
SELECT is(effect.save_checkpoint('checkpoint/a', 1, '{"row": 200}'), true, 'saved');

-- failed: left to the next attempt at the same firing, and to no other

SELECT ok(effect.release_lease('checkpoint/a', 1, 'failed'), 'the run fails');
SELECT is(effect.get_checkpoint('checkpoint/a'), '{"row": 200}'::jsonb, 'its checkpoint is left');
SELECT is((verdict, checkpoint)::text, '(granted,)', 'another firing begins from the start') FROM effect.claim_lease('checkpoint/a', 'w1', firing => 'f2');
SELECT ok(effect.release_lease('checkpoint/a', 2, 'failed'), 'and fails without having saved one');
SELECT is((verdict, fencing_token, checkpoint)::text, '(granted,3,"{""row"": 200}")', 'the next attempt at f1 goes on where the last one was') FROM effect.claim_lease('checkpoint/a', 'w2', firing => 'f1');
SELECT is((verdict, fencing_token, checkpoint)::text, '(coalesced,,)', 'who is not granted is told none') FROM effect.claim_lease('checkpoint/a', 'w3', firing => 'f1');
SELECT is(effect.save_checkpoint('checkpoint/a', 3, '{"row": 300}'), true, 'it gets further');

-- abandoned: the same

SELECT effect.release_lease('checkpoint/a', 3, 'failed') \g /dev/null
SELECT is(checkpoint, '{"row": 300}'::jsonb, 'a run that will not come back') FROM effect.claim_lease('checkpoint/a', 'dies', '1 millisecond', firing => 'f1');
SELECT pg_temp.run_out('checkpoint/a') \g /dev/null
SELECT is((verdict, fencing_token, checkpoint)::text, '(granted,5,"{""row"": 300}")', 'leaves it to the one that takes over') FROM effect.claim_lease('checkpoint/a', 'w1', firing => 'f1');
SELECT is(effect.save_checkpoint('checkpoint/a', 4, '{"row": 1}'), false, 'the one that was taken over is fenced: false');
SELECT is(effect.save_checkpoint('checkpoint/a', 4, NULL), false, 'it cannot clear either');
SELECT is(effect.get_checkpoint('checkpoint/a'), '{"row": 300}'::jsonb, 'nothing was written');
SELECT is(outcome, 'fenced', 'its run came back: slow, not dead') FROM effect.runs WHERE job_key = 'checkpoint/a' AND fencing_token = 4;
SELECT is(effect.revoke_lease('checkpoint/a', 'test'), 5::bigint, 'a run that is revoked');
SELECT is(effect.save_checkpoint('checkpoint/a', 5, '{"row": 1}'), false, 'is fenced as well');
SELECT is((fencing_token, checkpoint)::text, '(6,"{""row"": 300}")', 'and leaves it to the next') FROM effect.claim_lease('checkpoint/a', 'w1', firing => 'f1');

-- finished: cleared

SELECT ok(effect.release_lease('checkpoint/a', 6), 'the run finishes');
SELECT is(effect.get_checkpoint('checkpoint/a'), NULL, 'its checkpoint is cleared');
SELECT is_empty($$SELECT 1 FROM effect.checkpoint WHERE job_key = 'checkpoint/a'$$, 'with its row');
SELECT is(effect.save_checkpoint('checkpoint/a', 6, '{"row": 1}'), false, 'too late: fenced');

-- an unregistered job: the same; without a firing the job itself is one

SELECT is((verdict, checkpoint)::text, '(granted,)', 'a job nobody registered, without a firing') FROM effect.claim_lease('checkpoint/loose', 'w1', '1 hour');
SELECT is(effect.save_checkpoint('checkpoint/loose', 1, '7'), true, 'saves');
SELECT ok(effect.release_lease('checkpoint/loose', 1, 'failed'), 'fails');
SELECT is((verdict, checkpoint)::text, '(granted,)', 'a run for a firing is another') FROM effect.claim_lease('checkpoint/loose', 'w1', '1 hour', 'f1');
SELECT ok(effect.release_lease('checkpoint/loose', 2, 'failed'), 'fails, too');
SELECT is(checkpoint, '7'::jsonb, 'the next one without goes on') FROM effect.claim_any('{checkpoint/loose}', 'w1', '1 hour');
SELECT ok(effect.release_lease('checkpoint/loose', 3), 'to the end');
SELECT is(effect.get_checkpoint('checkpoint/loose'), NULL, 'cleared');

-- scope job: a cursor that carries over

SELECT effect.set_job('checkpoint/cursor', overlap => 'coalesce', lease_for => '1 hour', checkpoint_scope => 'job') \g /dev/null
SELECT 1 FROM effect.claim_lease('checkpoint/cursor', 'w1', firing => 'monday') \g /dev/null
SELECT is(effect.save_checkpoint('checkpoint/cursor', 1, '{"seen": 10}'), true, 'scope job');
SELECT ok(effect.release_lease('checkpoint/cursor', 1), 'the run finishes');
SELECT is(effect.get_checkpoint('checkpoint/cursor'), '{"seen": 10}'::jsonb, 'the cursor stays');
SELECT is((verdict, checkpoint)::text, '(granted,"{""seen"": 10}")', 'the next firing goes on from it') FROM effect.claim_lease('checkpoint/cursor', 'w1', firing => 'tuesday');
SELECT is(effect.save_checkpoint('checkpoint/cursor', 2, '{"seen": 20}'), true, 'moves it');
SELECT ok(effect.release_lease('checkpoint/cursor', 2, 'failed'), 'fails');
SELECT is(checkpoint, '{"seen": 20}'::jsonb, 'and it is where it was saved last') FROM effect.claim_lease('checkpoint/cursor', 'w1');
SELECT is(effect.save_checkpoint('checkpoint/cursor', 3, NULL), true, 'NULL begins anew');
SELECT ok(effect.release_lease('checkpoint/cursor', 3), 'finished');
SELECT is((verdict, checkpoint)::text, '(granted,)', 'from the start') FROM effect.claim_lease('checkpoint/cursor', 'w1', firing => 'wednesday');

-- Batch and checkpoint in one transaction: both or neither

CREATE TABLE done (row int);
SELECT 1 FROM effect.claim_lease('checkpoint/batch', 'w1', '1 hour') \g /dev/null
BEGIN;
INSERT INTO done VALUES (1);
SELECT is(effect.save_checkpoint('checkpoint/batch', 1, '1'), true, 'a batch and its checkpoint');
COMMIT;
SELECT is((count(*), effect.get_checkpoint('checkpoint/batch'))::text, '(1,1)', 'both are there') FROM done;
BEGIN;
INSERT INTO done VALUES (2);
SELECT effect.save_checkpoint('checkpoint/batch', 1, '2') \g /dev/null
ROLLBACK;
SELECT is((count(*), effect.get_checkpoint('checkpoint/batch'))::text, '(1,1)', 'or neither') FROM done;
SELECT is(pg_temp.other($$BEGIN; INSERT INTO done VALUES (2); DO 'BEGIN PERFORM effect.save_checkpoint(''checkpoint/batch'', 1, ''2''); END'$$), 'ok', 'a batch that has saved');
SELECT is(effect.revoke_lease('checkpoint/batch', 'test'), 1::bigint, 'its lease is taken away meanwhile');
SELECT is(pg_temp.other('COMMIT'), 'LE001', 'saving has fenced the transaction: LE001 at COMMIT');
SELECT is((count(*), effect.get_checkpoint('checkpoint/batch'))::text, '(1,1)', 'neither batch nor checkpoint') FROM done;
SELECT is((fencing_token, checkpoint)::text, '(2,1)', 'the next run goes on from what is there') FROM effect.claim_lease('checkpoint/batch', 'w2', '1 hour');
SELECT is(pg_temp.other($$BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM done; DO 'BEGIN PERFORM effect.save_checkpoint(''checkpoint/batch'', 2, ''2''); END'$$), 'ok', 'REPEATABLE READ');
SELECT is(pg_temp.other('INSERT INTO done VALUES (2)'), 'ok', 'with its batch');
SELECT is(pg_temp.other('COMMIT'), 'ok', 'commits');
BEGIN;
INSERT INTO done VALUES (3);
SELECT effect.save_checkpoint('checkpoint/batch', 2, '3') \g /dev/null
SELECT ok(effect.release_lease('checkpoint/batch', 2), 'the last batch releases in its transaction');
COMMIT;
SELECT is((count(*), effect.get_checkpoint('checkpoint/batch'))::text, '(3,)', 'which is done, and the checkpoint cleared') FROM done;
SELECT is(pg_temp.other($$DO 'BEGIN PERFORM effect.require_fence(''done''); END'$$), 'ok', 'a table that wants a fence');
SELECT 1 FROM effect.claim_lease('checkpoint/batch', 'w2', '1 hour') \g /dev/null
SELECT throws_ok('INSERT INTO done VALUES (4)', 'LE007', NULL, 'is not written without one');
BEGIN;
SELECT effect.save_checkpoint('checkpoint/batch', 3, '4') \g /dev/null
SELECT lives_ok('INSERT INTO done VALUES (4)', 'and saving is one');
COMMIT;

-- Misuse

SELECT throws_ok('SELECT effect.' || c, want, NULL, c || ': ' || want)
  FROM (VALUES
	('22004', 'save_checkpoint(NULL, 1, ''1'')'), ('22004', 'save_checkpoint(''checkpoint/a'', NULL, ''1'')'), ('22023', 'save_checkpoint('' '', 1, ''1'')'),
	('22023', 'save_checkpoint(''checkpoint/a'', 0, ''1'')'), ('LE003', 'save_checkpoint(''checkpoint/a'', 99, ''1'')'), ('LE003', 'save_checkpoint(''checkpoint/nobody'', 1, ''1'')'),
	('54000', 'save_checkpoint(''checkpoint/batch'', 3, to_jsonb(repeat(''x'', 9000000)))'), ('22004', 'get_checkpoint(NULL)'), ('22023', 'get_checkpoint('''')')) AS t (want, c);
BEGIN READ ONLY;
SELECT throws_ok($$SELECT effect.save_checkpoint('checkpoint/batch', 3, '1')$$, '25006', NULL, 'READ ONLY: save_checkpoint is refused');
SELECT effect.get_checkpoint('checkpoint/batch') AS state \gset v_
COMMIT;
SELECT is(:'v_state'::text, '4', 'get_checkpoint is not');

-- Against plain SQL: an earlier run does not overwrite a later one's
SELECT throws_ok($$UPDATE effect.checkpoint SET fencing_token = 2, state = '1' WHERE job_key = 'checkpoint/batch'$$, 'LE012', NULL, 'a checkpoint under a lower token');
SELECT throws_ok($$INSERT INTO effect.checkpoint SELECT 'checkpoint/batch', firing, 2, '1', now() FROM effect.checkpoint WHERE job_key = 'checkpoint/batch' ON CONFLICT (job_key, firing) DO UPDATE SET fencing_token = 2$$, 'LE012', NULL, 'by an upsert');
SELECT throws_ok($$UPDATE effect.checkpoint SET job_key = 'checkpoint/x' WHERE job_key = 'checkpoint/batch'$$, 'LE012', NULL, 'or for another job');
SELECT lives_ok($$UPDATE effect.checkpoint SET state = '5' WHERE job_key = 'checkpoint/batch'$$, 'the same run may');

SELECT * FROM finish();
SELECT dblink_disconnect('other') \g /dev/null
DROP SCHEMA checkpoint_test CASCADE;
