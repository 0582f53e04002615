\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- firing: what becomes of a firing while a run is live, by the job's policy,
-- who asks being no matter; each firing is run to its end once.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
SET DateStyle = 'ISO';	-- as errors write their instants
CREATE EXTENSION IF NOT EXISTS dblink;

SELECT plan(154);

CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
-- What a statement fails with.
CREATE FUNCTION pg_temp.failure(sql text, OUT state text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	state := 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;
-- Wait until a lease has run out.
CREATE FUNCTION pg_temp.run_out(key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	WHILE (SELECT lease_until > clock_timestamp() FROM effect.lease WHERE job_key = key) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
-- Who waits, in the order of their turns.
CREATE FUNCTION pg_temp.queue(key text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(firing, ' ' ORDER BY queued_at, firing), '-') FROM effect.firing WHERE job_key = key AND finished_at IS NULL $$;
CREATE FUNCTION pg_temp.runs(key text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(coalesce(firing, '-') || ' ' || outcome, ', ' ORDER BY fencing_token) FROM effect.run WHERE job_key = key $$;
-- Somebody who listens.
SELECT dblink_connect('ear', pg_temp.self()) \g /dev/null
SELECT dblink_exec('ear', 'LISTEN effect') \g /dev/null
CREATE FUNCTION pg_temp.heard(patience int DEFAULT 400) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	heard text;
BEGIN
	FOR i IN 1 .. patience LOOP
		PERFORM 1 FROM dblink('ear', 'SELECT 1') AS t (x int);	-- it is told between statements
		SELECT string_agg(notify_name || ' ' || extra, ', ') INTO heard FROM dblink_get_notify('ear') WHERE extra LIKE '%"firing/%';
		EXIT WHEN heard IS NOT NULL;
		PERFORM pg_sleep(0.005);
	END LOOP;
	RETURN heard;
END $$;

-- coalesce: dropped

SELECT effect.set_job('firing/coalesce', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is((verdict, fencing_token, holder, firing, asked)::text, '(granted,1,w1,f1,granted)', 'coalesce: free is granted') FROM effect.claim_lease('firing/coalesce', 'w1', firing => 'f1');
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text, format('(coalesced,,"%s",w1,f2,coalesced)', (SELECT lease_until FROM effect.lease WHERE job_key = 'firing/coalesce')),
	'a firing while a run is live is dropped; who runs is named') FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f2');
SELECT is((verdict, asked)::text, '(coalesced,coalesced)', 'the same firing too') FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f1');
SELECT is((verdict, firing, asked)::text, '(coalesced,,)', 'and a claim without one') FROM effect.claim_lease('firing/coalesce', 'w2');
BEGIN;
SELECT verdict FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f2') \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy, NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS free \gset v_
COMMIT;
SELECT is(:'v_verdict'::text, 'coalesced', 'asked in a block');
SELECT ok(:'v_lazy' AND :'v_free', 'it wrote and locked nothing');
SELECT ok(effect.release_lease('firing/coalesce', 1), 'the run ends');
SELECT is(pg_temp.queue('firing/coalesce'), '-', 'nobody waits');
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'what was dropped may be asked for again') FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f2');
SELECT ok(effect.release_lease('firing/coalesce', 2, 'failed'), 'and fail');
SELECT is((verdict, fencing_token)::text, '(granted,3)', 'a firing that failed may be retried') FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f2');
SELECT ok(effect.release_lease('firing/coalesce', 3), 'until it has finished');
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text, '(already_ran,,,,f2,already_ran)', 'then it has already run') FROM effect.claim_lease('firing/coalesce', 'w1', firing => 'f2');
SELECT is(verdict, 'granted', 'a claim without a firing never has') FROM effect.claim_lease('firing/coalesce', 'w1', '1 millisecond');
SELECT pg_temp.run_out('firing/coalesce') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,5)', 'an expired run is no live one: taken over') FROM effect.claim_lease('firing/coalesce', 'w2', firing => 'f3');
SELECT is((verdict, holder)::text, '(already_ran,w2)', 'what has finished has, whoever runs now') FROM effect.claim_lease('firing/coalesce', 'w1', firing => 'f1');
SELECT is(pg_temp.runs('firing/coalesce'), 'f1 finished, f2 failed, f2 finished, - abandoned, f3 running', 'the runs');

-- claim_any: the first that is free, whatever the policies
SELECT effect.set_job('firing/any', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is((job_key, verdict, fencing_token, holder)::text, '(firing/any,granted,1,w3)', 'claim_any goes past a live run') FROM effect.claim_any('{firing/coalesce,firing/any}', 'w3');
SELECT is((job_key, verdict, fencing_token)::text, '(,held,)', 'none is free: held') FROM effect.claim_any('{firing/coalesce,firing/any}', 'w3');
SELECT effect.set_job('firing/any-fail', overlap => 'fail', lease_for => '1 hour'), effect.set_job('firing/any-last', overlap => 'fail', lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/any-fail', 'w0') \g /dev/null
SELECT is((job_key, verdict)::text, '(firing/any-last,granted)', 'also past one whose policy is fail') FROM effect.claim_any('{firing/any-fail,firing/any-last}', 'w3');
SELECT is((job_key, verdict)::text, '(,held)', 'which fails nobody who asked for any') FROM effect.claim_any('{firing/any-fail,firing/any-last}', 'w3');

-- fail: LE002, with holder and since when

SELECT effect.set_job('firing/fail', overlap => 'fail', lease_for => '1 hour') \g /dev/null
SELECT is(verdict, 'granted', 'fail: free is granted') FROM effect.claim_lease('firing/fail', 'worker seven', firing => 'f1');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('firing/fail', 'w2', firing => 'f2')$$, 'LE002', 'job "firing/fail" overlaps: a run is live', 'a firing while a run is live fails');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('firing/fail', 'w2')$$, 'LE002', NULL, 'with or without a name');
SELECT is((pg_temp.failure($$SELECT * FROM effect.claim_lease('firing/fail', 'w2', firing => 'f2')$$)).detail,
	format('Run 1 is held by worker seven since %s, until %s.', granted_at, lease_until), 'it names run, holder, since when and until when') FROM effect.lease WHERE job_key = 'firing/fail';
SELECT matches((pg_temp.failure($$SELECT * FROM effect.claim_lease('firing/fail', 'w2', firing => 'f2')$$)).hint, 'policy is fail', 'and has a hint');
SELECT ok(effect.release_lease('firing/fail', 1), 'the run ends');
SELECT is(verdict, 'already_ran', 'a finished firing is no overlap') FROM effect.claim_lease('firing/fail', 'w2', firing => 'f1');
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'the next is granted') FROM effect.claim_lease('firing/fail', 'w2', '1 millisecond', firing => 'f2');
SELECT pg_temp.run_out('firing/fail') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,3)', 'an expired run does not fail anybody') FROM effect.claim_lease('firing/fail', 'w3', firing => 'f3');
SELECT is(verdict, 'already_ran', 'already_ran comes before the overlap') FROM effect.claim_lease('firing/fail', 'w2', firing => 'f1');

-- queue: waits its turn (case 40)

SELECT effect.set_job('firing/queue', overlap => 'queue', queue_limit => 2, lease_for => '1 hour') \g /dev/null
SELECT throws_ok($$SELECT * FROM effect.claim_lease('firing/queue', 'w1')$$, '22004', NULL, 'queue: a claim needs a firing');
SELECT matches((pg_temp.failure($$SELECT * FROM effect.claim_lease('firing/queue', 'w1')$$)).hint, 'effect\.firing_of', 'the hint says where to get one');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{firing/queue}', 'w1')$$, '22004', NULL, 'so claim_any is not for it');
SELECT is((verdict, fencing_token, firing, asked)::text, '(granted,1,s1,granted)', 'free is granted') FROM effect.claim_lease('firing/queue', 'w1', firing => 's1');
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked, checkpoint)::text, format('(queued,,"%s",w1,s2,queued,)', (SELECT lease_until FROM effect.lease WHERE job_key = 'firing/queue')),
	'while a run is live a firing is queued') FROM effect.claim_lease('firing/queue', 'w2', firing => 's2');
SELECT is(pg_temp.queue('firing/queue'), 's2', 'it waits');
SELECT is((verdict, asked)::text, '(queued,queued)', 'asked again it is queued still') FROM effect.claim_lease('firing/queue', 'w3', firing => 's2');
SELECT is(pg_temp.queue('firing/queue'), 's2', 'once');
SELECT is(verdict, 'queued', 'another') FROM effect.claim_lease('firing/queue', 'w3', firing => 's3');
SELECT is((verdict, fencing_token, holder, firing, asked)::text, '(saturated,,w1,s4,saturated)', 'the queue is full: saturated') FROM effect.claim_lease('firing/queue', 'w3', firing => 's4');
SELECT is(pg_temp.heard(), 'effect {"event": "saturated", "job_key": "firing/queue", "firing": "s4"}', 'and whoever listens hears of it');
SELECT is(verdict, 'saturated', 'each time') FROM effect.claim_lease('firing/queue', 'w3', firing => 's5');
SELECT is(pg_temp.heard(), 'effect {"event": "saturated", "job_key": "firing/queue", "firing": "s5"}', 'told each time');
SELECT is(verdict, 'queued', 'who waits already still does') FROM effect.claim_lease('firing/queue', 'w3', firing => 's3');
SELECT is(pg_temp.queue('firing/queue'), 's2 s3', 'the queue is as it was');
SELECT is(count(*)::int, 1, 'one run') FROM effect.run WHERE job_key = 'firing/queue';

-- release grants none by itself
SELECT ok(effect.release_lease('firing/queue', 1), 'the run ends');
SELECT is(pg_temp.heard(), 'effect {"event": "released", "job_key": "firing/queue", "firing": "s1"}', 'whoever listens hears that it is free');
SELECT is((status, fencing_token)::text, '(free,1)', 'release grants to nobody: polling is the contract') FROM effect.leases WHERE job_key = 'firing/queue';
SELECT is(pg_temp.queue('firing/queue'), 's2 s3', 'both still wait');

-- oldest first; asked says what became of the one that was passed
SELECT is((verdict, fencing_token, holder, firing, asked)::text, '(granted,2,w4,s2,queued)', 'the oldest is granted, the one that was passed waits') FROM effect.claim_lease('firing/queue', 'w4', firing => 's6');
SELECT is(pg_temp.queue('firing/queue'), 's3 s6', 'in its turn');
SELECT is(firing, 's2', 'the lease is for the oldest') FROM effect.leases WHERE job_key = 'firing/queue';
SELECT is(verdict, 'saturated', 'the queue is full again') FROM effect.claim_lease('firing/queue', 'w5', firing => 's7');
SELECT pg_temp.heard() \g /dev/null
SELECT ok(effect.release_lease('firing/queue', 2), 's2 ends');
SELECT pg_temp.heard() \g /dev/null
SELECT is((verdict, fencing_token, firing, asked)::text, '(granted,3,s3,granted)', 'the oldest, passed by name') FROM effect.claim_lease('firing/queue', 'w4', firing => 's3');
SELECT is(pg_temp.queue('firing/queue'), 's6', 'waits no more');
SELECT is((verdict, asked)::text, '(already_ran,already_ran)', 'a finished one is not queued') FROM effect.claim_lease('firing/queue', 'w5', firing => 's2');
SELECT is(verdict, 'queued', 's8 waits') FROM effect.claim_lease('firing/queue', 'w5', firing => 's8');
SELECT ok(effect.release_lease('firing/queue', 3, 'failed'), 's3 fails');
SELECT pg_temp.heard() \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,s6,queued)', 'what failed may be retried: in its turn') FROM effect.claim_lease('firing/queue', 'w4', firing => 's3');
SELECT is(pg_temp.queue('firing/queue'), 's8 s3', 'behind those that wait');
SELECT ok(effect.release_lease('firing/queue', 4), 's6 ends');
SELECT pg_temp.heard() \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,s8,queued)', 'a firing that waits in the middle') FROM effect.claim_lease('firing/queue', 'w4', firing => 's3');
SELECT is(pg_temp.queue('firing/queue'), 's3', 'keeps its place');
SELECT ok(effect.release_lease('firing/queue', 5), 's8 ends');
SELECT pg_temp.heard() \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,s3,granted)', 's3 again') FROM effect.claim_lease('firing/queue', 'w4', firing => 's3');
SELECT ok(effect.release_lease('firing/queue', 6), 'and finishes');
SELECT is(pg_temp.heard(10), NULL, 'nobody waits, nobody is told');
SELECT is(pg_temp.runs('firing/queue'), 's1 finished, s2 finished, s3 failed, s6 finished, s8 finished, s3 finished', 'each in its turn, never two');
-- the one that was passed may find the queue full
SELECT effect.set_job('firing/full', overlap => 'queue', queue_limit => 2, lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/full', 'w1', firing => 'f1') \g /dev/null
SELECT 1 FROM unnest('{f2,f3}'::text[]) AS f, effect.claim_lease('firing/full', 'w1', firing => f) \g /dev/null
SELECT effect.set_job('firing/full', queue_limit => 1), effect.release_lease('firing/full', 1) \g /dev/null
SELECT pg_temp.heard() \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,f2,saturated)', 'granted is the oldest, saturated the one that was passed') FROM effect.claim_lease('firing/full', 'w1', firing => 'f4');
SELECT is(pg_temp.queue('firing/full'), 'f3', 'a lower limit takes nobody''s place away');
SELECT is(pg_temp.heard(), 'effect {"event": "saturated", "job_key": "firing/full", "firing": "f4"}', 'told');

-- One call a column, and the nonce of an uncertain COMMIT: the same grant,
-- though it is for another firing than the one that was passed
SELECT effect.set_job('firing/star', overlap => 'queue', queue_limit => 2, lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/star', 'w1', firing => 'f1') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/star', 'w1', firing => 'f2') \g /dev/null
SELECT effect.release_lease('firing/star', 1) \g /dev/null
SELECT is((verdict, fencing_token, holder, firing, asked)::text, '(granted,2,w1,f2,queued)', '(claim_lease(..)).* is one grant, in every column')
  FROM (SELECT (effect.claim_lease('firing/star', 'w1', firing => 'f3')).*) s;
SELECT is(pg_temp.queue('firing/star'), 'f3', 'and one place in the queue');
SELECT is(effect.release_lease('firing/star', 2), true, 'f2 ends');
SELECT is((verdict, fencing_token, firing, asked)::text, '(granted,3,f3,queued)', 'an answer that was lost on its way')
  FROM effect.claim_lease('firing/star', 'w1', firing => 'f4', nonce => '00000000-0000-0000-0000-0000000000f1');
SELECT is((verdict, fencing_token, firing, asked)::text, '(granted,3,f3,queued)', 'the same nonce gets the same grant')
  FROM effect.claim_lease('firing/star', 'w1', firing => 'f4', nonce => '00000000-0000-0000-0000-0000000000f1');
SELECT is(verdict, 'queued', 'without it, it is somebody else') FROM effect.claim_lease('firing/star', 'w1', firing => 'f4');
SELECT is(pg_temp.queue('firing/star'), 'f4', 'queued once');
BEGIN;
SELECT effect.release_lease('firing/star', 3) \g /dev/null
SELECT is((verdict, firing)::text, '(granted,f4)', 'one transaction: granted') FROM effect.claim_lease('firing/star', 'w1', firing => 'f4');
SELECT is((verdict, firing)::text, '(queued,f5)', 'then another firing by the same owner: it waits') FROM effect.claim_lease('firing/star', 'w1', firing => 'f5');
COMMIT;
SELECT pg_temp.heard(10) \g /dev/null

-- A run that is abandoned: its firing goes back to the head of the queue

SELECT effect.set_job('firing/back', overlap => 'queue', queue_limit => 3, lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/back', 'w0', firing => 'f0') \g /dev/null
SELECT 1 FROM unnest('{f1,f2,f3}'::text[]) WITH ORDINALITY AS f (f, n), effect.claim_lease('firing/back', 'w0', firing => f) \g /dev/null
SELECT effect.release_lease('firing/back', 1) \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,f1,queued)', 'f1 has its turn') FROM effect.claim_lease('firing/back', 'dies', '1 millisecond', firing => 'f4');
SELECT is(pg_temp.queue('firing/back'), 'f2 f3 f4', 'others wait');
SELECT pg_temp.run_out('firing/back') \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,f1,saturated)', 'its run is taken over: f1 has its turn again, before f2') FROM effect.claim_lease('firing/back', 'dies too', '1 millisecond', firing => 'f5');
SELECT pg_temp.run_out('firing/back') \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,f1,granted)', 'also if the one that was passed is itself') FROM effect.claim_lease('firing/back', 'dies as well', '1 millisecond', firing => 'f1');
SELECT pg_temp.run_out('firing/back') \g /dev/null
SELECT is(runs_abandoned >= 1, true, 'sweep ends an expired run as a thief does') FROM effect.sweep();
SELECT is(pg_temp.queue('firing/back'), 'f1 f2 f3 f4', 'f1 is the first of the queue again, whatever the limit');
SELECT is((status, fencing_token)::text, '(free,4)', 'the lease is free') FROM effect.leases WHERE job_key = 'firing/back';
SELECT is((verdict, firing, asked)::text, '(granted,f1,queued)', 'and the next claim is for it') FROM effect.claim_lease('firing/back', 'w1', firing => 'f3');
SELECT ok(effect.release_lease('firing/back', 5), 'at last');
SELECT is((verdict, firing)::text, '(granted,f2)', 'then f2') FROM effect.claim_lease('firing/back', 'w1', firing => 'f3');
SELECT is(pg_temp.runs('firing/back'), 'f0 finished, f1 abandoned, f1 abandoned, f1 abandoned, f1 finished, f2 running', 'the runs');
SELECT effect.set_job('firing/direct', overlap => 'queue', queue_limit => 1, lease_for => '1 millisecond') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/direct', 'dies', firing => 'f1') \g /dev/null
SELECT pg_temp.run_out('firing/direct') \g /dev/null
SELECT is((verdict, firing, asked)::text, '(granted,f1,queued)', 'a firing that never waited is not lost either') FROM effect.claim_lease('firing/direct', 'w2', '1 hour', firing => 'f2');
SELECT is(effect.revoke_lease('firing/direct', 'test'), 2::bigint, 'one that is revoked has not finished its firing');
SELECT is(pg_temp.queue('firing/direct'), 'f1 f2', 'which goes back to the head as well');
SELECT is((verdict, firing)::text, '(granted,f1)', 'and is granted next') FROM effect.claim_lease('firing/direct', 'w3', '1 hour', firing => 'f2');
SELECT is(effect.release_lease('firing/direct', 1), false, 'who was abandoned comes back: fenced');
SELECT is(pg_temp.queue('firing/direct'), 'f2', 'and changes nothing');
-- a firing that waits again while the slow run finishes it after all
SELECT effect.set_job('firing/slow', overlap => 'coalesce', lease_for => '1 millisecond') \g /dev/null
SELECT 1 FROM effect.claim_lease('firing/slow', 'slow', firing => 'f1') \g /dev/null
SELECT pg_temp.run_out('firing/slow') \g /dev/null
SELECT is(effect.release_lease('firing/slow', 1), true, 'slow, but nobody took it: it finishes');
SELECT is(verdict, 'already_ran', 'and has run') FROM effect.claim_lease('firing/slow', 'w2', firing => 'f1');

-- cooling down

SELECT effect.set_job('firing/cool', overlap => 'coalesce', lease_for => '1 hour', at_least_for => '1 hour') \g /dev/null
SELECT is(verdict, 'granted', 'at_least_for: free is granted') FROM effect.claim_lease('firing/cool', 'w1', firing => 'f1');
SELECT is(verdict, 'coalesced', 'live is live') FROM effect.claim_lease('firing/cool', 'w1', firing => 'f2');
SELECT ok(effect.release_lease('firing/cool', 1), 'a second later it is done');
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text, '(cooling_down,,,,f2,cooling_down)', 'released too early after its claim: cooling_down') FROM effect.claim_lease('firing/cool', 'w2', firing => 'f2');
SELECT is(verdict, 'already_ran', 'what has run has run') FROM effect.claim_lease('firing/cool', 'w2', firing => 'f1');
BEGIN;
SELECT verdict FROM effect.claim_lease('firing/cool', 'w2', firing => 'f2') \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy \gset v_
COMMIT;
SELECT ok(:'v_lazy', 'it writes nothing');
SELECT effect.set_job('firing/cool', at_least_for => '1 microsecond') \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,2)', 'later it is granted') FROM effect.claim_lease('firing/cool', 'w2', firing => 'f2');

-- paused

SELECT effect.set_job('firing/pause', overlap => 'fail', lease_for => '1 hour', paused => true) \g /dev/null
SELECT is((verdict, fencing_token, lease_until, holder, firing, asked)::text, '(paused,,,,f1,paused)', 'paused: not granted') FROM effect.claim_lease('firing/pause', 'w1', firing => 'f1');
SELECT effect.set_job('firing/pause', paused => false) \g /dev/null
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'no longer') FROM effect.claim_lease('firing/pause', 'w1', firing => 'f1');
SELECT effect.set_job('firing/pause', paused => true) \g /dev/null
SELECT ok(effect.renew_lease('firing/pause', 1) IS NOT NULL, 'a run that is live goes on');
SELECT is((verdict, holder)::text, '(paused,w1)', 'others are told paused, and who runs') FROM effect.claim_lease('firing/pause', 'w2', firing => 'f2');
SELECT ok(effect.release_lease('firing/pause', 1), 'it ends');
SELECT is(verdict, 'already_ran', 'its firing has run') FROM effect.claim_lease('firing/pause', 'w2', firing => 'f1');
SELECT is(verdict, 'paused', 'the next has not') FROM effect.claim_lease('firing/pause', 'w2', firing => 'f2');
-- a job that queues, paused: nothing is taken from the queue, nothing added
SELECT effect.set_job('firing/full', paused => true), effect.release_lease('firing/full', 2) \g /dev/null
SELECT is(verdict, 'paused', 'a paused job that queues') FROM effect.claim_lease('firing/full', 'w1', firing => 'f5');
SELECT is(pg_temp.queue('firing/full'), 'f3', 'its queue stands');
SELECT pg_temp.heard(10) \g /dev/null

-- quarantined

BEGIN;
SELECT effect.quarantine('a test') \g /dev/null
SELECT is((verdict, fencing_token, firing, asked)::text, '(quarantined,,f9,quarantined)', 'quarantined: no lease is granted') FROM effect.claim_lease('firing/slow', 'w2', '1 hour', firing => 'f9');
SELECT is(verdict, 'coalesced', 'who is held off anyway is told so') FROM effect.claim_lease('firing/any', 'w2');
ROLLBACK;
SELECT is(verdict, 'granted', 'rolled back, it never was') FROM effect.claim_lease('firing/slow', 'w2', '1 hour', firing => 'f9');

-- "Run now" by a person meets the same policy (case 38)

SELECT is((verdict, holder)::text, '(coalesced,w2)', 'run now: coalesce drops it while a run is live') FROM effect.claim_lease('firing/slow', 'ann', firing => 'manual req-1');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('firing/fail', 'ann', firing => 'manual req-1')$$, 'LE002', NULL, 'fail fails');
SELECT is(verdict, 'queued', 'queue lets it wait') FROM effect.claim_lease('firing/direct', 'ann', firing => 'f2');
SELECT is(verdict, 'saturated', 'if there is room') FROM effect.claim_lease('firing/direct', 'ann', firing => 'manual req-1');
SELECT is(verdict, 'paused', 'and paused is paused') FROM effect.claim_lease('firing/pause', 'ann', firing => 'manual req-1');
SELECT pg_temp.heard(10) \g /dev/null
SELECT effect.release_lease('firing/slow', 2) \g /dev/null
SELECT is(verdict, 'granted', 'a double click: one run') FROM effect.claim_lease('firing/slow', 'ann', '1 hour', firing => 'manual req-1');
SELECT is(verdict, 'coalesced', 'the second click is dropped while it is live') FROM effect.claim_lease('firing/slow', 'ann', '1 hour', firing => 'manual req-1');
SELECT ok(effect.release_lease('firing/slow', 3), 'and after it');
SELECT is(verdict, 'already_ran', 'has already run') FROM effect.claim_lease('firing/slow', 'ann', '1 hour', firing => 'manual req-1');
SELECT is(verdict, 'granted', 'the slot that is due then has a name of its own, and runs') FROM effect.claim_lease('firing/slow', 'cron', '1 hour', firing => '2026-11-02T09:00:00Z');

-- drop_job: the queue goes, what has finished stays

SELECT is(pg_temp.queue('firing/back'), 'f3 f4', 'two wait');
SELECT ok(effect.drop_job('firing/back'), 'the job is dropped');
SELECT is(pg_temp.queue('firing/back'), '-', 'nobody waits for a job that is none');
SELECT bag_eq($$SELECT firing, fencing_token FROM effect.firing WHERE job_key = 'firing/back'$$, $$VALUES ('f0', 1::bigint), ('f1', 5)$$, 'what has finished is kept');
SELECT ok(effect.release_lease('firing/back', 6), 'the live run ends');
SELECT effect.set_job('firing/back', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT is(verdict, 'already_ran', 'also for a job of the same name') FROM effect.claim_lease('firing/back', 'w1', firing => 'f1');
SELECT is((verdict, fencing_token)::text, '(granted,7)', 'and its tokens go on') FROM effect.claim_lease('firing/back', 'w1', firing => 'f3');

-- Runs are forgotten where the job says so; leases, tokens and firings are not

SELECT effect.set_job('firing/keep', overlap => 'coalesce', lease_for => '1 hour', keep_runs_for => '1 day'), effect.set_job('firing/keep-all', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT 1 FROM unnest('{firing/keep,firing/keep-all}'::text[]) AS j, generate_series(1, 3) AS n, effect.claim_lease(j, 'w', firing => n::text) AS c, effect.release_lease(j, c.fencing_token) \g /dev/null
SELECT 1 FROM unnest('{firing/keep,firing/keep-all}'::text[]) AS j, effect.claim_lease(j, 'w', firing => 'live') \g /dev/null
UPDATE effect.run SET ended_at = ended_at - interval '2 days' WHERE job_key IN ('firing/keep', 'firing/keep-all') AND fencing_token IN (1, 2);
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(pg_temp.runs('firing/keep'), '3 finished, live running', 'keep_runs_for: sweep forgets older runs');
SELECT is(pg_temp.runs('firing/keep-all'), '1 finished, 2 finished, 3 finished, live running', 'and only where it is set');
SELECT is((fencing_token, status)::text, '(4,live)', 'the lease is never touched') FROM effect.leases WHERE job_key = 'firing/keep';
SELECT is(verdict, 'already_ran', 'a firing whose run is forgotten has still run') FROM effect.claim_lease('firing/keep', 'w', firing => '1');
SELECT ok(effect.release_lease('firing/keep', 4), 'the live run ends');
SELECT is(fencing_token::int, 5, 'tokens go on') FROM effect.claim_lease('firing/keep', 'w', firing => '5');
SELECT throws_ok($$DELETE FROM effect.run WHERE job_key = 'firing/keep'$$, 'LE012', NULL, 'by hand a run is never forgotten');

-- sweep touches no run whose lease is live (case 24)
SELECT is((status, fencing_token)::text, '(live,5)', 'a live lease is no orphan, however old its run') FROM effect.sweep() s, effect.leases WHERE job_key = 'firing/keep';
SELECT is(pg_temp.runs('firing/keep'), '3 finished, live finished, 5 running', 'sweep leaves it alone');

-- The rows stand for themselves against plain SQL
SELECT throws_ok(format('UPDATE effect.firing SET %s WHERE job_key = ''firing/queue'' AND firing = ''s1''', s), 'LE012', NULL, 'a finished firing: SET ' || s)
  FROM unnest(ARRAY['finished_at = NULL, queued_at = now(), fencing_token = NULL', 'fencing_token = 9', 'firing = ''x''']) AS s;
SELECT throws_ok($$DELETE FROM effect.firing WHERE job_key = 'firing/queue' AND firing = 's1'$$, 'LE012', NULL, 'DELETE');
SELECT throws_ok($$TRUNCATE effect.firing$$, 'LE012', NULL, 'TRUNCATE');
SELECT throws_ok($$INSERT INTO effect.firing VALUES ('firing/x', 'f', now(), 1, now())$$, '23514', NULL, 'it waits or has finished');
SELECT throws_ok($$INSERT INTO effect.firing VALUES ('firing/x', 'f')$$, '23514', NULL, 'one of both');

SELECT * FROM finish();
SELECT dblink_disconnect('ear') \g /dev/null
