\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- guard: the promises that hold against plain SQL, whoever writes it: here a
-- superuser (doc/guarantees.md).
SET client_min_messages = warning;

SELECT plan(124);

-- A statement that must fail, or (state NULL) must not; it leaves nothing behind.
CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	RAISE SQLSTATE 'OK000';
EXCEPTION
	WHEN SQLSTATE 'OK000' THEN RETURN 'ok';
	WHEN OTHERS THEN RETURN SQLSTATE;
END $$;

-- Rows in every state.
SELECT 1 FROM effect.claim_lease('guard/held', 'w', '1 hour', 'f') \g /dev/null
SELECT 1 FROM effect.claim_lease('guard/free', 'w', '1 hour', 'f') \g /dev/null
SELECT effect.release_lease('guard/free', 1) \g /dev/null
SELECT 1 FROM effect.claim_lease('guard/free', 'w', '1 hour', 'g') \g /dev/null
SELECT effect.release_lease('guard/free', 2, 'failed') \g /dev/null
SELECT 1 FROM effect.claim_lease('guard/lost', 'w', '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT 1 FROM effect.claim_lease('guard/lost', 'v', '1 hour') \g /dev/null
SELECT effect.revoke_lease('guard/lost', 'x') \g /dev/null
SELECT 1 FROM unnest('{claimed,submitted,unknown,done,closed}'::text[]) AS t, effect.claim_effect('guard', t) \g /dev/null
SELECT 1 FROM effect.effects e, effect.submit_effect(e.effect_key, 1) WHERE action = 'guard' AND target IN ('submitted', 'unknown', 'done') \g /dev/null
SELECT 1 FROM effect.effects e, effect.mark_unknown(e.effect_key, 1, 'x') WHERE action = 'guard' AND target = 'unknown' \g /dev/null
SELECT 1 FROM effect.effects e, effect.complete_effect(e.effect_key, 1, '{"a": 1}') WHERE action = 'guard' AND target = 'done' \g /dev/null
SELECT 1 FROM effect.effects e, effect.close_effect(e.effect_key, 'x') WHERE action = 'guard' AND target = 'closed' \g /dev/null
SELECT 1 FROM effect.apply_effect('guard', 'applied') \g /dev/null

SET client_min_messages = error;
SELECT effect.approve(effect.effect_key('guard', 'claimed', effect.input_digest('{}')), a, NULL, '1 hour') FROM unnest('{given,spent}'::text[]) AS a \g /dev/null
SET client_min_messages = warning;
UPDATE effect.approval SET consumed_at = clock_timestamp(), consumed_attempt = 1 WHERE approver = 'spent' AND effect_key = effect.effect_key('guard', 'claimed', effect.input_digest('{}'));

SELECT is(current_setting('is_superuser'), 'on', 'a superuser asks');

-- Rows are kept.
SELECT is(pg_temp.told(format(s, t)), 'LE012', format(s, t))
  FROM unnest('{lease,run,firing,ledger,unknown,approval,cluster,journal_entry}'::text[]) AS t, unnest('{DELETE FROM effect.%I,TRUNCATE effect.%I}'::text[]) AS s;
SELECT is(pg_temp.told('TRUNCATE effect.lease, effect.run, effect.ledger CASCADE'), 'LE012', 'all at once');
SELECT is(pg_temp.told('MERGE INTO effect.lease l USING (VALUES (1)) s ON l.job_key = ''guard/free'' WHEN MATCHED THEN DELETE'), 'LE012', 'MERGE that deletes');
SELECT is(pg_temp.told($$DELETE FROM effect.ledger WHERE action = 'guard' AND target = 'closed'$$), 'LE012', 'no effect is forgotten, whatever its state');

-- Rows that never change.
SELECT is(pg_temp.told(format('UPDATE effect.%I SET %s', t, s)), 'LE012', format('UPDATE effect.%s SET %s', t, s))
  FROM (VALUES ('journal_entry', 'event = ''x'''), ('journal_entry', 'evidence = NULL'), ('journal_entry', 'at = now()'), ('journal_entry', 'role_name = ''x'''),
			   ('firing', 'fencing_token = 7'), ('firing', 'firing = ''x'''), ('firing', 'finished_at = now()')) AS t (t, s);

-- Leases: the token only rises, another holder needs a higher one.
CREATE TEMP TABLE try (t text, want text, job text, sets text);
INSERT INTO try VALUES
	('lease', 'LE012', 'guard/free', 'fencing_token = 1'),
	('lease', 'LE012', 'guard/free', 'fencing_token = fencing_token - 1, owner = ''x'''),
	('lease', 'LE012', 'guard/held', 'job_key = ''other'''),
	('lease', 'LE012', 'guard/held', 'owner = ''x'''),
	('lease', 'LE012', 'guard/free', 'owner = ''x'''),
	('lease', 'LE012', 'guard/free', 'owner = ''w'''),
	('lease', 'ok', 'guard/held', 'owner = NULL'),
	('lease', 'ok', 'guard/free', 'owner = ''x'', fencing_token = fencing_token + 1'),
	('lease', 'ok', 'guard/held', 'lease_until = lease_until + interval ''1 hour'''),
	('lease', 'LE012', 'guard/held', 'fencing_token = 0'),
	('run', 'LE012', 'guard/held', 'job_key = ''other'''),
	('run', 'LE012', 'guard/held', 'fencing_token = 9'),
	('run', 'LE012', 'guard/held', 'owner = ''x'''),
	('run', 'LE012', 'guard/held', 'started_at = now()'),
	('run', 'LE012', 'guard/free', 'outcome = ''running'''),
	('run', 'LE012', 'guard/free', 'outcome = ''revoked'''),
	('run', 'LE012', 'guard/lost', 'outcome = ''finished'''),
	('run', 'ok', 'guard/held', 'outcome = ''finished'', ended_at = now()'),
	('run', 'ok', 'guard/held', 'outcome = ''abandoned''');
SELECT is(pg_temp.told(format('UPDATE effect.%I SET %s WHERE job_key = %L', t, sets, job)), want, format('%s: UPDATE effect.%s SET %s', job, t, sets)) FROM try;
SELECT is(pg_temp.told($$UPDATE effect.run SET outcome = 'fenced' WHERE job_key = 'guard/lost' AND fencing_token = 1$$), 'ok', 'abandoned may turn out to be fenced');
SELECT is(pg_temp.told($$UPDATE effect.run SET outcome = 'fenced' WHERE job_key = 'guard/lost' AND fencing_token = 2$$), 'LE012', 'revoked does not');
SELECT is(pg_temp.told($$INSERT INTO effect.lease SELECT (l).* FROM (SELECT l FROM effect.lease l WHERE job_key = 'guard/free') s ON CONFLICT (job_key) DO UPDATE SET fencing_token = 1$$), 'LE012', 'an upsert is an update');

-- The ledger: what an effect is never changes; every state x every state.
SELECT is(pg_temp.told(format('UPDATE effect.ledger SET %s WHERE action = ''guard'' AND target = ''submitted''', s)), 'LE012', 'UPDATE effect.ledger SET ' || s)
  FROM unnest(ARRAY['effect_key = gen_random_uuid()', 'action = ''x''', 'target = ''x''', 'inputs = ''{"n": 1}''', 'inputs = NULL', 'created_at = now()', 'attempt = 0',
	'fencing_token = 2', 'job_key = ''guard/held''', 'attempt = 2', 'attempt = 2, fencing_token = 2, held = true']) AS s;
SELECT is(pg_temp.told(format('UPDATE effect.ledger SET state = %L, ending = %s WHERE action = ''guard'' AND target = %L',
			a, CASE a WHEN 'done' THEN 'coalesce(ending, ''completed'')' ELSE 'NULL' END, b)),
		  CASE WHEN a = b OR b || ' ' || a IN ('claimed submitted', 'claimed done', 'submitted done', 'submitted unknown', 'submitted claimed',
				'unknown done', 'unknown claimed', 'done unknown') THEN 'ok' ELSE 'LE012' END,
		  format('%s -> %s', b, a))
  FROM unnest('{claimed,submitted,unknown,done}'::text[]) WITH ORDINALITY AS b (b, n), unnest('{claimed,submitted,unknown,done}'::text[]) WITH ORDINALITY AS a (a, m)
 ORDER BY n, m;
SELECT is(pg_temp.told($$UPDATE effect.ledger SET attempt = 2, fencing_token = 2, state = 'submitted' WHERE action = 'guard' AND target = 'claimed'$$), 'ok', 'the next attempt at what is claimed');
SELECT is(pg_temp.told($$UPDATE effect.ledger SET attempt = 2, fencing_token = 2, state = 'claimed' WHERE action = 'guard' AND target = 'unknown'$$), 'LE012', 'no attempt at what is unknown');
SELECT is(pg_temp.told($$UPDATE effect.ledger SET attempt = 2, fencing_token = 2 WHERE action = 'guard' AND target = 'done'$$), 'LE012', 'nor at what is done');
SELECT is(pg_temp.told($$UPDATE effect.ledger SET ending = NULL WHERE action = 'guard' AND target = 'done'$$), '23514', 'what is done has an ending');
SELECT is(pg_temp.told($$UPDATE effect.ledger SET ending = 'completed' WHERE action = 'guard' AND target = 'claimed'$$), '23514', 'and nothing else has');

-- unknown: forgotten only with the state
SELECT is(pg_temp.told($$DELETE FROM effect.unknown USING effect.ledger l WHERE l.effect_key = unknown.effect_key AND l.target = 'unknown'$$), 'LE012', 'an unknown effect is not forgotten');
SELECT is(pg_temp.told($$UPDATE effect.unknown SET effect_key = gen_random_uuid()$$), 'LE012', 'nor by giving its row another key');
SELECT is(pg_temp.told($$UPDATE effect.unknown SET next_check = now(), checks = checks + 1$$), 'ok', 'its checks are counted');

-- approvals: spent is final
SELECT is(pg_temp.told(format('UPDATE effect.approval SET %s WHERE approver = %L AND effect_key = effect.effect_key(''guard'', ''claimed'', effect.input_digest(''{}''))', s, a)), want, format('an approval that is %s: SET %s', a, s))
  FROM (VALUES ('spent', 'consumed_at = NULL, consumed_attempt = NULL', 'LE012'), ('spent', 'consumed_at = now()', 'LE012'), ('spent', 'consumed_attempt = 2', 'LE012'), ('spent', 'terms = ''x''', 'LE012'), ('spent', 'expires_at = NULL', 'LE012'),
	('spent', 'approved_at = now()', 'LE012'), ('spent', 'revoked_at = now()', 'LE012'), ('spent', 'effect_key = gen_random_uuid()', 'LE012'), ('spent', 'approver = ''x''', 'LE012'),
	('given', 'effect_key = gen_random_uuid()', 'LE012'), ('given', 'approver = ''x''', 'LE012'), ('given', 'consumed_at = now(), consumed_attempt = 1', 'ok'), ('given', 'consumed_at = now()', '23514'), ('given', 'revoked_at = now()', 'ok'),
	('given', 'revoked_at = now(), consumed_at = now(), consumed_attempt = 1', '23514')) AS t (a, s, want);

-- cluster
SELECT is(pg_temp.told('UPDATE effect.cluster SET epoch = epoch - 1'), 'LE012', 'an epoch is not negative');
BEGIN;
UPDATE effect.cluster SET epoch = 5;
SELECT is(pg_temp.told('UPDATE effect.cluster SET epoch = 4'), 'LE012', 'an epoch never goes down');
SELECT is(pg_temp.told('UPDATE effect.cluster SET epoch = 6'), 'ok', 'it may rise');
ROLLBACK;

-- INSERT takes any well-formed row, as a restore brings them.
SELECT is(pg_temp.told($$INSERT INTO effect.lease VALUES ('guard/restored', 'w', 41, now(), '1 hour', NULL, NULL, now())$$), 'ok', 'a lease');
SELECT is(pg_temp.told($$INSERT INTO effect.run VALUES ('guard/restored', 40, 'w', NULL, 'abandoned', now(), now(), NULL, 'someone')$$), 'ok', 'a run that has ended');
SELECT is(pg_temp.told($$INSERT INTO effect.firing VALUES ('guard/restored', 'f', NULL, 40, now())$$), 'ok', 'a firing');
SELECT is(pg_temp.told($$INSERT INTO effect.unknown VALUES (gen_random_uuid(), now(), 'x', 3, now(), NULL)$$), 'ok', 'an unknown row before its effect');
SELECT is(pg_temp.told($$INSERT INTO effect.journal_entry (id, at, event, role_name) VALUES (1000000, now(), 'x', 'someone')$$), 'ok', 'a journal entry');
SELECT is(pg_temp.told(format($$INSERT INTO effect.ledger (effect_key, action, target, inputs, fencing_token, attempt, state, held, ending, response, created_at, updated_at)
	VALUES (gen_random_uuid(), 'guard', 'restored', '{}', 5, 5, %L, false, %L, '{}', now(), now())$$, s, e)), 'ok', 'an effect that is ' || s)
  FROM (VALUES ('claimed', NULL), ('submitted', NULL), ('unknown', NULL), ('done', 'resolved')) AS t (s, e);
SELECT is(pg_temp.told($$INSERT INTO effect.approval VALUES (gen_random_uuid(), 'ann', now(), NULL, NULL, 'someone', NULL, NULL, now(), 3)$$), 'ok', 'an approval that was spent');
SELECT is(pg_temp.told($$INSERT INTO effect.action VALUES ('guard/restored', NULL, 'facts', 'check', NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 'someone', now(), now())$$), 'ok', 'a registration');
SELECT is(pg_temp.told($$INSERT INTO effect.action VALUES ('guard/restored', NULL, 'facts', 'check', NULL, NULL, NULL, NULL, 101, NULL, NULL, NULL, NULL, 'someone', now(), now())$$), '23514', 'but not one that nobody can satisfy');
SELECT is(pg_temp.told($$INSERT INTO effect.lease VALUES ('guard/x', 'w', 0, now(), '1 hour', NULL, NULL, now())$$), '23514', 'but not an ill-formed one');
SELECT is(pg_temp.told(format($$INSERT INTO effect.lease VALUES (%L, 'w', 1, now(), '1 hour', NULL, NULL, now())$$, repeat('x', 256))), '23514', 'a job key that is too long');
SELECT is(pg_temp.told($$INSERT INTO effect.lease VALUES ('guard/held', 'w', 9, now(), '1 hour', NULL, NULL, now())$$), '23505', 'or a second of one key');

-- Guards are ordinary triggers: what a publisher allowed, replication applies.
SELECT is_empty($$SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'effect'::regnamespace)
				   AND NOT tgisinternal AND tgenabled <> CASE WHEN tgname LIKE 'registry%' THEN 'A' ELSE 'O' END$$, 'all of them are ORIGIN triggers (what tells of a changed registry is no guard: ALWAYS)');
SET session_replication_role = replica;
SELECT is(pg_temp.told($$UPDATE effect.ledger SET state = 'claimed', ending = NULL WHERE action = 'guard' AND target = 'done'$$), 'ok', 'under the replica role they sleep');
RESET session_replication_role;
SELECT is(pg_temp.told($$SET LOCAL session_replication_role = local; UPDATE effect.ledger SET state = 'claimed', ending = NULL WHERE action = 'guard' AND target = 'done'$$), 'LE012', 'under local they do not');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'effect'::regnamespace AND relkind = 'r'
	AND relname NOT IN ('action', 'job', 'sweep_state', 'straggler', 'retention', 'counter', 'counter_delta')
	AND (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname LIKE 'guard%') < 2$$, 'no table is without guards, but the registry, what sweep remembers, and counters');
SELECT throws_ok($$SELECT effect.guard_keep()$$, '39P01', NULL, 'a guard is not for calling');
CREATE TABLE guard_other (id int);
CREATE TRIGGER t BEFORE DELETE ON guard_other FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
INSERT INTO guard_other VALUES (1);
SELECT is(pg_temp.told('DELETE FROM guard_other'), 'LE012', 'on a table of one''s own it does what it says');
DROP TABLE guard_other;

-- The error says which table, why, and what to do.
CREATE FUNCTION pg_temp.message(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
	hint text;
BEGIN
	EXECUTE sql;
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RETURN message || ' / ' || hint;
END $$;
SELECT is(pg_temp.message($$UPDATE effect.lease SET fencing_token = 1 WHERE job_key = 'guard/free'$$),
	'guarded row of effect.lease: token 1 is lower than 2 / Use effect''s functions: they keep the promises that this table stands for.', 'a clear message');

SELECT * FROM finish();
