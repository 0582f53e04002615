\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- lease: who holds a job, under which token, until when (doc/lease.md).
--
-- Every top-level statement is a transaction of its own: that is how the calls
-- are made.  Races are in the isolation specs.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
CREATE EXTENSION IF NOT EXISTS dblink;

SELECT plan(137);

-- Another session of ours, over the same socket.
CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
-- Wait until a lease has run out.
CREATE FUNCTION pg_temp.run_out(job text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT lease_until > clock_timestamp() FROM effect.lease WHERE job_key = job) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
-- How long a lease still lasts, in whole seconds.
CREATE FUNCTION pg_temp.left_of(job text) RETURNS int LANGUAGE sql VOLATILE AS $$
	SELECT round(extract(epoch FROM lease_until - clock_timestamp()))::int FROM effect.lease WHERE job_key = job $$;

-- granted, held

SELECT verdict, fencing_token, lease_until, holder, coalesce(firing, '-') AS firing, coalesce(asked::text, '-') AS asked,
	   coalesce(checkpoint::text, '-') AS checkpoint
  FROM effect.claim_lease('lease/a', 'w1', '1 hour') \gset v_
SELECT is(:'v_verdict'::text, 'granted', 'a job nobody holds is granted');
SELECT is(:'v_fencing_token'::text, '1', 'its first token is 1 on a cluster that never moved');
SELECT is(:'v_holder'::text, 'w1', 'holder is who asked');
SELECT is(:'v_lease_until'::timestamptz, (SELECT lease_until FROM effect.lease WHERE job_key = 'lease/a'), 'lease_until is what is stored');
SELECT is(pg_temp.left_of('lease/a'), 3600, 'an hour from now');
SELECT is(:'v_firing'::text, '-', 'no firing was passed, none is named');
SELECT is(:'v_asked'::text, '-', 'and nothing became of it');
SELECT is(:'v_checkpoint'::text, '-', 'no checkpoint is kept');

SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text,
		  format('(held,,"%s",w1,,)', (SELECT lease_until FROM effect.lease WHERE job_key = 'lease/a')),
		  'while it is live everybody else is told held: no token, who and until when')
  FROM effect.claim_lease('lease/a', 'w2', '1 hour');
SELECT is(verdict, 'held', 'the same name in a later transaction is somebody else: the owner is a label')
  FROM effect.claim_lease('lease/a', 'w1', '1 hour');
SELECT is(count(*)::int, 1, 'no run was recorded for them') FROM effect.runs WHERE job_key = 'lease/a';
SELECT is((owner, outcome, firing, role_name = session_user, ended_at IS NULL, detail IS NULL)::text, '(w1,running,,t,t,t)', 'the run that holds it')
  FROM effect.runs WHERE job_key = 'lease/a';
SELECT is((owner, fencing_token, status, lease_for = '1 hour')::text, '(w1,1,live,t)', 'effect.leases shows it') FROM effect.leases WHERE job_key = 'lease/a';

-- A loser of a live lease writes nothing.
-- (pgTAP writes itself, so what is to be tested is first put into variables)
BEGIN;
SELECT verdict FROM effect.claim_lease('lease/a', 'w2', '1 hour') \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy,
	   NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS free \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'held', 'held, in a block');
SELECT ok(:'v_lazy', 'the loser assigned no transaction id');
SELECT ok(:'v_free', 'and locked nothing');
BEGIN;
SELECT verdict FROM effect.claim_any('{lease/a}', 'w2', '1 hour') \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'held', 'claim_any of live leases: held');
SELECT ok(:'v_lazy', 'no transaction id either');

-- renew

SELECT effect.renew_lease('lease/a', 1, '2 hours') AS until \gset v_
SELECT is(:'v_until'::timestamptz, (SELECT lease_until FROM effect.lease WHERE job_key = 'lease/a'), 'renew answers the new end');
SELECT is(pg_temp.left_of('lease/a'), 7200, 'two hours from now');
SELECT is(effect.renew_lease('lease/a', 1, '1 second'), :'v_until'::timestamptz, 'a shorter interval never shortens');
SELECT is(effect.renew_lease('lease/a', 1), :'v_until'::timestamptz, 'nor does the interval of the claim');
SELECT is((fencing_token, lease_for = '1 hour')::text, '(1,t)', 'renewing changes neither token nor lease_for') FROM effect.lease WHERE job_key = 'lease/a';

SELECT 1 FROM effect.claim_lease('lease/revive', 'w1', '1 millisecond') \g /dev/null
SELECT pg_temp.run_out('lease/revive') \g /dev/null
SELECT is(status, 'expired', 'a lease that ran out is expired') FROM effect.leases WHERE job_key = 'lease/revive';
SELECT ok(effect.renew_lease('lease/revive', 1, '1 hour') > clock_timestamp(), 'an expired lease that nobody took is revived');
SELECT is((status, fencing_token)::text, '(live,1)', 'under its own token') FROM effect.leases WHERE job_key = 'lease/revive';
SELECT is(verdict, 'held', 'and is held again') FROM effect.claim_lease('lease/revive', 'w2', '1 hour');

SELECT 1 FROM effect.claim_lease('lease/null', 'w1', '1 millisecond') \g /dev/null
SELECT pg_temp.run_out('lease/null') \g /dev/null
SELECT ok(effect.renew_lease('lease/null', 1) IS NOT NULL, 'NULL lease_for: as long as claimed');
SELECT cmp_ok(pg_temp.left_of('lease/null'), '<=', 0, 'which was a millisecond');

-- Expiry: the thief gets a higher token, the old run is closed.

SELECT 1 FROM effect.claim_lease('lease/theft', 'slow', '1 millisecond') \g /dev/null
SELECT pg_temp.run_out('lease/theft') \g /dev/null
SELECT is((verdict, fencing_token, holder)::text, '(granted,2,thief)', 'an expired lease is granted to the next, under a higher token')
  FROM effect.claim_lease('lease/theft', 'thief', '1 hour');
SELECT bag_eq($$SELECT fencing_token, owner, outcome::text, ended_at IS NOT NULL FROM effect.runs WHERE job_key = 'lease/theft'$$,
	$$VALUES (1::bigint, 'slow', 'abandoned', true), (2, 'thief', 'running', false)$$, 'the old run is abandoned');
SELECT is((event, fencing_token, attempt, effect_key, role_name = session_user)::text, '(stolen,1,,,t)', 'the theft is journalled')
  FROM effect.journal WHERE job_key = 'lease/theft';
SELECT matches(detail, '^held by slow until .*; 0 effect\(s\) turned unknown; taken by thief$', 'with who, until when and by whom')
  FROM effect.journal WHERE job_key = 'lease/theft';

-- The old holder comes back: slow, not dead.
SELECT is(effect.renew_lease('lease/theft', 1, '1 hour'), NULL, 'its renewal is fenced: NULL');
SELECT is(outcome, 'fenced', 'abandoned became fenced: it was heard of again') FROM effect.runs WHERE job_key = 'lease/theft' AND fencing_token = 1;
SELECT is(effect.release_lease('lease/theft', 1), false, 'its release is fenced: false');
SELECT is(effect.release_lease('lease/theft', 1, 'failed'), false, 'with any outcome');
SELECT is((owner, fencing_token, status)::text, '(thief,2,live)', 'the thief''s lease is untouched') FROM effect.leases WHERE job_key = 'lease/theft';
SELECT bag_eq($$SELECT event FROM effect.journal WHERE job_key = 'lease/theft'$$, $$VALUES ('stolen'), ('fenced')$$, 'journalled once, however often it comes back');
SELECT is(verdict, 'held', 'and a third is held off') FROM effect.claim_lease('lease/theft', 'third', '1 hour');

-- release

SELECT 1 FROM effect.claim_lease('lease/end', 'w1', '1 hour') \g /dev/null
SELECT is(effect.release_lease('lease/end', 1), true, 'the holder releases: true');
SELECT is((outcome, ended_at IS NOT NULL, detail)::text, '(finished,t,)', 'finished, unless it says otherwise') FROM effect.runs WHERE job_key = 'lease/end';
SELECT is((owner, fencing_token, status)::text, '(,1,free)', 'nobody holds it, its token stays') FROM effect.leases WHERE job_key = 'lease/end';
SELECT is(effect.release_lease('lease/end', 1), true, 'a repeat of the same release is true again');
SELECT is(effect.release_lease('lease/end', 1, 'failed'), false, 'but it cannot become another outcome');
SELECT is(effect.renew_lease('lease/end', 1, '1 hour'), NULL, 'a released lease is not renewed');
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'the next grant has a higher token') FROM effect.claim_lease('lease/end', 'w2', '1 hour');
SELECT is(effect.release_lease('lease/end', 1), true, 'the repeat of a release that counted is true also after the next grant');
SELECT is((owner, status)::text, '(w2,live)', 'and harms nobody') FROM effect.leases WHERE job_key = 'lease/end';
SELECT is(effect.release_lease('lease/end', 2, 'failed', '{"why": "no disk"}'), true, 'a run may fail');
SELECT is((outcome, detail)::text, '(failed,"{""why"": ""no disk""}")', 'with a detail') FROM effect.runs WHERE job_key = 'lease/end' AND fencing_token = 2;
SELECT is(fencing_token::int, 3, 'and again a higher one') FROM effect.claim_lease('lease/end', 'w3', '1 hour');
SELECT is(effect.release_lease('lease/end', 3, 'finished'), true, 'the words of the outcome');
SELECT throws_ok(format($$SELECT effect.release_lease('lease/end', 3, %L)$$, outcome), '22023', NULL, 'a run cannot be released as ' || outcome)
  FROM unnest('{running,revoked,abandoned,fenced}'::text[]) AS outcome;
SELECT is_empty($$SELECT event FROM effect.journal WHERE job_key = 'lease/end'$$, 'an ordinary life leaves nothing in the journal');

-- revoke

SELECT 1 FROM effect.claim_lease('lease/revoke', 'w1', '1 hour') \g /dev/null
SELECT is(effect.revoke_lease('lease/revoke', 'wrong night'), 1::bigint, 'revoke answers the token it took');
SELECT is((outcome, ended_at IS NOT NULL)::text, '(revoked,t)', 'the run is revoked') FROM effect.runs WHERE job_key = 'lease/revoke';
SELECT is((event, fencing_token)::text, '(revoked,1)', 'journalled') FROM effect.journal WHERE job_key = 'lease/revoke';
SELECT matches(detail, '; wrong night$', 'with the reason') FROM effect.journal WHERE job_key = 'lease/revoke';
SELECT is(effect.renew_lease('lease/revoke', 1, '1 hour'), NULL, 'the holder is fenced');
SELECT is(effect.release_lease('lease/revoke', 1), false, 'in every call');
SELECT is(outcome, 'revoked', 'and stays revoked') FROM effect.runs WHERE job_key = 'lease/revoke';
SELECT is(effect.revoke_lease('lease/revoke', 'again'), NULL, 'nobody holds it: NULL');
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'the next token is higher') FROM effect.claim_lease('lease/revoke', 'w2', '1 hour');
SELECT 1 FROM effect.claim_lease('lease/revoke-expired', 'w1', '1 millisecond') \g /dev/null
SELECT pg_temp.run_out('lease/revoke-expired') \g /dev/null
SELECT is(effect.revoke_lease('lease/revoke-expired', 'gone'), 1::bigint, 'an expired holder may still come back, so it can be revoked');

-- firings

SELECT is((verdict, fencing_token, firing, asked)::text, '(granted,1,2026-11-01,granted)', 'a firing is granted and named')
  FROM effect.claim_lease('lease/fire', 'w1', '1 hour', '2026-11-01');
SELECT is((verdict, holder, firing, asked)::text, '(held,w1,2026-11-01,held)', 'another scheduler with the same firing is held off')
  FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-01');
SELECT is(firing, '2026-11-01', 'runs name their firing') FROM effect.runs WHERE job_key = 'lease/fire';
SELECT ok(effect.release_lease('lease/fire', 1, 'failed'), 'a run that failed has not finished its firing');
SELECT is((verdict, fencing_token, asked)::text, '(granted,2,granted)', 'so it may be tried again')
  FROM effect.claim_lease('lease/fire', 'w1', '1 hour', '2026-11-01');
SELECT ok(effect.release_lease('lease/fire', 2), 'and finished');
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text, '(already_ran,,,,2026-11-01,already_ran)', 'once finished it has already run')
  FROM effect.claim_lease('lease/fire', 'w1', '1 hour', '2026-11-01');
BEGIN;
SELECT verdict FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-01') \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'already_ran', 'asked in a block');
SELECT ok(:'v_lazy', 'it assigned no transaction id');
SELECT is((verdict, fencing_token)::text, '(granted,3)', 'the next firing is granted') FROM effect.claim_lease('lease/fire', 'w1', '1 hour', '2026-11-02');
SELECT is((verdict, holder)::text, '(already_ran,w1)', 'already_ran names the live lease') FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-01');
SELECT ok(effect.release_lease('lease/fire', 3), 'finished as well');
SELECT is(verdict, 'granted', 'the same firing of another job is its own') FROM effect.claim_lease('lease/fire-other', 'w1', '1 hour', '2026-11-01');
SELECT 1 FROM effect.claim_lease('lease/fire', 'w1', '1 millisecond', '2026-11-03') \g /dev/null
SELECT pg_temp.run_out('lease/fire') \g /dev/null
SELECT is((verdict, lease_until, holder)::text, '(already_ran,,)', 'a lease that ran out is not a live one: no holder is named')
  FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-01');
SELECT is((verdict, fencing_token)::text, '(granted,5)', 'a firing whose run was abandoned is tried again') FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-03');
SELECT is(effect.revoke_lease('lease/fire', 'stop'), 5::bigint, 'or revoked');
SELECT is(verdict, 'granted', 'too') FROM effect.claim_lease('lease/fire', 'w2', '1 hour', '2026-11-03');
SELECT bag_eq($$SELECT firing, fencing_token FROM effect.firing WHERE job_key = 'lease/fire'$$, $$VALUES ('2026-11-01', 2::bigint), ('2026-11-02', 3)$$,
	'finished firings are kept');

-- The same caller in one transaction, and (f(..)).*

BEGIN;
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'granted') FROM effect.claim_lease('lease/same', 'w1', '1 hour');
SELECT is((verdict, fencing_token, holder)::text, '(granted,1,w1)', 'the same owner in the same transaction gets the same grant') FROM effect.claim_lease('lease/same', 'w1', '5 hours');
SELECT is(verdict, 'held', 'another owner does not') FROM effect.claim_lease('lease/same', 'w2', '1 hour');
SAVEPOINT s;
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'also in a savepoint') FROM effect.claim_lease('lease/same', 'w1', '1 hour');
ROLLBACK TO s;
COMMIT;
SELECT is(pg_temp.left_of('lease/same'), 3600, 'and asking again changed nothing');
SELECT (effect.claim_lease('lease/star', 'w1', '1 hour', 'f1')).* \gset v_
SELECT is(:'v_verdict' || ' ' || :'v_fencing_token' || ' ' || :'v_holder' || ' ' || :'v_asked', 'granted 1 w1 granted', '(claim_lease(..)).* is one grant');
SELECT is(count(*)::int, 1, 'and one run') FROM effect.runs WHERE job_key = 'lease/star';
SELECT (effect.claim_any('{lease/star1,lease/star2}', 'w1', '1 hour')).* \gset v_
SELECT is(:'v_job_key' || ' ' || :'v_verdict' || ' ' || :'v_fencing_token', 'lease/star1 granted 1', '(claim_any(..)).* too');
SELECT is(count(*)::int, 1, 'leaves one lease') FROM effect.leases WHERE job_key ~ '^lease/star[12]';
BEGIN;
SELECT is((verdict, asked)::text, '(granted,granted)', 'granted for a firing') FROM effect.claim_lease('lease/same firing', 'w1', '1 hour', 'monday');
SELECT isnt(asked, 'granted', 'the same owner in the same transaction, but for another firing: that one is not granted') FROM effect.claim_lease('lease/same firing', 'w1', '1 hour', 'tuesday');
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT is(verdict, 'granted', 'granted in a savepoint') FROM effect.claim_lease('lease/sp', 'w1', '1 hour');
ROLLBACK TO s;
SELECT is_empty($$SELECT * FROM effect.leases WHERE job_key = 'lease/sp'$$, 'rolled back, it never was');
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'and is granted to another') FROM effect.claim_lease('lease/sp', 'w2', '1 hour');
COMMIT;

-- nonce: the caller whose own COMMIT was uncertain

SELECT 1 FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a') \g /dev/null
SELECT is((verdict, fencing_token, holder)::text, '(granted,1,w1)', 'the same nonce in a later call gets the same grant')
  FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a');
SELECT is((verdict, fencing_token)::text, '(held,)', 'another nonce does not') FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000b');
SELECT is((verdict, fencing_token)::text, '(held,)', 'no nonce does not') FROM effect.claim_lease('lease/nonce', 'w1', '1 hour');
SELECT is(count(*)::int, 1, 'one run') FROM effect.runs WHERE job_key = 'lease/nonce';
SELECT effect.renew_lease('lease/nonce', 1, '2 hours') IS NOT NULL \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'a renewal in between does not end the minute')
  FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a');
-- a minute later (the clock cannot be moved, the row can: token and owner stay)
UPDATE effect.lease SET granted_at = granted_at - interval '61 seconds' WHERE job_key = 'lease/nonce';
SELECT is((verdict, fencing_token)::text, '(held,)', 'after a minute the nonce is worth nothing')
  FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a');
SELECT effect.release_lease('lease/nonce', 1) \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'and of a lease that ended it gets a new grant')
  FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a');
SELECT effect.revoke_lease('lease/nonce', 'x') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,3)', 'the nonce of a lease that was taken away does not bring it back')
  FROM effect.claim_lease('lease/nonce', 'w2', '1 hour', nonce => '00000000-0000-0000-0000-00000000000c');
SELECT is((verdict, fencing_token)::text, '(held,)', 'nor does it get the successor''s')
  FROM effect.claim_lease('lease/nonce', 'w1', '1 hour', nonce => '00000000-0000-0000-0000-00000000000a');

-- claim_any

SELECT 1 FROM effect.claim_lease('lease/any1', 'w0', '2 hours') \g /dev/null
SELECT is((job_key, verdict, fencing_token, holder)::text, '(lease/any2,granted,1,w1)', 'claim_any takes the first that is free')
  FROM effect.claim_any('{lease/any1,lease/any2,lease/any3}', 'w1', '1 hour');
SELECT bag_eq($$SELECT job_key, owner FROM effect.leases WHERE job_key LIKE 'lease/any_'$$, $$VALUES ('lease/any1', 'w0'), ('lease/any2', 'w1')$$, 'exactly one');
SELECT is((job_key, verdict)::text, '(lease/any3,granted)', 'the next caller gets the next') FROM effect.claim_any('{lease/any1,lease/any2,lease/any3}', 'w2', '3 hours');
SELECT is((job_key, verdict, fencing_token, holder, lease_until = (SELECT lease_until FROM effect.lease WHERE job_key = 'lease/any2'), firing, asked, checkpoint)::text,
		  '(,held,,w1,t,,,)', 'none is free: held, and the lease that ends first')
  FROM effect.claim_any('{lease/any1,lease/any2,lease/any3}', 'w3', '1 hour');
SELECT is((job_key, verdict)::text, '(lease/any4,granted)', 'a key named twice is one job') FROM effect.claim_any('{lease/any4,lease/any4}', 'w3', '1 hour');
SELECT 1 FROM effect.claim_lease('lease/theft2', 'slow', '1 millisecond') \g /dev/null
SELECT pg_temp.run_out('lease/theft2') \g /dev/null
SELECT is((job_key, fencing_token)::text, '(lease/theft2,2)', 'an expired one is free') FROM effect.claim_any('{lease/any1,lease/theft2}', 'thief', '1 hour');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{}', 'w', '1 hour')$$, '22023', NULL, 'claim_any of nothing');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{a,NULL}', 'w', '1 hour')$$, '22004', NULL, 'claim_any of NULL');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{a," "}', 'w', '1 hour')$$, '22023', NULL, 'claim_any of a blank');

-- A claim never hangs: a busy lock answers held within a second.

SELECT effect.release_lease('lease/end', 3) \g /dev/null
SELECT dblink_connect('other', pg_temp.self()) \g /dev/null
SELECT dblink_exec('other', 'BEGIN') \g /dev/null
SELECT * FROM dblink('other', $$SELECT verdict::text FROM effect.claim_lease('lease/busy', 'first', '1 hour')$$) AS t (verdict text) \g /dev/null
SELECT clock_timestamp() AS began \gset
SELECT is((verdict, fencing_token, holder)::text, '(held,,)', 'a claim in an open transaction: the next is told held') FROM effect.claim_lease('lease/busy', 'second', '1 hour');
SELECT ok(clock_timestamp() - :'began'::timestamptz BETWEEN '0.8 second' AND '20 seconds', 'after a second');
SELECT clock_timestamp() AS began \gset
SELECT is((job_key, verdict, fencing_token)::text, '(lease/busy2,granted,1)', 'claim_any does not wait at all') FROM effect.claim_any('{lease/busy,lease/busy2}', 'second', '1 hour');
SELECT ok(clock_timestamp() - :'began'::timestamptz < '0.95 second', 'it goes on to the next');
SELECT dblink_exec('other', 'ROLLBACK') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'rolled back, it was never granted: the token is 1') FROM effect.claim_lease('lease/busy', 'second', '1 hour');
SELECT dblink_disconnect('other') \g /dev/null

-- The clock is clock_timestamp(), never now(), in any zone and style.

SELECT 1 FROM effect.claim_lease('lease/clock', 'A', '50 milliseconds') \g /dev/null
BEGIN;
SELECT now() \g /dev/null
SELECT pg_temp.run_out('lease/clock') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'a transaction that began before the end may take it over after') FROM effect.claim_lease('lease/clock', 'B', '10 seconds');
SELECT is(pg_temp.left_of('lease/clock'), 10, 'ten seconds from the clock, not from now()');
COMMIT;
SET TimeZone = 'UTC';
SELECT is(verdict, 'granted', 'granted in UTC') FROM effect.claim_lease('lease/zone', 'A', '5 minutes');
SET TimeZone = 'Pacific/Auckland';
SELECT is(verdict, 'held', 'held in Auckland') FROM effect.claim_lease('lease/zone', 'B', '5 minutes');
SET TimeZone = 'America/Los_Angeles';
SELECT is(verdict, 'held', 'held in Los Angeles') FROM effect.claim_lease('lease/zone', 'B', '5 minutes');
SELECT ok(effect.renew_lease('lease/zone', 1, '5 minutes') IS NOT NULL, 'renewed in Los Angeles');
SET TimeZone = 'Asia/Kolkata';
SET DateStyle = 'SQL, DMY';
SET IntervalStyle = 'iso_8601';
SELECT ok(effect.renew_lease('lease/zone', 1, '5 minutes') IS NOT NULL, 'renewed under another style');
SELECT is(pg_temp.left_of('lease/zone'), 300, 'five minutes everywhere');
RESET TimeZone;
RESET DateStyle;
RESET IntervalStyle;

-- Tokens outlive everything.
SELECT throws_ok($$DELETE FROM effect.lease WHERE job_key = 'lease/end'$$, 'LE012', NULL, 'a lease row is never deleted');
SELECT throws_ok($$SELECT effect.renew_lease('lease/nobody', 1)$$, 'LE003', NULL, 'a job that never had a lease');
SELECT throws_ok($$SELECT effect.renew_lease('lease/end', 99)$$, 'LE003', NULL, 'a token that was never committed');
SELECT throws_ok($$SELECT effect.release_lease('lease/end', 99)$$, 'LE003', NULL, 'in release too');
SELECT throws_ok($$SELECT effect.revoke_lease('lease/nobody', 'x')$$, 'LE003', NULL, 'and nothing to revoke');
BEGIN READ ONLY;
SELECT throws_ok($$SELECT * FROM effect.claim_lease('lease/end', 'w', '1 hour')$$, '25006', NULL, 'READ ONLY is refused');
COMMIT;

SELECT * FROM finish();
