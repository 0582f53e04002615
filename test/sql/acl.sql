\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- acl: nothing is granted to PUBLIC; each grant gives exactly its set
-- (doc/reference.md).
SET client_min_messages = warning;
DROP ROLE IF EXISTS effect_acl_nobody, effect_acl_schema, effect_acl_worker, effect_acl_operator, effect_acl_monitor, effect_acl_approver, effect_acl_both, "effect acl ""odd"" Role";
CREATE ROLE effect_acl_nobody;
CREATE ROLE effect_acl_schema;
CREATE ROLE effect_acl_worker;
CREATE ROLE effect_acl_operator;
CREATE ROLE effect_acl_monitor;
CREATE ROLE effect_acl_approver;
CREATE ROLE effect_acl_both;
CREATE ROLE "effect acl ""odd"" Role";
DROP SCHEMA IF EXISTS acl_test CASCADE;
CREATE SCHEMA acl_test;

SELECT plan(126);

CREATE TEMP VIEW call AS
	SELECT oid, oid::regprocedure::text AS name FROM pg_proc WHERE pronamespace = 'effect'::regnamespace;
CREATE TEMP VIEW relation AS
	SELECT oid, oid::regclass::text AS name FROM pg_class WHERE relnamespace = 'effect'::regnamespace AND relkind IN ('r', 'v', 'S', 'm', 'p', 'f');
-- What a role may call, and what it may do to which relation.
CREATE FUNCTION pg_temp.calls(role name) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT name FROM call WHERE has_function_privilege(role, oid, 'EXECUTE') $$;
CREATE FUNCTION pg_temp.relations(role name) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT lower(p) || ' ' || name FROM relation, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) AS p
	 WHERE CASE WHEN name LIKE '%_seq' THEN p IN ('SELECT', 'UPDATE') AND has_sequence_privilege(role, oid, p) ELSE has_table_privilege(role, oid, p) END $$;

-- Nothing for anybody
SELECT is_empty($$SELECT pg_temp.calls('effect_acl_nobody')$$, 'a fresh role may call nothing');
SELECT is_empty($$SELECT pg_temp.relations('effect_acl_nobody')$$, 'and touch no relation');
SELECT ok(NOT has_schema_privilege('effect_acl_nobody', 'effect', 'USAGE'), 'or enter the schema');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
				   WHERE p.pronamespace = 'effect'::regnamespace AND a.grantee = 0$$, 'no function is executable by PUBLIC');
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'effect'::regnamespace AND a.grantee = 0$$, 'no relation is open to PUBLIC');
SELECT is_empty($$SELECT 1 FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = 'effect' AND a.grantee = 0$$, 'nor the schema');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prosecdef$$, 'nothing is SECURITY DEFINER');
SET ROLE effect_acl_nobody;
SELECT throws_ok($$SELECT effect.canonical_json('{}')$$, '42501', NULL, 'it cannot even canonicalise');
SELECT throws_ok($$SELECT * FROM effect.leases$$, '42501', NULL, 'or look at a view');
RESET ROLE;

-- The grants
SELECT lives_ok($$SELECT effect.grant_worker('effect_acl_worker')$$, 'grant_worker');
SELECT lives_ok($$SELECT effect.grant_operator('effect_acl_operator')$$, 'grant_operator');
SELECT lives_ok($$SELECT effect.grant_monitor('effect_acl_monitor')$$, 'grant_monitor');
SELECT lives_ok($$SELECT effect.grant_approver('effect_acl_approver')$$, 'grant_approver');
SELECT lives_ok($$SELECT effect.grant_worker('effect_acl_worker')$$, 'granting again is harmless');
SELECT lives_ok($$SELECT effect.grant_worker('effect acl "odd" Role')$$, 'a role of any spelling');
SELECT ok(has_function_privilege('effect acl "odd" Role', 'effect.claim_lease(text,text,interval,text,uuid)', 'EXECUTE'), 'is granted to');
SELECT throws_ok($$SELECT effect.grant_worker('effect_acl_unknown')$$, '42704', NULL, 'grant_worker to a role that is not there');
SELECT throws_ok($$SELECT effect.grant_operator('effect_acl_unknown')$$, '42704', NULL, 'grant_operator');
SELECT throws_ok($$SELECT effect.grant_monitor('effect_acl_unknown')$$, '42704', NULL, 'grant_monitor');
SELECT throws_ok($$SELECT effect.grant_approver('effect_acl_unknown')$$, '42704', NULL, 'grant_approver');
SELECT throws_ok($$SELECT effect.grant_worker('public')$$, '42704', NULL, 'PUBLIC is no role');
SELECT throws_ok($$SELECT effect.grant_worker('effect_acl_worker, effect_acl_nobody')$$, '42704', NULL, 'nor are two');
SELECT throws_ok($$SELECT effect.grant_worker(NULL)$$, '22004', NULL, 'nor is NULL');
SELECT is_empty($$SELECT pg_temp.calls('effect_acl_nobody')$$, 'nobody else got anything');

-- What each may call, both ways
CREATE TEMP TABLE may (role text, call text);
INSERT INTO may
SELECT r, c FROM unnest('{effect_acl_worker,effect_acl_operator,effect_acl_monitor,effect_acl_approver}'::text[]) AS r,
	unnest(ARRAY['effect.canonical_json(jsonb)', 'effect.input_digest(jsonb)', 'effect.input_digest(jsonb,text[])', 'effect.effect_key(text,text,text)',
				 'effect.facts("any")', 'effect.fence_gaps()']) AS c
UNION ALL
SELECT 'effect_acl_worker', unnest(ARRAY[
	'effect.claim_lease(text,text,interval,text,uuid)', 'effect.claim_any(text[],text,interval)', 'effect.renew_lease(text,bigint,interval)',
	'effect.release_lease(text,bigint,effect.run_outcome,jsonb)', 'effect.fence(text,bigint)', 'effect.is_current(text,bigint)',
	'effect.fenced_insert(text,bigint,regclass,jsonb)', 'effect.require_fence(regclass,text)', 'effect.drop_fence(regclass)',
	'effect.keep_token_monotonic(regclass,name)', 'effect.check_fence()', 'effect.check_token_monotonic()',
	'effect.claim_effect(text,text,jsonb,text,bigint,text,text,uuid)', 'effect.begin_effect(text,text,jsonb,text,bigint,text,text,uuid)',
	'effect.begin_effects(text,text[],jsonb[],text,bigint,text)', 'effect.submit_effect(uuid,bigint,uuid)',
	'effect.complete_effect(uuid,bigint,jsonb)', 'effect.complete_effects(uuid[],bigint,jsonb[])', 'effect.retract_effect(uuid,bigint,jsonb)',
	'effect.mark_unknown(uuid,bigint,text)', 'effect.close_effect(uuid,text,jsonb)', 'effect.explain_effect(text,text,jsonb)',
	'effect.apply_effect(text,text,jsonb)', 'effect.once(text,text,jsonb)', 'effect.once(text,text[])',
	'effect.run_job(text,text,text,text)', 'effect.save_checkpoint(text,bigint,jsonb)', 'effect.get_checkpoint(text)', 'effect.firing_of(text,timestamp with time zone)',
	'effect.set_job(text,interval,effect.overlap_policy,integer,interval,interval,timestamp with time zone,text,effect.checkpoint_scope,boolean,interval,name[])', 'effect.drop_job(text)',
	'effect.set_action(text,text[],effect.identity,effect.unknown_policy,text,interval,interval,interval,integer,interval,interval,interval,name[])'])
UNION ALL
SELECT 'effect_acl_operator', unnest(ARRAY[
	'effect.revoke_lease(text,text)', 'effect.bump_epochs()', 'effect.resolve_unknown(uuid,effect.finding,integer,jsonb,jsonb)',
	'effect.mark_unknown(uuid,bigint,text)', 'effect.close_effect(uuid,text,jsonb)', 'effect.reopen_effect(uuid,text)',
	'effect.explain_effect(text,text,jsonb)', 'effect.may_read_bodies()', 'effect.open_keys()', 'effect.metrics()', 'effect.job_numbers()', 'effect.action_numbers()', 'effect.dashboard()', 'effect.dashboard_attention()', 'effect.dashboard_counters(text)', 'effect.dashboard_effects()', 'effect.dashboard_leases()', 'effect.dashboard_more(bigint,text)', 'effect.dashboard_name(text)', 'effect.dashboard_number(numeric)', 'effect.dashboard_runs()', 'effect.dashboard_span(interval)', 'effect.dashboard_style()', 'effect.dashboard_time(timestamp with time zone)', 'effect.escape_html(text)', 'effect.next_unknown(text,text,interval)', 'effect.sweep()', 'effect.quarantine(text)', 'effect.adopt_cluster()',
	'effect.set_job(text,interval,effect.overlap_policy,integer,interval,interval,timestamp with time zone,text,effect.checkpoint_scope,boolean,interval,name[])', 'effect.drop_job(text)',
	'effect.set_action(text,text[],effect.identity,effect.unknown_policy,text,interval,interval,interval,integer,interval,interval,interval,name[])'])
UNION ALL
SELECT 'effect_acl_approver', unnest(ARRAY[
	'effect.approve(uuid,text,text,interval)', 'effect.revoke_approval(uuid,text)', 'effect.refuse_approval(uuid,text,text)', 'effect.may_read_bodies()', 'effect.open_keys()'])
UNION ALL SELECT 'effect_acl_monitor', unnest(ARRAY['effect.may_read_bodies()', 'effect.open_keys()', 'effect.metrics()', 'effect.job_numbers()', 'effect.action_numbers()', 'effect.dashboard()', 'effect.dashboard_attention()', 'effect.dashboard_counters(text)', 'effect.dashboard_effects()', 'effect.dashboard_leases()', 'effect.dashboard_more(bigint,text)', 'effect.dashboard_name(text)', 'effect.dashboard_number(numeric)', 'effect.dashboard_runs()', 'effect.dashboard_span(interval)', 'effect.dashboard_style()', 'effect.dashboard_time(timestamp with time zone)', 'effect.escape_html(text)']);
SELECT bag_eq(format('SELECT pg_temp.calls(%L)', r), format('SELECT call FROM may WHERE role = %L', r), r || ' may call exactly its set')
  FROM unnest('{effect_acl_worker,effect_acl_operator,effect_acl_monitor,effect_acl_approver}'::text[]) AS r;
SELECT is_empty($$SELECT call FROM may WHERE call ~ 'appro' AND role <> 'effect_acl_approver'$$, 'who asks and who consents are different people: no other set may approve');
SELECT is_empty($$SELECT pg_temp.relations('effect_acl_worker')$$, 'a worker touches no table and reads no view');
SELECT bag_eq(format('SELECT pg_temp.relations(%L)', r), $$VALUES ('select effect.leases'), ('select effect.runs'), ('select effect.effects'), ('select effect.journal'),
	('select effect.open_effects'), ('select effect.abandoned_claims'), ('select effect.attention'), ('select effect.advice'),
	('select effect.job_stats'), ('select effect.lookalikes'), ('select effect.counters'), ('select effect.metric_values'), ('select effect.job_numbers'), ('select effect.action_numbers'),
	('select effect.unknown_effects'), ('select effect.action_stats'), ('select effect.awaiting_approval'), ('select effect.unused_approvals')$$,
	r || ' reads the views, and nothing else')
  FROM unnest('{effect_acl_operator,effect_acl_monitor}'::text[]) AS r;
SELECT bag_eq($$SELECT pg_temp.relations('effect_acl_approver')$$, $$VALUES ('select effect.awaiting_approval'), ('select effect.unused_approvals')$$, 'an approver reads what awaits approval and what was given');
-- Every function is in some set, or the owner's alone.
SELECT bag_eq($$SELECT name FROM call WHERE name NOT IN (SELECT call FROM may)$$,
	$$VALUES ('effect.grant_worker(name)'), ('effect.grant_operator(name)'), ('effect.grant_monitor(name)'), ('effect.grant_approver(name)'), ('effect.guard_approval()'), ('effect.guard_firing()'), ('effect.guard_checkpoint()'),
			 ('effect.guard_keep()'), ('effect.guard_lease()'), ('effect.guard_run()'), ('effect.guard_ledger()'), ('effect.guard_unknown()'), ('effect.guard_cluster()'), ('effect.registry_changed()')$$,
	'only grants and guards are in no set');
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'effect'::regnamespace AND a.is_grantable$$, 'nothing is passed on');

-- What a worker does with them
SET ROLE effect_acl_worker;
SELECT is(verdict::text, 'granted', 'a worker claims a lease') FROM effect.claim_lease('acl/w', 'w', '1 hour');
SELECT ok(effect.renew_lease('acl/w', 1) IS NOT NULL, 'renews it');
SELECT lives_ok($$SELECT effect.fence('acl/w', 1)$$, 'fences');
SELECT effect_key AS key FROM effect.begin_effect('acl', 'x', '{"secret": 1}', 'acl/w', 1, 'terms') \gset k_
SELECT is(verdict::text, 'done', 'completes an effect') FROM effect.complete_effect(:'k_key', 1, '{"answer": 1}');
SELECT is(effect.once('acl/once', 'x'), true, 'does something once');
SELECT 1 FROM effect.begin_effect('acl', 'y', '{"secret": 2}') \g /dev/null
SELECT is((verdict, state)::text, '(unknown,unknown)', 'doubts its own') FROM effect.mark_unknown((SELECT effect_key FROM effect.explain_effect('acl', 'y', '{"secret": 2}')), 1, 'x');
SELECT 1 FROM effect.begin_effect('acl', 'z') \g /dev/null
SELECT throws_ok($$SELECT effect.mark_unknown(effect.effect_key('acl', 'z', effect.input_digest('{}')), NULL, 'x')$$, '22004', NULL, 'but without a token it may not');
SELECT throws_ok(format('SELECT %s', c), '42501', NULL, 'a worker may not ' || c)
  FROM unnest(ARRAY['effect.revoke_lease(''acl/w'', ''x'')', 'effect.bump_epochs()', 'effect.resolve_unknown(NULL, ''happened'')', 'effect.reopen_effect(NULL, ''x'')',
		'effect.grant_worker(''effect_acl_nobody'')', 'effect.grant_operator(''effect_acl_worker'')',
		'effect.approve(NULL, ''x'')', 'effect.revoke_approval(NULL, ''x'')', 'effect.refuse_approval(NULL, ''x'', ''x'')', 'effect.grant_approver(''effect_acl_worker'')',
		'effect.sweep()', 'effect.next_unknown(''x'')', 'effect.quarantine(''x'')', 'effect.adopt_cluster()']) AS c;
SELECT throws_ok(s, '42501', NULL, 'a worker may not ' || s)
  FROM unnest(ARRAY['SELECT * FROM effect.lease', 'SELECT * FROM effect.effects', 'UPDATE effect.ledger SET state = ''claimed''', 'DELETE FROM effect.lease',
		'INSERT INTO effect.journal_entry (at, event, role_name) VALUES (now(), ''x'', ''x'')', 'SELECT setval(''effect.journal_entry_id_seq'', 1)',
		'TRUNCATE effect.run', 'ALTER TABLE effect.ledger DISABLE TRIGGER ALL', 'DROP TABLE effect.unknown', 'CREATE TABLE effect.mine (id int)',
		'LOCK TABLE effect.lease IN ACCESS EXCLUSIVE MODE', 'COMMENT ON TABLE effect.lease IS ''x''', 'SET session_replication_role = replica',
		'SET effect.default_timeout = 1', 'SET effect.default_settle = 0', 'SET effect.require_registered_actions = off', 'SET effect.site = ''x''', 'SET effect.after_failover = trust',
		'SET effect.resolve_backoff_max = 1', 'UPDATE effect.action SET approvals_required = 0', 'INSERT INTO effect.approval VALUES (NULL)', 'SELECT * FROM effect.awaiting_approval',
		'UPDATE effect.cluster SET quarantined_since = NULL', 'DELETE FROM effect.straggler', 'UPDATE effect.sweep_state SET swept_to = now()', 'DELETE FROM effect.retention']) AS s;
SELECT is(current_user, 'effect_acl_worker'::name, 'and it is itself all the while');
RESET ROLE;

-- The guard's functions are of no use as triggers of one's own.
GRANT USAGE, CREATE ON SCHEMA acl_test TO effect_acl_worker, effect_acl_nobody;
SET ROLE effect_acl_worker;
CREATE TABLE acl_test.own (effect_key uuid, epoch bigint);
SELECT throws_ok($$CREATE TRIGGER t BEFORE DELETE ON acl_test.own FOR EACH ROW EXECUTE FUNCTION effect.guard_unknown()$$, '42501', NULL, 'a worker may not use a guard');
RESET ROLE;

-- Monitors see the shape of an effect, not what it was about.
SELECT 1 FROM effect.mark_unknown((SELECT effect_key FROM effect.effects WHERE action = 'acl' AND target = 'z'), NULL, 'operator') \g /dev/null
SELECT effect.revoke_lease('acl/w', 'x') \g /dev/null
SELECT 1 FROM effect.claim_lease('acl/late', 'w', '1 hour') \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('acl', 'late', '{"secret": 3}', 'acl/late', 1) \gset l_
SELECT effect.revoke_lease('acl/late', 'x') \g /dev/null
SELECT 1 FROM effect.complete_effect(:'l_key', 1, '{"late": 1}') \g /dev/null
SELECT effect.set_action('acl/asked', approvals_required => 2) \g /dev/null
SELECT effect_key AS key FROM effect.begin_effect('acl/asked', 'asked', '{"secret": 4}', terms_shown => 'terms') \gset a_
SELECT effect.approve(:'a_key', 'ann', 'terms') \g /dev/null
SET ROLE effect_acl_monitor;
SELECT is((state, action, target, inputs, terms_shown, response)::text, '(done,acl,x,,,)', 'a monitor sees no inputs, terms or response') FROM effect.effects WHERE action = 'acl' AND target = 'x';
SELECT is((state, late_answer)::text, '(unknown,)', 'no late answer') FROM effect.effects WHERE action = 'acl' AND target = 'late';
SELECT is((event, evidence)::text, '(late_answer,)', 'no evidence') FROM effect.journal WHERE effect_key = :'l_key' AND event = 'late_answer';
SELECT ok(count(*) >= 2, 'but the leases') FROM effect.leases WHERE job_key LIKE 'acl/%';
SELECT ok(count(*) >= 2, 'and the runs') FROM effect.runs WHERE job_key LIKE 'acl/%';
SELECT is((target, inputs, late_answer)::text, '(late,,)', 'nor in the list of unknown effects') FROM effect.unknown_effects WHERE effect_key = :'l_key';
SELECT is((target, inputs, terms_shown, given)::text, '(asked,,,1)', 'nor what awaits approval') FROM effect.awaiting_approval WHERE action = 'acl/asked';
SELECT is((approver, terms, target)::text, '(ann,,asked)', 'nor the terms consented to') FROM effect.unused_approvals WHERE action = 'acl/asked';
SELECT throws_ok($$SELECT inputs FROM effect.ledger$$, '42501', NULL, 'not past the view');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('acl/m', 'm', '1 hour')$$, '42501', NULL, 'and may claim nothing');
SELECT throws_ok($$SELECT * FROM effect.explain_effect('acl', 'x', '{"secret": 1}')$$, '42501', NULL, 'nor ask for an answer');
RESET ROLE;
SET ROLE effect_acl_operator;
SELECT is((state, target, inputs, terms_shown, response)::text, '(done,x,"{""secret"": 1}",terms,"{""answer"": 1}")', 'an operator sees all of it') FROM effect.effects WHERE action = 'acl' AND target = 'x';
SELECT is(late_answer, '{"late": 1}'::jsonb, 'the late answer') FROM effect.effects WHERE action = 'acl' AND target = 'late';
SELECT is(evidence, '{"late": 1}'::jsonb, 'and the evidence') FROM effect.journal WHERE effect_key = :'l_key' AND event = 'late_answer';
SELECT is(effect.resolve_unknown(:'l_key', 'happened')::text, 'done', 'an operator resolves');
SELECT is(verdict::text, 'unknown', 'reopens') FROM effect.reopen_effect(:'l_key', 'x');
SELECT is(verdict::text, 'unknown', 'doubts without a token') FROM effect.mark_unknown(:'l_key', NULL, 'x');
SELECT is((inputs, terms_shown)::text, '("{""secret"": 4}",terms)', 'sees what awaits approval') FROM effect.awaiting_approval WHERE action = 'acl/asked';
SELECT throws_ok(format('SELECT effect.approve(%L, ''bob'')', :'a_key'), '42501', NULL, 'but does not approve');
SELECT throws_ok($$SELECT * FROM effect.claim_lease('acl/o', 'o', '1 hour')$$, '42501', NULL, 'but is no worker');
SELECT throws_ok($$SELECT * FROM effect.begin_effect('acl', 'o')$$, '42501', NULL, 'in no call');
SELECT throws_ok($$UPDATE effect.ledger SET state = 'claimed'$$, '42501', NULL, 'and writes no table');
SELECT is((event, role_name = session_user)::text, '(reopened,t)', 'the journal names the session''s role') FROM effect.journal WHERE effect_key = :'l_key' AND event = 'reopened';
RESET ROLE;

SET ROLE effect_acl_approver;
SELECT is((inputs, terms_shown)::text, '("{""secret"": 4}",terms)', 'an approver sees what awaits approval') FROM effect.awaiting_approval WHERE action = 'acl/asked';
SELECT lives_ok(format('SELECT effect.approve(%L, ''bob'')', :'a_key'), 'approves it');
SELECT throws_ok(format('SELECT effect.submit_effect(%L, 1)', :'a_key'), '42501', NULL, 'and does not submit it');
SELECT throws_ok($$SELECT * FROM effect.effects$$, '42501', NULL, 'nor see all the others');
RESET ROLE;

-- Membership inherits.
GRANT effect_acl_worker, effect_acl_monitor TO effect_acl_both;
SET ROLE effect_acl_both;
SELECT is(verdict::text, 'granted', 'a member of both claims') FROM effect.claim_lease('acl/both', 'b', '1 hour');
SELECT is(owner, 'b', 'and looks') FROM effect.leases WHERE job_key = 'acl/both';
RESET ROLE;

-- EXECUTE without USAGE of the schema
GRANT EXECUTE ON FUNCTION effect.claim_lease(text, text, interval, text, uuid) TO effect_acl_schema;
SET ROLE effect_acl_schema;
SELECT throws_ok($$SELECT * FROM effect.claim_lease('acl/s', 's', '1 hour')$$, '42501', NULL, 'a role without USAGE of the schema');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION effect.claim_lease(text, text, interval, text, uuid) FROM effect_acl_schema;
-- A caller needs no right on the tables, and row security of its own making does not blind us.
SELECT throws_ok($$SET ROLE effect_acl_worker; SELECT effect.grant_worker('effect_acl_nobody')$$, '42501', NULL, 'grants are the owner''s');
RESET ROLE;

--
-- Hostile names (case 21): tables in pg_temp, functions and operators in public,
-- a search_path that puts them first.
--
SELECT 1 FROM effect.claim_lease('acl/shadow', 'real', '1 hour') \g /dev/null
SELECT 1 FROM effect.begin_effect('acl/shadow', 'done') \g /dev/null
SELECT 1 FROM effect.complete_effect(effect.effect_key('acl/shadow', 'done', effect.input_digest('{}')), 1, '{"real": true}') \g /dev/null
GRANT TEMPORARY ON DATABASE :"DBNAME" TO effect_acl_worker;
SET ROLE effect_acl_worker;
CREATE TEMP TABLE lease (job_key text, owner text, fencing_token bigint, lease_until timestamptz, lease_for interval, firing text, nonce uuid, granted_at timestamptz);
CREATE TEMP TABLE ledger (effect_key uuid, action text, target text, state text, ending text, response jsonb, fencing_token bigint);
CREATE TEMP TABLE run (job_key text, fencing_token bigint, outcome text);
CREATE TEMP TABLE unknown (effect_key uuid);
CREATE TEMP TABLE journal_entry (id bigint);
CREATE TEMP TABLE cluster (only_row boolean, epoch bigint);
INSERT INTO lease VALUES ('acl/shadow', NULL, 99, now(), '1 hour', NULL, NULL, now());
INSERT INTO ledger VALUES (effect.effect_key('acl/shadow', 'new', effect.input_digest('{}')), 'acl/shadow', 'new', 'done', 'completed', '{"fake": true}', 1);
CREATE FUNCTION acl_test.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1999-01-01 00:00:00+00'::timestamptz $$;
CREATE FUNCTION acl_test.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '1999-01-01 00:00:00+00'::timestamptz $$;
CREATE FUNCTION acl_test.current_setting(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.text_eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.uuid_eq(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.int8_eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.int4_pl(int, int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.to_jsonb(anyelement) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION acl_test.jsonb_to_record(jsonb) RETURNS record LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE OPERATOR acl_test.= (LEFTARG = text, RIGHTARG = text, FUNCTION = acl_test.text_eq);
CREATE OPERATOR acl_test.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = acl_test.uuid_eq);
CREATE OPERATOR acl_test.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = acl_test.int8_eq);
CREATE OPERATOR acl_test.+ (LEFTARG = int, RIGHTARG = int, FUNCTION = acl_test.int4_pl);
CREATE DOMAIN acl_test.text AS int;
CREATE TABLE acl_test.sink (id int DEFAULT 1, v pg_catalog.text);
-- pgTAP itself would fall into these traps, so the answers are first put aside
SET search_path = acl_test, pg_temp, effect, pg_catalog;
SELECT verdict || ' ' || holder AS lease FROM effect.claim_lease('acl/shadow', 'thief', '1 hour') \gset v_
SELECT effect.is_current('acl/shadow', 1) AS current, effect.renew_lease('acl/shadow', 1) IS NOT NULL AS renewed \gset v_
SELECT verdict AS new FROM effect.begin_effect('acl/shadow', 'new') \gset v_
SELECT verdict AS done, response FROM effect.begin_effect('acl/shadow', 'done') \gset v_
SELECT verdict AS job, effect_key AS key FROM effect.begin_effect('acl/shadow', 'job', '{}', 'acl/shadow', 1) \gset v_
SELECT verdict AS doubt FROM effect.mark_unknown(:'v_key', 1, 'x') \gset v_
SELECT state AS explained FROM effect.explain_effect('acl/shadow', 'job') \gset v_
SELECT effect.once('acl/shadow', 'once') AS once1, effect.once('acl/shadow', 'once') AS once2 \gset v_
SELECT effect.fenced_insert('acl/shadow', 1, 'acl_test.sink', '{"v": "x"}') AS stored \gset v_
SELECT verdict AS claimed FROM effect.claim_lease('acl/shadow2', 'w', '1 hour') \gset v_
SELECT effect.release_lease('acl/shadow2', 1) AS released \gset v_
RESET search_path;
RESET ROLE;
SELECT is(:'v_lease'::text, 'held real', 'shadowed: the lease is the real one''s');
SELECT is(:'v_current' || ' ' || :'v_renewed', 't t', 'the real token is current, and renewed');
SELECT is(:'v_new'::text, 'go', 'a fake ledger says done, the real one go');
SELECT is(:'v_done' || ' ' || :'v_response', 'done {"real": true}', 'and the recorded answer is the real one');
SELECT is(:'v_job' || ' ' || :'v_doubt' || ' ' || :'v_explained', 'go unknown unknown', 'attempts and doubts');
SELECT is(:'v_once1' || ' ' || :'v_once2', 't f', 'once');
SELECT is(:'v_stored'::jsonb, '{"id": 1, "v": "x"}', 'fenced_insert');
SELECT is(:'v_claimed' || ' ' || :'v_released', 'granted t', 'claim and release');
SELECT is(count(*)::int, 1, 'the temporary tables were left alone') FROM pg_temp.lease;
SELECT is((fencing_token, owner, lease_until > pg_catalog.clock_timestamp())::text, '(1,real,t)', 'the real lease is in the real table') FROM effect.lease WHERE job_key = 'acl/shadow';
-- An operator and a monitor under the same path
GRANT USAGE ON SCHEMA acl_test TO effect_acl_operator, effect_acl_monitor;
SET ROLE effect_acl_operator;
SET search_path = acl_test, pg_temp, effect, pg_catalog;
SELECT effect.resolve_unknown(:'v_key', 'cannot_tell') AS found1, effect.resolve_unknown(:'v_key', 'happened') AS found2 \gset v_
SELECT effect.revoke_lease('acl/shadow', 'x') AS revoked \gset v_
SELECT count(*) OPERATOR(pg_catalog.>=) 1 AS seen FROM effect.effects \gset v_
SELECT count(*) OPERATOR(pg_catalog.>=) 0 AS gaps FROM effect.fence_gaps() \gset v_
RESET search_path;
RESET ROLE;
SELECT is(format('%s %s %s %s %s', :'v_found1', :'v_found2', :'v_revoked', :'v_seen', :'v_gaps'), 'unknown done 1 t t', 'an operator''s calls too');

SELECT * FROM finish();
DROP SCHEMA acl_test CASCADE;
DROP OWNED BY effect_acl_nobody, effect_acl_schema, effect_acl_worker, effect_acl_operator, effect_acl_monitor, effect_acl_approver, effect_acl_both, "effect acl ""odd"" Role";
DROP ROLE effect_acl_nobody, effect_acl_schema, effect_acl_worker, effect_acl_operator, effect_acl_monitor, effect_acl_approver, effect_acl_both, "effect acl ""odd"" Role";
