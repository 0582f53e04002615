\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- install: what CREATE EXTENSION makes, and that DROP EXTENSION takes it away.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS effect CASCADE;

SELECT plan(27);

CREATE SCHEMA effect;
SELECT throws_ok('CREATE EXTENSION effect', '42P06', NULL, 'a stranger''s schema makes CREATE EXTENSION fail');
DROP SCHEMA effect;
SELECT throws_ok('CREATE EXTENSION effect SCHEMA public', '0A000', NULL, 'it goes nowhere else');

CREATE EXTENSION effect;
SELECT throws_ok('ALTER EXTENSION effect SET SCHEMA public', '0A000', NULL, 'and is not relocatable');
DROP EXTENSION effect;
SELECT hasnt_schema('effect');
CREATE EXTENSION effect;
SELECT has_schema('effect');

-- Everything that belongs to the extension, by its kind.
CREATE TEMP VIEW object AS
	SELECT d.classid, d.objid, i.type, i.identity
	  FROM pg_depend d
	  JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'effect'
	  CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) i
	 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	   -- row types and arrays are members of their own from 17 on
	   AND NOT EXISTS (SELECT FROM pg_type t WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid
					   AND (t.typrelid <> 0 OR t.typelem <> 0));

SELECT bag_eq(
	$$SELECT type || ' ' || identity FROM object WHERE type <> 'function'$$,
	$$VALUES ('schema effect'),
			 ('sequence effect.journal_entry_id_seq'),
			 ('table effect.action'), ('table effect.job'), ('table effect.checkpoint'),
			 ('type effect.overlap_policy'), ('type effect.checkpoint_scope'),
			 ('procedure effect.run_job(pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text)'),
			 ('table effect.approval'), ('table effect.cluster'), ('table effect.counter'), ('table effect.counter_delta'),
			 ('table effect.firing'), ('table effect.journal_entry'),
			 ('table effect.lease'), ('table effect.ledger'), ('table effect.retention'), ('table effect.run'),
			 ('table effect.straggler'), ('table effect.sweep_state'), ('table effect.unknown'),
			 ('type effect.effect_state'), ('type effect.effect_verdict'), ('type effect.finding'),
			 ('type effect.identity'), ('type effect.lease_verdict'), ('type effect.run_outcome'), ('type effect.unknown_policy'),
			 ('view effect.abandoned_claims'), ('view effect.action_numbers'), ('view effect.action_stats'),
			 ('view effect.advice'), ('view effect.attention'), ('view effect.awaiting_approval'),
			 ('view effect.counter_totals'), ('view effect.counters'), ('view effect.effects'),
			 ('view effect.job_numbers'), ('view effect.job_stats'), ('view effect.lookalikes'),
			 ('view effect.metric_values'), ('view effect.open_effects'),
			 ('view effect.journal'), ('view effect.leases'), ('view effect.runs'),
			 ('view effect.unknown_effects'), ('view effect.unused_approvals')$$,
	'the schema, tables, views and types');

SELECT bag_eq(
	$$SELECT replace(identity, 'pg_catalog.', '') FROM object WHERE type = 'function'$$,
	$$VALUES
		('effect.adopt_cluster()'),
		('effect.apply_effect(text,text,jsonb)'),
		('effect.approve(uuid,text,text,interval)'),
		('effect.begin_effect(text,text,jsonb,text,bigint,text,text,uuid)'),
		('effect.begin_effects(text,text[],jsonb[],text,bigint,text)'),
		('effect.bump_epochs()'),
		('effect.canonical_json(jsonb)'),
		('effect.check_fence()'),
		('effect.check_token_monotonic()'),
		('effect.claim_any(text[],text,interval)'),
		('effect.claim_effect(text,text,jsonb,text,bigint,text,text,uuid)'),
		('effect.claim_lease(text,text,interval,text,uuid)'),
		('effect.close_effect(uuid,text,jsonb)'),
		('effect.complete_effect(uuid,bigint,jsonb)'),
		('effect.complete_effects(uuid[],bigint,jsonb[])'),
		('effect.drop_fence(regclass)'),
		('effect.effect_key(text,text,text)'),
		('effect.explain_effect(text,text,jsonb)'),
		('effect.facts("any")'),
		('effect.fence(text,bigint)'),
		('effect.fence_gaps()'),
		('effect.fenced_insert(text,bigint,regclass,jsonb)'),
		('effect.grant_approver(name)'),
		('effect.grant_monitor(name)'),
		('effect.grant_operator(name)'),
		('effect.grant_worker(name)'),
		('effect.guard_approval()'),
		('effect.guard_cluster()'),
		('effect.guard_keep()'),
		('effect.guard_lease()'),
		('effect.guard_ledger()'),
		('effect.guard_run()'),
		('effect.guard_unknown()'),
		('effect.input_digest(jsonb)'),
		('effect.input_digest(jsonb,text[])'),
		('effect.is_current(text,bigint)'),
		('effect.keep_token_monotonic(regclass,name)'),
		('effect.mark_unknown(uuid,bigint,text)'),
		('effect.may_read_bodies()'), ('effect.open_keys()'), ('effect.metrics()'), ('effect.job_numbers()'), ('effect.action_numbers()'),
		('effect.dashboard()'), ('effect.dashboard_attention()'), ('effect.dashboard_counters(text)'), ('effect.dashboard_effects()'), ('effect.dashboard_leases()'), ('effect.dashboard_more(bigint,text)'), ('effect.dashboard_name(text)'), ('effect.dashboard_number(numeric)'), ('effect.dashboard_runs()'), ('effect.dashboard_span(interval)'), ('effect.dashboard_style()'), ('effect.dashboard_time(timestamp with time zone)'), ('effect.escape_html(text)'),
		('effect.next_unknown(text,text,interval)'),
		('effect.once(text,text,jsonb)'),
		('effect.once(text,text[])'),
		('effect.quarantine(text)'),
		('effect.refuse_approval(uuid,text,text)'), ('effect.registry_changed()'),
		('effect.release_lease(text,bigint,effect.run_outcome,jsonb)'),
		('effect.renew_lease(text,bigint,interval)'),
		('effect.reopen_effect(uuid,text)'),
		('effect.require_fence(regclass,text)'),
		('effect.resolve_unknown(uuid,effect.finding,integer,jsonb,jsonb)'),
		('effect.retract_effect(uuid,bigint,jsonb)'),
		('effect.revoke_approval(uuid,text)'),
		('effect.revoke_lease(text,text)'),
		('effect.set_job(text,interval,effect.overlap_policy,integer,interval,interval,timestamp with time zone,text,effect.checkpoint_scope,boolean,interval,name[])'), ('effect.drop_job(text)'), ('effect.firing_of(text,timestamp with time zone)'),
		('effect.save_checkpoint(text,bigint,jsonb)'), ('effect.get_checkpoint(text)'), ('effect.guard_firing()'), ('effect.guard_checkpoint()'),
		('effect.set_action(text,text[],effect.identity,effect.unknown_policy,text,interval,interval,interval,integer,interval,interval,interval,name[])'),
		('effect.submit_effect(uuid,bigint,uuid)'),
		('effect.sweep()')$$,
	'the functions, each with its argument types');

SELECT bag_eq(
	$$SELECT t.typname::text, string_agg(e.enumlabel, ' ' ORDER BY e.enumsortorder)
	    FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
	   WHERE t.typnamespace = 'effect'::regnamespace GROUP BY 1$$,
	$$VALUES ('effect_state', 'claimed submitted unknown done'),
			 ('effect_verdict', 'reserved go go_after_commit apply done closed busy unknown fenced unapproved mismatch quarantined'),
			 ('finding', 'happened did_not_happen cannot_tell'),
			 ('identity', 'facts target'), ('checkpoint_scope', 'firing job'), ('overlap_policy', 'coalesce queue fail'),
			 ('unknown_policy', 'check resend drop'),
			 ('lease_verdict', 'granted held coalesced queued saturated already_ran cooling_down paused quarantined'),
			 ('run_outcome', 'running finished failed revoked abandoned fenced')$$,
	'the words of the enums');

-- Argument names are fixed, so that => works.
SELECT bag_eq(
	$$SELECT p.oid::regprocedure::text,
			 array_to_string(p.proargnames[1:p.pronargs], ' ')
	    FROM pg_proc p WHERE p.pronamespace = 'effect'::regnamespace AND p.pronargs > 0
	     AND p.proname NOT IN ('facts')$$,
	$$VALUES
		('effect.apply_effect(text,text,jsonb)', 'action target inputs'),
		('effect.approve(uuid,text,text,interval)', 'effect_key approver terms valid_for'),
		('effect.begin_effect(text,text,jsonb,text,bigint,text,text,uuid)', 'action target inputs job_key fencing_token terms_shown run_id nonce'),
		('effect.begin_effects(text,text[],jsonb[],text,bigint,text)', 'action targets inputs job_key fencing_token run_id'),
		('effect.canonical_json(jsonb)', 'inputs'),
		('effect.claim_any(text[],text,interval)', 'job_keys owner lease_for'),
		('effect.claim_effect(text,text,jsonb,text,bigint,text,text,uuid)', 'action target inputs job_key fencing_token terms_shown run_id nonce'),
		('effect.claim_lease(text,text,interval,text,uuid)', 'job_key owner lease_for firing nonce'),
		('effect.close_effect(uuid,text,jsonb)', 'effect_key reason response'),
		('effect.complete_effect(uuid,bigint,jsonb)', 'effect_key fencing_token response'),
		('effect.complete_effects(uuid[],bigint,jsonb[])', 'effect_keys fencing_token responses'),
		('effect.drop_fence(regclass)', 'target'),
		('effect.effect_key(text,text,text)', 'action target input_digest'),
		('effect.explain_effect(text,text,jsonb)', 'action target inputs'),
		('effect.fence(text,bigint)', 'job_key fencing_token'),
		('effect.fenced_insert(text,bigint,regclass,jsonb)', 'job_key fencing_token target new_row'),
		('effect.grant_approver(name)', 'role'),
		('effect.grant_monitor(name)', 'role'),
		('effect.grant_operator(name)', 'role'),
		('effect.grant_worker(name)', 'role'),
		('effect.input_digest(jsonb)', 'inputs'),
		('effect.input_digest(jsonb,text[])', 'inputs fields'),
		('effect.is_current(text,bigint)', 'job_key fencing_token'),
		('effect.keep_token_monotonic(regclass,name)', 'target token_column'),
		('effect.mark_unknown(uuid,bigint,text)', 'effect_key fencing_token reason'),
		('effect.next_unknown(text,text,interval)', 'owner action lease_for'),
		('effect.once(text,text,jsonb)', 'action target inputs'),
		('effect.once(text,text[])', 'action targets'),
		('effect.quarantine(text)', 'reason'),
		('effect.refuse_approval(uuid,text,text)', 'effect_key approver reason'),
		('effect.release_lease(text,bigint,effect.run_outcome,jsonb)', 'job_key fencing_token outcome detail'),
		('effect.renew_lease(text,bigint,interval)', 'job_key fencing_token lease_for'),
		('effect.reopen_effect(uuid,text)', 'effect_key reason'),
		('effect.require_fence(regclass,text)', 'target job_key'),
		('effect.resolve_unknown(uuid,effect.finding,integer,jsonb,jsonb)', 'effect_key finding attempt evidence response'),
		('effect.retract_effect(uuid,bigint,jsonb)', 'effect_key fencing_token evidence'),
		('effect.revoke_approval(uuid,text)', 'effect_key approver'),
		('effect.revoke_lease(text,text)', 'job_key reason'),
		('effect.set_job(text,interval,effect.overlap_policy,integer,interval,interval,timestamp with time zone,text,effect.checkpoint_scope,boolean,interval,name[])', 'job_key every overlap queue_limit lease_for at_least_for anchor time_zone checkpoint_scope paused keep_runs_for usable_by'),
		('effect.dashboard_counters(text)', 'of_kind'), ('effect.dashboard_more(bigint,text)', 'n query'), ('effect.dashboard_name(text)', 'name'), ('effect.dashboard_number(numeric)', 'n'), ('effect.dashboard_span(interval)', 'span'), ('effect.dashboard_time(timestamp with time zone)', 'at'), ('effect.escape_html(text)', 'value'),
		('effect.drop_job(text)', 'job_key'), ('effect.firing_of(text,timestamp with time zone)', 'job_key at'),
		('effect.save_checkpoint(text,bigint,jsonb)', 'job_key fencing_token state'), ('effect.get_checkpoint(text)', 'job_key'),
		('effect.run_job(text,text,text,text)', 'job_key command firing owner'),
		('effect.set_action(text,text[],effect.identity,effect.unknown_policy,text,interval,interval,interval,integer,interval,interval,interval,name[])',
			'action key_fields identity on_unknown resolver settle timeout far_side_dedupes_for approvals_required approve_within keep_body_for keep_key_for usable_by'),
		('effect.submit_effect(uuid,bigint,uuid)', 'effect_key fencing_token nonce')$$,
	'the names of the arguments');

SELECT is_empty($$SELECT type, identity FROM object WHERE obj_description(objid, classid::regclass::text::name) IS NULL
				   AND NOT (type = 'sequence')$$, 'every object has a COMMENT');

-- What every row of an answer looks like.
SELECT bag_eq(
	$$SELECT DISTINCT array_to_string(p.proargnames[p.pronargs + 1:], ' ')
	    FROM pg_proc p WHERE p.pronamespace = 'effect'::regnamespace
	     AND p.proname ~ '^(claim|begin|submit|complete|retract|mark|close|reopen|explain|apply)_(effects?|unknown)$' ORDER BY 1$$,
	$$VALUES ('verdict effect_key fencing_token state attempt response detail'),
			 ('verdict effect_key fencing_token state attempt response detail target')$$,
	'the ledger''s calls answer in one shape');
SELECT bag_eq(
	$$SELECT p.proname::text, array_to_string(p.proargnames[p.pronargs + 1:], ' ')
	    FROM pg_proc p WHERE p.pronamespace = 'effect'::regnamespace
	     AND p.proname IN ('claim_lease', 'claim_any') ORDER BY 1$$,
	$$VALUES ('claim_any', 'job_key verdict fencing_token lease_until holder firing asked checkpoint'),
			 ('claim_lease', 'verdict fencing_token lease_until holder firing asked checkpoint')$$,
	'and the claims of a lease in another');
SELECT bag_eq(
	$$SELECT p.proname::text, array_to_string(p.proargnames[p.pronargs + 1:], ' ')
	    FROM pg_proc p WHERE p.pronamespace = 'effect'::regnamespace
	     AND p.proname IN ('sweep', 'next_unknown') ORDER BY 1$$,
	$$VALUES ('next_unknown', 'effect_key action target inputs attempt submitted_at unknown_since reason checks late_answer'),
			 ('sweep', 'runs_abandoned effects_unknown found_happened found_absent still_unclear bodies_pruned keys_pruned')$$,
	'what sweep and next_unknown tell');

-- Labels.
SELECT set_eq(
	$$SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND provolatile = 'i'$$,
	ARRAY['canonical_json', 'input_digest', 'effect_key', 'facts'], 'keys are IMMUTABLE');
SELECT set_eq(
	$$SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND proparallel = 's'$$,
	ARRAY['canonical_json', 'input_digest', 'effect_key', 'facts'], 'and PARALLEL SAFE, and nothing else is');
SELECT set_eq(
	$$SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND provolatile = 's'$$,
	ARRAY['action_numbers', 'dashboard', 'dashboard_attention', 'dashboard_counters', 'dashboard_effects', 'dashboard_leases', 'dashboard_more', 'dashboard_name', 'dashboard_number', 'dashboard_runs', 'dashboard_span', 'dashboard_style', 'dashboard_time', 'escape_html', 'fence_gaps', 'firing_of', 'job_numbers', 'may_read_bodies', 'metrics', 'open_keys'], 'twenty functions only read: STABLE');
SELECT is_empty(
	$$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace
	     AND provolatile = 'v' AND (proparallel <> 'u' OR prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c'))$$,
	'all others are in C, VOLATILE and PARALLEL UNSAFE');
SELECT is_empty(
	$$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace
	     AND prokind = 'f' AND provolatile = 'v' AND prorettype <> 'trigger'::regtype AND procost < 1000
	     AND proname !~ '^grant_|^drop_job|_fence$|^keep_token|^bump_|^set_|^sweep$|^quarantine$|^adopt_|appro'$$,
	'what decides something is costly: a planner that may choose calls it last');
SELECT is_empty(
	$$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND proisstrict$$,
	'no function is STRICT: NULL where a value is needed is an error, not a NULL');

-- Tables.
SELECT is_empty(
	$$SELECT oid::regclass FROM pg_class WHERE relnamespace = 'effect'::regnamespace AND relpersistence <> 'p'$$,
	'all relations are permanent');
SELECT is_empty(
	$$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'effect'::regnamespace AND c.relkind = 'r'
	     AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)$$,
	'every table has a primary key');
SELECT is_empty(
	$$SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = 'effect'::regnamespace AND c.relkind IN ('r', 'S')
	     AND NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'effect' AND c.oid = ANY (e.extconfig))$$,
	'tables and sequences are marked for dump');
SELECT is_empty(
	$$SELECT condition FROM pg_extension, unnest(extcondition) AS condition WHERE extname = 'effect' AND condition <> ''$$,
	'whole, without a filter');
SELECT is_empty(
	$$SELECT attrelid::regclass, attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
	   WHERE c.relnamespace = 'effect'::regnamespace AND a.atttypid IN ('timestamp'::regtype, 'regclass'::regtype, 'regproc'::regtype, 'regprocedure'::regtype)$$,
	'no column is a timestamp without time zone, or a reg* type');
SELECT is_empty(
	$$SELECT t.n FROM (SELECT 'cluster' AS n, count(*) AS c FROM effect.cluster UNION ALL SELECT 'lease', count(*) FROM effect.lease
	   UNION ALL SELECT 'ledger', count(*) FROM effect.ledger UNION ALL SELECT 'journal', count(*) FROM effect.journal_entry
	   UNION ALL SELECT 'action', count(*) FROM effect.action UNION ALL SELECT 'counter', count(*) FROM effect.counter UNION ALL SELECT 'sweep_state', count(*) FROM effect.sweep_state) t WHERE c > 0$$,
	'the script writes no row that a restore would collide with');

-- Submit and complete must stay HOT: no index on a column they change.
SELECT set_eq(
	$$SELECT DISTINCT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
	   WHERE i.indrelid = 'effect.ledger'::regclass$$,
	ARRAY['effect_key', 'job_key', 'fencing_token', 'created_at'], 'the ledger is indexed by key, by run and by its creation alone');
SELECT set_eq(
	$$SELECT DISTINCT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
	   WHERE i.indrelid = 'effect.lease'::regclass$$,
	ARRAY['job_key'], 'the leases by job');

SELECT * FROM finish();
