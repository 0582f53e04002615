\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- job: a registration is chosen, kept, changed by its owner, and said to be
-- unwise before it goes wrong; firing_of names moments, not instants.
SET client_min_messages = warning;
SET lock_timeout = '20s';	-- a test may fail, never hang
SET IntervalStyle = 'postgres';
SET TimeZone = 'UTC';
CREATE EXTENSION IF NOT EXISTS dblink;
DROP ROLE IF EXISTS effect_job_owner, effect_job_member, effect_job_other, effect_job_user, effect_job_group;
CREATE ROLE effect_job_owner;
CREATE ROLE effect_job_member IN ROLE effect_job_owner;
CREATE ROLE effect_job_other;
CREATE ROLE effect_job_group;
CREATE ROLE effect_job_user IN ROLE effect_job_group;
SELECT effect.grant_worker(r) FROM unnest('{effect_job_owner,effect_job_other,effect_job_user}'::name[]) AS r \g /dev/null
SET search_path = public, pg_temp;

SELECT plan(147);

CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
-- Whether this statement fails, and what it says then.
CREATE FUNCTION pg_temp.failure(sql text, OUT state text, OUT message text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	state := 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;
CREATE FUNCTION pg_temp.settings(key text) RETURNS text LANGUAGE sql AS $$
	SELECT (every, overlap, queue_limit, lease_for, at_least_for, anchor = '2026-01-05 06:00+00', time_zone, checkpoint_scope, paused, keep_runs_for, usable_by)::text
	  FROM effect.job WHERE job_key = key $$;

-- The first registration: overlap is chosen, never inherited

SELECT throws_ok($$SELECT effect.set_job('job/first')$$, '22004', NULL, 'overlap must be chosen at the first set_job');
SELECT throws_ok($$SELECT effect.set_job('job/first', every => '1 day', lease_for => '1 hour')$$, '22004', NULL, 'whatever else is said');
SELECT is_empty($$SELECT 1 FROM effect.job WHERE job_key = 'job/first'$$, 'and nothing was registered');
SELECT matches((pg_temp.failure($$SELECT effect.set_job('job/first')$$)).message, '^overlap must be chosen', 'the message says what is missing');
SELECT matches((pg_temp.failure($$SELECT effect.set_job('job/first')$$)).hint, 'coalesce.*queue.*fail', 'the hint names the three policies');
SELECT throws_ok($$SELECT effect.set_job('job/first', overlap => 'Coalesce ')$$, '22P02', NULL, 'a policy is one of three words');
SELECT throws_ok($$SELECT effect.set_job('job/first', overlap => 'skip')$$, '22P02', NULL, 'and no other');
SELECT lives_ok($$SELECT effect.set_job('job/first', overlap => 'coalesce')$$, 'overlap alone is enough');
SELECT is(pg_temp.settings('job/first'), '(,coalesce,,,,,,firing,f,,)', 'a checkpoint belongs to its firing, and nothing is paused, unless it is said');
SELECT is((registered_by, registered_at = changed_at)::text, '(' || current_user || ',t)', 'it belongs to the role that made it') FROM effect.job WHERE job_key = 'job/first';
SELECT lives_ok($$SELECT effect.set_job('job/first')$$, 'a second set_job need not choose again');
SELECT is(pg_temp.settings('job/first'), '(,coalesce,,,,,,firing,f,,)', 'and changes nothing');
SELECT lives_ok($$SELECT effect.set_job('job/fail', overlap => 'fail')$$, 'policy fail');

SELECT throws_ok($$SELECT effect.set_job('job/queue', overlap => 'queue')$$, '22004', NULL, 'queue needs queue_limit');
SELECT throws_ok($$SELECT effect.set_job('job/queue', overlap => 'queue', queue_limit => 0)$$, '22023', NULL, 'of at least 1');
SELECT throws_ok($$SELECT effect.set_job('job/queue', overlap => 'queue', queue_limit => -3)$$, '22023', NULL, 'never negative');
SELECT lives_ok($$SELECT effect.set_job('job/queue', overlap => 'queue', queue_limit => 1)$$, 'one is enough');
SELECT throws_ok($$SELECT effect.set_job('job/first', overlap => 'queue')$$, '22004', NULL, 'who changes to queue says how many, too');
SELECT throws_ok($$SELECT effect.set_job('job/queue', queue_limit => 0)$$, '22023', NULL, 'and cannot take it back');
SELECT is(pg_temp.settings('job/queue'), '(,queue,1,,,,,firing,f,,)', 'what was refused changed nothing');

-- A partial update keeps the rest

SELECT effect.set_job('job/all', '1 day', 'queue', 3, '10 minutes', '1 minute', '2026-01-05 06:00+00', 'Europe/Berlin', 'job', true, '30 days', '{effect_job_user}') \g /dev/null
SELECT is(pg_temp.settings('job/all'), '("1 day",queue,3,00:10:00,00:01:00,t,Europe/Berlin,job,t,"30 days",{effect_job_user})', 'all settings, in the order of the arguments');
SELECT effect.set_job('job/all', paused => false) \g /dev/null
SELECT is(pg_temp.settings('job/all'), '("1 day",queue,3,00:10:00,00:01:00,t,Europe/Berlin,job,f,"30 days",{effect_job_user})', 'one is changed, the others are kept');
SELECT effect.set_job('job/all', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) \g /dev/null
SELECT is(pg_temp.settings('job/all'), '("1 day",queue,3,00:10:00,00:01:00,t,Europe/Berlin,job,f,"30 days",{effect_job_user})', 'NULL keeps');
SELECT effect.set_job('job/all', every => '7 days', overlap => 'coalesce', queue_limit => 9, lease_for => '1 hour', checkpoint_scope => 'firing', time_zone => 'UTC', keep_runs_for => '1 year', usable_by => '{effect_job_user,effect_job_group}') \g /dev/null
SELECT is(pg_temp.settings('job/all'), '("7 days",coalesce,9,01:00:00,00:01:00,t,UTC,firing,f,"1 year","{effect_job_user,effect_job_group}")', 'each may be changed');
SELECT is((registered_at < changed_at)::text, 'true', 'changed_at says when') FROM effect.job WHERE job_key = 'job/all';

-- '0' and '{}' clear
SELECT effect.set_job('job/all', every => '0', lease_for => '0', at_least_for => '0', keep_runs_for => '0', usable_by => '{}', time_zone => '') \g /dev/null
SELECT is(pg_temp.settings('job/all'), '(,coalesce,9,,,t,,firing,f,,)', '0 clears an interval, {} a list, the empty string a time zone');
SELECT throws_ok($$SELECT effect.firing_of('job/all')$$, 'LE003', NULL, 'without every there is no firing to name');

-- What cannot be

SELECT is((f.state, f.message IS NOT NULL)::text, format('(%s,t)', t.want), t.args)
  FROM (VALUES
	('22023', 'every => ''-1 day'''), ('22023', 'every => ''0.5 seconds'''), ('22023', 'every => ''1 day 12:00'''), ('22023', 'every => ''1 month 1 day'''),
	('22023', 'every => ''1 month -30 days'''), ('22023', 'every => ''200 years'''), ('22007', 'every => ''daily'''),
	('22023', 'lease_for => ''-1 second'''), ('22023', 'lease_for => ''1 month -31 days'''), ('22023', 'lease_for => ''2 years'''), ('22023', 'lease_for => ''1 day -24:00'''),
	('22023', 'at_least_for => ''-1 second'''), ('22023', 'keep_runs_for => ''-1 day'''),
	('22023', 'anchor => ''infinity'''), ('22023', 'anchor => ''-infinity'''),
	('22023', 'time_zone => ''Mars/Olympus'''), ('22023', 'time_zone => '' '''),
	('42704', 'usable_by => ''{effect_job_nobody}'''), ('22004', 'usable_by => ''{NULL}''::name[]'),
	('22P02', 'checkpoint_scope => ''run''')) AS t (want, args),
	pg_temp.failure('SELECT effect.set_job(''job/first'', ' || t.args || ')') AS f;
SELECT is(pg_temp.settings('job/first'), '(,coalesce,,,,,,firing,f,,)', 'none of it changed anything');
SELECT throws_ok($$SELECT effect.set_job(NULL, overlap => 'fail')$$, '22004', NULL, 'a job has a key');
SELECT throws_ok($$SELECT effect.set_job(' ', overlap => 'fail')$$, '22023', NULL, 'that says something');
SELECT throws_ok($$SELECT effect.set_job(repeat('x', 256), overlap => 'fail')$$, '22023', NULL, 'in 255 bytes');
SELECT throws_ok($$SELECT effect.drop_job(NULL)$$, '22004', NULL, 'drop_job of NULL');
SELECT throws_ok($$SELECT effect.drop_job('')$$, '22023', NULL, 'of nothing');
SELECT throws_ok($$SELECT effect.firing_of(NULL)$$, '22004', NULL, 'firing_of NULL');
SELECT throws_ok($$SELECT effect.firing_of('job/day', NULL)$$, '22004', NULL, 'of no instant');
SELECT throws_ok($$SELECT effect.firing_of('job/day', 'infinity')$$, '22023', NULL, 'of no instant that ever comes');
SELECT throws_ok($$SELECT effect.firing_of('job/nobody')$$, 'LE003', NULL, 'of a job that nobody registered');
SELECT throws_ok($$SELECT effect.firing_of('job/first')$$, 'LE003', NULL, 'or without every');
BEGIN READ ONLY;
SELECT throws_ok($$SELECT effect.set_job('job/first', paused => true)$$, '25006', NULL, 'READ ONLY: set_job is refused');
SELECT throws_ok($$SELECT effect.drop_job('job/first')$$, '25006', NULL, 'drop_job too');
COMMIT;

-- Lint: said before it goes wrong.  The warnings stand in the expected output.

\echo # three warnings
SELECT effect.set_job('job/lint', overlap => 'coalesce', every => '1 hour', lease_for => '1 hour') \g /dev/null
SELECT effect.set_job('job/lint', lease_for => '2 hours') \g /dev/null
SELECT effect.set_job('job/lint', lease_for => '10 minutes', at_least_for => '1 hour') \g /dev/null
\echo # and no more
SELECT effect.set_job('job/lint', at_least_for => '10 minutes') \g /dev/null
SELECT effect.set_job('job/lint', lease_for => '59 minutes 59 seconds') \g /dev/null
SELECT effect.set_job('job/lint2', overlap => 'coalesce', lease_for => '1 hour') \g /dev/null
SELECT effect.set_job('job/lint2', every => '1 month', lease_for => '29 days') \g /dev/null
SELECT is(pg_temp.settings('job/lint'), '(01:00:00,coalesce,,00:59:59,00:10:00,,,firing,f,,)', 'a warning is no refusal');

-- Whose it is: 42501

SET ROLE effect_job_owner;
SELECT lives_ok($$SELECT effect.set_job('job/owned', overlap => 'coalesce', lease_for => '1 hour')$$, 'a worker registers a job');
RESET ROLE;
SELECT is(registered_by, 'effect_job_owner'::name, 'it is its own') FROM effect.job WHERE job_key = 'job/owned';
SET ROLE effect_job_other;
SELECT throws_ok($$SELECT effect.set_job('job/owned', paused => true)$$, '42501', NULL, 'another role may not change it');
SELECT throws_ok($$SELECT effect.set_job('job/owned', overlap => 'fail')$$, '42501', NULL, 'nor choose again');
SELECT throws_ok($$SELECT effect.drop_job('job/owned')$$, '42501', NULL, 'nor drop it');
SELECT is((verdict, fencing_token)::text, '(granted,1)', 'but use it') FROM effect.claim_lease('job/owned', 'w');
SELECT is(effect.release_lease('job/owned', 1), true, 'to the end');
RESET ROLE;
SET ROLE effect_job_member;
SELECT lives_ok($$SELECT effect.set_job('job/owned', at_least_for => '1 millisecond')$$, 'a member of the role may change it');
RESET ROLE;
SELECT lives_ok($$SELECT effect.set_job('job/owned', at_least_for => '0')$$, 'and a superuser');
SELECT is(registered_by, 'effect_job_owner'::name, 'which does not make it theirs') FROM effect.job WHERE job_key = 'job/owned';

-- usable_by
SELECT effect.set_job('job/owned', usable_by => '{effect_job_group}') \g /dev/null
SET ROLE effect_job_other;
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/owned', 'w')$$, '42501', NULL, 'usable_by: no one else claims it');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{job/owned}', 'w')$$, '42501', NULL, 'by claim_any neither');
SELECT matches((pg_temp.failure($$SELECT * FROM effect.claim_lease('job/owned', 'w')$$)).message, 'role "effect_job_other" may not use job "job/owned"', 'the message says who and what');
RESET ROLE;
SET ROLE effect_job_owner;
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/owned', 'w')$$, '42501', NULL, 'not even its owner');
RESET ROLE;
SET ROLE effect_job_user;
SELECT is(verdict, 'granted', 'a member of a role that is listed does') FROM effect.claim_lease('job/owned', 'w');
SELECT is(effect.release_lease('job/owned', 2), true, 'and releases');
SELECT throws_ok($$SELECT effect.set_job('job/owned', usable_by => '{}')$$, '42501', NULL, 'using is not changing');
RESET ROLE;
SELECT effect.set_job('job/owned', usable_by => '{}') \g /dev/null
SET ROLE effect_job_other;
SELECT is(verdict, 'granted', 'cleared, every worker may again') FROM effect.claim_lease('job/owned', 'w');
RESET ROLE;
SELECT ok(effect.release_lease('job/owned', 3), 'released');

-- Two roles that register one name at once: the second does not overwrite the first.
SELECT dblink_connect('owner', pg_temp.self()), dblink_connect('other', pg_temp.self()) \g /dev/null
SELECT dblink_exec('owner', 'SET ROLE effect_job_owner'), dblink_exec('other', 'SET ROLE effect_job_other'),
	   dblink_exec('owner', 'BEGIN') \g /dev/null
SELECT * FROM dblink('owner', $$SELECT effect.set_job('job/race', overlap => 'fail')::text$$) AS t (x text) \g /dev/null
SELECT dblink_send_query('other', $$SELECT effect.set_job('job/race', overlap => 'coalesce', usable_by => '{effect_job_other}')::text$$) \g /dev/null
DO $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%set_job(''job/race''%' AND pid <> pg_backend_pid());
		PERFORM pg_sleep(0.005), pg_stat_clear_snapshot();
	END LOOP;
END $$;
SELECT dblink_exec('owner', 'COMMIT') \g /dev/null
SELECT is((pg_temp.failure($$SELECT * FROM dblink_get_result('other') AS t (x text)$$)).state, '42501', 'a registration that appeared meanwhile is another role''s');
SELECT is((registered_by, overlap, usable_by)::text, '(effect_job_owner,fail,)', 'the first one stands') FROM effect.job WHERE job_key = 'job/race';
SELECT * FROM dblink_get_result('other') AS t (x text) \g /dev/null
SELECT dblink_disconnect('owner'), dblink_disconnect('other') \g /dev/null

-- Registered jobs only

SELECT is((verdict, fencing_token)::text, '(granted,1)', 'a job nobody registered may be claimed') FROM effect.claim_lease('job/loose', 'w', '1 hour');
SET effect.require_registered_jobs = on;
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/loose2', 'w', '1 hour')$$, 'LE003', NULL, 'require_registered_jobs refuses the claim');
SELECT throws_ok($$SELECT * FROM effect.claim_any('{job/loose2}', 'w', '1 hour')$$, 'LE003', NULL, 'claim_any''s too');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/loose', 'w', '1 hour')$$, 'LE003', NULL, 'also of one that had a lease');
SELECT matches((pg_temp.failure($$SELECT * FROM effect.claim_lease('job/loose2', 'w', '1 hour')$$)).hint, 'effect\.set_job\(\).*effect\.require_registered_jobs', 'the hint says what to do');
SELECT ok(effect.renew_lease('job/loose', 1) IS NOT NULL, 'who holds one already may renew');
SELECT ok(effect.release_lease('job/loose', 1), 'and release it');
SELECT is(verdict, 'granted', 'a registered job is claimed as ever') FROM effect.claim_lease('job/owned', 'w');
SELECT ok(effect.release_lease('job/owned', 4), 'and released');
RESET effect.require_registered_jobs;
SET ROLE effect_job_owner;
SELECT throws_ok('SET effect.require_registered_jobs = off', '42501', NULL, 'it is for superusers to set');
RESET ROLE;

-- lease_for from the registration

SELECT is(round(extract(epoch FROM lease_until - clock_timestamp()))::int, 3600, 'lease_for is the job''s') FROM effect.claim_lease('job/owned', 'w');
SELECT ok(effect.release_lease('job/owned', 5), 'released');
SELECT is(round(extract(epoch FROM lease_until - clock_timestamp()))::int, 60, 'unless the caller says another') FROM effect.claim_lease('job/owned', 'w', '1 minute');
SELECT is(round(extract(epoch FROM effect.renew_lease('job/owned', 6) - clock_timestamp()))::int, 60, 'renewed as claimed');
SELECT ok(effect.release_lease('job/owned', 6), 'released');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/first', 'w')$$, '22004', NULL, 'a registration without one needs it at the claim');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/loose2', 'w')$$, '22004', NULL, 'as an unregistered job does');
SELECT is((job_key, verdict)::text, '(job/owned,granted)', 'claim_any takes each job''s own') FROM effect.claim_any('{job/owned}', 'w');

-- drop_job: the registration goes, the lease row and its tokens stay

SELECT is(effect.drop_job('job/owned'), true, 'dropped while a run is live');
SELECT is_empty($$SELECT 1 FROM effect.job WHERE job_key = 'job/owned'$$, 'the registration is gone');
SELECT is((owner, fencing_token, status)::text, '(w,7,live)', 'the lease is not') FROM effect.leases WHERE job_key = 'job/owned';
SELECT is(verdict, 'held', 'without a registration no policy applies') FROM effect.claim_lease('job/owned', 'w2', '1 hour');
SELECT is(effect.release_lease('job/owned', 7), true, 'the run ends as it would have');
SELECT is(effect.drop_job('job/owned'), false, 'nothing to drop: false');
SELECT is(effect.drop_job('job/never'), false, 'also where there never was');
SELECT is((verdict, fencing_token)::text, '(granted,8)', 'tokens go on') FROM effect.claim_lease('job/owned', 'w', '1 hour');
SELECT throws_ok($$SELECT effect.set_job('job/owned')$$, '22004', NULL, 'a new registration chooses again');
SELECT lives_ok($$SELECT effect.set_job('job/owned', overlap => 'fail')$$, 'anew');
SELECT is((registered_by, usable_by, lease_for)::text, '(' || current_user || ',,)', 'nothing of the old one is left') FROM effect.job WHERE job_key = 'job/owned';
SELECT throws_ok($$SELECT * FROM effect.claim_lease('job/owned', 'w2', '1 hour')$$, 'LE002', NULL, 'and its policy applies to the live lease');

-- firing_of: a name of the moment

-- The names of a stretch of time, hour by hour: each once, in order.
CREATE FUNCTION pg_temp.names(job text, since timestamptz, till timestamptz, step interval DEFAULT '30 minutes') RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(name, ' ' ORDER BY n) FROM (
		SELECT n, name, lag(name) OVER (ORDER BY n) AS before
		  FROM (SELECT n, effect.firing_of(job, at) AS name FROM generate_series(since, till - interval '1 microsecond', step) WITH ORDINALITY AS g (at, n)) s) t
	 WHERE before IS DISTINCT FROM name $$;
SELECT effect.set_job('job/day', overlap => 'coalesce', every => '1 day') \g /dev/null
SELECT effect.set_job('job/ny', overlap => 'coalesce', every => '1 day', time_zone => 'America/New_York') \g /dev/null
SELECT effect.set_job('job/berlin', overlap => 'coalesce', every => '1 day', time_zone => 'Europe/Berlin') \g /dev/null
SELECT is(effect.firing_of('job/day', '2026-11-01 23:59:59.999999+00'), '2026-11-01', 'a day of UTC, to its last microsecond');
SELECT is(effect.firing_of('job/day', '2026-11-02 00:00+00'), '2026-11-02', 'then the next');
-- New York: back on 2026-11-01 at 06:00Z, forward on 2026-03-08 at 07:00Z (case 36)
SELECT is(array_agg(effect.firing_of('job/ny', at)), ARRAY['2026-11-01', '2026-11-01', '2026-11-02'], 'New York falls back: 01:30 comes twice, the day once')
  FROM unnest('{2026-11-01 05:30+00,2026-11-01 06:30+00,2026-11-02 06:30+00}'::timestamptz[]) AS at;
SELECT is(pg_temp.names('job/ny', '2026-10-30 04:00+00', '2026-11-04 05:00+00'), '2026-10-30 2026-10-31 2026-11-01 2026-11-02 2026-11-03', 'days around it, each once and none skipped');
SELECT is(pg_temp.names('job/ny', '2026-03-06 05:00+00', '2026-03-11 04:00+00'), '2026-03-06 2026-03-07 2026-03-08 2026-03-09 2026-03-10', 'New York springs forward: the same');
SELECT is(count(*)::int, 25, 'the day it falls back has 25 hours') FROM generate_series('2026-10-31 00:00+00'::timestamptz, '2026-11-03 00:00+00', '1 hour') AS at WHERE effect.firing_of('job/ny', at) = '2026-11-01';
SELECT is(count(*)::int, 23, 'and 23 the day it springs forward') FROM generate_series('2026-03-07 00:00+00'::timestamptz, '2026-03-10 00:00+00', '1 hour') AS at WHERE effect.firing_of('job/ny', at) = '2026-03-08';
-- Berlin: back on 2026-10-25 at 01:00Z, forward on 2026-03-29 at 01:00Z
SELECT is(pg_temp.names('job/berlin', '2026-10-22 22:00+00', '2026-10-27 23:00+00'), '2026-10-23 2026-10-24 2026-10-25 2026-10-26 2026-10-27', 'Berlin falls back');
SELECT is(pg_temp.names('job/berlin', '2026-03-26 23:00+00', '2026-03-31 22:00+00'), '2026-03-27 2026-03-28 2026-03-29 2026-03-30 2026-03-31', 'Berlin springs forward');
SELECT is(count(*)::int, 366 + 365, 'two years of New York: a name a day') FROM (SELECT DISTINCT effect.firing_of('job/ny', at) FROM generate_series('2024-01-01 05:00+00'::timestamptz, '2026-01-01 04:59+00', '1 hour') AS at) t;
SELECT is(count(*)::int, 366 + 365, 'and of Berlin') FROM (SELECT DISTINCT effect.firing_of('job/berlin', at) FROM generate_series('2023-12-31 23:00+00'::timestamptz, '2025-12-31 22:59+00', '1 hour') AS at) t;

-- every other day, from the anchor's day
SELECT effect.set_job('job/two', overlap => 'coalesce', every => '2 days', anchor => '2026-03-07 15:00+00', time_zone => 'America/New_York') \g /dev/null
SELECT is(pg_temp.names('job/two', '2026-03-05 05:00+00', '2026-03-13 04:00+00'), '2026-03-05 2026-03-07 2026-03-09 2026-03-11', 'two days, across the change and before the anchor');
-- weeks
SELECT effect.set_job('job/week', overlap => 'coalesce', every => '7 days') \g /dev/null
SELECT is(pg_temp.names('job/week', '2025-12-29 00:00+00', '2026-01-19 00:00+00', '6 hours'), '2025-12-29 2026-01-05 2026-01-12', 'weeks begin on Monday, also over New Year');
SELECT effect.set_job('job/week-ny', overlap => 'coalesce', every => '1 week', time_zone => 'America/New_York') \g /dev/null
SELECT is(pg_temp.names('job/week-ny', '2026-10-26 04:00+00', '2026-11-09 05:00+00', '1 hour'), '2026-10-26 2026-11-02', 'on New York''s Monday in New York');
SELECT effect.set_job('job/week-tokyo', overlap => 'coalesce', every => '1 week', time_zone => 'Asia/Tokyo') \g /dev/null
SELECT is(pg_temp.names('job/week-tokyo', '2026-10-25 15:00+00', '2026-11-08 15:00+00', '1 hour'), '2026-10-26 2026-11-02', 'on Tokyo''s in Tokyo');
SELECT effect.set_job('job/week-wed', overlap => 'coalesce', every => '1 week', anchor => '2026-07-01 12:00+00', time_zone => 'Europe/Berlin') \g /dev/null
SELECT is(pg_temp.names('job/week-wed', '2026-06-23 22:00+00', '2026-07-14 22:00+00', '1 hour'), '2026-06-24 2026-07-01 2026-07-08', 'or on the anchor''s weekday');
-- months and quarters
SELECT effect.set_job('job/month', overlap => 'coalesce', every => '1 month', time_zone => 'America/New_York') \g /dev/null
SELECT is(pg_temp.names('job/month', '2025-11-01 04:00+00', '2026-04-01 04:00+00', '1 hour'), '2025-11 2025-12 2026-01 2026-02 2026-03', 'months, long and short');
SELECT effect.set_job('job/quarter', overlap => 'coalesce', every => '3 months') \g /dev/null
SELECT is(pg_temp.names('job/quarter', '2025-10-01 00:00+00', '2027-01-01 00:00+00', '1 day'), '2025-10 2026-01 2026-04 2026-07 2026-10', 'quarters of the calendar year');
SELECT effect.set_job('job/quarter-ny', overlap => 'coalesce', every => '3 months', time_zone => 'America/New_York') \g /dev/null
SELECT is(pg_temp.names('job/quarter-ny', '2025-10-01 04:00+00', '2026-10-01 04:00+00', '1 hour'), '2025-10 2026-01 2026-04 2026-07', 'in New York too');
SELECT effect.set_job('job/quarter-feb', overlap => 'coalesce', every => '3 months', anchor => '2026-02-10 00:00+00') \g /dev/null
SELECT is(pg_temp.names('job/quarter-feb', '2025-08-01 00:00+00', '2026-08-01 00:00+00', '1 day'), '2025-08 2025-11 2026-02 2026-05', 'or from the anchor''s month, also before it');
SELECT effect.set_job('job/year', overlap => 'coalesce', every => '1 year', time_zone => 'America/Los_Angeles') \g /dev/null
SELECT is(pg_temp.names('job/year', '2025-01-01 08:00+00', '2027-01-01 08:00+00', '6 hours'), '2025-01 2026-01', 'years');
-- anything shorter: UTC
SELECT effect.set_job('job/quarter-hour', overlap => 'coalesce', every => '15 minutes', time_zone => 'America/New_York') \g /dev/null
SELECT is(pg_temp.names('job/quarter-hour', '2026-11-01 05:30+00', '2026-11-01 06:30+00', '1 minute'),
	'2026-11-01T05:30:00Z 2026-11-01T05:45:00Z 2026-11-01T06:00:00Z 2026-11-01T06:15:00Z', '15 minutes are minutes of UTC, through a clock change');
SELECT is(effect.firing_of('job/quarter-hour', '2026-11-01 05:44:59.999999+00'), '2026-11-01T05:30:00Z', 'to the last microsecond');
SELECT effect.set_job('job/anchored', overlap => 'coalesce', every => '15 minutes', anchor => '2026-06-01 00:05+00') \g /dev/null
SELECT is(pg_temp.names('job/anchored', '2026-06-01 00:00+00', '2026-06-01 00:35+00', '1 minute'), '2026-05-31T23:50:00Z 2026-06-01T00:05:00Z 2026-06-01T00:20:00Z', 'from the anchor, and before it');
SELECT is(effect.firing_of('job/anchored', '1999-12-31 23:54:59+00'), '1999-12-31T23:50:00Z', 'long before it');
SELECT is(effect.firing_of('job/anchored', '1999-12-31 23:50:00+00'), '1999-12-31T23:50:00Z', 'on the boundary');
SELECT effect.set_job('job/hours', overlap => 'coalesce', every => '24 hours', time_zone => 'America/New_York') \g /dev/null
SELECT is(effect.firing_of('job/hours', '2026-11-01 23:00+00'), '2026-11-01T00:00:00Z', '24 hours are hours, not a day');
SELECT effect.set_job('job/second', overlap => 'coalesce', every => '1 second') \g /dev/null
SELECT is(effect.firing_of('job/second', '2026-11-01 23:00:07.25+00'), '2026-11-01T23:00:07Z', 'a second is the shortest');

-- Two schedulers in one slot: one name, whatever their sessions are set to
CREATE TABLE job_names (name text);
DO $$
DECLARE
	zone text;
BEGIN
	FOREACH zone IN ARRAY '{UTC,America/New_York,Pacific/Auckland,Asia/Kolkata}'::text[] LOOP
		PERFORM set_config('TimeZone', zone, true), set_config('DateStyle', 'SQL, DMY', true), set_config('IntervalStyle', 'iso_8601', true),
				set_config('search_path', '', true);
		INSERT INTO public.job_names SELECT effect.firing_of(j, at)
		  FROM unnest('{job/day,job/ny,job/week-ny,job/month,job/quarter-hour}'::text[]) AS j,
			   pg_catalog.unnest('{2026-11-01 05:31+00,2026-11-01 05:44+00}'::timestamptz[]) AS at;
	END LOOP;
END $$;
SELECT set_eq('SELECT name FROM job_names', $$VALUES ('2026-10-26'), ('2026-11'), ('2026-11-01'), ('2026-11-01T05:30:00Z')$$, 'the same name in every session');
DROP TABLE job_names;
SELECT effect.set_job('job/slot', overlap => 'coalesce', every => '1 month', lease_for => '1 hour') \g /dev/null
SELECT is(effect.firing_of('job/slot'), to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM'), 'at is now, by the clock');
SELECT is((verdict, firing)::text, '(granted,2026-11)', 'the first scheduler of a slot') FROM effect.claim_lease('job/slot', 's1', firing => effect.firing_of('job/slot', '2026-11-01 00:00+00'));
SELECT ok(effect.release_lease('job/slot', 1), 'runs it to its end');
SELECT is((verdict, firing)::text, '(already_ran,2026-11)', 'the second, three weeks later, has nothing to do') FROM effect.claim_lease('job/slot', 's2', firing => effect.firing_of('job/slot', '2026-11-22 00:00+00'));

-- In a parallel query, and in a READ ONLY one
SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \g /dev/null
SELECT effect.firing_of('job/day', '2026-11-01 12:00+00') AS name \gset v_
SELECT set_config(name, 'off', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query') \g /dev/null
SELECT is(:'v_name'::text, '2026-11-01', 'firing_of where whatever may runs in parallel');
BEGIN READ ONLY;
SELECT effect.firing_of('job/day', '2026-11-01 12:00+00') AS name \gset v_
COMMIT;
SELECT is(:'v_name'::text, '2026-11-01', 'it only reads');

SELECT * FROM finish();
DROP OWNED BY effect_job_owner, effect_job_member, effect_job_other, effect_job_user, effect_job_group;
DROP ROLE effect_job_owner, effect_job_member, effect_job_other, effect_job_user, effect_job_group;
