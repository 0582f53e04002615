\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- approval: a person's consent to one effect key, spent once (doc/approval.md).
SET client_min_messages = warning;
SET lock_timeout = '20s';
SET IntervalStyle = 'postgres';
SET effect.default_settle = 0;
DROP ROLE IF EXISTS effect_approval_asker, effect_approval_giver;
CREATE ROLE effect_approval_asker;
CREATE ROLE effect_approval_giver;

SELECT plan(120);

CREATE FUNCTION pg_temp.told(sql text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
BEGIN
	EXECUTE sql INTO answer;
	RETURN answer;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE FUNCTION pg_temp.key(target text, inputs jsonb DEFAULT '{}') RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key('approval', target, effect.input_digest(inputs)) $$;
-- Who has consented to an effect, and at which attempt it was spent.
CREATE FUNCTION pg_temp.given(k uuid) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(approver || CASE WHEN revoked_at IS NOT NULL THEN ' revoked' WHEN consumed_at IS NOT NULL THEN ' spent ' || consumed_attempt ELSE '' END, ', ' ORDER BY approver)
	  FROM effect.approval WHERE effect_key = k $$;
SELECT effect.set_action('approval', approvals_required => 1) \g /dev/null
SELECT effect.set_action('approval/two', approvals_required => 2) \g /dev/null

--
-- The ordinary story: ask, consent, submit, once
--
SELECT is((verdict, state, fencing_token, attempt, detail)::text, '(unapproved,claimed,1,1,"0 of 1 approvals given; ask, then submit_effect")', 'begin without consent claims, and says unapproved')
  FROM effect.begin_effect('approval', 'acct-9', '{"amount": 10}', terms_shown => 'EUR 10 to acct-9', run_id => 'r');
SELECT pg_temp.key('acct-9', '{"amount": 10}') AS key \gset t_
SELECT is((effect_key, action, target, inputs, terms_shown, since <= clock_timestamp(), expires, approvals_required, given)::text,
	format('(%s,approval,acct-9,"{""amount"": 10}","EUR 10 to acct-9",t,,1,0)', :'t_key'), 'it awaits approval, with the terms as shown') FROM effect.awaiting_approval WHERE effect_key = :'t_key';
SELECT is(verdict::text, 'unapproved', 'submit without it says so again') FROM effect.submit_effect(:'t_key', 1);
SELECT is((state, attempt, submitted_at)::text, '(claimed,1,)', 'nothing was submitted, and no attempt counted') FROM effect.effects WHERE effect_key = :'t_key';
SELECT lives_ok(format($$SELECT effect.approve(%L, 'ann', 'EUR 10 to acct-9')$$, :'t_key'), 'ann approves what she was shown');
SELECT is((approver, terms, role_name = session_user, expires_at, consumed_at)::text, '(ann,"EUR 10 to acct-9",t,,)', 'her name, the terms, and the session''s role stand in the record') FROM effect.approval WHERE effect_key = :'t_key';
SELECT is_empty(format('SELECT 1 FROM effect.awaiting_approval WHERE effect_key = %L', :'t_key'), 'it awaits no more');
SELECT is((approver, action, target, state)::text, '(ann,approval,acct-9,claimed)', 'an approval that is not used yet') FROM effect.unused_approvals WHERE effect_key = :'t_key';
SELECT verdict FROM effect.submit_effect(:'t_key', 1) \gset v_
SELECT is(:'v_verdict'::text, 'go', 'now submit goes');
SELECT is(pg_temp.given(:'t_key'), 'ann spent 1', 'and spends it');
SELECT is_empty(format('SELECT 1 FROM effect.unused_approvals WHERE effect_key = %L', :'t_key'), 'it is unused no more');
SELECT is(pg_temp.told(format($$SELECT effect.approve(%L, 'ann')$$, :'t_key')), 'LE006', 'spent is final: approving again');
SELECT is(pg_temp.told(format($$SELECT effect.revoke_approval(%L, 'ann')$$, :'t_key')), 'LE006', 'or taking it back');
SELECT is(pg_temp.told(format($$SELECT effect.refuse_approval(%L, 'bob', 'no')$$, :'t_key')), 'LE004', 'too late to refuse');
SELECT is(verdict::text, 'done', 'completing needs none') FROM effect.complete_effect(:'t_key', 1, '{"id": 1}');
SELECT is((verdict, response)::text, '(done,"{""id"": 1}")', 'executed again next week: done') FROM effect.begin_effect('approval', 'acct-9', '{"amount": 10.0}', terms_shown => 'EUR 10 to acct-9');
SELECT is(pg_temp.told(format($$SELECT effect.approve(%L, 'bob')$$, :'t_key')), 'LE004', 'and there is nothing left to approve');
SELECT is(verdict::text, 'unapproved', 'approved for 10, executed for 999999 (case 33): another key, no consent') FROM effect.begin_effect('approval', 'acct-9', '{"amount": 999999}');
SELECT is(verdict::text, 'unapproved', 'nor for another target') FROM effect.begin_effect('approval', 'acct-8', '{"amount": 10}');
SELECT is(pg_temp.told(format('UPDATE effect.approval SET effect_key = %L WHERE effect_key = %L RETURNING 1', pg_temp.key('acct-8', '{"amount": 10}'), :'t_key')), 'LE012', 'not even by plain SQL');

-- before the claim; begin spends at once
\set VERBOSITY terse
SELECT effect.approve(pg_temp.key('early'), 'ann') \g /dev/null
\set VERBOSITY default
SELECT is((approver, action, target)::text, '(ann,,)', 'consent may come first (with a warning): nobody has claimed that key') FROM effect.unused_approvals WHERE effect_key = pg_temp.key('early');
SELECT verdict || ' ' || attempt || ' ' || state AS told FROM effect.begin_effect('approval', 'early') \gset v_
SELECT is(:'v_told'::text, 'go 1 submitted', 'then begin goes at once');
SELECT is(pg_temp.given(pg_temp.key('early')), 'ann spent 1', 'and spends it');
SELECT is(verdict::text, 'reserved', 'claim needs none') FROM effect.claim_effect('approval', 'claim');
SELECT is(count(*)::int, 1, 'but awaits it') FROM effect.awaiting_approval WHERE effect_key = pg_temp.key('claim');
SELECT is(pg_temp.told($$SELECT string_agg(verdict::text, ' ') FROM effect.begin_effects('approval', '{b1,b2,b1}')$$), 'unapproved unapproved busy', 'begin_effects');
BEGIN;
SELECT 1 FROM effect.claim_effect('approval', 'block') \g /dev/null
SELECT effect.approve(pg_temp.key('block'), 'ann') \g /dev/null
SELECT is(verdict::text, 'go_after_commit', 'in a block: go_after_commit') FROM effect.submit_effect(pg_temp.key('block'), 1);
ROLLBACK;
SELECT is_empty(format('SELECT 1 FROM effect.approval WHERE effect_key = %L', pg_temp.key('block')), 'which rolled back');
SELECT 1 FROM effect.claim_effect('approval', 'rolled back') \g /dev/null
SELECT effect.approve(pg_temp.key('rolled back'), 'ann') \g /dev/null
BEGIN;
SELECT 1 FROM effect.submit_effect(pg_temp.key('rolled back'), 1) \g /dev/null
ROLLBACK;
SELECT is(pg_temp.given(pg_temp.key('rolled back')), 'ann', 'what rolled back spent nothing');

--
-- Quorum: distinct, and no more than are needed
--
SELECT effect.effect_key('approval/two', 'x', effect.input_digest('{}')) AS key \gset q_
SELECT 1 FROM effect.claim_effect('approval/two', 'x') \g /dev/null
SELECT effect.approve(:'q_key', 'ann') \g /dev/null
SELECT effect.approve(:'q_key', 'ann') \g /dev/null
SELECT is((verdict, detail)::text, '(unapproved,"1 of 2 approvals given; ask, then submit_effect")', 'the same approver twice is one') FROM effect.submit_effect(:'q_key', 1);
SELECT is(given, 1, 'as the view says') FROM effect.awaiting_approval WHERE effect_key = :'q_key';
SELECT is(pg_temp.given(:'q_key'), 'ann', 'and is not spent by a submit that was refused');
SELECT effect.approve(:'q_key', 'bob') \g /dev/null
SELECT effect.approve(:'q_key', 'cid') \g /dev/null
SELECT verdict FROM effect.submit_effect(:'q_key', 1) \gset v_
SELECT is(:'v_verdict' || ': ' || pg_temp.given(:'q_key'), 'go: ann spent 1, bob spent 1, cid', 'two of three are spent');
SELECT is(approver, 'cid', 'the third is unused') FROM effect.unused_approvals WHERE effect_key = :'q_key';
SELECT is(effect.revoke_approval(:'q_key', 'cid'), true, 'and may be taken back');

--
-- Revocation, renewal, expiry
--
SELECT 1 FROM effect.claim_effect('approval', 'revoked') \g /dev/null
SELECT effect.approve(pg_temp.key('revoked'), 'ann') \g /dev/null
SELECT is(effect.revoke_approval(pg_temp.key('revoked'), 'bob'), false, 'bob gave none to take back');
SELECT is(effect.revoke_approval(pg_temp.key('revoked'), 'ann'), true, 'ann takes hers back');
SELECT is(effect.revoke_approval(pg_temp.key('revoked'), 'ann'), false, 'once');
SELECT is((revoked_at IS NOT NULL, revoked_by = session_user)::text, '(t,t)', 'with the role that did') FROM effect.approval WHERE effect_key = pg_temp.key('revoked');
SELECT is(verdict::text, 'unapproved', 'it counts no more') FROM effect.submit_effect(pg_temp.key('revoked'), 1);
SELECT is(count(*)::int, 1, 'the effect awaits again') FROM effect.awaiting_approval WHERE effect_key = pg_temp.key('revoked');
SELECT is_empty(format('SELECT 1 FROM effect.unused_approvals WHERE effect_key = %L', pg_temp.key('revoked')), 'and it is not unused but revoked');
SELECT effect.approve(pg_temp.key('revoked'), 'ann') \g /dev/null
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 1)', pg_temp.key('revoked'))), 'go_after_commit', 'given again, it counts');
SELECT 1 FROM effect.claim_effect('approval', 'expired') \g /dev/null
SELECT effect.approve(pg_temp.key('expired'), 'ann', valid_for => '1 hour') \g /dev/null
SELECT is((expires_at - approved_at)::text, '01:00:00', 'valid for an hour') FROM effect.approval WHERE effect_key = pg_temp.key('expired');
SELECT effect.approve(pg_temp.key('expired'), 'ann', valid_for => '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is(verdict::text, 'unapproved', 'one that has expired does not count') FROM effect.submit_effect(pg_temp.key('expired'), 1);
SELECT is(given, 0, 'in the view neither') FROM effect.awaiting_approval WHERE effect_key = pg_temp.key('expired');
SELECT effect.approve(pg_temp.key('expired'), 'ann') \g /dev/null
SELECT is((expires_at IS NULL)::text, 'true', 'approving again renews it, for ever where no time is named') FROM effect.approval WHERE effect_key = pg_temp.key('expired');

--
-- Terms: kept as shown, compared with what is consented to
--
SELECT 1 FROM effect.claim_effect('approval', 'terms', terms_shown => 'EUR 10') \g /dev/null
SELECT is(pg_temp.told(format($$SELECT effect.approve(%L, 'ann', 'EUR 11')$$, pg_temp.key('terms'))), 'LE005', 'consent to other terms than shown: LE005');
SELECT is(pg_temp.told(format($$SELECT effect.approve(%L, 'ann', 'eur 10')$$, pg_temp.key('terms'))), 'LE005', 'to the letter');
SELECT is(pg_temp.given(pg_temp.key('terms')), NULL, 'and nothing of it is kept');
SELECT effect.approve(pg_temp.key('terms'), 'ann', 'EUR 10') \g /dev/null
SELECT effect.approve(pg_temp.key('terms'), 'bob') \g /dev/null
SELECT is(string_agg(approver || ' ' || terms, ', ' ORDER BY approver), 'ann EUR 10, bob EUR 10', 'whoever names none consents to those shown') FROM effect.approval WHERE effect_key = pg_temp.key('terms');
SELECT 1 FROM effect.retract_effect(pg_temp.key('terms'), 1) \g /dev/null
SELECT is(verdict::text, 'unapproved', 'the next attempt shows other terms: neither consent counts') FROM effect.begin_effect('approval', 'terms', terms_shown => 'EUR 99');
SELECT is((terms_shown, given)::text, '("EUR 99",0)', 'it awaits new ones') FROM effect.awaiting_approval WHERE effect_key = pg_temp.key('terms');
SELECT 1 FROM effect.retract_effect(pg_temp.key('terms'), 2) \g /dev/null
SELECT is((verdict, detail ~ '^0 of 1')::text, '(unapproved,t)', 'an attempt that shows none does not wipe out what approvers were shown') FROM effect.begin_effect('approval', 'terms');
SELECT is(terms_shown, 'EUR 99', 'it is kept') FROM effect.effects WHERE effect_key = pg_temp.key('terms');
SELECT 1 FROM effect.retract_effect(pg_temp.key('terms'), 3) \g /dev/null
SELECT verdict AS told FROM effect.begin_effect('approval', 'terms', terms_shown => 'EUR 10') \gset v_
SELECT is(:'v_told' || ': ' || pg_temp.given(pg_temp.key('terms')), 'go: ann spent 4, bob', 'under the terms they saw, the older consent is spent');
\set VERBOSITY terse
SET client_min_messages = error;
SELECT effect.approve(pg_temp.key('early terms'), 'ann', 'EUR 5') \g /dev/null
SET client_min_messages = warning;
SELECT is(verdict::text, 'unapproved', 'consent to EUR 5, before the claim of EUR 6') FROM effect.begin_effect('approval', 'early terms', terms_shown => 'EUR 6');

--
-- Refusal
--
SELECT 1 FROM effect.claim_effect('approval', 'refused') \g /dev/null
SELECT effect.approve(pg_temp.key('refused'), 'ann') \g /dev/null
SELECT lives_ok(format($$SELECT effect.refuse_approval(%L, 'bob', 'over the limit')$$, pg_temp.key('refused')), 'bob refuses');
SELECT is((verdict, state, detail)::text, '(closed,done,"refused by bob: over the limit")', 'which closes the effect, whoever consented') FROM effect.submit_effect(pg_temp.key('refused'), 1);
SELECT is((event, detail, role_name = session_user)::text, '(closed,"refused by bob: over the limit",t)', 'and is journalled, with both names') FROM effect.journal WHERE effect_key = pg_temp.key('refused');
SELECT is(pg_temp.told(format($$SELECT effect.refuse_approval(%L, 'bob', 'again')$$, pg_temp.key('refused'))), 'LE004', 'once');
SELECT is(verdict::text, 'closed', 'no later attempt') FROM effect.begin_effect('approval', 'refused');
SELECT is_empty(format('SELECT 1 FROM effect.awaiting_approval WHERE effect_key = %L', pg_temp.key('refused')), 'nobody waits for it');

--
-- approve_within
--
SELECT effect.set_action('approval/soon', approvals_required => 1, approve_within => '1 hour') \g /dev/null
CREATE FUNCTION pg_temp.soon(target text) RETURNS uuid LANGUAGE sql AS $$ SELECT effect.effect_key('approval/soon', target, effect.input_digest('{}')) $$;
SELECT 1 FROM effect.begin_effects('approval/soon', '{late,just,too late,again}') \g /dev/null
SELECT is((expires - since)::text, '01:00:00', 'approve_within counts from the claim, and the view says until when') FROM effect.awaiting_approval WHERE effect_key = pg_temp.soon('late');
SELECT is(verdict::text, 'unapproved', 'within it: unapproved') FROM effect.submit_effect(pg_temp.soon('late'), 1);
SELECT effect.set_action('approval/soon', approve_within => '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is((verdict, state, detail)::text, '(closed,done,"not approved in time")', 'after it: closed') FROM effect.submit_effect(pg_temp.soon('late'), 1);
SELECT is((verdict, detail)::text, '(closed,"not approved in time")', 'for good') FROM effect.begin_effect('approval/soon', 'late');
SELECT is(pg_temp.told(format($$SELECT effect.approve(%L, 'ann')$$, pg_temp.soon('late'))), 'LE004', 'consent comes too late');
SELECT is_empty($$SELECT 1 FROM effect.awaiting_approval WHERE action = 'approval/soon'$$, 'nothing awaits what may not be given any more');
SELECT effect.approve(pg_temp.soon(t), 'ann') FROM unnest('{just,too late}'::text[]) AS t \g /dev/null
SELECT is((verdict, detail)::text, '(closed,"not approved in time")', 'given after it, consent does not count') FROM effect.submit_effect(pg_temp.soon('too late'), 1);
UPDATE effect.approval p SET approved_at = l.created_at FROM effect.ledger l WHERE l.effect_key = p.effect_key AND p.effect_key = pg_temp.soon('just');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 1)', pg_temp.soon('just'))), 'go_after_commit', 'given in time, it does, though the submit is late');
SELECT 1 FROM effect.retract_effect(pg_temp.soon('again'), 1) \g /dev/null
SELECT is((verdict, detail)::text, '(closed,"not approved in time")', 'a later begin counts from the first claim') FROM effect.begin_effect('approval/soon', 'again');
SELECT is(count(*)::int, 3, 'each is journalled as closed') FROM effect.journal WHERE effect_key IN (pg_temp.soon('late'), pg_temp.soon('too late'), pg_temp.soon('again')) AND event = 'closed';

--
-- Later attempts at the same key
--
SELECT 1 FROM effect.claim_effect('approval', 'again') \g /dev/null
SELECT effect.approve(pg_temp.key('again'), 'ann') \g /dev/null
SELECT verdict FROM effect.submit_effect(pg_temp.key('again'), 1) \gset v_
SELECT 1 FROM effect.mark_unknown(pg_temp.key('again'), 1, 'timed out') \g /dev/null
SELECT is(verdict::text, 'unknown', 'unknown blocks, whatever is approved') FROM effect.begin_effect('approval', 'again');
SELECT effect.resolve_unknown(pg_temp.key('again'), 'did_not_happen', 1) \g /dev/null
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('approval', 'again') \gset v_
SELECT is(:'v_told' || ': ' || pg_temp.given(pg_temp.key('again')), 'go 2: ann spent 1', 'proven not to have happened: the next attempt leans on what was spent');
SELECT 1 FROM effect.mark_unknown(pg_temp.key('again'), 2, 'timed out') \g /dev/null
SELECT is(pg_temp.given(pg_temp.key('again')), 'ann spent 1', 'a crash between submit and send frees nothing');
SELECT is(pg_temp.told(format('UPDATE effect.approval SET %s WHERE effect_key = %L RETURNING 1', s, pg_temp.key('again'))), 'LE012', 'by plain SQL neither: ' || s)
  FROM unnest(ARRAY['consumed_at = NULL, consumed_attempt = NULL', 'consumed_attempt = 2', 'approver = ''bob''', 'terms = ''x''', 'expires_at = now()', 'revoked_at = now()']) AS s;
SELECT is(pg_temp.told(s), 'LE012', s) FROM unnest(ARRAY['DELETE FROM effect.approval', 'TRUNCATE effect.approval']) AS s;
SELECT is(pg_temp.told(format('UPDATE effect.ledger SET state = ''submitted'' WHERE effect_key = %L RETURNING 1', pg_temp.key('claim'))), 'LE012', 'nor is anything submitted without them');
SELECT 1 FROM effect.claim_effect('approval', 'lean') \g /dev/null
SELECT effect.approve(pg_temp.key('lean'), 'ann', valid_for => '300 milliseconds') \g /dev/null
SELECT verdict FROM effect.submit_effect(pg_temp.key('lean'), 1) \gset v_
SELECT is(:'v_verdict'::text, 'go', 'a consent for a while, spent');
SELECT 1 FROM effect.retract_effect(pg_temp.key('lean'), 1) \g /dev/null
SELECT pg_sleep(0.35) \g /dev/null
SELECT is(verdict::text, 'unapproved', 'may be leaned on until it expires') FROM effect.begin_effect('approval', 'lean');
SELECT effect.approve(pg_temp.key('lean'), 'bob') \g /dev/null
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 2)', pg_temp.key('lean'))) || ': ' || pg_temp.given(pg_temp.key('lean')), 'go_after_commit: ann spent 1, bob spent 2', 'another one is asked for');
SELECT effect.effect_key('approval/two', 'lean', effect.input_digest('{}')) AS key \gset l_
SELECT 1 FROM effect.claim_effect('approval/two', 'lean') \g /dev/null
SELECT effect.approve(:'l_key', a) FROM unnest('{ann,bob}'::text[]) AS a \g /dev/null
SELECT verdict FROM effect.submit_effect(:'l_key', 1) \gset v_
SELECT 1 FROM effect.retract_effect(:'l_key', 1) \g /dev/null
SELECT effect.approve(:'l_key', 'cid') \g /dev/null
SELECT verdict FROM effect.begin_effect('approval/two', 'lean') \gset v_
SELECT is(:'v_verdict' || ': ' || pg_temp.given(:'l_key'), 'go: ann spent 1, bob spent 1, cid', 'what was spent on this key counts first');

-- with a job: the run that asked is over, the next one goes
SELECT 1 FROM effect.claim_lease('approval/job', 'w', '1 hour') \g /dev/null
SELECT is(verdict::text, 'unapproved', 'a run asks') FROM effect.begin_effect('approval', 'job', '{}', 'approval/job', 1);
SELECT is((verdict, detail ~ '^yours: claimed by you')::text, '(busy,t)', 'asking twice: it is its own') FROM effect.begin_effect('approval', 'job', '{}', 'approval/job', 1);
SELECT effect.release_lease('approval/job', 1) \g /dev/null
SELECT effect.approve(pg_temp.key('job'), 'ann') \g /dev/null
SELECT is(verdict::text, 'fenced', 'the old run is fenced, approved or not') FROM effect.submit_effect(pg_temp.key('job'), 1);
SELECT 1 FROM effect.claim_lease('approval/job', 'w', '1 hour') \g /dev/null
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('approval', 'job', '{}', 'approval/job', 2) \gset v_
SELECT is(:'v_told' || ': ' || pg_temp.given(pg_temp.key('job')), 'go 2: ann spent 2', 'the next run goes');

-- the requirement may change while effects wait
SELECT 1 FROM effect.begin_effect('approval/two', 'eased') \g /dev/null
SELECT effect.set_action('approval/two', approvals_required => 0) \g /dev/null
SELECT is_empty($$SELECT 1 FROM effect.awaiting_approval WHERE action = 'approval/two'$$, 'no approvals required any more: nothing awaits');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 1)', effect.effect_key('approval/two', 'eased', effect.input_digest('{}')))), 'go_after_commit', 'and submit goes');

--
-- Who may: approver is a set of its own, and no other set has it
--
SELECT effect.grant_worker('effect_approval_asker'), effect.grant_operator('effect_approval_asker'), effect.grant_monitor('effect_approval_asker') \g /dev/null
SELECT effect.grant_approver('effect_approval_giver') \g /dev/null
SET ROLE effect_approval_asker;
SELECT effect_key AS key FROM effect.begin_effect('approval', 'roles', '{"n": 1}', terms_shown => 'terms') \gset r_
SELECT is(pg_temp.told(format(s, :'r_key')), '42501', 'worker, operator and monitor in one may not ' || format(s, 'key'))
  FROM unnest(ARRAY['SELECT effect.approve(%L, ''ann'')', 'SELECT effect.revoke_approval(%L, ''ann'')', 'SELECT effect.refuse_approval(%L, ''ann'', ''x'')', 'INSERT INTO effect.approval SELECT %L, ''ann'', now()']) AS s;
SET ROLE effect_approval_giver;
SELECT is((target, inputs, terms_shown)::text, '(roles,"{""n"": 1}",terms)', 'an approver sees what awaits') FROM effect.awaiting_approval WHERE effect_key = :'r_key';
SELECT lives_ok(format($$SELECT effect.approve(%L, 'ann')$$, :'r_key'), 'and approves it');
SELECT is((approver, terms)::text, '(ann,terms)', 'which is shown') FROM effect.unused_approvals WHERE effect_key = :'r_key';
SELECT is(pg_temp.told(format(s, :'r_key')), '42501', 'but may not ' || format(s, 'key'))
  FROM unnest(ARRAY['SELECT verdict FROM effect.submit_effect(%L, 1)', 'SELECT verdict FROM effect.close_effect(%L, ''x'')', 'SELECT effect.resolve_unknown(%L, ''happened'')', 'UPDATE effect.approval SET effect_key = %L']) AS s;
RESET ROLE;
SELECT effect.set_action('approval', usable_by => '{effect_approval_giver}') \g /dev/null
SET ROLE effect_approval_giver;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.begin_effect('approval', 'roles', '{"n": 1}')$$), '42501', 'being in usable_by does not make it a worker');
RESET ROLE;

-- misuse
SELECT is(pg_temp.told(format('SELECT effect.%s', s)), want, format('%s: %s', regexp_replace(s, '[0-9a-f]{8}-[0-9a-f-]{27}', 'key'), want))
  FROM (VALUES ('approve(NULL, ''ann'')', '22004'), (format('approve(%L, NULL)', :'r_key'), '22004'), (format('approve(%L, '' '')', :'r_key'), '22023'), (format('approve(%L, ''ann'', '''')', :'r_key'), '22023'),
	(format('approve(%L, ''ann'', valid_for => ''0'')', :'r_key'), '22023'), (format('approve(%L, ''ann'', valid_for => ''367 days'')', :'r_key'), '22023'),
	('revoke_approval(NULL, ''ann'')', '22004'), (format('revoke_approval(%L, NULL)', :'r_key'), '22004'), ('revoke_approval(gen_random_uuid(), ''ann'')', 'false'),
	('refuse_approval(NULL, ''ann'', ''x'')', '22004'), (format('refuse_approval(%L, NULL, ''x'')', :'r_key'), '22004'), (format('refuse_approval(%L, ''ann'', NULL)', :'r_key'), '22004'), ('refuse_approval(gen_random_uuid(), ''ann'', ''x'')', 'LE003')) AS t (s, want);

SELECT * FROM finish();
DROP OWNED BY effect_approval_asker, effect_approval_giver;
DROP ROLE effect_approval_asker, effect_approval_giver;
