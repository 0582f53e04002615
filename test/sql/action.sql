\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- action: a registered kind of effect: how it is keyed, how an unknown one is
-- treated, who may use it (doc/action.md).  Each state x call x policy is in the
-- matrix of ledger.sql; resolvers are in sweep.sql, approvals in approval.sql.
SET client_min_messages = warning;
SET lock_timeout = '20s';
SET IntervalStyle = 'postgres';
DROP ROLE IF EXISTS effect_action_owner, effect_action_member, effect_action_other, effect_action_team;
CREATE ROLE effect_action_owner;
CREATE ROLE effect_action_member;
CREATE ROLE effect_action_other;
CREATE ROLE effect_action_team;
GRANT effect_action_owner TO effect_action_member;
SELECT effect.grant_worker(r) FROM unnest('{effect_action_owner,effect_action_other,effect_action_team}'::name[]) AS r \g /dev/null

SELECT plan(101);

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

--
-- set_action: what is named is set, what is not is kept
--
SELECT effect.set_action('action/new') \g /dev/null
SELECT is((key_fields, identity, on_unknown, resolver, settle, timeout, far_side_dedupes_for, approvals_required, approve_within, keep_body_for, keep_key_for, usable_by, registered_by = current_user)::text,
	'(,facts,check,,,,,0,,,,,t)', 'a registration that names nothing: keyed by its facts, checked, used by all, kept for ever') FROM effect.action WHERE action = 'action/new';
CREATE FUNCTION pg_temp.look(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
CREATE FUNCTION public.effect_action_look(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT effect.set_action('action/all', '{amount,currency}', 'target', 'resend', 'effect_action_look', '2 minutes', '3 minutes', '4 minutes', 5, '6 minutes', '7 days', '8 days', '{effect_action_team}') \g /dev/null
CREATE FUNCTION pg_temp.setting(of text) RETURNS text LANGUAGE sql AS $$
	SELECT (key_fields, identity, on_unknown, resolver, settle, timeout, far_side_dedupes_for, approvals_required, approve_within, keep_body_for, keep_key_for, usable_by)::text
	  FROM effect.action WHERE action = of $$;
SELECT is(pg_temp.setting('action/all'), '("{amount,currency}",target,resend,public.effect_action_look,00:02:00,00:03:00,00:04:00,5,00:06:00,"7 days","8 days",{effect_action_team})',
	'all of them set, the resolver by its qualified name');
SELECT effect.set_action('action/all') \g /dev/null
SELECT is(pg_temp.setting('action/all'), '("{amount,currency}",target,resend,public.effect_action_look,00:02:00,00:03:00,00:04:00,5,00:06:00,"7 days","8 days",{effect_action_team})', 'naming none changes none');
SELECT effect.set_action('action/all', settle => '9 minutes', approvals_required => 1) \g /dev/null
SELECT is(pg_temp.setting('action/all'), '("{amount,currency}",target,resend,public.effect_action_look,00:09:00,00:03:00,00:04:00,1,00:06:00,"7 days","8 days",{effect_action_team})', 'naming two changes two');
SELECT effect.set_action('action/all', '{}', resolver => '', settle => '0', timeout => '0', far_side_dedupes_for => '0', approvals_required => 0, approve_within => '0', keep_body_for => '0', keep_key_for => '0', usable_by => '{}') \g /dev/null
SELECT is(pg_temp.setting('action/all'), '(,target,resend,,,,,0,,,,)', '''{}'', '''' and ''0'' clear');

-- misuse
SELECT is(pg_temp.told(format('SELECT effect.set_action(%s)', args)), want, format('set_action(%s): %s', args, want))
  FROM (VALUES ('NULL', '22004'), (''' ''', '22023'), ('repeat(''x'', 256)', '22023'), ('''action/bad'', ''{NULL}''', '22004'), ('''action/bad'', ''{" "}''', '22023'),
	('''action/bad'', approvals_required => -1', '22023'), ('''action/bad'', approvals_required => 101', '22023'), ('''action/bad'', settle => ''-1 second''', '22023'),
	('''action/bad'', timeout => ''110 years''', '22023'), ('''action/bad'', keep_key_for => ''-1 day''', '22023'), ('''action/bad'', approve_within => ''1 month -31 days''', '22023'),
	('''action/bad'', usable_by => ''{effect_action_nobody}''', '42704'), ('''action/bad'', usable_by => ''{NULL}''', '22004'),
	('''action/bad'', resolver => ''no_such_function''', '42883'), ('''action/bad'', resolver => ''pg_catalog.now''', '42883'),
	('''action/bad'', on_unknown => ''ask''', '22P02'), ('''action/bad'', identity => ''inputs''', '22P02')) AS t (args, want);
SELECT is_empty($$SELECT 1 FROM effect.action WHERE action = 'action/bad'$$, 'and nothing of it is left');
BEGIN READ ONLY;
SELECT throws_ok($$SELECT effect.set_action('action/bad')$$, '25006', NULL, 'READ ONLY');
COMMIT;

--
-- Who may change it, and who may use it
--
GRANT CREATE ON SCHEMA public TO effect_action_owner, effect_action_member;
SET ROLE effect_action_owner;
CREATE FUNCTION public.effect_action_owners(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT effect.set_action('action/owned', timeout => '1 hour', resolver => 'public.effect_action_owners') \g /dev/null
SET ROLE effect_action_other;
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned', timeout => '2 hours')$$), '42501', 'another role does not change it');
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned')$$), '42501', 'not even to nothing');
SELECT is(pg_temp.told($$SELECT verdict FROM effect.claim_effect('action/owned', 'x')$$), 'reserved', 'but uses it, while nobody says who may');
SELECT is(pg_temp.told($$SELECT effect.set_action('action/theirs', resolver => 'public.effect_action_owners')$$), '42501', 'a resolver that belongs to another role is refused');
SELECT is(pg_temp.told($$SELECT effect.set_action('action/theirs', resolver => 'public.effect_action_look')$$), '', 'one that belongs to a superuser is not');
SET ROLE effect_action_member;
CREATE FUNCTION public.effect_action_members(uuid, text, jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb) LANGUAGE sql AS $$ SELECT 'cannot_tell'::effect.finding, NULL::jsonb, NULL::jsonb $$;
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned', timeout => '3 hours')$$), '', 'a member does change it');
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned', resolver => 'public.effect_action_owners')$$), '', 'and may name a resolver of the registering role, as which it will run');
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned', resolver => 'public.effect_action_members')$$), '42501', 'but not one of its own');
RESET ROLE;
SELECT is(pg_temp.told($$SELECT effect.set_action('action/owned', resolver => 'public.effect_action_owners')$$), '', 'a superuser may do the same');
SELECT is((registered_by, timeout)::text, '(effect_action_owner,03:00:00)', 'it stays its first owner''s') FROM effect.action WHERE action = 'action/owned';
SELECT effect.set_action('action/owned', usable_by => '{effect_action_team}') \g /dev/null
SET ROLE effect_action_other;
SELECT is(pg_temp.told(s), '42501', 'not in usable_by: ' || s)
  FROM unnest(ARRAY['SELECT verdict FROM effect.claim_effect(''action/owned'', ''y'')', 'SELECT verdict FROM effect.begin_effect(''action/owned'', ''y'')', 'SELECT verdict FROM effect.begin_effects(''action/owned'', ''{y}'')',
	'SELECT verdict FROM effect.apply_effect(''action/owned'', ''y'')', 'SELECT effect.once(''action/owned'', ''y'')', 'SELECT effect.once(''action/owned'', ''{y}''::text[])']) AS s;
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.submit_effect(%L, 1)', effect.effect_key('action/owned', 'x', effect.input_digest('{}')))), '42501', 'nor submits what it claimed before');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.retract_effect(%L, 1)', effect.effect_key('action/owned', 'x', effect.input_digest('{}')))), 'reserved', 'but may give it back');
SELECT is(pg_temp.told($$SELECT verdict FROM effect.explain_effect('action/owned', 'y')$$), 'reserved', 'and ask');
SET ROLE effect_action_team;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.claim_effect('action/owned', 'y')$$), 'reserved', 'in usable_by');
RESET ROLE;
GRANT effect_action_team TO effect_action_other;
SET ROLE effect_action_other;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.claim_effect('action/owned', 'z')$$), 'reserved', 'or a member of one that is');
RESET ROLE;

--
-- key_fields: the consequential inputs, picked once for all callers (case 43)
--
SELECT effect.set_action('action/authorise', '{amount,ccy}') \g /dev/null
\set f1 '\'{"amount": 100, "ccy": "EUR", "checkoutAttemptId": "a1", "enc": "x9"}\''
\set f2 '\'{"enc": "q7", "amount": 1e2, "ccy": "EUR", "checkoutAttemptId": "a2"}\''
SELECT verdict, effect_key AS key FROM effect.begin_effect('action/authorise', 'payment-5', :f1) \gset v_
SELECT is(:'v_verdict' || ' ' || :'v_key', 'go ' || effect.effect_key('action/authorise', 'payment-5', effect.input_digest('{"amount": 100, "ccy": "EUR"}', 'amount', 'ccy')), 'the key covers the named fields alone');
SELECT is((verdict, effect_key = :'v_key')::text, '(busy,t)', 'the retry with other volatile fields is the same effect') FROM effect.begin_effect('action/authorise', 'payment-5', :f2);
SELECT is(effect_key = :'v_key', false, 'a changed amount is a new one') FROM effect.explain_effect('action/authorise', 'payment-5', '{"amount": 101, "ccy": "EUR"}');
SELECT is((inputs ->> 'checkoutAttemptId', inputs ->> 'enc')::text, '(a1,x9)', 'the inputs are kept whole') FROM effect.effects WHERE effect_key = :'v_key';
SELECT throws_ok($$SELECT effect.begin_effect('action/authorise', 'payment-5', '{"amount": 100, "currency": "EUR"}')$$, '2203A', 'inputs have no member "ccy"', 'a field that is missing is an error, never a shorter list');
SELECT throws_ok($$SELECT effect.set_action('action/authorise', '{amount}')$$, 'LE004', NULL, 'the fields cannot change once there are effects');
SELECT throws_ok($$SELECT effect.set_action('action/authorise', '{}')$$, 'LE004', NULL, 'nor be cleared');
SELECT throws_ok($$SELECT effect.set_action('action/authorise', identity => 'target')$$, 'LE004', NULL, 'nor the identity');
SELECT lives_ok($$SELECT effect.set_action('action/authorise', '{amount,ccy}', 'facts', settle => '1 hour')$$, 'saying the same again is no change');
SELECT 1 FROM effect.claim_effect('action/unregistered', 'x') \g /dev/null
SELECT throws_ok($$SELECT effect.set_action('action/unregistered', '{a}')$$, 'LE004', NULL, 'nor may a first registration rekey effects that nobody registered');
SELECT throws_ok($$SELECT effect.set_action('action/unregistered', identity => 'target')$$, 'LE004', NULL, 'in either way');
SELECT is_empty($$SELECT 1 FROM effect.action WHERE action = 'action/unregistered'$$, 'which leaves it unregistered');
SELECT lives_ok($$SELECT effect.set_action('action/unregistered', on_unknown => 'drop')$$, 'the rest may be set at any time');

--
-- identity target: the target is the caller's own id (case 39)
--
SELECT effect.set_action('action/event', identity => 'target') \g /dev/null
SELECT verdict, effect_key AS key FROM effect.begin_effect('action/event', 'evt_1', '{"amount": 10, "to": "a"}') \gset v_
SELECT is(:'v_verdict' || ' ' || :'v_key', 'go ' || effect.effect_key('action/event', 'evt_1', effect.input_digest('{}')), 'the key covers the target alone');
SELECT is((verdict, effect_key = :'v_key', fencing_token, state, detail)::text, '(mismatch,t,,submitted,"other inputs than recorded: amount")', 'other inputs while it is in flight: mismatch, with their names, and nobody''s token')
  FROM effect.begin_effect('action/event', 'evt_1', '{"amount": 11, "to": "a"}');
SELECT is(detail, 'other inputs than recorded: amount, note, to', 'changed, new and missing members') FROM effect.claim_effect('action/event', 'evt_1', '{"amount": 11, "note": null}');
SELECT is(verdict::text, 'busy', 'the same in another spelling is the same') FROM effect.begin_effect('action/event', 'evt_1', '{"to": "a", "amount": 1.0e1}');
SELECT is((state, attempt, inputs)::text, '(submitted,1,"{""to"": ""a"", ""amount"": 10}")', 'the effect is untouched') FROM effect.effects WHERE effect_key = :'v_key';
SELECT is(string_agg(verdict::text, ' '), 'mismatch reserved', 'explain says so too')
  FROM (SELECT * FROM effect.explain_effect('action/event', 'evt_1', '{"amount": 11}') UNION ALL SELECT * FROM effect.explain_effect('action/event', 'evt_2', '{"amount": 11}')) t;
SELECT verdict FROM effect.complete_effect(:'v_key', 1, '{"id": 7}') \g /dev/null
SELECT is((verdict, response)::text, '(mismatch,)', 'mismatch comes before done, and carries no answer') FROM effect.begin_effect('action/event', 'evt_1', '{"amount": 11}');
SELECT is((verdict, response)::text, '(done,"{""id"": 7}")', 'a repeat is done') FROM effect.begin_effect('action/event', 'evt_1', '{"amount": 1e1, "to": "a"}');
SELECT is(string_agg(verdict || ' ' || coalesce(detail, '-'), ', '), 'go -, mismatch other inputs than recorded: a', 'within one batch too') FROM (SELECT * FROM effect.begin_effects('action/event', '{evt_3,evt_3}', ARRAY['{"a": 1}', '{"a": 2}']::jsonb[])) t;
SELECT is(verdict::text, 'apply', 'inside effects: first') FROM effect.apply_effect('action/event', 'evt_4', '{"a": 1}');
SELECT is((verdict, detail)::text, '(mismatch,"other inputs than recorded: a")', 'other inputs') FROM effect.apply_effect('action/event', 'evt_4', '{"a": 2}');
SELECT is(effect.once('action/event', 'evt_4', '{"a": 1.0}'), false, 'once: a repeat');
SELECT throws_ok($$SELECT effect.once('action/event', 'evt_4', '{"a": 2}')$$, 'LE004', NULL, 'a mismatch has no place in a boolean');
SELECT effect.set_action('action/keyed event', '{amount}', 'target') \g /dev/null
SELECT 1 FROM effect.begin_effect('action/keyed event', 'evt_1', '{"amount": 10, "sent": "10:00"}') \g /dev/null
SELECT is((verdict, detail)::text, '(busy,t)', 'with key_fields only those must agree') FROM (SELECT verdict, detail ~ 'attempt 1' AS detail FROM effect.begin_effect('action/keyed event', 'evt_1', '{"amount": 10, "sent": "10:05"}')) t;
SELECT is(detail, 'other inputs than recorded: amount', 'and only those are named') FROM effect.begin_effect('action/keyed event', 'evt_1', '{"amount": 11, "sent": "10:05"}');
SELECT is(detail, 'other inputs than recorded: amount', 'by apply_effect as well') FROM effect.apply_effect('action/keyed event', 'evt_1', '{"amount": 11, "sent": "10:05"}');

--
-- timeout and settle
--
SELECT effect.set_action('action/times', timeout => '7 minutes', settle => '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('action/times', 'x') \gset v_
SELECT is((busy_until - submitted_at)::text, '00:07:00', 'timeout bounds an attempt without a job') FROM effect.effects WHERE effect_key = :'v_key';
SELECT 1 FROM effect.mark_unknown(:'v_key', 1, 'x') \g /dev/null
SET effect.default_settle = 0;
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', :'v_key')), 'LE008', 'settle says how long a request may be in flight');
SELECT effect.set_action('action/times', settle => '0') \g /dev/null
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', :'v_key')), 'claimed', 'cleared, effect.default_settle does');
RESET effect.default_settle;

--
-- resend, far_side_dedupes_for, drop
--
SELECT effect.set_action('action/mail', on_unknown => 'resend') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('action/mail', 'x') \gset v_
SELECT 1 FROM effect.mark_unknown(:'v_key', 1, 'timed out') \g /dev/null
SELECT verdict || ' ' || fencing_token || ' ' || attempt AS told FROM effect.begin_effect('action/mail', 'x') \gset r_
SELECT is(:'r_told'::text, 'go 2 2', 'resend: the next begin goes at once');
SELECT is(string_agg(event, ' ' ORDER BY id), 'unknown resent', 'which is journalled') FROM effect.journal WHERE effect_key = :'v_key';
SELECT is_empty(format('SELECT 1 FROM effect.unknown WHERE effect_key = %L', :'v_key'), 'and it is unknown no more');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.complete_effect(%L, 1)', :'v_key')), 'fenced', 'the first attempt''s answer is fenced');
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.complete_effect(%L, 2)', :'v_key')), 'done', 'the second''s counts');
SELECT effect.set_action('action/mail', timeout => '1 millisecond') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('action/mail', 'timed out') \gset v_
SELECT pg_sleep(0.01) \g /dev/null
SELECT is((verdict, detail ~ '^unknown, and its action lets it be sent again')::text, '(reserved,t)', 'explain says why it may go') FROM effect.explain_effect('action/mail', 'timed out');
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('action/mail', 'timed out') \gset r_
SELECT is(:'r_told'::text, 'go 2', 'also what nobody had written down as unknown');
SELECT is(string_agg(event, ' ' ORDER BY id), 'unknown resent', 'which the journal now has') FROM effect.journal WHERE effect_key = :'v_key';

SELECT effect.set_action('action/window', far_side_dedupes_for => '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('action/window', 'x') \gset v_
SELECT 1 FROM effect.mark_unknown(:'v_key', 1, 'timed out') \g /dev/null
SELECT verdict || ' ' || attempt AS told FROM effect.begin_effect('action/window', 'x') \gset r_
SELECT is(:'r_told'::text, 'go 2', 'while the far side knows its key it is sent again');
SELECT 1 FROM effect.mark_unknown(:'v_key', 2, 'timed out') \g /dev/null
SELECT effect.set_action('action/window', far_side_dedupes_for => '1 millisecond') \g /dev/null
SELECT pg_sleep(0.01) \g /dev/null
SELECT is((verdict, attempt)::text, '(unknown,2)', 'after that on_unknown rules') FROM effect.begin_effect('action/window', 'x');

SELECT effect.set_action('action/drop', on_unknown => 'drop') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('action/drop', 'x') \gset v_
SELECT 1 FROM effect.mark_unknown(:'v_key', 1, 'timed out') \g /dev/null
SELECT is(verdict::text, 'unknown', 'drop: unknown for ever') FROM effect.begin_effect('action/drop', 'x');
SELECT is((unknown, dropped, advice)::text, '(0,1,)', 'counted apart') FROM effect.action_stats WHERE action = 'action/drop';
SELECT is((on_unknown, reason)::text, '(drop,"timed out")', 'and shown as such') FROM effect.unknown_effects WHERE effect_key = :'v_key';
SELECT is(pg_temp.told(format('SELECT effect.resolve_unknown(%L, ''happened'')', :'v_key')), 'done', 'who happens to know may still say so');

--
-- What is registered, and what is not
--
SELECT is((SELECT advice ~ '^unobserved' FROM effect.action_stats WHERE action = 'action/window'), true, 'policy check without a resolver is legal, and shown as unobserved');
SELECT is((SELECT string_agg(action, ' ' ORDER BY action) FROM effect.action_stats WHERE action IN ('action/owned', 'action/mail', 'action/drop', 'action/new') AND advice ~ 'unobserved'), 'action/new', 'no advice where there is a resolver, or nobody is to look');
SET effect.require_registered_actions = on;
SELECT is(pg_temp.told(s), 'LE003', 'require_registered_actions: ' || s)
  FROM unnest(ARRAY['SELECT verdict FROM effect.claim_effect(''action/nobody'', ''y'')', 'SELECT verdict FROM effect.begin_effect(''action/nobody'', ''y'')', 'SELECT verdict FROM effect.begin_effects(''action/nobody'', ''{y}'')',
	'SELECT verdict FROM effect.apply_effect(''action/nobody'', ''y'')', 'SELECT effect.once(''action/nobody'', ''y'')']) AS s;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.claim_effect('action/new', 'y')$$), 'reserved', 'what is registered goes on');
RESET effect.require_registered_actions;
SELECT is(pg_temp.told($$SELECT verdict FROM effect.claim_effect('action/nobody', 'y')$$), 'reserved', 'off by default');
SET effect.require_registered_actions = on;
SELECT is(pg_temp.told(format('SELECT verdict FROM effect.retract_effect(%L, 1)', effect.effect_key('action/nobody', 'y', effect.input_digest('{}')))), 'reserved', 'what was claimed before can be ended');
RESET effect.require_registered_actions;

SELECT * FROM finish();
DROP FUNCTION public.effect_action_look(uuid, text, jsonb), public.effect_action_owners(uuid, text, jsonb), public.effect_action_members(uuid, text, jsonb);
DROP OWNED BY effect_action_owner, effect_action_member, effect_action_other, effect_action_team;
DROP ROLE effect_action_owner, effect_action_member, effect_action_other, effect_action_team;
