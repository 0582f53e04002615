\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- retention: bodies first, then keys, per action; never what has not ended
-- (doc/sweep.md).  sweep works on all there is, so this file begins with an empty
-- ledger; effects are made old by hand.
SET client_min_messages = warning;
SET lock_timeout = '20s';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
SET effect.default_settle = 0;

SELECT plan(57);

CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- Effects of an action that were created, and last changed, so long ago.
CREATE FUNCTION pg_temp.age(of text, created interval, updated interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	ALTER TABLE effect.ledger DISABLE TRIGGER USER;
	UPDATE effect.ledger SET created_at = clock_timestamp() - created, updated_at = clock_timestamp() - updated, submitted_at = clock_timestamp() - created WHERE action = of;
	ALTER TABLE effect.ledger ENABLE TRIGGER USER;
END $$;
-- A day later: every pass began a day earlier.
CREATE FUNCTION pg_temp.tomorrow() RETURNS void LANGUAGE sql AS $$ UPDATE effect.retention SET pass_began = pass_began - interval '25 hours' $$;
-- One effect in every state, and one of each ending.
CREATE FUNCTION pg_temp.fill(of text) RETURNS void LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
	t text;
	k uuid;
BEGIN
	FOREACH t IN ARRAY '{claimed,free,submitted,unknown,completed,resolved,closed}'::text[] LOOP
		SELECT effect_key INTO k FROM effect.claim_effect(of, t, '{"body": 1}', terms_shown => 'terms');
		IF t IN ('submitted', 'unknown', 'completed', 'resolved') THEN PERFORM effect.submit_effect(k, 1); END IF;
		IF t = 'free' THEN PERFORM effect.retract_effect(k, 1); END IF;
		IF t = 'completed' THEN PERFORM effect.complete_effect(k, 1, '{"answer": 1}'); END IF;
		IF t IN ('unknown', 'resolved') THEN PERFORM effect.mark_unknown(k, 1, 'timed out'); END IF;
		IF t = 'resolved' THEN PERFORM effect.resolve_unknown(k, 'happened', 1, NULL, '{"answer": 2}'); END IF;
		IF t = 'closed' THEN PERFORM effect.close_effect(k, 'not wanted', '{"answer": 3}'); END IF;
	END LOOP;
	PERFORM effect.apply_effect(of, 'applied', '{"body": 1}');
	-- held for ever: only its owner can say
	ALTER TABLE effect.ledger DISABLE TRIGGER USER;
	UPDATE effect.ledger SET busy_until = clock_timestamp() + interval '1 day' WHERE action = of;
	ALTER TABLE effect.ledger ENABLE TRIGGER USER;
END $$;
CREATE FUNCTION pg_temp.bodies(of text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(target || CASE WHEN inputs IS NULL AND response IS NULL AND terms_shown IS NULL THEN '' ELSE ' *' END, ', ' ORDER BY target) FROM effect.ledger WHERE action = of $$;
CREATE FUNCTION pg_temp.key(action text, target text, inputs jsonb DEFAULT '{"body": 1}') RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key(action, target, effect.input_digest(inputs)) $$;

--
-- By default all of it is kept for ever
--
SELECT effect.set_action('keep') \g /dev/null
SELECT pg_temp.fill(a), pg_temp.age(a, '100 years', '100 years') FROM unnest('{keep,unregistered}'::text[]) AS a \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', 'nobody asked: nothing is forgotten') FROM effect.sweep();
SELECT is(pg_temp.bodies(a), 'applied *, claimed *, closed *, completed *, free *, resolved *, submitted *, unknown *', 'after a century: ' || a) FROM unnest('{keep,unregistered}'::text[]) AS a;

--
-- Bodies
--
SELECT effect.set_action('bodies', keep_body_for => '7 days') \g /dev/null
SELECT pg_temp.fill('bodies') \g /dev/null
SELECT pg_temp.age('bodies', '8 days', '6 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', 'six days after they ended: kept') FROM effect.sweep();
SELECT pg_temp.tomorrow(), pg_temp.age('bodies', '10 days', '8 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(4,0)', 'eight days after: the bodies of those that ended are forgotten') FROM effect.sweep();
SELECT is(pg_temp.bodies('bodies'), 'applied, claimed *, closed, completed, free *, resolved, submitted *, unknown *', 'of no other: inputs, terms and response');
SELECT is((verdict, response, detail)::text, '(done,,)', 'a pruned body still answers done') FROM effect.begin_effect('bodies', 'completed', '{"body": 1}');
SELECT is((verdict, response, detail)::text, '(done,,resolved)', 'resolved') FROM effect.begin_effect('bodies', 'resolved', '{"body": 1}');
SELECT is((verdict, response, detail)::text, '(closed,,"not wanted")', 'closed, with its reason') FROM effect.begin_effect('bodies', 'closed', '{"body": 1}');
SELECT is(effect.once('bodies', 'applied', '{"body": 1}'), false, 'and once is still false');
SELECT is((verdict, response)::text, '(done,)', 'completing it again is still a repeat') FROM effect.complete_effect(pg_temp.key('bodies', 'completed'), 1, '{"answer": 1}');
SELECT is((state, ending, inputs, terms_shown, response)::text, '(done,completed,,,)', 'the view shows what is left') FROM effect.effects WHERE effect_key = pg_temp.key('bodies', 'completed');
SELECT is((bodies_pruned, pruned_to_is_past, keys_pruned)::text, '(4,,0)', 'what was forgotten is counted') FROM (SELECT bodies_pruned, keys_pruned, keys_pruned_to AS pruned_to_is_past FROM effect.action_stats WHERE action = 'bodies') t;
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', 'once') FROM effect.sweep();
-- ended late: a new pass a day later finds it
SELECT effect.resolve_unknown(pg_temp.key('bodies', 'unknown'), 'happened', 1, NULL, '{"late": 1}') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', 'what ended now is kept as long from now on') FROM effect.sweep();
SELECT pg_temp.age('bodies', '19 days', '8 days'), pg_temp.tomorrow() \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(1,0)', 'and forgotten by a later pass, though it is older than the mark') FROM effect.sweep();
SELECT is(pg_temp.bodies('bodies'), 'applied, claimed *, closed, completed, free *, resolved, submitted *, unknown', 'it is');
-- reopened after its body is gone
SELECT is(verdict::text, 'unknown', 'a pruned effect may be reopened') FROM effect.reopen_effect(pg_temp.key('bodies', 'completed'), 'was it?');
SELECT is((target, inputs)::text, '(completed,)', 'a poller is told what is left') FROM effect.next_unknown('p', 'bodies');
SELECT is(effect.resolve_unknown(pg_temp.key('bodies', 'completed'), 'did_not_happen', 1)::text, 'claimed', 'and resolved');
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('bodies', 'completed', '{"body": 1}') \gset v_
SELECT is(:'v_told'::text, 'go 2', 'it is the same effect');

-- identity target: the digest is kept for the comparison
SELECT effect.set_action('bodies/event', identity => 'target', keep_body_for => '1 day') \g /dev/null
SELECT 1 FROM effect.apply_effect('bodies/event', 'evt_1', '{"a": 1}') \g /dev/null
SELECT pg_temp.age('bodies/event', '2 days', '2 days') \g /dev/null
SELECT is(bodies_pruned, 1, 'a webhook''s body') FROM effect.sweep();
SELECT is(verdict::text, 'done', 'the same inputs still agree') FROM effect.apply_effect('bodies/event', 'evt_1', '{"a": 1.0}');
SELECT is((verdict, detail)::text, '(mismatch,"the inputs differ from those recorded, which are no longer kept")', 'others do not, though it cannot be said in what') FROM effect.apply_effect('bodies/event', 'evt_1', '{"a": 2}');

--
-- Keys
--
SELECT effect.set_action('keys', keep_key_for => '7 days') \g /dev/null
SELECT pg_temp.fill('keys') \g /dev/null
SET client_min_messages = error;
SELECT effect.approve(pg_temp.key('keys', t), 'ann') FROM unnest('{claimed,free,unknown}'::text[]) AS t \g /dev/null
SET client_min_messages = warning;
SELECT pg_temp.age('keys', '8 days', '6 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', 'six days after they ended: kept') FROM effect.sweep();
SELECT pg_temp.tomorrow(), pg_temp.age('keys', '10 days', '8 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,4)', 'eight days after: those that ended are forgotten') FROM effect.sweep();
SELECT is(pg_temp.bodies('keys'), 'claimed *, free *, submitted *, unknown *', 'never an unknown, never a submitted, never a claimed one');
SELECT is(count(*)::int, 1, 'what is known of the unknown one is kept') FROM effect.unknown WHERE effect_key = pg_temp.key('keys', 'unknown');
SELECT is(count(*)::int, 3, 'and so are approvals of what has not ended') FROM effect.approval WHERE effect_key IN (SELECT effect_key FROM effect.ledger WHERE action = 'keys');
SELECT is((keys_pruned, keys_pruned_to < clock_timestamp() - interval '6 days' AND keys_pruned_to > clock_timestamp() - interval '8 days')::text, '(4,t)', 'how many are gone, and up to when, is shown') FROM effect.action_stats WHERE action = 'keys';
SELECT is(verdict::text, 'apply', 'an effect that is forgotten is new again') FROM effect.apply_effect('keys', 'applied', '{"body": 1}');
SELECT is(pg_temp.told(s), 'LE012', 'by hand still: ' || s) FROM unnest(ARRAY['DELETE FROM effect.ledger WHERE action = ''keys''', 'DELETE FROM effect.approval', 'DELETE FROM effect.unknown', 'TRUNCATE effect.ledger']) AS s;
BEGIN;
DO $$ BEGIN PERFORM effect.sweep(); RAISE EXCEPTION 'after a sweep' ; EXCEPTION WHEN raise_exception THEN NULL; END $$;
SELECT is(pg_temp.told('DELETE FROM effect.ledger WHERE action = ''keys'''), 'LE012', 'and in the transaction of a sweep that rolled back');
COMMIT;
-- what was spent on a forgotten key is forgotten with it: consent is not found again
SELECT effect.set_action('keys/approved', approvals_required => 1, keep_key_for => '1 day') \g /dev/null
SELECT 1 FROM effect.claim_effect('keys/approved', 'x', '{"body": 1}') \g /dev/null
SELECT effect.approve(pg_temp.key('keys/approved', 'x'), 'ann') \g /dev/null
SELECT 1 FROM effect.submit_effect(pg_temp.key('keys/approved', 'x'), 1) \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('keys/approved', 'x'), 1) \g /dev/null
SELECT pg_temp.age('keys/approved', '2 days', '2 days') \g /dev/null
SELECT is(keys_pruned, 1, 'an approved effect is forgotten') FROM effect.sweep();
SELECT is_empty(format('SELECT 1 FROM effect.approval WHERE effect_key = %L', pg_temp.key('keys/approved', 'x')), 'and its approval');
SELECT is(verdict::text, 'unapproved', 'so that nobody may lean on it') FROM effect.begin_effect('keys/approved', 'x', '{"body": 1}');

-- both, each in its time
SELECT effect.set_action('both', keep_body_for => '1 day', keep_key_for => '30 days') \g /dev/null
SELECT pg_temp.fill('both'), pg_temp.age('both', '2 days', '2 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(4,0)', 'bodies first') FROM effect.sweep();
SELECT pg_temp.age('both', '32 days', '31 days'), pg_temp.tomorrow() \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,4)', 'then keys') FROM effect.sweep();
SELECT effect.set_action('both', keep_body_for => '0', keep_key_for => '0') \g /dev/null
SELECT pg_temp.fill('both'), pg_temp.age('both', '99 years', '99 years'), pg_temp.tomorrow() \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,0)', '''0'' means for ever again') FROM effect.sweep();

-- drop: an unknown one that nobody will look at may be forgotten
SELECT effect.set_action('drop', on_unknown => 'drop', keep_body_for => '1 day', keep_key_for => '7 days') \g /dev/null
SELECT pg_temp.fill('drop'), pg_temp.age('drop', '2 days', '2 days') \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(4,0)', 'drop: the body of an unknown one is kept') FROM effect.sweep();
SELECT pg_temp.age('drop', '9 days', '8 days'), pg_temp.tomorrow() \g /dev/null
SELECT is((bodies_pruned, keys_pruned)::text, '(0,5)', 'its key is forgotten like those that ended') FROM effect.sweep();
SELECT is(pg_temp.bodies('drop'), 'claimed *, free *, submitted *', 'a submitted one is not');
SELECT is_empty(format('SELECT 1 FROM effect.unknown WHERE effect_key = %L', pg_temp.key('drop', 'unknown')), 'nothing is left of the unknown one');
SELECT is((unknown, dropped, keys_pruned)::text, '(0,0,5)', 'and it is counted as pruned, no more as dropped') FROM effect.action_stats WHERE action = 'drop';

-- a row that somebody holds is skipped, not waited for, and found by a later pass
CREATE EXTENSION IF NOT EXISTS dblink;
SELECT effect.set_action('held', keep_key_for => '1 day') \g /dev/null
SELECT 1 FROM effect.apply_effect('held', 'x', '{"body": 1}') \g /dev/null
SELECT 1 FROM effect.apply_effect('held', 'y', '{"body": 1}') \g /dev/null
SELECT pg_temp.age('held', '2 days', '2 days') \g /dev/null
SELECT dblink_connect('retention', format('dbname=%s host=%s port=%s user=%s', current_database(),
	split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_user)) \g /dev/null
SELECT dblink_exec('retention', 'BEGIN') \g /dev/null
SELECT 1 FROM dblink('retention', format('SELECT 1 FROM effect.ledger WHERE effect_key = %L FOR UPDATE', pg_temp.key('held', 'x'))) AS t (i int) \g /dev/null
SELECT is(keys_pruned, 1, 'a locked row is skipped') FROM effect.sweep();
SELECT dblink_exec('retention', 'COMMIT') \g /dev/null
SELECT dblink_disconnect('retention') \g /dev/null
SELECT pg_temp.tomorrow() \g /dev/null
SELECT is(keys_pruned, 1, 'and found by the next pass') FROM effect.sweep();

--
-- Bounded: a stretch a call, and the next call goes on from there
--
SELECT effect.set_action('many', keep_body_for => '1 day', keep_key_for => '30 days') \g /dev/null
INSERT INTO effect.ledger (effect_key, action, target, inputs, fencing_token, attempt, state, held, ending, created_at, updated_at)
	SELECT gen_random_uuid(), CASE WHEN n <= 7000 THEN 'many' ELSE 'others' END, n::text, '{}', 1, 1, 'done', false, 'completed', clock_timestamp() - interval '20 days' + n * interval '1 second', clock_timestamp() - interval '3 days'
	  FROM generate_series(1, 8000) AS n;
SELECT pg_temp.tomorrow() \g /dev/null
CREATE TEMP TABLE pass AS SELECT n, (effect.sweep()).bodies_pruned FROM generate_series(1, 4) AS n;
SELECT ok(max(bodies_pruned) <= 5000, 'no call forgets more than a stretch of 5,000') FROM pass;
SELECT is(sum(bodies_pruned)::int, 7000, 'four calls forget them all') FROM pass;
SELECT is(count(*)::int, 1000, 'and none of another action') FROM effect.ledger WHERE inputs IS NOT NULL AND action = 'others';

-- the guard on inputs
SELECT is(pg_temp.told('UPDATE effect.ledger SET inputs = NULL WHERE effect_key = ' || quote_literal(pg_temp.key(a, t)) || ' RETURNING 1'), want, format('by hand: the inputs of an effect that is %s: %s', t, want))
  FROM (VALUES ('keep', 'claimed', 'LE012'), ('keep', 'submitted', 'LE012'), ('keep', 'unknown', 'LE012'), ('keep', 'completed', '1')) AS x (a, t, want);
SELECT is(pg_temp.told('UPDATE effect.ledger SET inputs = ''{"body": 2}'' WHERE effect_key = ' || quote_literal(pg_temp.key('bodies', 'resolved')) || ' RETURNING 1'), 'LE012', 'what is gone is not made up');

SELECT * FROM finish();
