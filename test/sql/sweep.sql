\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- sweep: housekeeping each minute, resolvers in SQL, and the queue for pollers
-- outside (doc/sweep.md).  sweep works on all there is, so this file begins with
-- an empty ledger.  What it forgets is in retention.sql.
SET client_min_messages = warning;
SET lock_timeout = '20s';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
CREATE EXTENSION IF NOT EXISTS dblink;
SET effect.default_settle = 0;
DROP ROLE IF EXISTS effect_sweep_owner, effect_sweep_operator;
CREATE ROLE effect_sweep_owner;
CREATE ROLE effect_sweep_operator;
SELECT effect.grant_worker('effect_sweep_owner'), effect.grant_operator('effect_sweep_operator') \g /dev/null
DROP SCHEMA IF EXISTS sweep_test CASCADE;
CREATE SCHEMA sweep_test;
GRANT USAGE, CREATE ON SCHEMA sweep_test TO effect_sweep_owner;

SELECT plan(91);

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
-- An effect that was submitted and is unknown, since "ago" minutes ago.
CREATE FUNCTION pg_temp.unknown(action text, target text, ago int DEFAULT 0) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
	k uuid;
BEGIN
	SELECT effect_key INTO k FROM effect.begin_effect(action, target);
	PERFORM effect.mark_unknown(k, fencing_token, 'timed out') FROM effect.ledger WHERE effect_key = k;
	UPDATE effect.unknown u SET since = u.since - ago * interval '1 minute' WHERE effect_key = k;
	RETURN k;
END $$;
-- It is due a look now.
CREATE FUNCTION pg_temp.due(k uuid) RETURNS void LANGUAGE sql AS $$ UPDATE effect.unknown SET next_check = clock_timestamp() - interval '1 second' WHERE effect_key = k $$;
CREATE FUNCTION pg_temp.minutes(k uuid) RETURNS int LANGUAGE sql AS $$ SELECT round(extract(epoch FROM next_check - clock_timestamp()) / 60)::int FROM effect.unknown WHERE effect_key = k $$;

--
-- Nothing to do, and what a call answers
--
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'an empty ledger: zeros');
SELECT ok(swept_at > clock_timestamp() - interval '1 minute', 'it says when it last ran') FROM effect.sweep_state;

--
-- Expired runs end as a thief would end them
--
SELECT 1 FROM effect.claim_lease('sweep/live', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('sweep/expired', 'w', '50 milliseconds') \g /dev/null
SELECT 1 FROM effect.begin_effects('sweep', '{e1,e2}', NULL, 'sweep/expired', 1) \g /dev/null
SELECT 1 FROM effect.claim_effect('sweep', 'e3', '{}', 'sweep/expired', 1) \g /dev/null
SELECT 1 FROM effect.begin_effect('sweep', 'alive', '{}', 'sweep/live', 1) \g /dev/null
SELECT pg_sleep(0.06) \g /dev/null
SELECT is((runs_abandoned, effects_unknown)::text, '(1,2)', 'one run abandoned, its two submitted effects unknown') FROM effect.sweep();
SELECT is((outcome, ended_at IS NOT NULL)::text, '(abandoned,t)', 'the run') FROM effect.runs WHERE job_key = 'sweep/expired';
SELECT is(status, 'free', 'its lease is free, and nobody has taken it') FROM effect.leases WHERE job_key = 'sweep/expired';
SELECT is(string_agg(target || ' ' || state, ', ' ORDER BY target), 'alive submitted, e1 unknown, e2 unknown, e3 claimed', 'written down, not only read so') FROM effect.ledger WHERE action = 'sweep';
SELECT is(count(*)::int, 1, 'journalled') FROM effect.journal WHERE event = 'expired' AND job_key = 'sweep/expired';
SELECT is(effect.renew_lease('sweep/expired', 1), NULL, 'its holder is fenced');
SELECT is(status, 'live', 'the live one goes on') FROM effect.leases WHERE job_key = 'sweep/live';
SELECT is(fencing_token, 2::bigint, 'the next token is higher') FROM effect.claim_lease('sweep/expired', 'w', '1 hour');
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'once');

--
-- Attempts without a job whose time is up
--
SET effect.default_timeout = '20ms';
SELECT 1 FROM effect.begin_effects('sweep', '{t1,t2,t3}') \g /dev/null
SELECT 1 FROM effect.claim_effect('sweep', 'claimed') \g /dev/null
RESET effect.default_timeout;
SELECT 1 FROM effect.begin_effect('sweep', 't4') \g /dev/null
SELECT pg_sleep(0.03) \g /dev/null
SELECT is((runs_abandoned, effects_unknown)::text, '(0,3)', 'three of them') FROM effect.sweep();
SELECT is(string_agg(target || ' ' || state, ', ' ORDER BY target), 'claimed claimed, t1 unknown, t2 unknown, t3 unknown, t4 submitted', 'a claimed one may just be claimed again') FROM effect.ledger WHERE target IN ('t1', 't2', 't3', 't4', 'claimed');
SELECT is((event, attempt)::text, '(unknown,1)', 'journalled') FROM effect.journal WHERE effect_key = pg_temp.key('sweep', 't1');
-- submitted long after it was created: behind the mark
SELECT 1 FROM effect.claim_effect('sweep', 'straggler') \g /dev/null
ALTER TABLE effect.ledger DISABLE TRIGGER guard_update;
UPDATE effect.ledger SET created_at = created_at - interval '3 days' WHERE effect_key = pg_temp.key('sweep', 'straggler');
ALTER TABLE effect.ledger ENABLE TRIGGER guard_update;
UPDATE effect.sweep_state SET swept_to = clock_timestamp() - interval '2 days';
SET effect.default_timeout = '20ms';
SELECT verdict FROM effect.submit_effect(pg_temp.key('sweep', 'straggler'), 1) \gset v_
RESET effect.default_timeout;
SELECT is(:'v_verdict' || ' ' || (SELECT count(*) FROM effect.straggler), 'go 1', 'an effect that is submitted three days after its claim is listed');
SELECT pg_sleep(0.06) \g /dev/null
SELECT ok((SELECT effects_unknown FROM effect.sweep()) >= 1, 'sweep finds it');
SELECT is(state::text, 'unknown', 'written down') FROM effect.ledger WHERE effect_key = pg_temp.key('sweep', 'straggler');
SELECT is_empty('SELECT 1 FROM effect.straggler', 'and listed no more');
SELECT 1 FROM effect.ledger l, effect.resolve_unknown(l.effect_key, 'happened') WHERE state = 'unknown' \g /dev/null

--
-- Bounded, one at a time, in a transaction that rolls back, READ ONLY
--
SELECT count(*) FROM generate_series(1, 130) n, effect.claim_lease('sweep/many/' || n, 'w', '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is(runs_abandoned, 100, 'a hundred runs a call') FROM effect.sweep();
SELECT is(runs_abandoned, 30, 'the rest with the next') FROM effect.sweep();
SELECT 1 FROM effect.claim_lease('sweep/twice', 'w', '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT dblink_connect('sweep', format('dbname=%s host=%s port=%s user=%s', current_database(),
	split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_user)) \g /dev/null
SELECT dblink_exec('sweep', 'BEGIN') \g /dev/null
SELECT is(r, 1, 'one sweep, not committed yet') FROM dblink('sweep', 'SELECT runs_abandoned FROM effect.sweep()') AS t (r int);
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'a second at once does not wait, and does nothing');
SELECT dblink_exec('sweep', 'ROLLBACK') \g /dev/null
SELECT is(runs_abandoned, 1, 'rolled back, it is done anew') FROM effect.sweep();
BEGIN READ ONLY;
SELECT throws_ok('SELECT * FROM effect.sweep()', '25006', NULL, 'READ ONLY');
COMMIT;

--
-- Resolvers in SQL
--
CREATE TABLE sweep_test.far_side (target text, finding effect.finding, response jsonb);
CREATE TABLE sweep_test.seen (target text, inputs jsonb, role name, path text);
GRANT SELECT ON sweep_test.far_side TO effect_sweep_owner;
GRANT INSERT ON sweep_test.seen TO effect_sweep_owner;
SET ROLE effect_sweep_owner;
CREATE FUNCTION sweep_test.look(k uuid, target text, inputs jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sweep_test.seen VALUES (target, inputs, current_user, current_setting('search_path'));
	IF target = 'raises' THEN
		RAISE EXCEPTION 'the far side is down' USING ERRCODE = '08006';
	END IF;
	SELECT f.finding, jsonb_build_object('looked for', k), f.response INTO finding, evidence, response FROM sweep_test.far_side f WHERE f.target = look.target;
END $$;
SELECT effect.set_action('sweep/look', resolver => 'sweep_test.look') \g /dev/null
RESET ROLE;
INSERT INTO sweep_test.far_side VALUES ('yes', 'happened', '{"id": "ch_1"}'), ('no', 'did_not_happen', NULL), ('perhaps', 'cannot_tell', NULL);
SELECT pg_temp.unknown('sweep/look', t) FROM unnest('{yes,no,perhaps,nothing,raises}'::text[]) AS t \g /dev/null
SET ROLE effect_sweep_operator;
SELECT is((found_happened, found_absent, still_unclear)::text, '(1,1,3)', 'sweep has them look: one did, one did not, three cannot tell') FROM effect.sweep();
RESET ROLE;
SELECT bag_eq('SELECT * FROM sweep_test.seen', $$VALUES ('yes', '{}'::jsonb, 'effect_sweep_owner'::name, 'pg_catalog, pg_temp'), ('no', '{}', 'effect_sweep_owner', 'pg_catalog, pg_temp'),
	('perhaps', '{}', 'effect_sweep_owner', 'pg_catalog, pg_temp')$$,
	'each once, with target and inputs, as the role that registered, nothing of ours in the path; what one that failed did is undone');
SELECT is(current_user || ' ' || (current_setting('search_path') ~ 'pg_temp'), session_user || ' false', 'and nothing of it sticks to the session');
SELECT is((state, ending, response)::text, '(done,resolved,"{""id"": ""ch_1""}")', 'it happened, with the far side''s answer') FROM effect.effects WHERE effect_key = pg_temp.key('sweep/look', 'yes');
SELECT is((state, held)::text, '(claimed,f)', 'it did not: held by nobody') FROM effect.effects WHERE effect_key = pg_temp.key('sweep/look', 'no');
SELECT is(string_agg(target || ' ' || state || ' ' || checks || ' ' || pg_temp.minutes(effect_key), ', ' ORDER BY target), 'nothing unknown 1 1, perhaps unknown 1 1, raises unknown 1 1', 'the others: looked at once, again in a minute')
  FROM effect.effects WHERE action = 'sweep/look' AND state = 'unknown';
SELECT is((detail, evidence)::text, format('(happened,"{""looked for"": ""%s""}")', pg_temp.key('sweep/look', 'yes')), 'evidence goes to the journal') FROM effect.journal WHERE effect_key = pg_temp.key('sweep/look', 'yes') AND event = 'finding';
SELECT is(detail, 'sweep_test.look: the far side is down (SQLSTATE 08006)', 'so does an exception') FROM effect.journal WHERE effect_key = pg_temp.key('sweep/look', 'raises') AND event = 'resolver_failed';
SELECT ok(detail ~ 'finding', 'and an answer without a finding') FROM effect.journal WHERE effect_key = pg_temp.key('sweep/look', 'nothing') AND event = 'resolver_failed';
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'none of them is due yet');

-- back-off: 1, 2, 4 ... minutes, capped
CREATE TEMP TABLE wait (n int, minutes int);
CREATE FUNCTION pg_temp.again(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_temp.due(pg_temp.key('sweep/look', 'perhaps'));
	PERFORM effect.sweep();
	INSERT INTO wait VALUES (n, pg_temp.minutes(pg_temp.key('sweep/look', 'perhaps')));
END $$;
SELECT pg_temp.again(n) FROM generate_series(2, 9) AS n \g /dev/null
SELECT is(string_agg(minutes::text, ' ' ORDER BY n), '2 4 8 16 32 60 60 60', 'the wait doubles, up to an hour') FROM wait;
SET effect.resolve_backoff_max = '5min';
SELECT pg_temp.again(10) \g /dev/null
RESET effect.resolve_backoff_max;
SELECT is(minutes, 5, 'or what effect.resolve_backoff_max says') FROM wait WHERE n = 10;
SELECT is((checks, unknown_reason)::text, '(10,"timed out")', 'all of its checks are counted') FROM effect.effects WHERE effect_key = pg_temp.key('sweep/look', 'perhaps');
UPDATE sweep_test.far_side SET finding = 'happened' WHERE target = 'perhaps';
SELECT pg_temp.due(pg_temp.key('sweep/look', 'perhaps')) \g /dev/null
SELECT is((found_happened, still_unclear)::text, '(1,0)', 'until somebody can tell') FROM effect.sweep();

-- settle comes first
SELECT effect.set_action('sweep/look', settle => '1 hour') \g /dev/null
SELECT pg_temp.unknown('sweep/look', 'settling') \g /dev/null
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'nobody looks before settle has passed');
SELECT effect.set_action('sweep/look', settle => '0') \g /dev/null
SELECT is(still_unclear, 1, 'then somebody does') FROM effect.sweep();

-- an effect that its own attempt answers while the resolver looks: checked again
SET ROLE effect_sweep_owner;
CREATE FUNCTION sweep_test.slow(k uuid, target text, inputs jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM effect.complete_effect(k, 1, '{"id": "own answer"}');
	finding := 'did_not_happen';
END $$;
SELECT effect.set_action('sweep/slow', resolver => 'sweep_test.slow') \g /dev/null
RESET ROLE;
SELECT pg_temp.unknown('sweep/slow', 'x') AS key \gset s_
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'answered meanwhile: the finding is dropped');
SELECT is((state, response)::text, '(done,"{""id"": ""own answer""}")', 'and the answer stays') FROM effect.effects WHERE effect_key = :'s_key';

-- no ledger row is locked while a resolver runs
CREATE TABLE sweep_test.locked (k uuid, rows_locked bigint);
CREATE FUNCTION sweep_test.peek(k uuid, target text, inputs jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sweep_test.locked SELECT k, n FROM public.dblink('sweep',
		'SELECT count(*) FROM effect.ledger l WHERE NOT EXISTS (SELECT FROM effect.ledger m WHERE m.effect_key = l.effect_key FOR UPDATE SKIP LOCKED)') AS t (n bigint);
	finding := 'happened';
END $$;
SELECT effect.set_action('sweep/peek', resolver => 'sweep_test.peek') \g /dev/null
SELECT pg_temp.unknown('sweep/peek', t) FROM unnest('{x,y,z}'::text[]) AS t \g /dev/null
SELECT is(found_happened, 3, 'three looks in one sweep') FROM effect.sweep();
SELECT is(sum(rows_locked)::int, 0, 'and no row of the ledger is locked during any of them') FROM sweep_test.locked;

-- broken registrations, each cannot_tell
SET ROLE effect_sweep_owner;
CREATE FUNCTION sweep_test.gone(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'happened'::effect.finding, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION sweep_test.stolen(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'happened'::effect.finding, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION sweep_test.shapeless(uuid, text, jsonb) RETURNS text LANGUAGE sql AS $$ SELECT 'happened' $$;
CREATE FUNCTION sweep_test.none(uuid, text, jsonb) RETURNS TABLE (finding effect.finding, evidence jsonb, response jsonb) LANGUAGE sql AS $$ SELECT 'happened'::effect.finding, NULL::jsonb, NULL::jsonb LIMIT 0 $$;
CREATE FUNCTION sweep_test.two(uuid, text, jsonb) RETURNS TABLE (finding effect.finding, evidence jsonb, response jsonb) LANGUAGE sql AS $$ SELECT 'happened'::effect.finding, NULL::jsonb, NULL::jsonb FROM generate_series(1, 2) $$;
CREATE FUNCTION sweep_test.escape(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	RESET ROLE;
	finding := 'happened';
END $$;
CREATE FUNCTION sweep_test.peeps(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM effect.ledger;
	finding := 'happened';
END $$;
SELECT effect.set_action('sweep/' || f, resolver => 'sweep_test.' || f) FROM unnest('{gone,stolen,shapeless,none,two,escape,peeps}'::text[]) AS f \g /dev/null
RESET ROLE;
SELECT pg_temp.unknown('sweep/' || f, f) FROM unnest('{gone,stolen,shapeless,none,two,escape,peeps}'::text[]) AS f \g /dev/null
DROP FUNCTION sweep_test.gone(uuid, text, jsonb);
ALTER FUNCTION sweep_test.stolen(uuid, text, jsonb) OWNER TO effect_sweep_operator;
SELECT is((found_happened, still_unclear)::text, '(0,7)', 'dropped, given to another role, of another shape, no row, two rows, out of its role, a table it may not read: none can tell') FROM effect.sweep();
SELECT is(string_agg(l.target || ' ' || substring(j.detail FROM 'SQLSTATE (.....)'), ', ' ORDER BY l.target), 'escape 42501, gone 42883, none LE004, peeps 42501, shapeless 42703, stolen 42501, two LE004', 'each is journalled')
  FROM effect.journal j JOIN effect.ledger l USING (effect_key) WHERE j.event = 'resolver_failed' AND l.target IN ('gone', 'stolen', 'shapeless', 'none', 'two', 'escape', 'peeps');
SELECT is(current_user, session_user, 'we are who we were');
-- a cancel is not cannot_tell
CREATE FUNCTION sweep_test.hangs(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep(10);
	finding := 'happened';
END $$;
SELECT effect.set_action('sweep/hangs', resolver => 'sweep_test.hangs') \g /dev/null
SELECT pg_temp.unknown('sweep/hangs', 'x') AS key \gset h_
CREATE FUNCTION pg_temp.cancelled() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM effect.sweep();
	RETURN 'swept';
EXCEPTION WHEN query_canceled THEN
	RETURN SQLSTATE;
END $$;
SET statement_timeout = '200ms';
SELECT pg_temp.cancelled() AS told \gset v_
RESET statement_timeout;
SELECT is(:'v_told'::text, '57014', 'a timeout of the statement passes through');
SELECT is((checks, (SELECT count(*) FROM effect.journal WHERE effect_key = :'h_key' AND event = 'resolver_failed'))::text, '(0,0)', 'and counts as no check') FROM effect.effects WHERE effect_key = :'h_key';
SELECT effect.set_action('sweep/hangs', resolver => '') \g /dev/null
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'without a resolver nobody looks here');

-- bounded: fifty looks a call, oldest first
SET ROLE effect_sweep_owner;
CREATE FUNCTION sweep_test.quick(k uuid, target text, inputs jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$
	SELECT 'happened'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT effect.set_action('sweep/quick', resolver => 'sweep_test.quick') \g /dev/null
RESET ROLE;
SELECT pg_temp.unknown('sweep/quick', n::text, n) FROM generate_series(1, 60) AS n \g /dev/null
SELECT is(found_happened, 50, 'fifty looks a call') FROM effect.sweep();
SELECT is((count(*), min(target::int), max(target::int))::text, '(10,1,10)', 'the oldest first') FROM effect.ledger WHERE action = 'sweep/quick' AND state = 'unknown';
SELECT is(found_happened, 10, 'the rest with the next') FROM effect.sweep();

-- drop: nobody is asked
SELECT effect.set_action('sweep/quick', on_unknown => 'drop') \g /dev/null
SELECT pg_temp.unknown('sweep/quick', 'dropped') AS key \gset d_
SELECT is((SELECT s::text FROM effect.sweep() s), '(0,0,0,0,0,0,0)', 'an action that drops has nobody look');
SELECT is_empty($$SELECT 1 FROM effect.next_unknown('poller', 'sweep/quick')$$, 'neither here nor outside');

--
-- next_unknown: the queue for pollers outside
--
SELECT pg_temp.unknown('sweep/poll', 'old', 30) AS key \gset o_
SELECT pg_temp.unknown('sweep/poll', 'older', 60) AS key \gset p_
SELECT pg_temp.unknown('sweep/poll/other', 'oldest', 90) AS key \gset x_
SELECT is((effect_key, action, target, inputs, attempt, submitted_at IS NOT NULL, round(extract(epoch FROM clock_timestamp() - unknown_since) / 60), reason, checks, late_answer)::text,
	format('(%s,sweep/poll,older,{},1,t,60,"timed out",0,)', :'p_key'), 'the oldest of the action that is asked for, with what a look needs') FROM effect.next_unknown('poller a', 'sweep/poll');
SELECT is(target, 'old', 'hidden from others: the next gets the next') FROM effect.next_unknown('poller b', 'sweep/poll');
SELECT is_empty($$SELECT 1 FROM effect.next_unknown('poller c', 'sweep/poll')$$, 'and then there is none');
SELECT is(target, 'oldest', 'any action') FROM effect.next_unknown('poller c');
SELECT is(checked_by, 'poller b', 'the view says who looks') FROM effect.unknown_effects WHERE effect_key = :'o_key';
SELECT is(effect.resolve_unknown(:'o_key', 'cannot_tell', 1)::text, 'unknown', 'cannot tell');
SELECT is((checks, checked_by, pg_temp.minutes(:'o_key'))::text, '(1,,1)', 'handed back, for later') FROM effect.unknown_effects WHERE effect_key = :'o_key';
-- the poller crashes
SELECT effect.resolve_unknown(:'p_key', 'happened') \g /dev/null
SELECT effect.resolve_unknown(:'o_key', 'happened') \g /dev/null
SELECT pg_temp.unknown('sweep/poll', 'crash') AS key \gset c_
SELECT is(target, 'crash', 'a poller takes one for a moment, and is gone') FROM effect.next_unknown('crashes', 'sweep/poll', '100 milliseconds');
SELECT is_empty($$SELECT 1 FROM effect.next_unknown('heir', 'sweep/poll')$$, 'hidden');
SELECT pg_sleep(0.12) \g /dev/null
SELECT is((target, checks)::text, '(crash,0)', 'then handed on to another') FROM effect.next_unknown('heir', 'sweep/poll');
-- late answers, settle, READ ONLY, misuse
SELECT 1 FROM effect.claim_lease('sweep/late', 'w', '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('sweep/poll', 'late', '{}', 'sweep/late', 1) \gset l_
SELECT effect.revoke_lease('sweep/late', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(:'l_key', 1, '{"id": "late"}') \g /dev/null
SELECT is((target, late_answer)::text, '(late,"{""id"": ""late""}")', 'a superseded run''s answer is handed to whoever looks') FROM effect.next_unknown('p', 'sweep/poll');
SELECT effect.set_action('sweep/poll/settle', settle => '1 hour') \g /dev/null
SELECT pg_temp.unknown('sweep/poll/settle', 'x') \g /dev/null
SELECT is_empty($$SELECT 1 FROM effect.next_unknown('p', 'sweep/poll/settle')$$, 'nobody looks before settle has passed');
SELECT is(pg_temp.told(format('SELECT effect.next_unknown(%s)', s)), want, format('next_unknown(%s): %s', s, want))
  FROM (VALUES ('NULL', '22004'), (''' ''', '22023'), ('''p'', '' ''', '22023'), ('''p'', NULL, NULL', '22004'), ('''p'', NULL, ''0''', '22023'), ('''p'', NULL, ''-1 minute''', '22023'), ('''p'', NULL, ''367 days''', '22023')) AS t (s, want);
BEGIN READ ONLY;
SELECT throws_ok($$SELECT * FROM effect.next_unknown('p')$$, '25006', NULL, 'READ ONLY');
COMMIT;
-- two pollers at once never look at one effect
SELECT pg_temp.unknown('sweep/poll/two', t) FROM unnest('{a,b}'::text[]) AS t \g /dev/null
SELECT dblink_exec('sweep', 'BEGIN; SET LOCAL effect.default_settle = 0') \g /dev/null
SELECT target AS first FROM dblink('sweep', $$SELECT target FROM effect.next_unknown('p', 'sweep/poll/two')$$) AS t (target text) \gset n_
SELECT is((target <> :'n_first')::text, 'true', 'while one poller''s call is open another skips its effect') FROM effect.next_unknown('q', 'sweep/poll/two');
SELECT dblink_exec('sweep', 'COMMIT') \g /dev/null

--
-- A poller that stalls and comes back: LE009
--
SELECT effect_key AS key FROM effect.begin_effect('sweep/stall', 'refund') \gset z_
SELECT 1 FROM effect.mark_unknown(:'z_key', 1, 'timed out') \g /dev/null
SELECT is((target, attempt)::text, '(refund,1)', 'poller a takes it, and stalls') FROM effect.next_unknown('a', 'sweep/stall', '50 milliseconds');
SELECT pg_sleep(0.06) \g /dev/null
SELECT is((target, attempt)::text, '(refund,1)', 'handed on to poller b') FROM effect.next_unknown('b', 'sweep/stall');
SELECT is(effect.resolve_unknown(:'z_key', 'did_not_happen', 1)::text, 'claimed', 'who finds that it did not happen');
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('sweep/stall', 'refund') \gset v_
SELECT is(:'v_told'::text, 'go 2', 'a second attempt is made');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, %L, 1)', :'z_key', f)), 'LE009', 'poller a comes back while it is in flight: ' || f) FROM unnest('{happened,did_not_happen,cannot_tell}'::text[]) AS f;
SELECT 1 FROM effect.mark_unknown(:'z_key', 2, 'timed out again') \g /dev/null
CREATE TEMP TABLE before AS SELECT l, u FROM effect.ledger l JOIN effect.unknown u USING (effect_key) WHERE l.effect_key = :'z_key';
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, %L, 1)', :'z_key', f)), 'LE009', 'or when that is unknown too: ' || f) FROM unnest('{happened,did_not_happen,cannot_tell}'::text[]) AS f;
SELECT set_eq(format('SELECT l, u FROM effect.ledger l JOIN effect.unknown u USING (effect_key) WHERE l.effect_key = %L', :'z_key'), 'SELECT l, u FROM before', 'nothing has changed');
SELECT is(verdict::text, 'unknown', 'and nothing is sent a third time') FROM effect.begin_effect('sweep/stall', 'refund');
SELECT is(effect.resolve_unknown(:'z_key', 'happened', 2)::text, 'done', 'a finding about the second attempt counts');
SELECT dblink_disconnect('sweep') \g /dev/null

-- who may
SET ROLE effect_sweep_owner;
SELECT is(pg_temp.told(s), '42501', 'a worker may not: ' || s) FROM unnest(ARRAY['SELECT effect.sweep()', 'SELECT effect.next_unknown(''w'')']) AS s;
RESET ROLE;

SELECT * FROM finish();
DROP SCHEMA sweep_test CASCADE;
DROP OWNED BY effect_sweep_owner, effect_sweep_operator;
DROP ROLE effect_sweep_owner, effect_sweep_operator;
