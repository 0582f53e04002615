\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- once: effects that live in this database, whose record shares the caller's
-- transaction (doc/ledger.md).  Concurrent twins: the isolation specs.
SET client_min_messages = warning;

SELECT plan(56);

CREATE TABLE once_post (id text PRIMARY KEY);

-- apply_effect: do it in this transaction
BEGIN;
SELECT is((verdict, fencing_token, state, attempt, response, detail)::text, '(apply,1,done,1,,)', 'the first time: apply')
  FROM effect.apply_effect('once/apply', 'evt_1', '{"amount": 10}');
INSERT INTO once_post VALUES ('evt_1');
SELECT is(verdict::text, 'done', 'asked again in the transaction: done') FROM effect.apply_effect('once/apply', 'evt_1', '{"amount": 10.0}');
COMMIT;
SELECT is((verdict, effect_key, fencing_token, state, attempt, response, detail)::text,
	format('(done,%s,1,done,1,,)', effect.effect_key('once/apply', 'evt_1', effect.input_digest('{"amount": 10}'))), 'later: done, under its key')
  FROM effect.apply_effect('once/apply', 'evt_1', '{"amount": 1e1}');
SELECT is(verdict::text, 'apply', 'other facts are another effect') FROM effect.apply_effect('once/apply', 'evt_1', '{"amount": 11}');
SELECT is(verdict::text, 'apply', 'inputs default to none') FROM effect.apply_effect('once/apply', 'evt_1');
SELECT is((state, ending, held, attempt, submitted_at IS NULL, job_key)::text, '(done,applied,f,1,t,)', 'it stands in the ledger as done')
  FROM effect.effects WHERE action = 'once/apply' AND inputs = '{"amount": 10}';
SELECT (effect.apply_effect('once/apply', 'star')).* \gset v_
SELECT is(:'v_verdict' || ' ' || :'v_fencing_token', 'apply 1', '(apply_effect(..)).* says apply');

-- the record commits and rolls back with the caller's work
BEGIN;
SELECT 1 FROM effect.apply_effect('once/apply', 'evt_2') \g /dev/null
INSERT INTO once_post VALUES ('evt_2');
ROLLBACK;
BEGIN;
SELECT is(verdict::text, 'apply', 'rolled back, it is the first time again') FROM effect.apply_effect('once/apply', 'evt_2');
INSERT INTO once_post VALUES ('evt_2');
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT is(effect.once('once/sp', 'x'), true, 'in a savepoint: true');
ROLLBACK TO s;
SELECT is(effect.once('once/sp', 'x'), true, 'rolled back: true again');
SAVEPOINT t;
SELECT is(effect.once('once/sp', 'x'), false, 'false after that');
RELEASE t;
COMMIT;
SELECT is(effect.once('once/sp', 'x'), false, 'for ever');
DO $$
BEGIN
	IF effect.once('once/do', 'x') THEN
		BEGIN
			IF effect.once('once/do', 'y') THEN
				INSERT INTO once_post VALUES ('evt_1');		-- a duplicate key
			END IF;
		EXCEPTION WHEN unique_violation THEN
			INSERT INTO once_post VALUES ('caught');
		END;
	END IF;
END $$;
SELECT is((effect.once('once/do', 'x'), effect.once('once/do', 'y'))::text, '(f,t)', 'an EXCEPTION block that caught has undone its record and no other');
SELECT is(count(*)::int, 1, 'with its work') FROM once_post WHERE id = 'caught';

-- complete_effect in the same transaction stores the response, without a warning
BEGIN;
SELECT effect_key AS key, fencing_token AS token FROM effect.apply_effect('once/response', 'x') \gset k_
SELECT is((verdict, response)::text, '(done,"{""id"": 7}")', 'complete_effect stores the response') FROM effect.complete_effect(:'k_key', :k_token, '{"id": 7}');
SELECT is((verdict, response)::text, '(done,"{""id"": 8}")', 'and again, while the transaction is open') FROM effect.complete_effect(:'k_key', :k_token, '{"id": 8}');
COMMIT;
SELECT is((verdict, response)::text, '(done,"{""id"": 8}")', 'a duplicate is given it') FROM effect.apply_effect('once/response', 'x');
SELECT is((verdict, response)::text, '(done,"{""id"": 8}")', 'later it cannot be changed') FROM effect.complete_effect(:'k_key', :k_token, '{"id": 9}');
SELECT is_empty($$SELECT event FROM effect.journal WHERE event = 'same_transaction' AND effect_key = (SELECT effect_key FROM effect.effects WHERE action = 'once/response')$$,
	'completing an inside effect in its own transaction is the normal way: nothing journalled, no warning');
BEGIN;
SELECT effect_key AS key FROM effect.apply_effect('once/response', 'sp') \gset k_
SAVEPOINT s;
SELECT 1 FROM effect.complete_effect(:'k_key', 1, '{"id": 1}') \g /dev/null
RELEASE s;
COMMIT;
SELECT is(response, '{"id": 1}'::jsonb, 'stored from a savepoint') FROM effect.apply_effect('once/response', 'sp');
SELECT 1 FROM effect.apply_effect('once/response', 'late') \g /dev/null
SELECT is((verdict, response)::text, '(done,)', 'in a later transaction the answer comes too late to be stored')
  FROM effect.complete_effect((SELECT effect_key FROM effect.effects WHERE action = 'once/response' AND target = 'late'), 1, '{"id": 1}');
SELECT is(evidence, '{"id": 1}'::jsonb, 'it is kept in the journal') FROM effect.journal
 WHERE effect_key = (SELECT effect_key FROM effect.effects WHERE action = 'once/response' AND target = 'late');

-- once: yes or no
SELECT is(effect.once('once/bool', 'evt_1'), true, 'once: true the first time');
SELECT is(effect.once('once/bool', 'evt_1'), false, 'false ever after');
SELECT is(effect.once('once/bool', 'evt_1', '{}'), false, 'no inputs are {}');
SELECT is(effect.once('once/bool', 'evt_1', '{"v": 2}'), true, 'other facts are another effect');
SELECT is(effect.once('once/other', 'evt_1'), true, 'another action is another effect');
SELECT is(verdict::text, 'done', 'apply_effect knows what once recorded') FROM effect.apply_effect('once/bool', 'evt_1');

-- duplicates write nothing and take no transaction id
BEGIN;
SELECT effect.once('once/bool', 'evt_1') AS once \gset v_
SELECT verdict FROM effect.apply_effect('once/response', 'x') \gset v_
SELECT count(*) AS n FROM effect.once('once/bool', '{evt_1,evt_1}'::text[]) \gset v_
SELECT pg_current_xact_id_if_assigned() IS NULL AS lazy \gset v_
COMMIT;
SELECT is(format('%s %s %s', :'v_once', :'v_verdict', :'v_n'), 'f done 0', 'duplicates');
SELECT ok(:'v_lazy', 'assign no transaction id');

-- once for an array: those that are new, in input order, a repeat counts once
SELECT bag_eq($$SELECT row_number() OVER (), t FROM effect.once('once/array', ARRAY['c','a','b','a','c']) AS t$$,
	$$VALUES (1::bigint, 'c'), (2, 'a'), (3, 'b')$$, 'the new ones in input order, a repeat once');
SELECT bag_eq($$SELECT row_number() OVER (), t FROM effect.once('once/array', ARRAY['z','c','y','a']) AS t$$,
	$$VALUES (1::bigint, 'z'), (2, 'y')$$, 'next time only the others');
SELECT is_empty($$SELECT effect.once('once/array', ARRAY['a','b','c','y','z'])$$, 'then none, also in a select list');
SELECT is(effect.once('once/array', 'a'), false, 'the two forms know one another');
BEGIN;
SELECT bag_eq($$SELECT effect.once('once/array', ARRAY['new'])$$, $$VALUES ('new')$$, 'new');
ROLLBACK;
SELECT bag_eq($$SELECT effect.once('once/array', ARRAY['new'])$$, $$VALUES ('new')$$, 'rolled back: new again');
WITH fresh AS (SELECT t FROM effect.once('once/array', ARRAY['p1', 'p2']) AS t)
INSERT INTO once_post SELECT t FROM fresh;
SELECT is(count(*)::int, 2, 'the array form feeds an INSERT') FROM once_post WHERE id LIKE 'p_';
SELECT is(count(*)::int, 1000, 'a thousand at once') FROM effect.once('once/many', (SELECT array_agg('m' || n) FROM generate_series(1, 1000) AS n));
SELECT is(count(*)::int, 1, 'and a thousand and one later') FROM effect.once('once/many', (SELECT array_agg('m' || n) FROM generate_series(0, 1000) AS n));
SELECT throws_ok($$SELECT effect.once('once/array', '{}'::text[])$$, '22023', NULL, 'of nothing');
SELECT throws_ok($$SELECT effect.once('once/array', NULL::text[])$$, '22004', NULL, 'of NULL');
SELECT throws_ok($$SELECT effect.once('once/array', '{a,NULL}'::text[])$$, '22004', NULL, 'with a NULL');
SELECT throws_ok($$SELECT effect.once('once/array', '{a," "}'::text[])$$, '22023', NULL, 'with a blank');

-- mixing with an outside effect under one key
SELECT 1 FROM effect.begin_effect('once/mixed', 'sent') \g /dev/null
SELECT is((verdict, detail ~ 'outside')::text, '(busy,t)', 'apply_effect of an outside effect under way: busy, with the reason') FROM effect.apply_effect('once/mixed', 'sent');
SELECT throws_ok($$SELECT effect.once('once/mixed', 'sent')$$, 'LE004', NULL, 'once cannot say so in a boolean: LE004');
SELECT throws_ok($$SELECT effect.once('once/mixed', '{fresh,sent}'::text[])$$, 'LE004', NULL, 'nor in an array');
SELECT is(effect.once('once/mixed', 'fresh'), true, 'of which nothing is recorded then');
SELECT 1 FROM effect.mark_unknown(effect.effect_key('once/mixed', 'sent', effect.input_digest('{}')), 1, 'x') \g /dev/null
SELECT is(verdict::text, 'unknown', 'apply_effect of an unknown one: unknown') FROM effect.apply_effect('once/mixed', 'sent');
SELECT is(effect.resolve_unknown(effect.effect_key('once/mixed', 'sent', effect.input_digest('{}')), 'happened', response => '{"far": 1}')::text, 'done', 'resolved');
SELECT is((verdict, response)::text, '(done,"{""far"": 1}")', 'apply_effect of one that is done: done') FROM effect.apply_effect('once/mixed', 'sent');
SELECT is(effect.once('once/mixed', 'sent'), false, 'once: false');
SELECT is(verdict::text, 'done', 'begin_effect of an inside effect: done') FROM effect.begin_effect('once/bool', 'evt_1');

-- a statement of its own, in a trigger, in READ ONLY
CREATE FUNCTION pg_temp.post() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RETURN CASE WHEN effect.once('once/trigger', new.id) THEN new END; END $$;
CREATE TABLE once_inbox (id text);
CREATE TRIGGER dedupe BEFORE INSERT ON once_inbox FOR EACH ROW EXECUTE FUNCTION pg_temp.post();
INSERT INTO once_inbox VALUES ('a'), ('b'), ('a');
INSERT INTO once_inbox VALUES ('b'), ('c');
SELECT is(string_agg(id, ' ' ORDER BY id), 'a b c', 'a trigger that lets each id in once') FROM once_inbox;
BEGIN READ ONLY;
SELECT throws_ok($$SELECT effect.once('once/bool', 'evt_1')$$, '25006', NULL, 'READ ONLY is refused');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is((effect.once('once/iso', 'x'), effect.once('once/iso', 'x'), effect.once('once/bool', 'evt_1'))::text, '(t,f,f)', 'at SERIALIZABLE');
COMMIT;
SELECT is_empty($$SELECT event FROM effect.journal j JOIN effect.effects USING (effect_key) WHERE action LIKE 'once/%' AND action NOT IN ('once/mixed', 'once/response')$$,
	'an ordinary life leaves nothing in the journal');

SELECT * FROM finish();
DROP TABLE once_post, once_inbox;
