\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- stats: each counter moves by the call that should move it, and by nothing else
-- (doc/stats.md).  What the numbers are made into is in attention.sql.
SET client_min_messages = warning;
SET lock_timeout = '20s';
SET IntervalStyle = 'postgres';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
CREATE EXTENSION IF NOT EXISTS dblink;
SET effect.default_settle = 0;
SET effect.fenced_log_level = none;
-- whatever is counted is written down as the next call begins
SET effect.stats_flush_interval = 0;
DROP SCHEMA IF EXISTS stats_test CASCADE;
CREATE SCHEMA stats_test;
CREATE TABLE stats_test.written (n int);

SELECT plan(176);

CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.key(action text, target text) RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key(action, target, effect.input_digest('{}')) $$;
-- The clock moves on for these rows; no guard looks.
CREATE FUNCTION pg_temp.expire(job text) RETURNS void LANGUAGE sql SET session_replication_role = replica AS $$
	UPDATE effect.lease SET lease_until = lease_until - interval '1 day' WHERE job_key = job $$;
CREATE FUNCTION pg_temp.time_up(action text, target text) RETURNS void LANGUAGE sql SET session_replication_role = replica AS $$
	UPDATE effect.ledger SET busy_until = busy_until - interval '1 day' WHERE effect_key = pg_temp.key(action, target) $$;

-- What has moved since this was last asked.  The call in it counts nothing.
CREATE TEMP TABLE seen (kind text, name text, counter text, n bigint);
CREATE TEMP TABLE ever (counter text);
CREATE FUNCTION pg_temp.moved() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	PERFORM effect.revoke_approval('00000000-0000-0000-0000-000000000000', 'nobody');
	SELECT string_agg(format('%s %s: %s', kind, name, counters), ', ' ORDER BY kind DESC, name) INTO answer
	  FROM (SELECT kind, name, string_agg(format('%s %s', counter, n), ' ' ORDER BY counter) AS counters
			  FROM (SELECT kind, name, counter, sum(n) AS n
					  FROM (SELECT kind, name, counter, n FROM effect.counters UNION ALL SELECT kind, name, counter, -n FROM seen) AS both_of
					 GROUP BY kind, name, counter HAVING sum(n) <> 0) AS differences
			 GROUP BY kind, name) AS names;
	INSERT INTO ever SELECT counter FROM effect.counters;
	DELETE FROM seen;
	INSERT INTO seen SELECT kind, name, counter, sum(n) FROM effect.counters GROUP BY 1, 2, 3;
	RETURN coalesce(answer, 'nothing');
END $$;
SELECT is(pg_temp.moved(), 'nothing', 'nothing is counted at first');

-- Each step is a statement of its own, as a client's call is, then what it moved.
CREATE TEMP TABLE step (n int GENERATED ALWAYS AS IDENTITY, call text, want text, what text);
CREATE VIEW pg_temp.run AS
	SELECT s.sql FROM step, unnest(ARRAY[
		format('SELECT 1 FROM %s AS t WHERE clock_timestamp() < ''2000-01-01''', call),
		format('SELECT is(pg_temp.moved(), %L, %L)', want, coalesce(what, call))]) WITH ORDINALITY AS s (sql, part)
	 ORDER BY n, part;

--
-- Leases
--
INSERT INTO step (call, want, what) VALUES
	('effect.claim_lease(''s/a'', ''w1'', ''1 hour'')', 'job s/a: granted 1', 'a grant'),
	('effect.claim_lease(''s/a'', ''w2'', ''1 hour'')', 'job s/a: held 1', 'refused: held'),
	('effect.claim_any(''{s/a,s/b}'', ''w2'', ''1 hour'')', 'job s/a: held 1, job s/b: granted 1', 'claim_any: each job it asks'),
	('effect.renew_lease(''s/a'', 1)', 'job s/a: renewed 1', NULL),
	('effect.is_current(''s/a'', 1)', 'nothing', 'is_current, true'),
	('effect.fence(''s/a'', 1)', 'nothing', 'a fence that holds'),
	('effect.fenced_insert(''s/a'', 1, ''stats_test.written'', ''{"n": 1}'')', 'nothing', 'a fenced write'),
	('effect.save_checkpoint(''s/a'', 1, ''{}'')', 'nothing', 'a checkpoint'),
	('effect.release_lease(''s/a'', 1)', 'job s/a: finished 1', 'released'),
	('effect.release_lease(''s/a'', 1)', 'nothing', 'released again: no news'),
	('effect.claim_lease(''s/a'', ''w1'', ''1 hour'')', 'job s/a: granted 1', NULL),
	('effect.release_lease(''s/a'', 2, ''failed'')', 'job s/a: failed 1', 'released as failed'),
	('effect.claim_lease(''s/a'', ''w1'', ''1 hour'', nonce => ''11111111-1111-4111-8111-111111111111'')', 'job s/a: granted 1', NULL),
	('effect.claim_lease(''s/a'', ''w1'', ''1 hour'', nonce => ''11111111-1111-4111-8111-111111111111'')', 'nothing', 'the same grant again'),
	('pg_temp.expire(''s/a'')', 'nothing', 'time passes'),
	('effect.claim_lease(''s/a'', ''w2'', ''1 hour'')', 'job s/a: granted 1 stolen 1', 'an expired lease is taken'),
	('effect.revoke_lease(''s/a'', ''x'')', 'job s/a: revoked 1', NULL),
	('effect.revoke_lease(''s/a'', ''x'')', 'nothing', 'nobody held it'),
	('pg_temp.expire(''s/b'')', 'nothing', 'time passes'),
	('effect.sweep()', 'job s/b: expired 1', 'sweep ends an expired run'),
	('effect.sweep()', 'nothing', 'once');
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;

--
-- Fenced, through each door
--
INSERT INTO step (call, want, what) VALUES
	('effect.renew_lease(''s/a'', 1)', 'job s/a: fenced 1', NULL),
	('effect.release_lease(''s/a'', 3)', 'job s/a: fenced 1', NULL),
	('effect.save_checkpoint(''s/a'', 1, ''{}'')', 'job s/a: fenced 1', NULL),
	('effect.fenced_insert(''s/a'', 1, ''stats_test.written'', ''{"n": 1}'')', 'job s/a: fenced 1', NULL),
	('effect.is_current(''s/a'', 1)', 'job s/a: fenced 1', NULL),
	('pg_temp.told($$SELECT effect.fence(''s/a'', 1)$$)', 'job s/a: fenced 1', 'fence: LE001, in a savepoint that is rolled back'),
	('effect.claim_effect(''s/pay'', ''f'', ''{}'', ''s/a'', 1)', 'job s/a: fenced 1, action s/pay: fenced 1', NULL),
	('effect.begin_effect(''s/pay'', ''f'', ''{}'', ''s/a'', 1)', 'job s/a: fenced 1, action s/pay: fenced 1', NULL),
	('effect.begin_effects(''s/pay'', ''{f,g}'', NULL, ''s/a'', 1)', 'job s/a: fenced 2, action s/pay: fenced 2', NULL),
	('effect.claim_lease(''s/c'', ''w'', ''1 hour'')', 'job s/c: granted 1', NULL),
	('effect.claim_effect(''s/pay'', ''claimed'', ''{}'', ''s/c'', 1)', 'action s/pay: reserved 1', 'claimed'),
	('effect.begin_effects(''s/pay'', ''{one,two,three}'', NULL, ''s/c'', 1)', 'action s/pay: go 3', 'three begun'),
	('pg_temp.expire(''s/c'')', 'nothing', 'time passes'),
	('effect.claim_lease(''s/c'', ''w2'', ''1 hour'')', 'job s/c: granted 1 stolen 1, action s/pay: lost 3', 'a thief makes the submitted ones unknown, the claimed one not'),
	('effect.submit_effect(pg_temp.key(''s/pay'', ''claimed''), 1)', 'job s/c: fenced 1, action s/pay: fenced 1', NULL),
	('effect.complete_effect(pg_temp.key(''s/pay'', ''one''), 1)', 'job s/c: fenced 1, action s/pay: fenced 1 late_answers 1', NULL),
	('effect.retract_effect(pg_temp.key(''s/pay'', ''two''), 1)', 'job s/c: fenced 1, action s/pay: fenced 1', NULL),
	('effect.mark_unknown(pg_temp.key(''s/pay'', ''two''), 1, ''x'')', 'job s/c: fenced 1, action s/pay: fenced 1', NULL),
	('effect.complete_effects(ARRAY[pg_temp.key(''s/pay'', ''two''), pg_temp.key(''s/pay'', ''three'')], 1)', 'job s/c: fenced 2, action s/pay: fenced 2 late_answers 2', NULL);
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;
-- an attempt that a later one has replaced: its run comes back with its old token
INSERT INTO step (call, want, what) VALUES
	('effect.claim_lease(''s/old'', ''w'', ''1 hour'')', 'job s/old: granted 1', NULL),
	('effect.begin_effect(''s/old'', ''x'', ''{}'', ''s/old'', 1)', 'action s/old: go 1', NULL),
	('effect.revoke_lease(''s/old'', ''x'')', 'job s/old: revoked 1, action s/old: lost 1', NULL),
	('effect.resolve_unknown(pg_temp.key(''s/old'', ''x''), ''did_not_happen'', 1)', 'action s/old: found_absent 1', NULL),
	('effect.claim_lease(''s/old'', ''w'', ''1 hour'')', 'job s/old: granted 1', NULL),
	('effect.begin_effect(''s/old'', ''x'', ''{}'', ''s/old'', 2)', 'action s/old: go 1', 'the next attempt'),
	('effect.claim_lease(''s/other'', ''w'', ''1 hour'')', 'job s/other: granted 1', NULL),
	('pg_temp.expire(''s/other'')', 'nothing', 'time passes'),
	('effect.claim_lease(''s/other'', ''w2'', ''1 hour'')', 'job s/other: granted 1 stolen 1', 'another job''s run 1 is abandoned'),
	('effect.claim_lease(''s/first'', ''w'', ''1 hour'')', 'job s/first: granted 1', NULL),
	('effect.claim_effect(''s/old'', ''y'', ''{}'', ''s/first'', 1)', 'action s/old: reserved 1', NULL),
	('effect.revoke_lease(''s/first'', ''x'')', 'job s/first: revoked 1', NULL),
	('effect.claim_effect(''s/old'', ''y'', ''{}'', ''s/other'', 2)', 'action s/old: reserved 1', 'the other job takes an effect of the first');
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;
SELECT 1 FROM effect.complete_effect(pg_temp.key('s/old', 'x'), 1) \g /dev/null
SELECT is(pg_temp.moved(), 'action s/old: fenced 1 late_answers 1', 'a late answer of the first attempt: the ledger does not know any more which job it was of');
SELECT 1 FROM effect.submit_effect(pg_temp.key('s/old', 'y'), 1) \g /dev/null
SELECT is(pg_temp.moved(), 'action s/old: fenced 1', 'a late submit of the first job''s run');
SELECT is(outcome::text, 'abandoned', 'says nothing of another job''s run of the same number') FROM effect.runs WHERE job_key = 's/other' AND fencing_token = 1;
-- at COMMIT, which is another session's here, so that it may fail
CREATE FUNCTION pg_temp.self() RETURNS text LANGUAGE sql AS $$
	SELECT format('dbname=%s host=%s port=%s user=%s', current_database(),
				  split_part(current_setting('unix_socket_directories'), ',', 1),
				  current_setting('port'), current_user) $$;
SELECT dblink_connect('other', pg_temp.self()) \g /dev/null
SELECT dblink_exec('other', 'SET client_min_messages = error; SET effect.fenced_log_level = none; SET effect.stats_flush_interval = 0; BEGIN') \g /dev/null
SELECT 1 FROM dblink('other', 'SELECT effect.fence(''s/c'', 2)::text') AS t (x text) \g /dev/null
SELECT effect.revoke_lease('s/c', 'x') \g /dev/null
SELECT is(pg_temp.moved(), 'job s/c: revoked 1', 'revoked while a fenced transaction is open');
SELECT is(pg_temp.told($$SELECT dblink_exec('other', 'COMMIT')$$), 'LE001', 'which then cannot commit');
SELECT 1 FROM dblink('other', 'SELECT effect.revoke_approval(''00000000-0000-0000-0000-000000000000'', ''nobody'')::text') AS t (x text) \g /dev/null
SELECT is(pg_temp.moved(), 'job s/c: fenced 1', 'and counts, though it is rolled back: that call was its session''s next');
-- and where nothing may be written
BEGIN READ ONLY;
SELECT is(effect.is_current('s/c', 1), false, 'is_current answers READ ONLY');
COMMIT;
SELECT is(pg_temp.moved(), 'job s/c: fenced 1', 'and counts: written down by the next call that may');
-- who is slow, and who was dead: the journal says it once a run
SELECT is(count(*)::int, 1, 'the run that came back is journalled once') FROM effect.journal WHERE event = 'fenced' AND job_key = 's/c';

--
-- Overlap policies, and the other refusals
--
SELECT effect.set_job('s/coalesce', overlap => 'coalesce', lease_for => '1 hour', every => '1 day') \g /dev/null
SELECT effect.set_job('s/queue', overlap => 'queue', queue_limit => 2, lease_for => '1 hour') \g /dev/null
SELECT effect.set_job('s/fail', overlap => 'fail', lease_for => '1 hour') \g /dev/null
SELECT effect.set_job('s/cool', overlap => 'coalesce', lease_for => '1 hour', at_least_for => '1 hour') \g /dev/null
INSERT INTO step (call, want, what) VALUES
	('effect.claim_lease(''s/coalesce'', ''w'', firing => ''mon'')', 'job s/coalesce: granted 1', NULL),
	('effect.claim_lease(''s/coalesce'', ''w2'', firing => ''tue'')', 'job s/coalesce: coalesced 1', 'policy coalesce'),
	('effect.claim_any(''{s/coalesce}'', ''w2'')', 'job s/coalesce: coalesced 1', 'policy coalesce, by claim_any'),
	('effect.release_lease(''s/coalesce'', 1)', 'job s/coalesce: finished 1', NULL),
	('effect.claim_lease(''s/coalesce'', ''w'', firing => ''mon'')', 'job s/coalesce: already_ran 1', 'the firing has finished'),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''1'')', 'job s/queue: granted 1', NULL),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''2'')', 'job s/queue: queued 1', 'policy queue'),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''2'')', 'nothing', 'it waits already'),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''3'')', 'job s/queue: queued 1', NULL),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''4'')', 'job s/queue: saturated 1', 'the queue is full'),
	('effect.release_lease(''s/queue'', 1)', 'job s/queue: finished 1', NULL),
	('effect.claim_lease(''s/queue'', ''w'', firing => ''4'')', 'job s/queue: granted 1 queued 1', 'granted the oldest; its own waits'),
	('effect.claim_lease(''s/fail'', ''w'')', 'job s/fail: granted 1', NULL),
	('pg_temp.told($$SELECT effect.claim_lease(''s/fail'', ''w2'')$$)', 'job s/fail: overlapped 1', 'policy fail raises LE002, in a savepoint that is rolled back'),
	('effect.claim_any(''{s/fail}'', ''w2'')', 'job s/fail: held 1', 'policy fail, by claim_any, is held'),
	('effect.claim_lease(''s/cool'', ''w'')', 'job s/cool: granted 1', NULL),
	('effect.release_lease(''s/cool'', 1)', 'job s/cool: finished 1', NULL),
	('effect.claim_lease(''s/cool'', ''w'')', 'job s/cool: cooling_down 1', 'at_least_for'),
	('effect.set_job(''s/fail'', paused => true)', 'nothing', 'a registration'),
	('effect.release_lease(''s/fail'', 1)', 'job s/fail: finished 1', NULL),
	('effect.claim_lease(''s/fail'', ''w'')', 'job s/fail: paused 1', 'paused');
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;

--
-- Effects
--
SELECT effect.set_action('s/resend', on_unknown => 'resend') \g /dev/null
SELECT effect.set_action('s/event', identity => 'target') \g /dev/null
SELECT effect.set_action('s/wire', approvals_required => 1) \g /dev/null
INSERT INTO step (call, want, what) VALUES
	('effect.claim_effect(''s/mail'', ''x'')', 'action s/mail: reserved 1', 'claim_effect: reserved'),
	('effect.claim_effect(''s/mail'', ''x'')', 'action s/mail: busy 1', 'claimed again: busy'),
	('effect.submit_effect(pg_temp.key(''s/mail'', ''x''), 1)', 'action s/mail: go 1', 'submit_effect: go'),
	('effect.submit_effect(pg_temp.key(''s/mail'', ''x''), 1)', 'action s/mail: busy 1', 'submitted again: busy, yours'),
	('effect.complete_effect(pg_temp.key(''s/mail'', ''x''), 1)', 'action s/mail: completed 1', 'complete_effect'),
	('effect.complete_effect(pg_temp.key(''s/mail'', ''x''), 1)', 'nothing', 'completed again: no news'),
	('effect.claim_effect(''s/mail'', ''x'')', 'action s/mail: duplicates 1', 'a duplicate, of claim'),
	('effect.begin_effect(''s/mail'', ''x'')', 'action s/mail: duplicates 1', 'a duplicate, of begin'),
	('effect.submit_effect(pg_temp.key(''s/mail'', ''x''), 1)', 'action s/mail: duplicates 1', 'a duplicate, of submit'),
	('effect.begin_effects(''s/mail'', ''{x,y,z,y}'')', 'action s/mail: busy 1 duplicates 1 go 2', 'begin_effects: each element'),
	('effect.explain_effect(''s/mail'', ''x'')', 'nothing', 'explain_effect counts nothing'),
	('effect.complete_effects(ARRAY[pg_temp.key(''s/mail'', ''y''), pg_temp.key(''s/mail'', ''z'')], 1)', 'action s/mail: completed 2', 'complete_effects'),
	('effect.begin_effect(''s/mail'', ''n'', nonce => ''22222222-2222-4222-8222-222222222222'')', 'action s/mail: go 1', NULL),
	('effect.begin_effect(''s/mail'', ''n'', nonce => ''22222222-2222-4222-8222-222222222222'')', 'nothing', 'the same go again'),
	('effect.retract_effect(pg_temp.key(''s/mail'', ''n''), 1)', 'action s/mail: retracted 1', NULL),
	('effect.retract_effect(pg_temp.key(''s/mail'', ''n''), 1)', 'nothing', 'retracted again: no news'),
	('effect.close_effect(pg_temp.key(''s/mail'', ''n''), ''voided'')', 'nothing', 'closing is no answer'),
	('effect.begin_effect(''s/mail'', ''n'')', 'action s/mail: closed 1', 'who asks later is told closed'),
	('effect.begin_effect(''s/mail'', ''u'')', 'action s/mail: go 1', NULL),
	('effect.mark_unknown(pg_temp.key(''s/mail'', ''u''), 1, ''x'')', 'action s/mail: lost 1', 'mark_unknown'),
	('effect.mark_unknown(pg_temp.key(''s/mail'', ''u''), 1, ''x'')', 'nothing', 'marked again'),
	('effect.begin_effect(''s/mail'', ''u'')', 'action s/mail: blocked 1', 'unknown: nobody may'),
	('effect.resolve_unknown(pg_temp.key(''s/mail'', ''u''), ''cannot_tell'', 1)', 'nothing', 'a look that cannot tell'),
	('effect.resolve_unknown(pg_temp.key(''s/mail'', ''u''), ''did_not_happen'', 1)', 'action s/mail: found_absent 1', NULL),
	('effect.resolve_unknown(pg_temp.key(''s/mail'', ''u''), ''did_not_happen'', 1)', 'nothing', 'the same finding again'),
	('effect.begin_effect(''s/mail'', ''u'')', 'action s/mail: go 1', 'the second attempt'),
	('pg_temp.time_up(''s/mail'', ''u'')', 'nothing', 'time passes'),
	('effect.begin_effect(''s/mail'', ''u'')', 'action s/mail: blocked 1 lost 1', 'its time was up: written down by who asks'),
	('effect.resolve_unknown(pg_temp.key(''s/mail'', ''u''), ''happened'')', 'action s/mail: found_happened 1', NULL),
	('effect.complete_effect(pg_temp.key(''s/mail'', ''u''), 1, ''{}'')', 'action s/mail: doubles 1 late_answers 1', 'the first attempt answers: a suspected double'),
	('effect.begin_effect(''s/mail'', ''swept'')', 'action s/mail: go 1', NULL),
	('pg_temp.time_up(''s/mail'', ''swept'')', 'nothing', 'time passes'),
	('effect.sweep()', 'action s/mail: lost 1', 'its time was up: written down by sweep'),
	('effect.begin_effect(''s/resend'', ''x'')', 'action s/resend: go 1', NULL),
	('effect.mark_unknown(pg_temp.key(''s/resend'', ''x''), 1, ''x'')', 'action s/resend: lost 1', NULL),
	('effect.begin_effect(''s/resend'', ''x'')', 'action s/resend: go 1 resent 1', 'sent again without a look'),
	('effect.begin_effect(''s/event'', ''e'', ''{"n": 1}'')', 'action s/event: go 1', NULL),
	('effect.begin_effect(''s/event'', ''e'', ''{"n": 2}'')', 'action s/event: mismatch 1', 'other inputs under one id'),
	('effect.begin_effect(''s/wire'', ''x'')', 'action s/wire: unapproved 1', 'approvals are missing'),
	('effect.approve(pg_temp.key(''s/wire'', ''x''), ''ann'')', 'nothing', 'an approval'),
	('effect.submit_effect(pg_temp.key(''s/wire'', ''x''), 1)', 'action s/wire: go 1', NULL),
	('effect.once(''s/inside'', ''x'')', 'action s/inside: applied 1', 'once, the first time'),
	('effect.once(''s/inside'', ''x'')', 'action s/inside: duplicates 1', 'once, again'),
	('effect.once(''s/inside'', ''{x,y,z,y}''::text[])', 'action s/inside: applied 2 duplicates 2', 'once, an array: known, new, new, a repeat'),
	('effect.apply_effect(''s/inside'', ''a'')', 'action s/inside: applied 1', 'apply_effect'),
	('effect.apply_effect(''s/inside'', ''a'')', 'action s/inside: duplicates 1', 'apply_effect, again');
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;
SET client_min_messages = error;
BEGIN;
SELECT 1 FROM effect.begin_effect('s/mail', 'same') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('s/mail', 'same'), 1) \g /dev/null
COMMIT;
SET client_min_messages = warning;
SELECT is(pg_temp.moved(), 'action s/mail: completed 1 go 1 same_transaction 1', 'begun and completed in one transaction');

--
-- Quarantined
--
SELECT effect.quarantine('a drill') \g /dev/null
INSERT INTO step (call, want, what) VALUES
	('effect.claim_lease(''s/new'', ''w'', ''1 hour'')', 'job s/new: quarantined 1', NULL),
	('effect.begin_effects(''s/mail'', ''{q1,q2}'')', 'action s/mail: quarantined 2', NULL),
	('effect.begin_effect(''s/mail'', ''x'')', 'action s/mail: duplicates 1', 'a duplicate is one in quarantine, too'),
	('effect.adopt_cluster()', 'nothing', NULL),
	('effect.sweep()', 'action s/event: lost 1, action s/old: lost 1, action s/resend: lost 1, action s/wire: lost 1', 'attempts from before the move are unknown');
SELECT sql FROM pg_temp.run \gexec
TRUNCATE step;

--
-- What is rolled back: no deed counts, each answer does
--
BEGIN;
SELECT 1 FROM effect.claim_lease('s/r', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_effect('s/r', 'claimed') \g /dev/null
SELECT 1 FROM effect.begin_effects('s/r', '{a,b,a}') \g /dev/null
SELECT 1 FROM effect.retract_effect(pg_temp.key('s/r', 'a'), 1) \g /dev/null
SELECT 1 FROM effect.mark_unknown(pg_temp.key('s/r', 'b'), 1, 'x') \g /dev/null
SELECT 1 FROM effect.once('s/r', '{i,j,j}'::text[]) \g /dev/null
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
SELECT effect.is_current('s/a', 1) \g /dev/null
SELECT effect.release_lease('s/r', fencing_token) FROM effect.lease WHERE job_key = 's/r' \g /dev/null
ROLLBACK;
SELECT is(pg_temp.moved(), 'job s/a: fenced 1, action s/mail: duplicates 1, action s/r: busy 1 duplicates 1', 'a transaction rolled back');
SELECT is((SELECT count(*)::int FROM effect.ledger WHERE action = 's/r') + (SELECT count(*)::int FROM effect.lease WHERE job_key = 's/r'), 0, 'of what it did nothing is there');
BEGIN;
SELECT 1 FROM effect.begin_effect('s/r', 'kept') \g /dev/null
SAVEPOINT a;
SELECT 1 FROM effect.begin_effects('s/r', '{gone,gone}') \g /dev/null
SAVEPOINT b;
SELECT 1 FROM effect.once('s/r', 'gone too') \g /dev/null
RELEASE b;
ROLLBACK TO a;
SELECT 1 FROM effect.begin_effect('s/r', 'again') \g /dev/null
RELEASE a;
SAVEPOINT c;
SELECT 1 FROM effect.once('s/r', 'kept too') \g /dev/null
RELEASE c;
COMMIT;
SELECT is(pg_temp.moved(), 'action s/r: applied 1 busy 1 go 2', 'savepoints: what was released counts, what was rolled back does not, its answers do');
SELECT count(*) AS deltas FROM effect.counter_delta \gset v_
BEGIN;
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
SAVEPOINT a;
SELECT 1 FROM effect.begin_effect('s/r', 'kept') \g /dev/null
SELECT is((SELECT count(*) FROM effect.counter_delta), :v_deltas::bigint + 1, 'the second call writes down what the first counted');
ROLLBACK TO a;
SELECT is((SELECT count(*) FROM effect.counter_delta), :v_deltas::bigint, 'which is rolled back with a savepoint');
COMMIT;
SELECT is(pg_temp.moved(), 'action s/mail: duplicates 1, action s/r: busy 1', 'and is written again: not lost, not twice');
BEGIN;
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
ROLLBACK;
SELECT is(pg_temp.moved(), 'action s/mail: duplicates 2', 'so with a whole transaction');
-- a function that catches an error
SELECT is(pg_temp.told($$SELECT 1 / (SELECT count(*) * 0 FROM effect.begin_effects('s/r', '{p,kept}'))$$), '22012', 'a call that another error undoes');
SELECT is(pg_temp.moved(), 'action s/r: busy 1', 'the go does not count, the busy one does');

--
-- The interval: a duplicate writes nothing before it has passed
--
SET effect.stats_flush_interval = 3600;
SELECT count(*) AS deltas FROM effect.counter_delta \gset v_
BEGIN;
SELECT 1 FROM generate_series(1, 5) AS g, effect.begin_effect('s/mail', left('x' || g, 1)) \g /dev/null
COMMIT;
BEGIN;
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
SELECT is(pg_current_xact_id_if_assigned()::text, NULL, 'a duplicate takes no transaction id');
COMMIT;
SELECT is((SELECT count(*) FROM effect.counter_delta), :v_deltas::bigint, 'and writes nothing');
SET effect.stats_flush_interval = 0;
SELECT is(pg_temp.moved(), 'action s/mail: duplicates 6', 'they were kept meanwhile');

--
-- sweep folds
--
SELECT ok(count(*) > 0, 'there are deltas since the last sweep') FROM effect.counter_delta;
CREATE TEMP TABLE before AS SELECT kind, name, counter, sum(n)::bigint AS n FROM effect.counters GROUP BY 1, 2, 3;
CREATE TEMP TABLE hours AS SELECT * FROM effect.counters;
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is_empty('SELECT 1 FROM effect.counter_delta', 'sweep folds them all');
SELECT bag_eq('SELECT * FROM effect.counter', 'SELECT * FROM hours', 'into a row an hour, of the hour they were written in');
SELECT bag_eq('SELECT kind, name, counter, sum(n)::bigint FROM effect.counters GROUP BY 1, 2, 3', 'SELECT * FROM before', 'the totals are what they were');
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT bag_eq('SELECT * FROM effect.counter', 'SELECT * FROM hours', 'again: nothing changes');
SELECT ok(bool_and(hour = date_trunc('hour', hour, 'UTC')), 'hours are whole in UTC') FROM effect.counter;
-- a session in a time zone of half hours writes the same hours
SET timezone = 'Asia/Kolkata';
SELECT bag_eq('SELECT * FROM effect.counters', 'SELECT * FROM hours', 'whatever the session''s time zone');
RESET timezone;
-- deltas of another hour, and of the day before yesterday
INSERT INTO effect.counter_delta (at, kind, name, counter, n) VALUES
	(clock_timestamp(), 'action', 's/fold', 'go', 1),
	(now() - interval '3 hours', 'action', 's/fold', 'go', 10),
	(now() - interval '3 hours', 'action', 's/fold', 'go', 20),
	(clock_timestamp() - interval '3 days', 'action', 's/fold', 'go', 100),
	(clock_timestamp() - interval '4 days', 'action', 's/fold', 'go', 200);
SELECT is(string_agg(n::text, ' ' ORDER BY hour), '200 100 30 1', 'the view knows the hours of deltas') FROM effect.counters WHERE name = 's/fold';
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(string_agg(n || CASE WHEN hour = '-infinity' THEN ' long ago' ELSE '' END, ', ' ORDER BY hour), '300 long ago, 30, 1', 'folded: what is more than two days old is one row') FROM effect.counter WHERE name = 's/fold';
UPDATE effect.counter SET hour = hour - interval '2 days' WHERE name = 's/fold' AND n = 30;
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(string_agg(n || CASE WHEN hour = '-infinity' THEN ' long ago' ELSE '' END, ', ' ORDER BY hour), '330 long ago, 1', 'two days later the next hour joins it') FROM effect.counter WHERE name = 's/fold';
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(sum(n)::text, '331', 'and nothing is counted twice') FROM effect.counters WHERE name = 's/fold';
-- a sweep that rolls back, and one that meets an open delta
INSERT INTO effect.counter_delta (at, kind, name, counter, n) VALUES (clock_timestamp(), 'action', 's/fold', 'go', 1000);
BEGIN;
SELECT 1 FROM effect.sweep() \g /dev/null
ROLLBACK;
SELECT is(sum(n)::text, '1331', 'a fold that is rolled back') FROM effect.counters WHERE name = 's/fold';
SELECT dblink_exec('other', 'BEGIN') \g /dev/null
SELECT dblink_exec('other', 'UPDATE effect.counter_delta SET n = n WHERE name = ''s/fold''') \g /dev/null
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is((count(*), sum(n))::text, '(1,1000)', 'a delta that somebody has locked is left to the next sweep') FROM effect.counter_delta WHERE name = 's/fold';
SELECT dblink_exec('other', 'COMMIT') \g /dev/null
SELECT 1 FROM effect.sweep() \g /dev/null
SELECT is(sum(n)::text, '1331', 'which folds it') FROM effect.counter WHERE name = 's/fold';
-- the table is locked: counting waits for nobody
SELECT 1 FROM effect.begin_effect('s/mail', 'x') \g /dev/null
SELECT dblink_exec('other', 'BEGIN; LOCK TABLE effect.counter_delta IN ACCESS EXCLUSIVE MODE') \g /dev/null
SET lock_timeout = '1s';
SELECT is(verdict::text, 'done', 'while somebody has the table locked calls go on') FROM effect.begin_effect('s/mail', 'x');
SELECT verdict FROM effect.begin_effect('s/mail', 'unhindered') \gset v_
SELECT is(:'v_verdict'::text, 'go', 'those that write, too');
SET lock_timeout = '20s';
SET IntervalStyle = 'postgres';
SELECT dblink_exec('other', 'COMMIT') \g /dev/null
DELETE FROM seen WHERE name = 's/fold';
INSERT INTO seen VALUES ('action', 's/fold', 'go', 1331);
SELECT is(pg_temp.moved(), 'action s/mail: duplicates 2 go 1', 'and nothing is lost');
-- a session that ends writes what it has left
SELECT dblink_exec('other', 'SET effect.stats_flush_interval = 3600') \g /dev/null
SELECT 1 FROM dblink('other', 'SELECT verdict::text FROM generate_series(1, 7) AS g, effect.begin_effect(''s/mail'', left(''x'' || g, 1))') AS t (x text) \g /dev/null
SELECT is(pg_temp.moved(), 'nothing', 'another session keeps its numbers for an interval');
SELECT dblink_disconnect('other') \g /dev/null
DO $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		EXIT WHEN EXISTS (SELECT FROM effect.counter_delta WHERE n >= 7 AND counter = 'duplicates');
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT is(pg_temp.moved(), 'action s/mail: duplicates 7', 'and writes them as it ends');

--
-- All of them
--
SELECT set_eq('SELECT counter FROM ever', ARRAY['granted', 'held', 'coalesced', 'queued', 'saturated', 'already_ran',
	'cooling_down', 'paused', 'quarantined', 'overlapped', 'stolen', 'expired', 'revoked', 'finished', 'failed', 'renewed',
	'fenced', 'reserved', 'go', 'applied', 'completed', 'duplicates', 'closed', 'busy', 'blocked', 'unapproved', 'mismatch',
	'retracted', 'lost', 'found_happened', 'found_absent', 'resent', 'late_answers', 'doubles', 'same_transaction'],
	'every counter there is was moved above');
-- and the views show them under their names
SELECT is((granted, finished, failed, stolen, revoked, fenced, renewed, held, expired)::text, '(4,1,1,1,1,11,1,2,0)', 'job_stats') FROM effect.job_stats WHERE job_key = 's/a';
SELECT is((coalesced, already_ran, overlap, every, lease_for)::text, '(2,1,coalesce,"1 day",01:00:00)', 'job_stats of a registered job') FROM effect.job_stats WHERE job_key = 's/coalesce';
SELECT is((queued, saturated, waiting)::text, '(3,1,2)', 'job_stats of one that queues') FROM effect.job_stats WHERE job_key = 's/queue';
SELECT is((SELECT string_agg(format('%s %s', j.job_key, v.n), ', ' ORDER BY j.job_key, v.n) FROM effect.job_stats j,
	LATERAL (VALUES ('overlapped ' || j.overlapped), ('cooling_down ' || j.cooling_down), ('paused ' || j.refused_paused), ('quarantined ' || j.quarantined), ('expired ' || j.expired)) AS v (n)
	WHERE v.n !~ ' 0$'), 's/b expired 1, s/cool cooling_down 1, s/fail overlapped 1, s/fail paused 1, s/new quarantined 1', 'and the rest');
SELECT is((attempts, completed, duplicates, busy, blocked, quarantined, retracted, became_unknown, found_happened, found_absent, late_answers, doubles, same_transaction)::text,
	'(9,4,24,3,2,2,1,3,1,1,1,1,1)', 'action_stats') FROM effect.action_stats WHERE action = 's/mail';
SELECT is((SELECT string_agg(format('%s %s', a.action, v.n), ', ' ORDER BY a.action, v.n) FROM effect.action_stats a,
	LATERAL (VALUES ('applied ' || a.applied), ('mismatch ' || a.mismatch), ('unapproved ' || a.unapproved), ('resent ' || a.resent), ('fenced ' || a.fenced)) AS v (n)
	WHERE v.n !~ ' 0$'), 's/event mismatch 1, s/inside applied 4, s/old fenced 2, s/pay fenced 10, s/r applied 1, s/resend resent 1, s/wire unapproved 1', 'and the rest');
SELECT is((SELECT sum(value)::bigint FROM effect.metrics() WHERE name = 'effect_action_duplicates_total'), (SELECT sum(n)::bigint FROM effect.counters WHERE kind = 'action' AND counter = 'duplicates'), 'metrics() has the same sums');
SELECT is_empty($$SELECT name, labels FROM effect.metrics() GROUP BY 1, 2 HAVING count(*) > 1$$, 'and no series twice');

SELECT * FROM finish();
DROP SCHEMA stats_test CASCADE;
-- the next file finds none of this, and tokens that count from 1
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
