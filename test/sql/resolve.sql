\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- resolve: the way out of unknown (doc/resolve.md).
SET client_min_messages = warning;

SELECT plan(80);

-- The key of an effect of this file, by its target.
CREATE FUNCTION pg_temp.key(target text) RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key('resolve', target, effect.input_digest('{}')) $$;
-- A statement's answer in one word: its value, or its SQLSTATE.
CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- An effect that was submitted and is unknown.
CREATE FUNCTION pg_temp.unknown(target text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM effect.begin_effect('resolve', target);
	RETURN (SELECT verdict FROM effect.mark_unknown(pg_temp.key(target), 1, 'timed out'));
END $$;

-- happened
SELECT is(pg_temp.unknown('yes'), 'unknown', 'unknown');
SELECT is(effect.resolve_unknown(pg_temp.key('yes'), 'happened', 1, '{"seen_by": "ann"}', '{"id": "ch_1"}')::text, 'done', 'happened, with the far side''s answer: done');
SELECT is((verdict, response, detail)::text, '(done,"{""id"": ""ch_1""}",resolved)', 'a replay is given it, detail resolved') FROM effect.begin_effect('resolve', 'yes');
SELECT is((state, ending, response, unknown_since IS NULL)::text, '(done,resolved,"{""id"": ""ch_1""}",t)', 'as the view shows it') FROM effect.effects WHERE effect_key = pg_temp.key('yes');
SELECT is((event, detail, attempt, evidence, role_name = session_user)::text, '(finding,happened,1,"{""seen_by"": ""ann""}",t)', 'the evidence is in the journal, with the role')
  FROM effect.journal WHERE effect_key = pg_temp.key('yes') AND event = 'finding';
SELECT is(effect.resolve_unknown(pg_temp.key('yes'), 'happened', 1, '{"seen_by": "bob"}', '{"id": "ch_2"}')::text, 'done', 'the same finding again is a no-op');
SELECT is(response, '{"id": "ch_1"}'::jsonb, 'which changes nothing') FROM effect.effects WHERE effect_key = pg_temp.key('yes');
SELECT is(count(*)::int, 1, 'and is not journalled again') FROM effect.journal WHERE effect_key = pg_temp.key('yes') AND event = 'finding';
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('yes'))), 'LE004', 'the opposite is LE004');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''cannot_tell'', 1)', pg_temp.key('yes'))), 'LE004', 'cannot_tell too');
SELECT pg_temp.unknown('bare') \g /dev/null
SELECT is(effect.resolve_unknown(pg_temp.key('bare'), 'happened')::text, 'done', 'happened need not name the attempt, nor bring an answer');
SELECT is((verdict, response, detail)::text, '(done,,resolved)', 'then a replay carries NULL, and detail says resolved') FROM effect.begin_effect('resolve', 'bare');
SELECT pg_temp.unknown('evidence') \g /dev/null
SELECT is(effect.resolve_unknown(pg_temp.key('evidence'), 'happened', evidence => '{"note": "internal"}')::text, 'done', 'evidence without an answer');
SELECT is(response, NULL, 'evidence is never handed to customers') FROM effect.begin_effect('resolve', 'evidence');

-- did_not_happen
SELECT 1 FROM effect.begin_effect('resolve', 'no') \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('no'))), 'LE010', 'its holder is alive and will say: LE010');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'', 1)', pg_temp.key('no'))), 'LE010', 'for any finding');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''cannot_tell'')', pg_temp.key('no'))), 'LE010', 'named or not');
SELECT 1 FROM effect.mark_unknown(pg_temp.key('no'), 1, 'timed out') \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'')', pg_temp.key('no'))), '22004', 'did_not_happen must name the attempt');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('no'))), 'LE008', 'a minute has not passed since the submit: LE008');
SELECT is(state::text, 'unknown', 'and it stays unknown') FROM effect.effects WHERE effect_key = pg_temp.key('no');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''cannot_tell'', 1)', pg_temp.key('no'))), 'unknown', 'cannot_tell is never too early');
UPDATE effect.ledger SET submitted_at = submitted_at - interval '61 seconds' WHERE effect_key = pg_temp.key('no');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 2)', pg_temp.key('no'))), 'LE009', 'about another attempt: LE009');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'', 2)', pg_temp.key('no'))), 'LE009', 'any finding');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''cannot_tell'', 2)', pg_temp.key('no'))), 'LE009', 'about another attempt');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 0)', pg_temp.key('no'))), '22023', 'there is no attempt 0');
SELECT is(effect.resolve_unknown(pg_temp.key('no'), 'did_not_happen', 1, '{"searched": "orders"}')::text, 'claimed', 'did_not_happen: claimed');
SELECT is((state, held, attempt, unknown_since IS NULL)::text, '(claimed,f,1,t)', 'held by nobody') FROM effect.effects WHERE effect_key = pg_temp.key('no');
SELECT is((detail, attempt, evidence)::text, '(did_not_happen,1,"{""searched"": ""orders""}")', 'journalled') FROM effect.journal WHERE effect_key = pg_temp.key('no') AND event = 'finding' AND detail = 'did_not_happen';
SELECT is(effect.resolve_unknown(pg_temp.key('no'), 'did_not_happen', 1)::text, 'claimed', 'the same finding again is a no-op');
SELECT verdict || ' ' || attempt || ' ' || fencing_token AS told FROM effect.begin_effect('resolve', 'no') \gset v_
SELECT is(:'v_told'::text, 'go 2 2', 'exactly one more attempt: go');
SELECT is(verdict::text, 'busy', 'not two') FROM effect.begin_effect('resolve', 'no');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('no'))), 'LE009', 'a slow checker''s repeat must not license a third send: LE009');
SELECT is((state, attempt, held)::text, '(submitted,2,t)', 'the second attempt is untouched') FROM effect.effects WHERE effect_key = pg_temp.key('no');
SELECT 1 FROM effect.mark_unknown(pg_temp.key('no'), 2, 'timed out too') \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('no'))), 'LE009', 'nor when the second is unknown');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 2)', pg_temp.key('no'))), 'LE008', 'the second has its own settling time');
SET effect.default_settle = '10ms';
SELECT pg_sleep(0.02) \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 2)', pg_temp.key('no'))), 'claimed', 'after it, found not to have happened either');
RESET effect.default_settle;
SELECT is((verdict, attempt)::text, '(reserved,3)', 'the third attempt') FROM effect.claim_effect('resolve', 'no');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 3)', pg_temp.key('no'))), 'LE004', 'what is only claimed cannot have happened: LE004');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'', 3)', pg_temp.key('no'))), 'LE004', 'either way');

-- The first holder, found not to have acted, wakes up.
SELECT pg_temp.unknown('zombie') \g /dev/null
SET effect.default_settle = 0;
SELECT effect.resolve_unknown(pg_temp.key('zombie'), 'did_not_happen', 1) \g /dev/null
RESET effect.default_settle;
SELECT is((verdict, state, fencing_token)::text, '(fenced,claimed,)', 'its answer does not finish what is claimed and held by nobody') FROM effect.complete_effect(pg_temp.key('zombie'), 1, '{"id": "late"}');
SELECT is(evidence, '{"id": "late"}'::jsonb, 'but is kept') FROM effect.journal WHERE effect_key = pg_temp.key('zombie') AND event = 'late_answer';

-- cannot_tell
SELECT pg_temp.unknown('hm') \g /dev/null
CREATE FUNCTION pg_temp.minutes(target text) RETURNS int LANGUAGE sql VOLATILE AS $$
	SELECT round(extract(epoch FROM next_check - clock_timestamp()) / 60)::int FROM effect.effects WHERE effect_key = pg_temp.key($1) $$;
SELECT is((checks, next_check <= clock_timestamp())::text, '(0,t)', 'due at once') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT is(effect.resolve_unknown(pg_temp.key('hm'), 'cannot_tell')::text, 'unknown', 'cannot_tell stays unknown');
SELECT is((checks, pg_temp.minutes('hm'))::text, '(1,1)', 'checked once, again in a minute') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT effect.resolve_unknown(pg_temp.key('hm'), 'cannot_tell', 1, '{"http": 503}') \g /dev/null
SELECT is((checks, pg_temp.minutes('hm'))::text, '(2,2)', 'then in two') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT effect.resolve_unknown(pg_temp.key('hm'), 'cannot_tell') FROM generate_series(1, 4) \g /dev/null
SELECT is((checks, pg_temp.minutes('hm'))::text, '(6,32)', 'the wait doubles') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT effect.resolve_unknown(pg_temp.key('hm'), 'cannot_tell') FROM generate_series(1, 40) \g /dev/null
SELECT is((checks, pg_temp.minutes('hm'))::text, '(46,60)', 'up to an hour') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT is(count(*)::int, 1, 'its evidence is journalled') FROM effect.journal WHERE effect_key = pg_temp.key('hm') AND event = 'finding' AND evidence = '{"http": 503}';
SELECT is((state, unknown_reason)::text, '(unknown,"timed out")', 'the reason stays') FROM effect.effects WHERE effect_key = pg_temp.key('hm');
SELECT is(verdict::text, 'unknown', 'unknown blocks all the while') FROM effect.begin_effect('resolve', 'hm');
SELECT is(effect.resolve_unknown(pg_temp.key('hm'), 'happened')::text, 'done', 'until somebody can tell');
SELECT is_empty(format('SELECT 1 FROM effect.unknown WHERE effect_key = %L', pg_temp.key('hm')), 'then nothing is left of the checks');

-- what nobody has written down yet can be resolved as well (the reading rule)
SELECT 1 FROM effect.claim_lease('resolve/rule', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.begin_effects('resolve', '{r1,r2,r3}', NULL, 'resolve/rule', 1) \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'')', pg_temp.key('r1'))), 'LE010', 'while the run lives: LE010');
UPDATE effect.lease SET lease_until = clock_timestamp() - interval '1 hour' WHERE job_key = 'resolve/rule';
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'')', pg_temp.key('r1'))), 'LE010', 'also past its end, while nobody took the lease: it may be revived');
SELECT effect.release_lease('resolve/rule', 1) \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'')', pg_temp.key('r1'))), 'done', 'its run ended: happened');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('r2'))), 'LE008', 'did_not_happen, too early');
SET effect.default_settle = 0;
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', pg_temp.key('r2'))), 'claimed', 'did_not_happen');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''cannot_tell'')', pg_temp.key('r3'))), 'unknown', 'cannot_tell');
SELECT is((l.state, u.checks)::text, '(unknown,1)', 'which writes it down') FROM effect.ledger l JOIN effect.unknown u USING (effect_key) WHERE effect_key = pg_temp.key('r3');

-- the answer of an effect's own attempt while it is unknown, and a late one beside it
SELECT is((verdict, state)::text, '(fenced,unknown)', 'a superseded run''s answer does not resolve') FROM effect.complete_effect(pg_temp.key('r3'), 1, '{"id": 3}');
SELECT is((state, late_answer, checks)::text, '(unknown,"{""id"": 3}",1)', 'it is shown to those who will, and the checks are kept') FROM effect.effects WHERE effect_key = pg_temp.key('r3');
SELECT is(effect.resolve_unknown(pg_temp.key('r3'), 'happened', 1, NULL, '{"id": 3}')::text, 'done', 'who believe it');

-- reopen, then resolve the other way
SELECT is((verdict, state, detail)::text, '(unknown,unknown,"wrong customer")', 'a wrong resolution is reopened') FROM effect.reopen_effect(pg_temp.key('yes'), 'wrong customer');
SELECT is((event, detail, evidence, role_name = session_user)::text, '(reopened,"wrong customer","{""id"": ""ch_1""}",t)', 'what was recorded goes to the journal, with the role')
  FROM effect.journal WHERE effect_key = pg_temp.key('yes') AND event = 'reopened';
SELECT is((state, ending, response, unknown_reason, checks)::text, '(unknown,,,"wrong customer",0)', 'nothing is recorded any more') FROM effect.effects WHERE effect_key = pg_temp.key('yes');
SELECT is((verdict, response)::text, '(unknown,)', 'unknown blocks again') FROM effect.begin_effect('resolve', 'yes');
SELECT is(pg_temp.told(format('SELECT (effect.reopen_effect(%L, ''again'')).verdict', pg_temp.key('yes'))), 'LE004', 'reopening twice');
SELECT is(effect.resolve_unknown(pg_temp.key('yes'), 'did_not_happen', 1)::text, 'claimed', 'and resolved again: it did not happen');
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('resolve', 'yes') \gset v_
SELECT is(:'v_told'::text, 'go 2', 'one more attempt');
SELECT is(verdict::text, 'done', 'which ends as any other') FROM effect.complete_effect(pg_temp.key('yes'), 2, '{"id": "ch_2"}');
SELECT is((verdict, response, detail)::text, '(done,"{""id"": ""ch_2""}",)', 'completed, not resolved') FROM effect.begin_effect('resolve', 'yes');
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'', 2)', pg_temp.key('yes'))), 'LE004', 'a finding about a completed effect: LE004');
SELECT 1 FROM effect.claim_effect('resolve', 'closed') \g /dev/null
SELECT 1 FROM effect.close_effect(pg_temp.key('closed'), 'void') \g /dev/null
SELECT 1 FROM effect.reopen_effect(pg_temp.key('closed'), 'not void after all') \g /dev/null
RESET effect.default_settle;
SELECT is(effect.resolve_unknown(pg_temp.key('closed'), 'did_not_happen', 1)::text, 'claimed', 'a closed effect that was never submitted has nothing to settle');
SELECT is(verdict::text, 'reserved', 'and may be claimed') FROM effect.claim_effect('resolve', 'closed');

-- misuse
SELECT throws_ok($$SELECT effect.resolve_unknown(NULL, 'happened')$$, '22004', NULL, 'a NULL key');
SELECT throws_ok(format('SELECT effect.resolve_unknown(%L, NULL)', pg_temp.key('no')), '22004', NULL, 'a NULL finding');
SELECT throws_ok(format('SELECT effect.resolve_unknown(%L, ''maybe'')', pg_temp.key('no')), '22P02', NULL, 'a finding that is none');
SELECT throws_ok($$SELECT effect.resolve_unknown('00000000-0000-0000-0000-000000000000', 'happened')$$, 'LE003', NULL, 'a key that is not here');
SELECT throws_ok(format('SELECT effect.resolve_unknown(%L, ''happened'', -1)', pg_temp.key('no')), '22023', NULL, 'a negative attempt');
BEGIN READ ONLY;
SELECT throws_ok(format('SELECT effect.resolve_unknown(%L, ''happened'')', pg_temp.key('no')), '25006', NULL, 'READ ONLY');
COMMIT;

SELECT * FROM finish();
