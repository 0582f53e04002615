\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- attention: what the numbers are made into (doc/stats.md): each advice and each
-- row of the page for 3 a.m. is absent, is provoked, and goes away again; every
-- next step is SQL that runs.  The counters themselves are in stats.sql.
SET client_min_messages = warning;
SET lock_timeout = '20s';
SET IntervalStyle = 'postgres';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
SET effect.default_settle = 0;
SET effect.fenced_log_level = none;
SET effect.stats_flush_interval = 0;
DROP SCHEMA IF EXISTS attention_test CASCADE;
CREATE SCHEMA attention_test;
DROP ROLE IF EXISTS effect_attention_monitor;
CREATE ROLE effect_attention_monitor;
SELECT effect.grant_monitor('effect_attention_monitor') \g /dev/null

SELECT plan(146);

CREATE FUNCTION pg_temp.key(action text, target text, inputs jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key(action, target, effect.input_digest(inputs)) $$;
-- What is counted so far is written down: a call that counts nothing.
CREATE FUNCTION pg_temp.flush() RETURNS void LANGUAGE sql AS $$ SELECT effect.revoke_approval('00000000-0000-0000-0000-000000000000', 'nobody') $$;
CREATE FUNCTION pg_temp.advised(who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_temp.flush();
	RETURN coalesce((SELECT string_agg(code, ' ' ORDER BY code) FROM effect.advice WHERE name = who), 'none');
END $$;
CREATE FUNCTION pg_temp.says(who text, what text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(advice, '; ') FROM effect.advice WHERE name = who AND code = what $$;
-- An update no guard looks at: how time passes here.  Sweep has not passed a row that is made older.
CREATE FUNCTION pg_temp.age(sql text) RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$
BEGIN
	EXECUTE sql;
	UPDATE effect.sweep_state SET swept_to = '-infinity';
END $$;
-- A run that took "took" and ended as said, and the lease it had.
CREATE FUNCTION pg_temp.ran(job text, took interval, outcome effect.run_outcome DEFAULT 'finished', firing text DEFAULT NULL) RETURNS void LANGUAGE sql SET session_replication_role = replica AS $$
	INSERT INTO effect.lease AS l (job_key, fencing_token, lease_until, lease_for, granted_at) VALUES ($1, 1, now(), '1 hour', now())
		ON CONFLICT (job_key) DO UPDATE SET fencing_token = l.fencing_token + 1;
	INSERT INTO effect.run (job_key, fencing_token, owner, firing, outcome, started_at, ended_at, role_name)
		SELECT $1, l.fencing_token, 'w', $4, $3, now() - interval '1 minute' - $2, now() - interval '1 minute', current_user FROM effect.lease l WHERE l.job_key = $1 $$;
CREATE FUNCTION pg_temp.job(job text, every interval DEFAULT NULL, lease_for interval DEFAULT '1 hour') RETURNS void LANGUAGE sql AS $$
	SELECT effect.set_job(job, overlap => 'coalesce', every => every, lease_for => lease_for) $$;

SELECT is((severity, what, who, why, next_step ~ 'effect.sweep')::text, '(warning,sweep,,"sweep has never run: nobody ends expired runs, calls resolvers or folds counters",t)', 'a new database: sweep has never run, and nothing else') FROM effect.attention;
SELECT is_empty('SELECT 1 FROM effect.advice', 'no advice');
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is((severity, what, why ~ '^sweep last ran 00:00:.. ago$', next_step)::text, '(info,sweep,t,"SELECT * FROM effect.sweep();")', 'sweep has just run') FROM effect.attention;
UPDATE effect.sweep_state SET swept_at = swept_at - interval '4 minutes';
SELECT is(severity, 'info', 'four minutes ago: well') FROM effect.attention WHERE what = 'sweep';
UPDATE effect.sweep_state SET swept_at = swept_at - interval '2 minutes';
SELECT is((severity, why ~ '^sweep last ran 00:06:.. ago$')::text, '(warning,t)', 'six minutes ago: late') FROM effect.attention WHERE what = 'sweep';
SELECT 1 FROM effect.sweep() \g /dev/null

--
-- Advice on jobs
--
-- overdue: nothing finished within every and lease_for
SELECT pg_temp.job('j/due', '1 hour', '5 minutes') \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'a job that was just registered');
SELECT pg_temp.age($$UPDATE effect.job SET registered_at = registered_at - interval '64 minutes' WHERE job_key = 'j/due'$$) \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'an interval has passed, the lease not yet');
SELECT pg_temp.age($$UPDATE effect.job SET registered_at = registered_at - interval '2 minutes' WHERE job_key = 'j/due'$$) \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'overdue', 'overdue');
SELECT is(pg_temp.says('j/due', 'overdue'), 'overdue: no run finished within every (01:00:00) and lease_for (00:05:00)', 'in words');
SELECT ok(overdue AND due_by < clock_timestamp(), 'job_stats says so') FROM effect.job_stats WHERE job_key = 'j/due';
SELECT is(value::int, 1, 'metrics() too') FROM effect.metrics() WHERE name = 'effect_job_overdue' AND labels = '{"job_key": "j/due"}';
SELECT effect.set_job('j/due', paused => true) \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'a paused job is not');
SELECT effect.set_job('j/due', paused => false, anchor => clock_timestamp() + interval '1 day') \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'nor one that has not begun');
SELECT effect.set_job('j/due', anchor => clock_timestamp() - interval '64 minutes') \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'nor one that began less than an interval and a lease ago');
SELECT effect.set_job('j/due', anchor => clock_timestamp() - interval '1 year') \g /dev/null
SELECT pg_temp.ran('j/due', '1 minute', 'failed') \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'overdue', 'a failed run is no help');
SELECT is(failed_since IS NOT NULL, true, 'job_stats says since when it fails') FROM effect.job_stats WHERE job_key = 'j/due';
SELECT pg_temp.ran('j/due', '1 minute') \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'none', 'a finished one is');
SELECT is((overdue, failed_since)::text, '(f,)', 'job_stats') FROM effect.job_stats WHERE job_key = 'j/due';
SELECT pg_temp.age($$UPDATE effect.run SET ended_at = ended_at - interval '65 minutes', started_at = started_at - interval '65 minutes' WHERE job_key = 'j/due'$$) \g /dev/null
SELECT is(pg_temp.advised('j/due'), 'overdue', 'until the next is late');

-- stuck_firing: one firing, three runs, none to the end
SELECT pg_temp.job('j/stuck') \g /dev/null
SELECT pg_temp.ran('j/stuck', '1 minute', o, 'monday') FROM unnest('{abandoned,failed}'::effect.run_outcome[]) AS o \g /dev/null
SELECT pg_temp.ran('j/stuck', '1 minute', 'abandoned', 'tuesday') \g /dev/null
SELECT is(pg_temp.advised('j/stuck'), 'none', 'two runs of a firing');
SELECT pg_temp.ran('j/stuck', '1 minute', 'abandoned', 'monday') \g /dev/null
SELECT is(pg_temp.advised('j/stuck'), 'stuck_firing', 'three');
SELECT is(pg_temp.says('j/stuck', 'stuck_firing'), 'firing monday was tried 3 times and never finished: it may kill its worker', 'in words');
INSERT INTO effect.firing (job_key, firing, fencing_token, finished_at) VALUES ('j/stuck', 'monday', 9, clock_timestamp());
SELECT is(pg_temp.advised('j/stuck'), 'none', 'it has finished');

-- came_back: slow, not dead
SELECT 1 FROM effect.claim_lease('j/back', 'w', '1 hour') \g /dev/null
SELECT pg_temp.age($$UPDATE effect.lease SET lease_until = lease_until - interval '1 day' WHERE job_key = 'j/back'$$) \g /dev/null
SELECT 1 FROM effect.claim_lease('j/back', 'w2', '1 hour') \g /dev/null
SELECT is(pg_temp.advised('j/back'), 'none', 'a stolen lease, and nobody has come back');
SELECT effect.renew_lease('j/back', 1) \g /dev/null
SELECT is(pg_temp.advised('j/back'), 'came_back', 'its holder renews, too late');
SELECT is(pg_temp.says('j/back', 'came_back'), '1 of the last 2 runs came back after their lease was taken: slow, not dead; renew at half the lease, or lengthen it', 'in words');

-- run times against every and lease_for
SELECT pg_temp.job('j/slow', '10 minutes', '9 minutes') \g /dev/null
SELECT pg_temp.ran('j/slow', n * interval '5 seconds') FROM generate_series(1, 100) AS n \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'none', 'the slowest run is within both');
SELECT is((runs, p50, p99, max)::text, '(100,00:04:12.5,00:08:15.05,00:08:20)', 'p50, p99, max') FROM effect.job_stats WHERE job_key = 'j/slow';
SELECT pg_temp.ran('j/slow', '9 minutes 30 seconds') FROM generate_series(1, 3) AS n \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'p99_over_lease', 'p99 over the lease');
SELECT is(pg_temp.says('j/slow', 'p99_over_lease'), 'p99 run time (00:09:30) is over the lease (00:09:00), and nobody renews: renew at half the lease, or split the job', 'in words');
SELECT pg_temp.ran('j/slow', '1 day', o) FROM unnest('{abandoned,revoked,fenced}'::effect.run_outcome[]) AS o \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'came_back p99_over_lease', 'runs that were ended from outside have no run time');
SELECT pg_temp.age($$DELETE FROM effect.run WHERE job_key = 'j/slow' AND outcome = 'fenced'$$) \g /dev/null
SELECT pg_temp.ran('j/slow', '11 minutes', 'failed') FROM generate_series(1, 3) AS n \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'p99_over_every p99_over_lease', 'p99 over the interval: failed runs count');
SELECT is(pg_temp.says('j/slow', 'p99_over_every'), 'p99 run time (00:11:00) is over the interval (00:10:00): a queue, not a schedule', 'in words');
SELECT is(advice, 'p99 run time (00:11:00) is over the interval (00:10:00): a queue, not a schedule; p99 run time (00:11:00) is over the lease (00:09:00), and nobody renews: renew at half the lease, or split the job', 'job_stats has them in one line') FROM effect.job_stats WHERE job_key = 'j/slow';
SELECT fencing_token AS token FROM effect.claim_lease('j/slow', 'w') \gset v_
SELECT effect.renew_lease('j/slow', :v_token), effect.release_lease('j/slow', :v_token, 'failed') \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'p99_over_every', 'where renewals are counted the lease may be shorter than a run');
SELECT effect.set_job('j/slow', every => '1 hour') \g /dev/null
SELECT is(pg_temp.advised('j/slow'), 'none', 'a longer interval');
SELECT pg_temp.ran('j/slow', '1 second') FROM generate_series(1, 200) AS n \g /dev/null
SELECT is((runs, p99)::text, '(200,00:00:01)', 'the last 200 runs') FROM effect.job_stats WHERE job_key = 'j/slow';

-- lease_over_every
SELECT pg_temp.job('j/lease', '1 hour', '59 minutes') \g /dev/null
SELECT is(pg_temp.advised('j/lease'), 'none', 'a lease shorter than the interval');
SET client_min_messages = error;
SELECT effect.set_job('j/lease', lease_for => '1 hour') \g /dev/null
SET client_min_messages = warning;
SELECT is(pg_temp.advised('j/lease'), 'lease_over_every', 'a lease as long as the interval');
SELECT is(pg_temp.says('j/lease', 'lease_over_every'), 'the lease (01:00:00) is not shorter than the interval (01:00:00): a crashed run blocks the next one', 'in words');

-- saturated, within a day
SELECT effect.set_job('j/queue', overlap => 'queue', queue_limit => 1, lease_for => '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('j/queue', 'w', firing => '1') \g /dev/null
SELECT 1 FROM effect.claim_lease('j/queue', 'w', firing => '2') \g /dev/null
SELECT is(pg_temp.advised('j/queue'), 'none', 'a queue that is full, and nothing was dropped');
SELECT 1 FROM effect.claim_lease('j/queue', 'w', firing => '3') \g /dev/null
SELECT is(pg_temp.advised('j/queue'), 'saturated', 'a firing was dropped');
SELECT 1 FROM effect.sweep() \g /dev/null
UPDATE effect.counter SET hour = hour - interval '25 hours' WHERE counter = 'saturated';
SELECT is(pg_temp.advised('j/queue'), 'none', 'more than a day ago');

-- untested
SELECT pg_temp.job('j/tested') \g /dev/null
DO $$ BEGIN FOR i IN 1 .. 9 LOOP PERFORM effect.release_lease('j/tested', fencing_token) FROM effect.claim_lease('j/tested', 'w'); END LOOP; END $$;
SELECT is(pg_temp.advised('j/tested'), 'none', 'nine grants, none refused');
SELECT 1 FROM effect.claim_lease('j/tested', 'w') \g /dev/null
SELECT is(pg_temp.advised('j/tested'), 'untested', 'ten');
SELECT is(pg_temp.says('j/tested', 'untested'), 'its dedupe counters never moved in 10 grants: untested; claim it twice at once and see the second refused', 'in words');
SELECT 1 FROM effect.claim_lease('j/tested', 'w2') \g /dev/null
SELECT is(pg_temp.advised('j/tested'), 'none', 'the second was refused');
-- a job of run_job, whose deeds are its own
SELECT is_empty($$SELECT 1 FROM effect.job_stats WHERE job_key = 'j/never'$$, 'a job nobody has heard of');

--
-- Advice on actions
--
-- unobserved: registered, to be checked, and nobody looks
SELECT effect.set_action('a/unobserved') \g /dev/null
SELECT is(pg_temp.advised('a/unobserved'), 'unobserved', 'no resolver');
CREATE FUNCTION attention_test.look(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT effect.set_action('a/unobserved', resolver => 'attention_test.look') \g /dev/null
SELECT is(pg_temp.advised('a/unobserved'), 'none', 'a resolver looks');
SELECT effect.set_action('a/unobserved', resolver => '', on_unknown => 'resend') \g /dev/null
SELECT is(pg_temp.advised('a/unobserved'), 'none', 'sent again without a look');
SELECT effect.set_action('a/unobserved', on_unknown => 'drop') \g /dev/null
SELECT is(pg_temp.advised('a/unobserved'), 'none', 'dropped');
SELECT effect.set_action('a/unobserved', on_unknown => 'check') \g /dev/null

-- unknown: first a row of attention, after an hour an advice, which is critical
SELECT 1 FROM effect.begin_effect('a/lost', 'x') \g /dev/null
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE who = 'a/lost'$$, 'an effect in flight');
SELECT 1 FROM effect.mark_unknown(pg_temp.key('a/lost', 'x'), 1, 'timed out') \g /dev/null
SELECT is((severity, what, why)::text, '(warning,unknown,"1 effect(s) may have happened: nobody acts until someone has looked")', 'unknown') FROM effect.attention WHERE who = 'a/lost';
SELECT is(pg_temp.advised('a/lost'), 'none', 'no advice yet');
UPDATE effect.unknown SET since = since - interval '59 minutes' WHERE effect_key = pg_temp.key('a/lost', 'x');
SELECT is(pg_temp.advised('a/lost'), 'none', 'nor for an hour');
UPDATE effect.unknown SET since = since - interval '2 minutes' WHERE effect_key = pg_temp.key('a/lost', 'x');
SELECT is(pg_temp.advised('a/lost'), 'old_unknown', 'over an hour');
SELECT is((severity, what)::text, '(critical,"action old_unknown")', 'one row, critical') FROM effect.attention WHERE who = 'a/lost';
SELECT ok(value BETWEEN 3660 AND 7200, 'metrics() has its age in seconds') FROM effect.metrics() WHERE name = 'effect_unknown_oldest_seconds' AND labels = '{"action": "a/lost"}';
SELECT effect.set_action('a/lost', on_unknown => 'drop') \g /dev/null
SELECT is(pg_temp.advised('a/lost'), 'none', 'an action that drops: nobody is asked');
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE who = 'a/lost'$$, 'nor is it on the page');
SELECT is((unknown, dropped)::text, '(0,1)', 'action_stats counts it apart') FROM effect.action_stats WHERE action = 'a/lost';
SELECT effect.set_action('a/lost', on_unknown => 'check', resolver => 'attention_test.look') \g /dev/null

-- unclear: its resolver has looked three times
UPDATE effect.unknown SET checks = 2 WHERE effect_key = pg_temp.key('a/lost', 'x');
SELECT is(pg_temp.advised('a/lost'), 'old_unknown', 'two looks');
UPDATE effect.unknown SET checks = 3 WHERE effect_key = pg_temp.key('a/lost', 'x');
SELECT is(pg_temp.advised('a/lost'), 'old_unknown unclear', 'three');
SELECT is(pg_temp.says('a/lost', 'unclear'), 'its resolver has looked 3 times at one effect and cannot tell', 'in words');
-- read as unknown before anyone has written it down: by its submit
SELECT 1 FROM effect.begin_effect('a/silent', 'x') \g /dev/null
SELECT pg_temp.age(format('UPDATE effect.ledger SET submitted_at = submitted_at - interval ''2 hours'', busy_until = busy_until - interval ''2 hours'' WHERE effect_key = %L', pg_temp.key('a/silent', 'x'))) \g /dev/null
SELECT is(pg_temp.advised('a/silent'), 'old_unknown', 'no sweep is needed to see an old one');
SELECT is((target, reason, checks, on_unknown, age > interval '1 hour')::text, '(x,,,check,t)', 'unknown_effects shows it') FROM effect.unknown_effects WHERE action = 'a/silent';
SELECT is(string_agg(action, ' '), 'a/silent a/lost', 'the oldest first') FROM effect.unknown_effects;

-- never_submitted, and what abandoned_claims lists
CREATE FUNCTION pg_temp.abandoned() RETURNS text LANGUAGE sql AS $$ SELECT coalesce(string_agg(target || ': ' || why, ', ' ORDER BY target), 'none') FROM effect.abandoned_claims $$;
SELECT 1 FROM effect.claim_lease('j/claims', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_effect('a/claims', 'job', '{}', 'j/claims', 1) \g /dev/null
SELECT 1 FROM effect.claim_effect('a/claims', 'alone') \g /dev/null
SELECT 1 FROM effect.begin_effects('a/claims', '{submitted,absent,taken back}') \g /dev/null
SELECT is(pg_temp.abandoned(), 'none', 'held by a live holder');
SELECT pg_temp.age($$UPDATE effect.lease SET lease_until = lease_until - interval '1 day' WHERE job_key = 'j/claims'$$) \g /dev/null
SELECT is(pg_temp.abandoned(), 'none', 'held by one whose lease has expired: its renewal would revive it');
SELECT is(pg_temp.advised('a/claims'), 'none', 'no advice');
SELECT effect.release_lease('j/claims', 1, 'failed') \g /dev/null
SELECT is(pg_temp.abandoned(), 'job: its run is over', 'a run that is over');
SELECT pg_temp.age(format('UPDATE effect.ledger SET busy_until = busy_until - interval ''1 day'' WHERE effect_key = %L', pg_temp.key('a/claims', 'alone'))) \g /dev/null
SELECT is(pg_temp.abandoned(), 'alone: its time was up, job: its run is over', 'an attempt whose time was up');
SELECT 1 FROM effect.mark_unknown(pg_temp.key('a/claims', 'absent'), 1, 'x') \g /dev/null
SELECT effect.resolve_unknown(pg_temp.key('a/claims', 'absent'), 'did_not_happen', 1) \g /dev/null
SELECT 1 FROM effect.retract_effect(pg_temp.key('a/claims', 'taken back'), 1) \g /dev/null
SELECT is(pg_temp.abandoned(), 'absent: its last attempt did not happen: nobody has made the next one, alone: its time was up, job: its run is over, taken back: its last attempt did not happen: nobody has made the next one', 'found absent, and retracted');
SELECT 1 FROM effect.claim_lease('j/claims', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_effect('a/back', 'job', '{}', 'j/claims', 2) \g /dev/null
SELECT 1 FROM effect.retract_effect(pg_temp.key('a/back', 'job'), 2) \g /dev/null
SELECT is(why, 'given back before it was submitted', 'retracted by a run that goes on') FROM effect.abandoned_claims WHERE action = 'a/back';
SELECT is(pg_temp.says('a/claims', 'never_submitted'), '4 claim(s) were never submitted, and nobody holds them', 'advice');
SELECT is(abandoned_claims::int, 4, 'action_stats') FROM effect.action_stats WHERE action = 'a/claims';
SELECT 1 FROM unnest('{job,alone,absent,taken back}'::text[]) AS t, effect.close_effect(pg_temp.key('a/claims', t), 'not wanted') \g /dev/null
SELECT is(pg_temp.advised('a/claims'), 'none', 'they are closed');
SELECT 1 FROM effect.close_effect(pg_temp.key('a/back', 'job'), 'not wanted') \g /dev/null

-- awaiting approval: on the page, and not abandoned, until it is too late
SELECT effect.set_action('a/wire', on_unknown => 'resend', approvals_required => 2, approve_within => '2 days') \g /dev/null
SELECT 1 FROM effect.begin_effect('a/wire', 'x', '{"amount": 5}', terms_shown => '5 EUR') \g /dev/null
SELECT pg_temp.age($$UPDATE effect.ledger SET busy_until = busy_until - interval '1 day' WHERE action = 'a/wire'$$) \g /dev/null
SELECT is(pg_temp.abandoned(), 'none', 'a claim that awaits approval is not abandoned, though its time was up');
SELECT is((target, inputs, terms_shown, approvals_required, given, expires - since)::text, '(x,"{""amount"": 5}","5 EUR",2,0,"2 days")', 'awaiting_approval') FROM effect.awaiting_approval;
SELECT matches(why, '^awaits 2 more approval\(s\), until ', 'attention: ' || severity || ' ' || what) FROM effect.attention WHERE who = 'a/wire x';
SELECT effect.approve(pg_temp.key('a/wire', 'x', '{"amount": 5}'), 'ann') \g /dev/null
SELECT matches(why, '^awaits 1 more approval\(s\)', 'one was given') FROM effect.attention WHERE who = 'a/wire x';
SELECT is(pg_temp.advised('a/wire'), 'none', 'an approval of today');
SELECT pg_temp.age($$UPDATE effect.approval SET approved_at = approved_at - interval '25 hours'; UPDATE effect.ledger SET created_at = created_at - interval '26 hours' WHERE action = 'a/wire'$$) \g /dev/null
SELECT is(pg_temp.advised('a/wire'), 'unused_approvals', 'given more than a day ago, and not used');
SELECT is(pg_temp.says('a/wire', 'unused_approvals'), '1 approval(s) were given and not used for more than a day', 'in words');
SELECT pg_temp.age($$UPDATE effect.ledger SET created_at = created_at - interval '1 day' WHERE action = 'a/wire'$$) \g /dev/null
SELECT is_empty('SELECT 1 FROM effect.awaiting_approval', 'after approve_within it awaits nothing');
SELECT is(pg_temp.abandoned(), 'x: its time was up', 'and is abandoned');
SELECT 1 FROM effect.close_effect(pg_temp.key('a/wire', 'x', '{"amount": 5}'), 'too late') \g /dev/null
SELECT is(pg_temp.advised('a/wire'), 'none', 'what has ended needs no approval any more');
SELECT is(count(*)::int, 1, 'unused_approvals still lists it') FROM effect.unused_approvals;
SET client_min_messages = error;
SELECT effect.approve(pg_temp.key('a/wire', 'mistyped'), 'ann') \g /dev/null
SET client_min_messages = warning;
SELECT is_empty($$SELECT 1 FROM effect.advice WHERE code = 'unused_approvals'$$, 'an approval of a key nobody has claimed');
SELECT pg_temp.age($$UPDATE effect.approval SET approved_at = approved_at - interval '25 hours'$$) \g /dev/null
SELECT is((kind, name, advice)::text, '(action,,"1 approval(s) of more than a day ago are for keys that nobody has claimed")', 'more than a day ago') FROM effect.advice WHERE code = 'unused_approvals';

-- double, same_transaction
SELECT 1 FROM effect.begin_effect('a/double', 'x') \g /dev/null
SELECT 1 FROM effect.mark_unknown(pg_temp.key('a/double', 'x'), 1, 'x') \g /dev/null
SELECT effect.resolve_unknown(pg_temp.key('a/double', 'x'), 'did_not_happen', 1) \g /dev/null
SELECT 1 FROM effect.begin_effect('a/double', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('a/double', 'x'), 2) \g /dev/null
SELECT is(pg_temp.advised('a/double'), 'none', 'two attempts');
SELECT 1 FROM effect.complete_effect(pg_temp.key('a/double', 'x'), 1, '{"id": 1}') \g /dev/null
SELECT is(pg_temp.advised('a/double'), 'double', 'and the first answers');
SELECT is(pg_temp.says('a/double', 'double'), '1 suspected double(s): another attempt had done it when a late answer came', 'in words');
SELECT 1 FROM effect.begin_effect('a/same', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('a/same', 'x'), 1) \g /dev/null
SELECT is(pg_temp.advised('a/same'), 'none', 'completed in a transaction of its own');
SET client_min_messages = error;
BEGIN;
SELECT 1 FROM effect.begin_effect('a/same', 'y') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('a/same', 'y'), 1) \g /dev/null
COMMIT;
SET client_min_messages = warning;
SELECT is(pg_temp.advised('a/same'), 'same_transaction', 'completed in the transaction that submitted it');

-- untested
SELECT 1 FROM effect.begin_effects('a/tested', ARRAY(SELECT n::text FROM generate_series(1, 9) AS n)) \g /dev/null
SELECT is(pg_temp.advised('a/tested'), 'none', 'nine attempts, no duplicate');
SELECT 1 FROM effect.begin_effect('a/tested', '10') \g /dev/null
SELECT is(pg_temp.advised('a/tested'), 'untested', 'ten');
SELECT is(pg_temp.says('a/tested', 'untested'), 'its duplicates counter never moved in 10 attempts: untested; begin one effect twice and see the second answered done', 'in words');
SELECT 1 FROM effect.begin_effect('a/tested', '10') \g /dev/null
SELECT is(pg_temp.advised('a/tested'), 'none', 'the second was told');
SELECT 1 FROM unnest(ARRAY(SELECT n::text FROM generate_series(1, 10) AS n)) AS n, effect.complete_effect(pg_temp.key('a/tested', n), 1) \g /dev/null

--
-- lookalikes
--
CREATE VIEW pg_temp.alike AS SELECT * FROM effect.lookalikes WHERE why <> 'same target, no inputs';
SELECT is_empty('SELECT 1 FROM pg_temp.alike', 'none so far');
SELECT 1 FROM effect.begin_effect('l/charge', 'order-1', '{"amount": 10}') \g /dev/null
SELECT 1 FROM effect.begin_effect('l/bill', 'order-1', '{"amount": 11}') \g /dev/null
SELECT 1 FROM effect.begin_effect('l/bill', 'order-2', '{"amount": 10}') \g /dev/null
SELECT is_empty('SELECT 1 FROM pg_temp.alike', 'the same target with other inputs, the same inputs of another target');
SELECT 1 FROM effect.begin_effect('l/bill', 'order-1', '{"amount": 10}') \g /dev/null
SELECT is((kind, names, why, times, example, latest IS NOT NULL)::text, '(action,"{l/bill,l/charge}","same target and inputs",1,order-1,t)', 'the same target and inputs under two actions') FROM pg_temp.alike;
SELECT is(pg_temp.advised('l/bill'), 'lookalike', 'advice');
SELECT is(pg_temp.says('l/bill', 'lookalike'), 'l/bill and l/charge: same target and inputs; if they are one thing, one of them must go: each has keys of its own', 'in words');
SELECT 1 FROM effect.begin_effects('l/charge', '{order-2}', ARRAY['{"amount": 10}']::jsonb[]) \g /dev/null
SELECT is((times, example)::text, '(2,order-1)', 'one row for two names, however often') FROM pg_temp.alike;
SELECT 1 FROM effect.begin_effect('l/ship', 'order-9') \g /dev/null
SELECT 1 FROM effect.begin_effect('l/pack', 'order-9') \g /dev/null
SELECT is((names, why)::text, '("{l/pack,l/ship}","same target, no inputs")', 'two steps of one order: listed') FROM effect.lookalikes WHERE names @> '{l/ship}';
SELECT is(pg_temp.advised('l/pack'), 'none', 'and no advice');
SELECT 1 FROM effect.begin_effect('L-Charge', 'order-100', '{"amount": 1}') \g /dev/null
SELECT is((kind, names, why, times)::text, '(action,"{L-Charge,l/charge}","one name, spelt differently",2)', 'names that differ in case and punctuation') FROM effect.lookalikes WHERE why ~ 'spelt';
SELECT is(pg_temp.advised('L-Charge'), 'lookalike', 'advice');
SELECT pg_temp.job('nightly report') \g /dev/null
SELECT 1 FROM effect.claim_lease('Nightly_Report', 'w', '1 hour') \g /dev/null
SELECT is((kind, names)::text, '(job,"{Nightly_Report,""nightly report""}")', 'jobs, registered or not') FROM effect.lookalikes WHERE kind = 'job';
SELECT 1 FROM effect.claim_lease('l/charge', 'w', '1 hour') \g /dev/null
SELECT is(count(*)::int, 3, 'a job and an action may have one name') FROM pg_temp.alike;

--
-- Rows of attention that are no advice
--
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE what = 'expired lease'$$, 'no lease has expired');
SELECT 1 FROM effect.claim_lease('j/expired', 'worker 7', '1 hour') \g /dev/null
SELECT pg_temp.age($$UPDATE effect.lease SET lease_until = lease_until - interval '1 day' WHERE job_key = 'j/expired'$$) \g /dev/null
SELECT is((severity, who, why, next_step)::text, '(warning,j/expired,"run 1 of worker 7 is silent since its lease ended; the next claim or sweep takes it","SELECT effect.revoke_lease(''j/expired'', ''silent'');")', 'an expired lease')
  FROM effect.attention WHERE what = 'expired lease';
SELECT is(string_agg(job_key || ' ' || status, ', '), 'j/expired expired', 'leases says so, too') FROM effect.leases WHERE status = 'expired';
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE what = 'fence gap'$$, 'no fence has a gap');
CREATE TABLE attention_test.parted (day date) PARTITION BY RANGE (day);
SELECT effect.require_fence('attention_test.parted') \g /dev/null
CREATE TABLE attention_test.parted_26 PARTITION OF attention_test.parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
SELECT is((severity, who, why, next_step)::text, '(warning,attention_test.parted_26,"partition without a fence: a write that names it passes","SELECT effect.require_fence(''attention_test.parted'');")', 'a fence gap')
  FROM effect.attention WHERE what = 'fence gap';
SELECT 1 FROM effect.begin_effect('a/wire', 'y') \g /dev/null
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE what = 'quarantine'$$, 'no quarantine');
SELECT 1 FROM effect.begin_effect('a/fresh', 'fresh') \g /dev/null
SELECT 1 FROM effect.mark_unknown(pg_temp.key('a/fresh', 'fresh'), 1, 'x') \g /dev/null
SELECT 1 FROM effect.claim_effect('a/left', 'left') \g /dev/null
SELECT 1 FROM effect.retract_effect(pg_temp.key('a/left', 'left'), 1) \g /dev/null
SELECT effect.quarantine('restored from a backup') \g /dev/null
SELECT is((severity, why)::text, '(critical,"nothing is claimed or sent from here: restored from a backup")', 'quarantine') FROM effect.attention WHERE what = 'quarantine';
SELECT is(value::int, 1, 'metrics()') FROM effect.metrics() WHERE name = 'effect_cluster_quarantined';
SELECT effect.set_job('j/queue', queue_limit => 1) \g /dev/null
INSERT INTO effect.counter_delta (at, kind, name, counter, n) VALUES (clock_timestamp(), 'job', 'j/queue', 'saturated', 1),
	(clock_timestamp(), 'job', 'j/untested', 'granted', 10), (clock_timestamp(), 'action', 'a/untested', 'go', 10);
SELECT pg_temp.job('j/claims', '1 hour', '59 minutes') \g /dev/null
SELECT pg_temp.ran('j/claims', '2 hours') \g /dev/null
SELECT pg_temp.ran('j/stuck', '1 minute', 'failed', 'wednesday') FROM generate_series(1, 3) \g /dev/null

--
-- The page as a whole
--
SELECT is(array_agg(severity ORDER BY n), array_agg(severity ORDER BY array_position('{critical,warning,advice,info}', severity), n), 'worst first')
  FROM (SELECT severity, row_number() OVER () AS n FROM effect.attention) AS a;
SELECT set_eq('SELECT DISTINCT severity FROM effect.attention', '{critical,warning,advice,info}'::text[], 'every severity is here');
SELECT bag_eq($$SELECT severity, kind || ' ' || code, name FROM effect.advice$$, $$SELECT severity, what, who FROM effect.attention WHERE what ~ '^(job|action) '$$, 'every advice is on it');
SELECT is_empty($$SELECT 1 FROM effect.attention WHERE why IS NULL OR next_step IS NULL OR severity IS NULL$$, 'every row says why, and what would be next');
-- Every next step, run as it stands; what is to be filled in says '...'.
CREATE FUNCTION pg_temp.try(step text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	IF step ~ '\.\.\.' THEN
		RETURN 'to be filled in';
	END IF;
	BEGIN
		EXECUTE step;
		RAISE EXCEPTION USING ERRCODE = 'ZZ000';	-- its work is undone
	EXCEPTION WHEN SQLSTATE 'ZZ000' THEN
		RETURN 'runs';
	END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;
CREATE TEMP TABLE tried AS SELECT what, who, next_step, pg_temp.try(next_step) AS went FROM effect.attention;
SELECT is_empty($$SELECT what, who, next_step, went FROM tried WHERE went NOT IN ('runs', 'to be filled in')$$, 'each next step runs, or says what is to be filled in');
SELECT set_eq($$SELECT what FROM tried WHERE went = 'to be filled in'$$, ARRAY['job p99_over_every', 'job p99_over_lease', 'job saturated', 'action unobserved'], 'those to be filled in');
SELECT set_eq($$SELECT what FROM tried$$, ARRAY['quarantine', 'unknown', 'expired lease', 'approval', 'fence gap', 'sweep', 'job overdue', 'job stuck_firing', 'job came_back',
	'job p99_over_every', 'job p99_over_lease', 'job lease_over_every', 'job saturated', 'job untested', 'job lookalike', 'action old_unknown', 'action unclear', 'action never_submitted',
	'action double', 'action same_transaction', 'action unused_approvals', 'action unobserved', 'action untested', 'action lookalike'], 'and there is one of each kind');
SELECT effect.adopt_cluster() \g /dev/null

--
-- open_effects: whatever has not ended, also behind sweep's mark
--
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
SELECT effect.grant_monitor('effect_attention_monitor') \g /dev/null
CREATE FUNCTION pg_temp.open() RETURNS text LANGUAGE sql AS $$ SELECT coalesce(string_agg(target || ' ' || state, ', ' ORDER BY target), 'none') FROM effect.open_effects $$;
SELECT is(pg_temp.open(), 'none', 'an empty ledger');
SELECT 1 FROM effect.claim_effect('o', 'claimed') \g /dev/null
SELECT 1 FROM effect.begin_effects('o', '{submitted,unknown,silent,back,gone,done}') \g /dev/null
SELECT 1 FROM effect.mark_unknown(pg_temp.key('o', 'unknown'), 1, 'x') \g /dev/null
SELECT 1 FROM effect.mark_unknown(pg_temp.key('o', 'gone'), 1, 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('o', 'done'), 1) \g /dev/null
SELECT 1 FROM effect.once('o', 'inside') \g /dev/null
SELECT pg_temp.age(format('UPDATE effect.ledger SET busy_until = busy_until - interval ''1 day'' WHERE effect_key = %L', pg_temp.key('o', 'silent'))) \g /dev/null
SELECT is(pg_temp.open(), 'back submitted, claimed claimed, gone unknown, silent unknown, submitted submitted, unknown unknown', 'claimed, submitted, unknown, and what reads as unknown; nothing that has ended');
SELECT is((age >= interval '0', since = submitted_at, held, busy_until > since)::text, '(t,t,t,t)', 'its age is that of its submit') FROM effect.open_effects WHERE target = 'submitted';
-- all of it long ago, and sweep has passed
SELECT pg_temp.age($$UPDATE effect.ledger SET created_at = created_at - interval '3 days', submitted_at = submitted_at - interval '3 days', updated_at = updated_at - interval '3 days'$$) \g /dev/null
SELECT pg_temp.age($$UPDATE effect.cluster SET moved_at = moved_at - interval '4 days'$$) \g /dev/null
SELECT effect.once('o', 'later') \g /dev/null
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT ok(bool_and(l.created_at < s.swept_to), 'sweep''s mark has passed them all') FROM effect.ledger l, effect.sweep_state s WHERE target <> 'later';
SELECT is(pg_temp.open(), 'back submitted, claimed claimed, gone unknown, silent unknown, submitted submitted, unknown unknown', 'the same effects');
SELECT is(date_trunc('hour', age), interval '3 days', 'with their age') FROM effect.open_effects WHERE target = 'submitted';
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(pg_temp.open(), 'back submitted, claimed claimed, gone unknown, silent unknown, submitted submitted, unknown unknown', 'and after another sweep');
-- what moves behind the mark
SET effect.default_settle = 0;
SELECT 1 FROM effect.retract_effect(pg_temp.key('o', 'back'), 1) \g /dev/null
SELECT effect.resolve_unknown(pg_temp.key('o', 'gone'), 'did_not_happen', 1) \g /dev/null
SELECT 1 FROM effect.reopen_effect(pg_temp.key('o', 'done'), 'it was wrong') \g /dev/null
SELECT is(pg_temp.open(), 'back claimed, claimed claimed, done unknown, gone claimed, silent unknown, submitted submitted, unknown unknown', 'retracted, found absent, reopened');
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(pg_temp.open(), 'back claimed, claimed claimed, done unknown, gone claimed, silent unknown, submitted submitted, unknown unknown', 'and after a sweep');
SELECT is(string_agg(target, ' ' ORDER BY target), 'back gone', 'abandoned claims are found there, too') FROM effect.abandoned_claims;
SELECT 1 FROM effect.begin_effect('o', 'gone') \g /dev/null
SELECT 1 FROM effect.submit_effect(pg_temp.key('o', 'claimed'), 1) \g /dev/null
SELECT 1 FROM effect.claim_effect('o', 'back') \g /dev/null
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(pg_temp.open(), 'back claimed, claimed submitted, done unknown, gone submitted, silent unknown, submitted submitted, unknown unknown', 'the next attempts, and a submit of days later');
SELECT effect.resolve_unknown(effect_key, 'happened') FROM effect.unknown_effects \g /dev/null
SELECT 1 FROM effect.open_effects e, effect.complete_effect(e.effect_key, e.fencing_token) WHERE e.state = 'submitted' \g /dev/null
SELECT 1 FROM effect.close_effect(pg_temp.key('o', 'back'), 'x') \g /dev/null
SELECT is(pg_temp.open(), 'none', 'all of them have ended');
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is_empty('SELECT 1 FROM effect.straggler', 'and sweep strikes them off');
-- READ ONLY
BEGIN READ ONLY;
SELECT ok(count(*) > 0, 'the page is to be had READ ONLY') FROM effect.attention;
SELECT ok(count(*) > 0, 'and the metrics') FROM effect.metrics();
COMMIT;

--
-- Who may read: a monitor sees every number, and no body
--
SELECT 1 FROM effect.claim_lease('m', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.begin_effect('m', 'x', '{"secret": 1}', 'm', 1, 'secret terms') \g /dev/null
SELECT effect.revoke_lease('m', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('m', 'x', '{"secret": 1}'), 1, '{"secret": 2}') \g /dev/null
SELECT effect.set_action('m/wire', approvals_required => 1) \g /dev/null
SELECT 1 FROM effect.begin_effect('m/wire', 'x', '{"secret": 1}', terms_shown => 'secret terms') \g /dev/null
SET client_min_messages = error;
SELECT effect.approve(pg_temp.key('m', 'later'), 'ann', 'secret terms') \g /dev/null
SET client_min_messages = warning;
SELECT is((SELECT string_agg(v, ' ' ORDER BY v) FROM (
	SELECT 'unknown' FROM effect.unknown_effects u WHERE u::text ~ 'secret' UNION ALL SELECT 'open' FROM effect.open_effects u WHERE u::text ~ 'secret' UNION ALL
	SELECT 'awaiting' FROM effect.awaiting_approval u WHERE u::text ~ 'secret' UNION ALL SELECT 'unused' FROM effect.unused_approvals u WHERE u::text ~ 'secret') AS t (v)), 'awaiting open open unknown unused', 'who may resolve reads them');
SET ROLE effect_attention_monitor;
CREATE TEMP TABLE read (name text, body text);
SELECT format('INSERT INTO read SELECT %L, string_agg(v::text, '' '') FROM effect.%I AS v', v, v)
  FROM unnest('{leases,runs,effects,journal,open_effects,unknown_effects,abandoned_claims,awaiting_approval,unused_approvals,job_stats,action_stats,advice,lookalikes,counters,attention,metric_values}'::text[]) AS v \gexec
INSERT INTO read SELECT 'metrics', string_agg(m::text, ' ') FROM effect.metrics() AS m;
SELECT is_empty($$SELECT name FROM read WHERE body ~ 'secret'$$, 'a monitor reads every view, and no body in any');
SELECT is_empty($$SELECT name FROM read WHERE body IS NULL AND name NOT IN ('abandoned_claims', 'lookalikes', 'counters')$$, 'each had something to show');
SELECT throws_ok('SELECT 1 FROM effect.ledger', '42501', NULL, 'the tables are not a monitor''s');
SELECT throws_ok('SELECT effect.sweep()', '42501', NULL, 'nor is any call that acts');
RESET ROLE;

SELECT * FROM finish();
DROP SCHEMA attention_test CASCADE;
DROP TABLE read;
DROP OWNED BY effect_attention_monitor;
DROP ROLE effect_attention_monitor;
-- the next file finds none of this, and tokens that count from 1
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
