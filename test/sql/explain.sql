\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- explain: what explain_effect says in each situation, in a sentence: what would
-- happen, and why (doc/ledger.md).  That its verdicts are those of claim_effect is
-- in ledger.sql and action.sql.
SET client_min_messages = warning;
SET lock_timeout = '20s';
DROP EXTENSION IF EXISTS effect CASCADE;
CREATE EXTENSION effect;
SET effect.default_settle = 0;
SET effect.fenced_log_level = none;
DROP SCHEMA IF EXISTS explain_test CASCADE;
CREATE SCHEMA explain_test;

SELECT plan(46);

CREATE FUNCTION pg_temp.key(action text, target text, inputs jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$ SELECT effect_key FROM effect.explain_effect(action, target, inputs) $$;
-- What it says, with every moment as T.
CREATE FUNCTION pg_temp.said(action text, target text, inputs jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
	SELECT verdict || ': ' || regexp_replace(detail, '\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[-+][\d:]+', 'T', 'g') FROM effect.explain_effect(action, target, inputs) $$;
CREATE FUNCTION pg_temp.age(sql text) RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$ BEGIN EXECUTE sql; END $$;
CREATE FUNCTION pg_temp.time_up(action text, target text, inputs jsonb DEFAULT '{}') RETURNS void LANGUAGE sql AS $$
	SELECT pg_temp.age(format('UPDATE effect.ledger SET busy_until = busy_until - interval ''1 day'' WHERE effect_key = %L', pg_temp.key(action, target, inputs))) $$;

--
-- An effect without a job, from its beginning to its end
--
SELECT is(pg_temp.said('e', 'x'), 'reserved: nobody has claimed it: the first attempt may be made', 'nobody has claimed it');
SELECT is((fencing_token, state, attempt, response)::text, '(,,,)', 'there is nothing else to show') FROM effect.explain_effect('e', 'x');
SELECT 1 FROM effect.claim_effect('e', 'x') \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'busy: claimed: attempt 1 has it until T; once that is over the next attempt may be made', 'claimed');
SELECT pg_temp.time_up('e', 'x') \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'reserved: claimed, but held by nobody (its time was up): attempt 2 may be made', 'its time was up');
SELECT 1 FROM effect.submit_effect(pg_temp.key('e', 'x'), 1) \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'busy: submitted at T; attempt 1 has it until T; if that ends without an answer it is unknown', 'submitted');
SELECT pg_temp.time_up('e', 'x') \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'unknown: attempt 1 was submitted at T and may have happened; it is not sent again until someone has looked at the far side and called effect.resolve_unknown()', 'unknown');
SELECT effect.resolve_unknown(pg_temp.key('e', 'x'), 'cannot_tell', 1) \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'unknown: attempt 1 was submitted at T and may have happened; it is not sent again until someone has looked at the far side and called effect.resolve_unknown()', 'and written down');
SELECT effect.resolve_unknown(pg_temp.key('e', 'x'), 'did_not_happen', 1) \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'reserved: claimed, but held by nobody (its last attempt did not happen): attempt 2 may be made', 'it did not happen');
SELECT 1 FROM effect.begin_effect('e', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('e', 'x'), 2, '{"id": "ch_1"}') \g /dev/null
SELECT is(pg_temp.said('e', 'x'), 'done: attempt 2 was completed at T; whoever asks is given its response', 'done');
SELECT is((state, attempt, response)::text, '(done,2,"{""id"": ""ch_1""}")', 'with the response') FROM effect.explain_effect('e', 'x');
SELECT is(substring(detail FROM 'completed at (\S+ \S+);')::timestamptz, updated_at, 'the moment is that of its end') FROM effect.explain_effect('e', 'x') JOIN effect.effects USING (effect_key);
SELECT 1 FROM effect.begin_effect('e', 'bare') \g /dev/null
SELECT 1 FROM effect.complete_effect(pg_temp.key('e', 'bare'), 1) \g /dev/null
SELECT is(pg_temp.said('e', 'bare'), 'done: attempt 1 was completed at T; no response is recorded', 'done without a response');
SELECT 1 FROM effect.reopen_effect(pg_temp.key('e', 'bare'), 'it was wrong') \g /dev/null
SELECT is(pg_temp.said('e', 'bare'), 'unknown: attempt 1 was submitted at T and may have happened; it is not sent again until someone has looked at the far side and called effect.resolve_unknown()', 'reopened');
SELECT effect.resolve_unknown(pg_temp.key('e', 'bare'), 'happened', response => '{"id": "found"}') \g /dev/null
SELECT is(pg_temp.said('e', 'bare'), 'done: attempt 1 was found at T to have happened; whoever asks is given its response', 'resolved');
SELECT 1 FROM effect.claim_effect('e', 'back') \g /dev/null
SELECT 1 FROM effect.retract_effect(pg_temp.key('e', 'back'), 1) \g /dev/null
SELECT is(pg_temp.said('e', 'back'), 'reserved: claimed, but held by nobody (it was given back): attempt 2 may be made', 'retracted before its submit');
SELECT 1 FROM effect.close_effect(pg_temp.key('e', 'back'), 'order voided') \g /dev/null
SELECT is(pg_temp.said('e', 'back'), 'closed: closed at T, without being done: order voided', 'closed');
SELECT 1 FROM effect.reopen_effect(pg_temp.key('e', 'back'), 'it was not') \g /dev/null
SELECT is(pg_temp.said('e', 'back'), 'unknown: it was reopened and may have happened; it is not sent again until someone has looked at the far side and called effect.resolve_unknown()', 'closed, never submitted, and reopened');
SELECT effect.once('e', 'inside') \g /dev/null
SELECT is(pg_temp.said('e', 'inside'), 'done: done in this database at T; no response is recorded', 'an inside effect');
BEGIN;
SELECT 1 FROM effect.begin_effect('e', 'mine') \g /dev/null
SELECT is(pg_temp.said('e', 'mine'), 'busy: yours: submitted by you; complete it, retract it or mark it unknown', 'in the transaction that began it');
ROLLBACK;

--
-- With a job
--
SELECT 1 FROM effect.claim_lease('j', 'worker 7', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_effect('e', 'jc', '{}', 'j', 1) \g /dev/null
SELECT 1 FROM effect.begin_effect('e', 'js', '{}', 'j', 1) \g /dev/null
SELECT is(pg_temp.said('e', 'jc'), 'busy: claimed: run 1 of job "j", held by worker 7 until T, has it; once that is over the next attempt may be made', 'claimed by a run');
SELECT is(pg_temp.said('e', 'js'), 'busy: submitted at T; run 1 of job "j", held by worker 7 until T, has it; if that ends without an answer it is unknown', 'submitted by a run');
SELECT effect.revoke_lease('j', 'x') \g /dev/null
SELECT is(pg_temp.said('e', 'jc'), 'reserved: claimed, but held by nobody (its run is over): attempt 2 may be made', 'its run is over');
SELECT matches(pg_temp.said('e', 'js'), '^unknown: attempt 1 was submitted at T and may have happened; it is not sent again', 'what that run had submitted');

--
-- Unknown, by the policy of its action
--
CREATE FUNCTION explain_test.look(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT effect.set_action('e/look', resolver => 'explain_test.look') \g /dev/null
SELECT effect.set_action('e/resend', on_unknown => 'resend') \g /dev/null
SELECT effect.set_action('e/drop', on_unknown => 'drop') \g /dev/null
SELECT effect.set_action('e/dedupes', far_side_dedupes_for => '1 day') \g /dev/null
SELECT 1 FROM unnest('{e/look,e/resend,e/drop,e/dedupes}'::text[]) AS a, effect.begin_effect(a, 'x') AS b, effect.mark_unknown(b.effect_key, b.fencing_token, 'timed out') \g /dev/null
SELECT is(pg_temp.said('e/look', 'x'), 'unknown: attempt 1 was submitted at T and may have happened; sweep asks explain_test.look, or look at the far side yourself and call effect.resolve_unknown()', 'a resolver looks');
SELECT is(pg_temp.said('e/resend', 'x'), 'reserved: unknown, and its action lets it be sent again (on_unknown is resend): attempt 2 may be made', 'sent again');
SELECT is(pg_temp.said('e/drop', 'x'), 'unknown: attempt 1 was submitted at T and may have happened; its action drops what is unknown: it is not sent again, and nobody is asked to look', 'dropped');
SELECT is(pg_temp.said('e/dedupes', 'x'), 'reserved: unknown, and its action lets it be sent again (its far side knows the key until T): attempt 2 may be made', 'the far side still knows the key');
SELECT pg_temp.age($$UPDATE effect.ledger SET created_at = created_at - interval '25 hours' WHERE action = 'e/dedupes'$$) \g /dev/null
SELECT matches(pg_temp.said('e/dedupes', 'x'), '^unknown: attempt 1 was submitted at T and may have happened; it is not sent again until', 'it has forgotten the key');

--
-- Approvals
--
SELECT effect.set_action('e/wire', approvals_required => 2, approve_within => '2 days', on_unknown => 'resend') \g /dev/null
SELECT is(pg_temp.said('e/wire', 'x'), 'reserved: nobody has claimed it: the first attempt may be made; it lacks 2 of 2 approval(s): its submit is told unapproved until they are given', 'needs approvals');
SELECT 1 FROM effect.begin_effect('e/wire', 'x', terms_shown => '5 EUR') \g /dev/null
SELECT is(pg_temp.said('e/wire', 'x'), 'busy: claimed: attempt 1 has it until T; once that is over the next attempt may be made; it lacks 2 of 2 approval(s): its submit is told unapproved until they are given', 'claimed, and awaits them');
SELECT effect.approve(pg_temp.key('e/wire', 'x'), 'ann') \g /dev/null
SELECT effect.approve(pg_temp.key('e/wire', 'x'), 'bob') \g /dev/null
SELECT effect.revoke_approval(pg_temp.key('e/wire', 'x'), 'bob') \g /dev/null
SELECT effect.approve(pg_temp.key('e/wire', 'x'), 'cid', valid_for => '1 hour') \g /dev/null
SELECT pg_temp.age($$UPDATE effect.approval SET expires_at = expires_at - interval '2 hours' WHERE approver = 'cid'$$) \g /dev/null
SELECT alike(pg_temp.said('e/wire', 'x'), '%; it lacks 1 of 2 approval(s): its submit is told unapproved until they are given', 'one counts; a revoked and an expired one do not');
SELECT effect.approve(pg_temp.key('e/wire', 'x'), 'dee') \g /dev/null
SELECT alike(pg_temp.said('e/wire', 'x'), '%; it has the 2 approval(s) that its submit needs', 'enough');
SELECT effect.revoke_approval(pg_temp.key('e/wire', 'x'), 'dee') \g /dev/null
SELECT pg_temp.age($$UPDATE effect.ledger SET created_at = created_at - interval '3 days' WHERE action = 'e/wire'; UPDATE effect.approval SET approved_at = approved_at - interval '3 days'$$) \g /dev/null
SELECT alike(pg_temp.said('e/wire', 'x'), '%; it was not approved by T; whoever submits it is told closed', 'too late');
SELECT 1 FROM effect.submit_effect(pg_temp.key('e/wire', 'x'), 1) \g /dev/null
SELECT is(pg_temp.said('e/wire', 'x'), 'closed: closed at T, without being done: not approved in time', 'and closed');
SELECT 1 FROM effect.begin_effect('e/wire', 'refused') \g /dev/null
SELECT effect.refuse_approval(pg_temp.key('e/wire', 'refused'), 'ann', 'wrong account') \g /dev/null
SELECT is(pg_temp.said('e/wire', 'refused'), 'closed: closed at T, without being done: refused by ann: wrong account', 'refused');
SELECT 1 FROM effect.begin_effect('e/wire', 'done') \g /dev/null
SELECT effect.approve(pg_temp.key('e/wire', 'done'), a) FROM unnest('{ann,bob}'::text[]) AS a \g /dev/null
SELECT 1 FROM effect.submit_effect(pg_temp.key('e/wire', 'done'), 1) \g /dev/null
SELECT is(pg_temp.said('e/wire', 'done'), 'busy: submitted at T; attempt 1 has it until T; if that ends without an answer it is unknown', 'what is submitted needs no more');

--
-- Keys
--
SELECT effect.set_action('e/event', identity => 'target', key_fields => '{amount}') \g /dev/null
SELECT 1 FROM effect.begin_effect('e/event', 'evt_1', '{"amount": 1}') \g /dev/null
SELECT is(pg_temp.said('e/event', 'evt_1', '{"amount": 2}'), 'mismatch: other inputs than recorded: amount; its target alone is the key: refuse, or give what is new a target of its own', 'mismatch');
SELECT throws_ok($$SELECT * FROM effect.explain_effect('e/event', 'evt_1', '{"sum": 1}')$$, '2203A', 'inputs have no member "amount"', 'a field that the key needs is missing');

--
-- Quarantined; READ ONLY
--
SELECT effect.quarantine('restored from a backup') \g /dev/null
SELECT is(pg_temp.said('e', 'new'), 'quarantined: nothing is sent from here until effect.adopt_cluster(): restored from a backup', 'quarantined');
SELECT is(pg_temp.said('e', 'js'), 'quarantined: nothing is sent from here until effect.adopt_cluster(): restored from a backup', 'what has not ended, too');
SELECT alike(pg_temp.said('e', 'x'), 'done: attempt 2 was completed at T;%', 'what has ended has ended');
SELECT effect.adopt_cluster() \g /dev/null
BEGIN READ ONLY;
SELECT alike(pg_temp.said('e/wire', 'new'), 'reserved: nobody has claimed it:%lacks 2 of 2 approval(s)%', 'it works READ ONLY');
SELECT alike(pg_temp.said('e', 'js'), 'unknown: %', 'in every state');
COMMIT;

--
-- It writes nothing
--
CREATE TEMP TABLE before AS SELECT l FROM effect.ledger l;
BEGIN;
SELECT pg_temp.said(action, target, '{"amount": 2}') FROM effect.ledger WHERE action = 'e/event' \g /dev/null
SELECT pg_temp.said(action, target) FROM effect.ledger WHERE action <> 'e/event' \g /dev/null
SELECT is(pg_current_xact_id_if_assigned()::text, NULL, 'it takes no transaction id');
COMMIT;
SELECT set_eq('SELECT l FROM effect.ledger l', 'SELECT l FROM before', 'and changes nothing');
SELECT is_empty($$SELECT 1 FROM effect.ledger, effect.explain_effect(action, target, '{"amount": 1}') WHERE verdict::text IN ('go', 'go_after_commit', 'apply') OR detail IS NULL$$, 'it never says go, and never nothing');

SELECT * FROM finish();
DROP SCHEMA explain_test CASCADE;
-- the next file finds none of this, and tokens that count from 1
DROP EXTENSION effect CASCADE;
CREATE EXTENSION effect;
