\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- issues: what people who do this job really hit, a fault class each, by number.
--
-- Also tested elsewhere: 05 11 13 16 22 32 34 42 43 (keys) in key.sql; 18 and the
-- races of 01, 03, 06, 09, 15, 28, 44 in the isolation specs; 14, 31, 37, 45 by
-- killing (t/010_kill.pl, t/020_crash_async.pl), 35 in t/040_dump.pl, 20 behind
-- a real pooler in t/060_pooler.pl.  08, 25, 36, 38, 40 (checkpoints, overlap),
-- 33 (approvals) and 41 (retention) come with those rooms.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
CREATE EXTENSION IF NOT EXISTS dblink;
DROP ROLE IF EXISTS effect_issues_app;
CREATE ROLE effect_issues_app;
SELECT effect.grant_worker('effect_issues_app') \g /dev/null
SET effect.default_settle = 0;	-- 15: the settling time is resolve.sql's

SELECT plan(133);

-- S1 and S2 are two sessions of ours.
CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
SELECT dblink_connect('S1', pg_temp.self()), dblink_connect('S2', pg_temp.self()) \g /dev/null
-- One command there: ok, or its SQLSTATE.
CREATE FUNCTION pg_temp.run(session text, sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM dblink_exec(session, sql);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- One value from there, or its SQLSTATE.
CREATE FUNCTION pg_temp.ask(session text, sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT answer FROM dblink(session, format('SELECT (%s)::text', sql)) AS t (answer text));
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- The same in this session.
CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.key(target text) RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key('issue', $1, effect.input_digest('{}')) $$;
CREATE FUNCTION pg_temp.state(target text) RETURNS text LANGUAGE sql AS $$ SELECT state::text FROM effect.effects WHERE effect_key = pg_temp.key($1) $$;
CREATE FUNCTION pg_temp.left_of(job text) RETURNS int LANGUAGE sql VOLATILE AS $$
	SELECT round(extract(epoch FROM lease_until - clock_timestamp()))::int FROM effect.lease WHERE job_key = job $$;

-- 01 fence check passes, lease is stolen, stale transaction still commits
CREATE TABLE issue_invoice (who text);
SELECT 1 FROM effect.claim_lease('01', 'A', '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is(pg_temp.run('S1', 'BEGIN') || pg_temp.ask('S1', 'SELECT effect.fence(''01'', 1)'), 'ok', '01: the old owner''s fence passes, nobody has stolen yet');
SELECT is(pg_temp.run('S1', 'INSERT INTO issue_invoice VALUES (''A was here'')'), 'ok', '01: it writes');
SELECT is((verdict, fencing_token)::text, '(granted,2)', '01: the lease is stolen at once, the old transaction holds nothing') FROM effect.claim_lease('01', 'B', '1 minute');
INSERT INTO issue_invoice VALUES ('B was here');
SELECT is(pg_temp.run('S1', 'COMMIT'), 'LE001', '01: its COMMIT fails with a distinct SQLSTATE');
SELECT is(string_agg(who, ','), 'B was here', '01: and leaves no row') FROM issue_invoice;
-- with ledger calls instead of a plain INSERT
SELECT 1 FROM effect.claim_effect('issue', '01 submit', '{}', '01', 2) \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '01 complete', '{}', '01', 2) \g /dev/null
SELECT is(pg_temp.run('S1', 'BEGIN') || pg_temp.ask('S1', format('SELECT verdict FROM effect.submit_effect(%L, 2)', pg_temp.key('01 submit'))), 'okgo_after_commit', '01: submitted in a block');
SELECT is(pg_temp.run('S2', 'BEGIN') || pg_temp.ask('S2', format('SELECT verdict FROM effect.complete_effect(%L, 2)', pg_temp.key('01 complete'))), 'okdone', '01: completed in a block');
SELECT is(effect.revoke_lease('01', 'stolen'), 2::bigint, '01: the lease goes');
SELECT is(pg_temp.run('S1', 'COMMIT') || pg_temp.run('S2', 'COMMIT'), 'LE001LE001', '01: neither commits');
SELECT is(pg_temp.state('01 submit') || ' ' || pg_temp.state('01 complete'), 'claimed unknown', '01: what was not submitted is claimed, what was is unknown');

-- 02 the submitted mark lives in the transaction that later rolls back
BEGIN;
SELECT verdict FROM effect.begin_effect('issue', '02') \gset v_
ROLLBACK;
SELECT is(:'v_verdict'::text, 'go_after_commit', '02: in an open transaction nobody is told go: COMMIT, then act');
SELECT verdict FROM effect.begin_effect('issue', '02') \gset v_
SELECT is(:'v_verdict'::text, 'go', '02: alone the record is committed before the answer');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.begin_effect(''issue'', ''02'')'), 'busy', '02: which every other session sees');

-- 03 now() is frozen
SELECT 1 FROM effect.claim_lease('03', 'A', '50 milliseconds') \g /dev/null
BEGIN;
SELECT now() \g /dev/null
SELECT pg_sleep(0.1) \g /dev/null
SELECT is(verdict::text, 'granted', '03: a transaction that began earlier sees the lease run out') FROM effect.claim_lease('03', 'B', '10 seconds');
SELECT is(pg_temp.left_of('03'), 10, '03: and gets ten seconds from the clock');
COMMIT;
SELECT is(pg_temp.run('S1', 'BEGIN') || pg_temp.ask('S1', 'SELECT now() IS NOT NULL') || (effect.renew_lease('03', 2, '20 seconds') IS NOT NULL), 'oktruetrue', '03: meanwhile it is renewed');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''03'', ''C'', ''1 second'')') || pg_temp.run('S1', 'COMMIT'), 'heldok', '03: the reverse: a frozen clock does not steal a renewed lease');

-- 04 try-acquire inside a WHERE clause
CREATE TABLE issue_job (id int PRIMARY KEY, q text);
INSERT INTO issue_job SELECT g, 'a' FROM generate_series(1, 10) AS g;
ANALYZE issue_job;
SELECT is(array_length(array_agg(job_key), 1), 1, '04: claim_any takes the candidates and leaves exactly one lease')
  FROM effect.claim_any((SELECT array_agg('04/' || id ORDER BY id DESC) FROM issue_job WHERE id > 5), 'w1', '1 minute');
SELECT is(string_agg(job_key || ' ' || owner, ','), '04/10 w1', '04: that of the first') FROM effect.leases WHERE job_key LIKE '04/%';
SELECT ok(provolatile = 'v' AND proparallel = 'u' AND procost >= 1000, '04: claim_lease is VOLATILE, PARALLEL UNSAFE and costly') FROM pg_proc WHERE oid = 'effect.claim_lease(text,text,interval,text,uuid)'::regprocedure;
-- strays of a misuse are attributable, and released in one call
SELECT id FROM issue_job WHERE (effect.claim_lease('04 stray/' || id, 'w2', '1 minute')).verdict = 'granted' AND id > 5 ORDER BY id DESC LIMIT 1 \g /dev/null
SELECT cmp_ok(count(*), '>=', 1::bigint, '04: as a predicate it may take more than it returns') FROM effect.leases WHERE job_key LIKE '04 stray/%' AND owner = 'w2';
SELECT is(bool_and(effect.release_lease(job_key, fencing_token)), true, '04: the owner''s strays are released in one statement') FROM effect.leases WHERE job_key LIKE '04 stray/%' AND owner = 'w2';
-- the same of effects
SELECT is(count(*)::int, 3, '04: begin_effects takes an array, which a LIMIT cannot cut') FROM effect.begin_effects('issue', '{04 a,04 b,04 c}');

-- 06 the caller's snapshot hides the live lease
SELECT 1 FROM effect.claim_lease('06 fence', 'A', '1 hour') \g /dev/null
SELECT is(pg_temp.run('S1', 'BEGIN ISOLATION LEVEL REPEATABLE READ') || ' ' || pg_temp.ask('S1', 'SELECT count(*) FROM issue_job'), 'ok 10', '06: REPEATABLE READ, snapshot taken');
SELECT 1 FROM effect.claim_lease('06 lease', 'B', '1 minute') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '06') \g /dev/null
SELECT effect.revoke_lease('06 fence', 'x') \g /dev/null
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''06 lease'', ''A'', ''1 minute'')'), 'held', '06: the lease committed since is seen');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.begin_effect(''issue'', ''06'')'), 'busy', '06: so is the effect');
SELECT is(pg_temp.ask('S1', 'SELECT effect.is_current(''06 fence'', 1)'), 'false', '06: and the revocation');
SELECT is(pg_temp.ask('S1', 'SELECT effect.fence(''06 fence'', 1)'), 'LE001', '06: fence refuses');
SELECT is(pg_temp.run('S1', 'ROLLBACK'), 'ok', '06: rolled back');
SELECT 1 FROM effect.claim_lease('06 fence', 'A', '1 hour') \g /dev/null
SELECT is(pg_temp.run('S1', 'BEGIN ISOLATION LEVEL SERIALIZABLE') || ' ' || pg_temp.ask('S1', 'SELECT count(*) FROM issue_job'), 'ok 10', '06: SERIALIZABLE');
SELECT effect.revoke_lease('06 fence', 'x') \g /dev/null
SELECT is(pg_temp.ask('S1', 'SELECT effect.is_current(''06 fence'', 2)') || pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''06 lease'', ''A'', ''1 minute'')'), 'falseheld', '06: the same');
SELECT is(pg_temp.run('S1', 'COMMIT'), 'ok', '06: and it commits');
SELECT is(pg_temp.run('S1', 'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE') || pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''06 lease'', ''A'', ''1 minute'')') || pg_temp.run('S1', 'ROLLBACK'),
	'ok25006ok', '06: READ ONLY is refused, whatever else it is');

-- 07 deleting or expiring the lease row restarts the token
SELECT 1 FROM effect.claim_lease('07', 'A', '1 millisecond') \g /dev/null
SELECT effect.release_lease('07', 1) \g /dev/null
SELECT is(pg_temp.told('DELETE FROM effect.lease WHERE job_key = ''07'''), 'LE012', '07: the row cannot be deleted');
SELECT is(fencing_token::int, 2, '07: higher after a release') FROM effect.claim_lease('07', 'B', '1 millisecond');
SELECT pg_sleep(0.01) \g /dev/null
SELECT is(fencing_token::int, 3, '07: after an expiry') FROM effect.claim_lease('07', 'C', '1 minute');
SELECT effect.revoke_lease('07', 'x') \g /dev/null
SELECT is(fencing_token::int, 4, '07: after a revocation') FROM effect.claim_lease('07', 'D', '1 minute');
SELECT is(string_agg(pg_temp.told(format('SELECT effect.fence(''07'', %s)', t)), ' '), 'LE001 LE001 LE001', '07: none of the old ones fences') FROM generate_series(1, 3) AS t;

-- 09 savepoint rollback leaves C-level state behind
BEGIN;
SAVEPOINT s;
SELECT verdict AS v1 FROM effect.begin_effect('issue', '09') \gset v_
ROLLBACK TO s;
SELECT verdict AS v2, attempt FROM effect.begin_effect('issue', '09') \gset v_
DO $$ BEGIN PERFORM effect.claim_lease('09', 'A', '1 minute'); PERFORM effect.fence('09', 1); RAISE EXCEPTION 'x'; EXCEPTION WHEN OTHERS THEN NULL; END $$;
SELECT pg_temp.told('SELECT effect.fence(''09'', 1)') AS fenced \gset v_
RELEASE s;
COMMIT;
SELECT is(format('%s %s %s', :'v_v1', :'v_v2', :'v_attempt'), 'go_after_commit go_after_commit 1', '09: what a savepoint took back never was');
SELECT is(:'v_fenced'::text, 'LE003', '09: nor the lease that an exception took back');
SELECT is(pg_temp.ask('S1', 'SELECT verdict || '' '' || fencing_token FROM effect.claim_lease(''09'', ''B'', ''1 minute'')'), 'granted 1', '09: another session is granted token 1');
SELECT is((status, owner)::text, '(live,B)', '09: what is shown is what is enforced') FROM effect.leases WHERE job_key = '09';
SELECT is(pg_temp.run('S1', 'BEGIN') || pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''09 lock'', ''A'', ''1 minute'')') || pg_temp.run('S1', 'ROLLBACK; BEGIN; SAVEPOINT a')
	|| pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''09 lock'', ''A'', ''1 minute'')') || pg_temp.run('S1', 'ROLLBACK TO a'), 'okgrantedokgrantedok', '09: a lock taken in a savepoint');
SELECT is((verdict, fencing_token)::text, '(granted,1)', '09: is gone after its rollback') FROM effect.claim_lease('09 lock', 'B', '1 minute');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''09 lock'', ''A'', ''1 minute'')') || pg_temp.run('S1', 'COMMIT'), 'heldok', '09: and the session does not think it still has it');
-- a thousand savepoints, each with a fence and a claim, leave nothing in memory
CREATE FUNCTION pg_temp.nested(n int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. n LOOP
		BEGIN
			PERFORM effect.fence('09', 1);
			PERFORM effect.claim_effect('issue', '09 nested');
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
	RETURN (SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name IN ('TopMemoryContext', 'TopTransactionContext', 'CacheMemoryContext'));
END $$;
SELECT pg_temp.nested(50) AS early, pg_temp.nested(1000) AS late \gset v_
SELECT cmp_ok(:v_late - :v_early, '<', 65536, '09: a thousand rolled-back savepoints do not leak');

-- 10 32-bit lock keys
SELECT is(hashtext('refund:order-21752'), hashtext('refund:order-33503'), '10: two names of one 32-bit hash');
SELECT is(pg_temp.run('S1', 'BEGIN') || ' ' || pg_temp.ask('S1', 'SELECT verdict FROM effect.begin_effect(''issue'', ''refund:order-21752'')') || ' ' || pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''refund:order-115079'', ''a'', ''1 minute'')'),
	'ok go_after_commit granted', '10: taken in an open transaction');
SELECT is(pg_temp.ask('S1', 'SELECT (pg_advisory_xact_lock(1238174383), pg_advisory_xact_lock(0, 1238174383), pg_advisory_xact_lock(hashtextextended(''refund:order-207199'', 0))) IS NULL'), 'false', '10: with the application''s own advisory locks beside it');
SET lock_timeout = '300ms';
SELECT verdict FROM effect.begin_effect('issue', 'refund:order-33503') \gset v_
SELECT is(:'v_verdict'::text, 'go', '10: the other effect is told go at once');
SELECT is(verdict::text, 'granted', '10: the other lease is granted') FROM effect.claim_lease('refund:order-207199', 'b', '1 minute');
SET lock_timeout = '20s';
SELECT is(pg_temp.run('S1', 'ROLLBACK'), 'ok', '10: rolled back');

-- 12 two containers share host name and pid
SELECT is(pg_temp.ask('S1', 'SELECT verdict || '' '' || fencing_token FROM effect.claim_lease(''12'', ''host:app pid:9 thread:17'', ''5 min'')'), 'granted 1', '12: the first');
SELECT is(pg_temp.ask('S2', 'SELECT verdict FROM effect.claim_lease(''12'', ''host:app pid:9 thread:17'', ''5 min'')'), 'held', '12: its twin of the same name is held off');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''12'', ''host:app pid:9 thread:17'', ''5 min'')'), 'held', '12: so is the first by its name alone: renewal needs the token');

-- 14 unlogged tables, synchronous_commit = off (crashes: t/020_crash_async.pl)
SELECT is_empty($$SELECT oid::regclass FROM pg_class WHERE relnamespace = 'effect'::regnamespace AND relpersistence <> 'p'$$, '14: every relation is logged');
CREATE FUNCTION pg_temp.raised(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('synchronous_commit', 'off', true);
	EXECUTE sql;
	RETURN current_setting('synchronous_commit');
END $$;
SELECT is(pg_temp.raised(sql), 'on', '14: synchronous_commit = off is raised by ' || sql)
  FROM unnest(ARRAY['SELECT effect.begin_effect(''issue'', ''14'')', 'SELECT effect.claim_effect(''issue'', ''14 claim'')', 'SELECT effect.claim_lease(''14'', ''w'', ''1 minute'')', 'SELECT effect.revoke_lease(''14'', ''x'')']) AS sql;

-- 15 an expired in-progress record is executed again although the outcome is unknown
SELECT 1 FROM effect.claim_lease('15', 'w1', '1 millisecond') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '15 w1', '{}', '15', 1), effect.claim_effect('issue', '15 w2', '{}', '15', 1) \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT 1 FROM effect.claim_lease('15', 'w2', '1 minute') \g /dev/null
SELECT is((verdict, state, attempt, detail ~ 'submitted at')::text, '(unknown,unknown,1,t)', '15: submitted, its worker killed: unknown') FROM effect.begin_effect('issue', '15 w1', '{}', '15', 2);
SELECT is((run_id, submitted_at IS NOT NULL, fencing_token, inputs)::text, '(,t,1,{})', '15: the old run, its time and facts are shown') FROM effect.effects WHERE effect_key = pg_temp.key('15 w1');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 2)', pg_temp.key('15 w1'))), 'LE003', '15: the next run cannot submit what it has not claimed');
SELECT is(effect.resolve_unknown(pg_temp.key('15 w1'), 'did_not_happen', 1, '{"bank": "no such order"}')::text, 'claimed', '15: with evidence that it did not happen');
SELECT verdict FROM effect.begin_effect('issue', '15 w1', '{}', '15', 2) \gset v_
SELECT is(:'v_verdict'::text, 'go', '15: it may be sent once more');
SELECT is(verdict::text, 'reserved', '15: what was only claimed may be claimed by the next run') FROM effect.claim_effect('issue', '15 w2', '{}', '15', 2);

-- 16 NULL, empty and blank key parts
SELECT is(pg_temp.told('SELECT verdict FROM effect.' || c), s, '16: ' || c)
  FROM (VALUES ('claim_effect(NULL, ''t'')', '22004'), ('claim_effect(''a'', NULL)', '22004'), ('claim_effect('''', ''t'')', '22023'), ('claim_effect(''a'', E'' \t'')', '22023'),
			   ('claim_effect(''a'', ''t'', NULL)', '22004'), ('apply_effect(''stripe'', NULL)', '22004'), ('apply_effect(NULL, ''evt_1'')', '22004')) AS t (c, s);
SELECT is(pg_temp.told('SELECT effect.once(NULL, ''evt_1'')') || pg_temp.told('SELECT effect.once(''stripe'', NULL::text)'), '2200422004', '16: once of NULL is never true');

-- 17 NULL owner or NULL token opens the fence
SELECT 1 FROM effect.claim_lease('17', 'A', '1 millisecond') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '17', '{}', '17', 1) \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT 1 FROM effect.claim_lease('17', 'B', '1 minute') \g /dev/null
SELECT effect.release_lease('17', 2) \g /dev/null
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.complete_effect(%L, 1)', pg_temp.key('17'))), 'fenced', '17: nobody holds it now, the old token is refused all the same');
SELECT is(pg_temp.told('SELECT effect.fence(''17'', 1)') || pg_temp.told('SELECT effect.is_current(''17'', 1)') || pg_temp.told('SELECT effect.fence(''17'', 2)'), 'LE001falseLE001', '17: so is the released one');
SELECT is(pg_temp.told('SELECT effect.' || c), '22004', '17: ' || c)
  FROM unnest(ARRAY['fence(''17'', NULL)', 'renew_lease(''17'', NULL, ''1 min'')', 'claim_lease(NULL, ''A'', ''1 min'')', 'claim_lease(''17'', ''A'', NULL)', 'is_current(''17'', NULL)']) AS c;

-- 19 timestamp without time zone
SELECT is_empty($$SELECT attrelid::regclass, attname FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'effect'::regnamespace) AND atttypid = 'timestamp'::regtype$$, '19: there is no such column');
SET TimeZone = 'UTC';
SELECT is(verdict::text, 'granted', '19: granted in UTC') FROM effect.claim_lease('19', 'A', '5 min');
SET TimeZone = 'Pacific/Auckland';
SELECT is(verdict::text, 'held', '19: held in Auckland') FROM effect.claim_lease('19', 'B', '5 min');
SET TimeZone = 'America/Los_Angeles';
SELECT effect.renew_lease('19', 1, '5 min') IS NOT NULL AS renewed \gset v_
SELECT is(pg_temp.left_of('19'), 300, '19: renewed in Los Angeles, five minutes');
RESET TimeZone;

-- 20 behind a transaction pooler: any statement on any connection, DISCARD ALL between (a real one: t/060_pooler.pl)
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''20'', ''pod-1'', ''30 s'')') || pg_temp.run('S1', 'DISCARD ALL'), 'grantedok', '20: claimed on one connection');
SELECT is(pg_temp.ask('S2', 'SELECT effect.renew_lease(''20'', 1) IS NOT NULL') || pg_temp.run('S2', 'DISCARD ALL'), 'trueok', '20: renewed on another');
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''20'', ''pod-2'', ''30 s'')'), 'held', '20: another pod on the first connection is held off');
SELECT is(pg_temp.ask('S2', 'SELECT verdict FROM effect.begin_effect(''issue'', ''20'', ''{}'', ''20'', 1)'), 'go', '20: begun there');
SELECT is(pg_temp.run('S1', 'DISCARD ALL') || pg_temp.ask('S1', format('SELECT verdict FROM effect.complete_effect(%L, 1)', pg_temp.key('20'))), 'okdone', '20: completed here');
SELECT is(pg_temp.ask('S2', 'SELECT effect.release_lease(''20'', 1)'), 'true', '20: released there');
SELECT is(pg_temp.ask('S1', 'SELECT count(*) FROM pg_locks WHERE locktype = ''advisory'''), '0', '20: nothing is left locked');

-- 21 shadow tables, internal tables writable by anyone (all of it: acl.sql)
SET ROLE effect_issues_app;
CREATE TEMP TABLE ledger (effect_key uuid, state text);
INSERT INTO pg_temp.ledger VALUES (pg_temp.key('21'), 'done');
CREATE TEMP TABLE lease (job_key text, owner text, fencing_token bigint, lease_until timestamptz);
INSERT INTO pg_temp.lease VALUES ('21', 'me', 99, 'infinity');
SET search_path = pg_temp, public, effect;
SELECT is(pg_temp.told('SELECT verdict FROM effect.claim_effect(''issue'', ''21'')') || pg_temp.told('SELECT effect.fence(''21'', 99)'), 'reservedLE003', '21: answers come from the real tables');
RESET search_path;
SELECT is(pg_temp.told(sql), '42501', '21: ' || sql)
  FROM unnest(ARRAY['UPDATE effect.ledger SET state = ''claimed''', 'DELETE FROM effect.lease', 'SELECT setval(''effect.journal_entry_id_seq'', 1)', 'ALTER TABLE effect.ledger DISABLE TRIGGER ALL']) AS sql;
RESET ROLE;
DROP TABLE pg_temp.ledger, pg_temp.lease;

-- 23 rollback leaks the uniqueness lock, or frees somebody else's
BEGIN;
SELECT 1 FROM effect.claim_effect('issue', '23 a') \g /dev/null
ROLLBACK;
SELECT is(verdict::text, 'reserved', '23: rolled back, the next claim wins') FROM effect.claim_effect('issue', '23 a');
SELECT 1 FROM effect.claim_lease('23', 'S1', '1 hour') \g /dev/null
SELECT effect.release_lease('23', 1) \g /dev/null
SELECT 1 FROM effect.claim_lease('23', 'S1', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_effect('issue', '23 b', '{}', '23', 2) \g /dev/null
SELECT is(pg_temp.run('S2', 'BEGIN') || pg_temp.ask('S2', 'SELECT verdict FROM effect.claim_effect(''issue'', ''23 b'')')
	|| pg_temp.ask('S2', format('SELECT verdict FROM effect.retract_effect(%L, 1)', pg_temp.key('23 b'))) || pg_temp.run('S2', 'COMMIT'), 'okbusyfencedok', '23: the loser''s cleanup is refused');
SELECT is((state, held, fencing_token)::text, '(claimed,t,2)', '23: and the effect is still the winner''s') FROM effect.effects WHERE effect_key = pg_temp.key('23 b');

-- 24 an orphan sweep kills a live worker: there is none that looks at anything but the lease
SELECT 1 FROM effect.claim_lease('24', 'w1', '60 min') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '24', '{}', '24', 1) \g /dev/null
UPDATE effect.ledger SET updated_at = updated_at - interval '1 day', submitted_at = submitted_at - interval '1 day' WHERE effect_key = pg_temp.key('24');
SELECT is((verdict, pg_temp.state('24'))::text, '(busy,submitted)', '24: a day without a heartbeat under a live lease is busy, not an orphan') FROM effect.begin_effect('issue', '24');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('24'))), 'LE010', '24: and nobody may say that it did not happen');

-- 26 a duplicate must not abort the caller's transaction
CREATE TABLE issue_order (id int);
SELECT 1 FROM effect.begin_effect('issue', '26') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('26'), 1) \g /dev/null
BEGIN;
INSERT INTO issue_order VALUES (1);
SELECT verdict FROM effect.claim_effect('issue', '26') \gset v_
SELECT count(*) AS n FROM issue_order \gset v_
COMMIT;
SELECT is(:'v_verdict' || ' ' || :'v_n' || ' ' || (SELECT count(*) FROM issue_order), 'done 1 1', '26: the duplicate is told done, the order commits');

-- 27 the former holder's late release deletes the successor's lease
SELECT 1 FROM effect.claim_lease('27', 'A', '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT 1 FROM effect.claim_lease('27', 'B', '1 minute') \g /dev/null
SELECT is(effect.release_lease('27', 1), false, '27: a late release is fenced');
SELECT is((verdict, holder)::text, '(held,B)', '27: and a third is held off by the successor') FROM effect.claim_lease('27', 'C', '1 minute');

-- 28 a delayed heartbeat takes the lease back
SELECT is(effect.renew_lease('27', 1, '1 hour'), NULL, '28: a delayed heartbeat is fenced');
SELECT is(pg_temp.told('SELECT effect.is_current(''27'', 2)'), 'true', '28: the new owner is unaffected');
SELECT effect.renew_lease('27', 2, '100 ms') IS NOT NULL AS renewed \gset v_
SELECT is(pg_temp.left_of('27') > 50, true, '28: a short renewal never shortens');

-- 29 a job longer than its lease
SELECT 1 FROM effect.claim_lease('29', 'w1', '1 millisecond') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '29', '{}', '29', 1) \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is(fencing_token::int, 2, '29: the second copy starts under a higher token') FROM effect.claim_lease('29', 'w2', '1 minute');
SELECT is(verdict::text, 'unknown', '29: and is not told go for what the first may have done') FROM effect.begin_effect('issue', '29', '{}', '29', 2);
SELECT is(effect.renew_lease('29', 1, '1 minute') IS NULL, true, '29: the first is told');
SELECT is(verdict::text, 'fenced', '29: its answer changes nothing') FROM effect.complete_effect(pg_temp.key('29'), 1, '{"ok": true}');
SELECT is((state, late_answer)::text, '(unknown,"{""ok"": true}")', '29: but is evidence for who resolves it') FROM effect.effects WHERE effect_key = pg_temp.key('29');
SELECT is(outcome::text, 'fenced', '29: the run shows that the lease was too short') FROM effect.runs WHERE job_key = '29' AND fencing_token = 1;

-- 30 newer state overwritten by an older event: dedupe is not ordering
SELECT is(format('%s %s', effect.once('issue/30', 'evt_2'), effect.once('issue/30', 'evt_1')), 't t', '30: two first deliveries are both new, whatever their order; the documentation says so');
-- what the database can do: a version column that never goes down
CREATE TABLE issue_entity (id text PRIMARY KEY, state text, version bigint);
SELECT effect.keep_token_monotonic('issue_entity', 'version') \g /dev/null
INSERT INTO issue_entity VALUES ('sub_1', 'active', 1623979266);
SELECT is(pg_temp.told('INSERT INTO issue_entity VALUES (''sub_1'', ''incomplete'', 1623979265) ON CONFLICT (id) DO UPDATE SET state = excluded.state, version = excluded.version'), 'LE001',
	'30: keep_token_monotonic refuses the older one');

-- 31 the holder's backend is gone
SELECT is(pg_temp.ask('S1', 'SELECT verdict FROM effect.claim_lease(''31'', ''n1'', ''10 s'')'), 'granted', '31: claimed');
SELECT dblink_disconnect('S1') \g /dev/null
SELECT dblink_connect('S1', pg_temp.self()) \g /dev/null
SELECT is(pg_temp.ask('S1', 'SELECT effect.renew_lease(''31'', 1) IS NOT NULL'), 'true', '31: a lost connection is not a lost lease');
UPDATE effect.lease SET lease_until = clock_timestamp() WHERE job_key = '31';
SELECT is((verdict, fencing_token)::text, '(granted,2)', '31: without a heartbeat it is') FROM effect.claim_lease('31', 'n2', '10 s');
SELECT is(pg_temp.ask('S1', 'SELECT effect.is_current(''31'', 1)') || pg_temp.ask('S1', 'SELECT coalesce(effect.renew_lease(''31'', 1)::text, ''fenced'')'), 'falsefenced', '31: and the table, not the session, says so');

-- 39 same key, different payload: with identity facts it is another effect
SELECT 1 FROM effect.begin_effect('issue', '39', '{"amount": 10}') \g /dev/null
SELECT is(verdict::text, 'reserved', '39: another amount is another effect, never an answer to somebody else''s request') FROM effect.claim_effect('issue', '39', '{"amount": 11}');
SELECT is(verdict::text, 'busy', '39: the same amount, written otherwise, is the same') FROM effect.claim_effect('issue', '39', '{"amount": 10.0}');
SELECT 1 FROM effect.complete_effect(effect.effect_key('issue', '39', effect.input_digest('{"amount": 10}')), 1) \g /dev/null
SELECT is(verdict::text, 'done', '39: afterwards too') FROM effect.claim_effect('issue', '39', '{"amount": 1e1}');

-- 44 marked as seen before the handler ran
BEGIN;
SELECT effect.once('issue/44', 'd1') AS once \gset v_
ROLLBACK;
SELECT is(:'v_once' || ' ' || effect.once('issue/44', 'd1')::text, 't true', '44: the handler failed, the event is new again');
SELECT is(pg_temp.run('S1', 'BEGIN') || pg_temp.ask('S1', 'SELECT effect.once(''issue/44'', ''d2'')'), 'oktrue', '44: being handled');
SELECT is(pg_temp.run('S2', 'SET lock_timeout = ''100ms''') || pg_temp.ask('S2', 'SELECT effect.once(''issue/44'', ''d2'')'), 'ok55P03', '44: its twin waits, and is never told duplicate');
SELECT is(pg_temp.run('S1', 'ROLLBACK') || pg_temp.ask('S2', 'SELECT effect.once(''issue/44'', ''d2'')'), 'oktrue', '44: the first failed, the twin is first');

-- 45 in progress for ever after a crash
SET effect.default_timeout = '20ms';
SELECT 1 FROM effect.claim_effect('issue', '45 claimed') \g /dev/null
SELECT 1 FROM effect.begin_effect('issue', '45 sent') \g /dev/null
RESET effect.default_timeout;
SELECT pg_sleep(0.03) \g /dev/null
SELECT is(verdict::text, 'unknown', '45: sent, and never heard of again: unknown, at the first redelivery') FROM effect.begin_effect('issue', '45 sent');
SELECT is(state::text || ' ' || (unknown_since IS NOT NULL), 'unknown true', '45: and shown with its age') FROM effect.effects WHERE effect_key = pg_temp.key('45 sent');
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('issue', '45 claimed') \gset v_
SELECT is(:'v_told'::text, 'go 2', '45: claimed, and never heard of again: the first redelivery takes it over');

-- 46 retry of a batch mails everybody again
CREATE TABLE issue_outbox (who int);
-- the failing item's record goes with its own savepoint, the others stay
CREATE FUNCTION pg_temp.digest_run(fail_at int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	sent int := 0;
BEGIN
	FOR u IN 1 .. 300 LOOP
		BEGIN
			IF effect.once('issue/46', u::text, '{"week": "2026-W29"}') THEN
				IF u = fail_at THEN
					RAISE division_by_zero;
				END IF;
				INSERT INTO issue_outbox VALUES (u);
				sent := sent + 1;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			RETURN sent;
		END;
	END LOOP;
	RETURN sent;
END $$;
SELECT is(pg_temp.digest_run(113), 112, '46: the batch fails at the 113th');
SELECT is(pg_temp.digest_run(0), 188, '46: run again from the start it sends to the others alone, the 113th among them');
SELECT is((count(*), count(DISTINCT who))::text, '(300,300)', '46: three hundred mails in all') FROM issue_outbox;

SELECT dblink_disconnect('S1'), dblink_disconnect('S2') \g /dev/null
SELECT * FROM finish();
DROP TABLE issue_invoice, issue_job, issue_order, issue_entity, issue_outbox;
DROP OWNED BY effect_issues_app;
DROP ROLE effect_issues_app;
