\set ECHO none
\set QUIET 1
\pset format unaligned
\pset tuples_only true
\pset pager off
\set ON_ERROR_STOP on
-- lint: the rules that hold for the whole surface: how functions are declared,
-- and that every bad input has a clear error, its SQLSTATE and, where the caller
-- can act, a hint.  Run from the top directory: src/errors.h is read from there.
SET client_min_messages = warning;
DROP ROLE IF EXISTS effect_lint_app;
CREATE ROLE effect_lint_app;
SELECT effect.grant_worker('effect_lint_app') \g /dev/null

SELECT plan(307);

-- Declarations
SELECT is_empty($$SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
	WHERE p.pronamespace = 'effect'::regnamespace AND a.grantee = 0$$, 'no function is executable by PUBLIC');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prosecdef$$, 'none is SECURITY DEFINER');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')
	AND provolatile <> 'i' AND proparallel <> 'u'$$, 'C functions are PARALLEL UNSAFE, or IMMUTABLE');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')
	AND prosrc NOT LIKE 'effect_%'$$, 'a function effect.verb_noun is effect_verb_noun in C');
SELECT is_empty($$SELECT prosrc FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')
	GROUP BY 1 HAVING count(*) > 1$$, 'one C symbol a signature');
SELECT is_empty($$SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'effect'::regnamespace AND prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql')
	AND prosqlbody IS NULL$$, 'SQL functions have parsed bodies: no name in them is looked up at run time');
SELECT is_empty($$SELECT conrelid::regclass, conname FROM pg_constraint c WHERE connamespace = 'effect'::regnamespace AND contype = 'c' AND NOT convalidated$$, 'constraints are valid');

-- The install script's text
SELECT pg_read_file(c.setting || '/extension/effect--' || e.extversion || '.sql') AS script FROM pg_config c, pg_extension e WHERE c.name = 'SHAREDIR' AND e.extname = 'effect' \gset
SELECT ok(:'script' !~* 'or\s+replace', 'the script says OR REPLACE nowhere');
SELECT ok(:'script' !~* 'if\s+not\s+exists', 'nor IF NOT EXISTS');
SELECT ok(:'script' !~* 'security\s+definer', 'nor SECURITY DEFINER');
SELECT ok(:'script' !~* '\mcascade\M', 'nor CASCADE');
SELECT ok(:'script' !~* '\mset\s+search_path', 'nor SET search_path');
SELECT ok(:'script' ~ 'REVOKE ALL ON ALL ROUTINES IN SCHEMA effect FROM PUBLIC;\s*$', 'the REVOKE stands last');
SELECT is((SELECT count(*) FROM regexp_matches(:'script', '^CREATE (FUNCTION|TABLE|VIEW|TYPE|SCHEMA)', 'gn')), (SELECT count(*) FROM regexp_matches(:'script', '^COMMENT ON (FUNCTION|TABLE|VIEW|TYPE|SCHEMA)', 'gn')),
	'as many COMMENTs as objects');

-- What a statement fails with
CREATE FUNCTION pg_temp.failure(sql text, OUT state text, OUT message text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE sql;
	state := 'none';
	RAISE SQLSTATE 'OK000';
EXCEPTION
	WHEN SQLSTATE 'OK000' THEN NULL;
	WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;

-- Something of everything
CREATE TABLE lint_sink (id int, v text);
CREATE TABLE lint_fenced (id int);
SELECT effect.require_fence('lint_fenced') \g /dev/null
SELECT 1 FROM effect.claim_lease('lint/live', 'w', '1 hour') \g /dev/null
SELECT 1 FROM effect.claim_lease('lint/lost', 'w', '1 hour') \g /dev/null
SELECT effect.revoke_lease('lint/lost', 'x') \g /dev/null
SELECT 1 FROM effect.begin_effects('lint', '{submitted,unknown,done,again}') \g /dev/null
SELECT 1 FROM effect.claim_effect('lint', 'claimed') \g /dev/null
SELECT 1 FROM effect.apply_effect('lint', 'applied') \g /dev/null
SELECT effect.effect_key('lint', 'submitted', effect.input_digest('{}')) AS submitted, effect.effect_key('lint', 'unknown', effect.input_digest('{}')) AS unknown,
	   effect.effect_key('lint', 'done', effect.input_digest('{}')) AS done, effect.effect_key('lint', 'claimed', effect.input_digest('{}')) AS claimed,
	   effect.effect_key('lint', 'applied', effect.input_digest('{}')) AS applied \gset k_
SELECT 1 FROM effect.mark_unknown(:'k_unknown', 1, 'x') \g /dev/null
SELECT effect.set_action('lint/asked', approvals_required => 1), effect.set_action('lint/event', identity => 'target') \g /dev/null
SELECT effect.once('lint/event', 'evt', '{"n": 1}') \g /dev/null
SELECT effect_key AS shown FROM effect.claim_effect('lint/asked', 'shown', terms_shown => 'terms') \gset k_
SELECT effect_key AS spent FROM effect.claim_effect('lint/asked', 'spent') \gset k_
SELECT effect.approve(:'k_spent', 'ann') \g /dev/null
SELECT 1 FROM effect.submit_effect(:'k_spent', 1) \g /dev/null
SELECT 1 FROM effect.complete_effect(:'k_done', 1) \g /dev/null

--
-- Each SQLSTATE of class LE, with a hint
--
CREATE TEMP TABLE provoke (state text, sql text);
INSERT INTO provoke SELECT state, unnest(sql) FROM (VALUES
	('LE001', ARRAY['SELECT effect.fence(''lint/lost'', 1)']),
	('LE003', ARRAY['SELECT effect.fence(''lint/live'', 2)']),
	('LE003', ARRAY['SELECT effect.fence(''lint/nobody'', 1)']),
	('LE003', ARRAY['SELECT effect.is_current(''lint/live'', 2)']),
	('LE003', ARRAY['SELECT effect.fenced_insert(''lint/live'', 2, ''lint_sink'', ''{}'')']),
	('LE003', ARRAY['SELECT effect.renew_lease(''lint/live'', 2)']),
	('LE003', ARRAY['SELECT effect.release_lease(''lint/live'', 2)']),
	('LE003', ARRAY['SELECT effect.revoke_lease(''lint/nobody'', ''x'')']),
	('LE003', ARRAY['SELECT effect.begin_effect(''lint'', ''new'', ''{}'', ''lint/live'', 2)']),
	('LE003', ARRAY['SELECT effect.claim_effect(''lint'', ''new'', ''{}'', ''lint/nobody'', 1)']),
	('LE003', ARRAY['SELECT effect.begin_effects(''lint'', ''{new}'', NULL, ''lint/live'', 2)']),
	('LE003', ARRAY(SELECT 'SELECT effect.' || u FROM unnest(ARRAY['submit_effect(gen_random_uuid(), 1)', 'complete_effect(gen_random_uuid(), 1)', 'complete_effects(ARRAY[gen_random_uuid()], 1)',
		'retract_effect(gen_random_uuid(), 1)', 'mark_unknown(gen_random_uuid(), 1, ''x'')', 'mark_unknown(gen_random_uuid(), NULL, ''x'')', 'close_effect(gen_random_uuid(), ''x'')',
		'reopen_effect(gen_random_uuid(), ''x'')', 'resolve_unknown(gen_random_uuid(), ''happened'')']) AS u)),
	('LE003', ARRAY(SELECT 'SELECT effect.' || u FROM unnest(ARRAY[format('submit_effect(%L, 2)', :'k_claimed'), format('complete_effect(%L, 2)', :'k_submitted'), format('retract_effect(%L, 2)', :'k_submitted'),
		format('mark_unknown(%L, 2, ''x'')', :'k_submitted'), format('complete_effect(%L, 2)', :'k_done')]) AS u)),
	('LE004', ARRAY(SELECT 'SELECT effect.' || u FROM unnest(ARRAY[format('complete_effect(%L, 1)', :'k_claimed'), format('retract_effect(%L, 1)', :'k_unknown'), format('mark_unknown(%L, 1, ''x'')', :'k_claimed'),
		format('close_effect(%L, ''x'')', :'k_submitted'), format('close_effect(%L, ''x'')', :'k_unknown'), format('reopen_effect(%L, ''x'')', :'k_claimed'), format('reopen_effect(%L, ''x'')', :'k_applied'),
		format('resolve_unknown(%L, ''happened'')', :'k_done'), format('resolve_unknown(%L, ''happened'')', :'k_claimed'), 'once(''lint'', ''submitted'')']) AS u)),
	('LE002', ARRAY['SELECT effect.set_job(''lint/fail'', overlap => ''fail'', lease_for => ''1 hour''); SELECT effect.claim_lease(''lint/fail'', ''a''); SELECT effect.claim_lease(''lint/fail'', ''b'')']),
	('LE005', ARRAY[format('SELECT effect.approve(%L, ''ann'', ''other terms'')', :'k_shown')]),
	('LE006', ARRAY[format('SELECT effect.approve(%L, ''ann'')', :'k_spent'), format('SELECT effect.revoke_approval(%L, ''ann'')', :'k_spent')]),
	('LE003', ARRAY['SELECT effect.refuse_approval(gen_random_uuid(), ''ann'', ''x'')', 'SET LOCAL effect.require_registered_actions = on; SELECT effect.claim_effect(''lint/nobody'', ''x'')']),
	('LE004', ARRAY[format('SELECT effect.approve(%L, ''ann'')', :'k_done'), format('SELECT effect.refuse_approval(%L, ''ann'', ''x'')', :'k_submitted'), 'SELECT effect.set_action(''lint'', ''{a}'')', 'SELECT effect.once(''lint/event'', ''evt'', ''{"n": 2}'')']),
	('LE011', ARRAY['SELECT effect.quarantine(''x''); SELECT effect.bump_epochs()']),
	('LE007', ARRAY['INSERT INTO lint_fenced VALUES (1)']),
	('LE008', ARRAY[format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', :'k_unknown')]),
	('LE009', ARRAY[format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 2)', :'k_unknown')]),
	('LE010', ARRAY[format('SELECT effect.resolve_unknown(%L, ''did_not_happen'', 1)', :'k_submitted')]),
	('LE012', ARRAY['DELETE FROM effect.lease']),
	('LE012', ARRAY['UPDATE effect.lease SET fencing_token = 1 WHERE job_key = ''lint/nobody''; UPDATE effect.ledger SET attempt = 0'])) AS t (state, sql);
SELECT is(f.state || CASE WHEN length(f.hint) > 10 THEN ', hinted' ELSE ', no hint' END, p.state || ', hinted',
	regexp_replace(p.sql, '[0-9a-f]{8}-[0-9a-f-]{27}', 'key'))
  FROM provoke p, pg_temp.failure(p.sql) f;
SELECT is_empty($$SELECT p.sql, f.message FROM provoke p, pg_temp.failure(p.sql) f WHERE f.message ~ '^[A-Z]' OR f.message ~ '\.$'$$, 'messages are lower-case, without a full stop');
SELECT is_empty($$SELECT p.sql, f.hint FROM provoke p, pg_temp.failure(p.sql) f WHERE f.hint !~ '^[A-Z].*[.)]$'$$, 'hints are sentences');
CREATE TEMP TABLE source (line text);
\copy source FROM 'src/errors.h' WITH (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')
SELECT set_eq($$SELECT translate((regexp_match(line, 'MAKE_SQLSTATE\(([^)]*)\)'))[1], ''', ', '') FROM source WHERE line LIKE '#define%MAKE_SQLSTATE%'$$,
	'SELECT state FROM provoke', 'every SQLSTATE of src/errors.h is provoked here');

--
-- Bad inputs.  hint: where the caller can act on one that the message is not.
--
CREATE TEMP TABLE bad (n int GENERATED ALWAYS AS IDENTITY, state text, hinted boolean, sql text);
CREATE FUNCTION pg_temp.bad(state text, hinted boolean, VARIADIC sql text[]) RETURNS void LANGUAGE sql AS $$
	INSERT INTO bad (state, hinted, sql) SELECT state, hinted, unnest(sql) $$;
DO $do$
BEGIN
	-- NULL where a value is needed
	PERFORM pg_temp.bad('22004', false,
		'claim_lease(NULL, ''w'', ''1 hour'')', 'claim_lease(''j'', NULL, ''1 hour'')',
		'claim_any(NULL, ''w'', ''1 hour'')', 'claim_any(''{j}'', NULL, ''1 hour'')', 'claim_any(''{NULL}'', ''w'', ''1 hour'')',
		'renew_lease(NULL, 1)', 'renew_lease(''lint/live'', NULL)', 'release_lease(NULL, 1)', 'release_lease(''lint/live'', NULL)', 'release_lease(''lint/live'', 1, NULL)',
		'revoke_lease(NULL, ''x'')', 'revoke_lease(''lint/live'', NULL)',
		'fence(NULL, 1)', 'fence(''lint/live'', NULL)', 'is_current(NULL, 1)', 'is_current(''lint/live'', NULL)',
		'fenced_insert(NULL, 1, ''lint_sink'', ''{}'')', 'fenced_insert(''lint/live'', NULL, ''lint_sink'', ''{}'')', 'fenced_insert(''lint/live'', 1, NULL, ''{}'')', 'fenced_insert(''lint/live'', 1, ''lint_sink'', NULL)',
		'require_fence(NULL)', 'drop_fence(NULL)', 'keep_token_monotonic(NULL, ''id'')', 'keep_token_monotonic(''lint_sink'', NULL)',
		'claim_effect(NULL, ''t'')', 'claim_effect(''a'', NULL)', 'claim_effect(''a'', ''t'', NULL)', 'begin_effect(NULL, ''t'')', 'begin_effect(''a'', NULL)', 'begin_effect(''a'', ''t'', NULL)',
		'begin_effects(NULL, ''{t}'')', 'begin_effects(''a'', NULL)', 'begin_effects(''a'', ''{NULL}'')', 'begin_effects(''a'', ''{t}'', ''{NULL}'')',
		'submit_effect(NULL, 1)', 'submit_effect(gen_random_uuid(), NULL)', 'complete_effect(NULL, 1)', 'complete_effect(gen_random_uuid(), NULL)',
		'complete_effects(NULL, 1)', 'complete_effects(''{NULL}'', 1)', 'complete_effects(ARRAY[gen_random_uuid()], NULL)',
		'retract_effect(NULL, 1)', 'retract_effect(gen_random_uuid(), NULL)', 'mark_unknown(NULL, 1, ''x'')', 'mark_unknown(gen_random_uuid(), 1, NULL)',
		'close_effect(NULL, ''x'')', 'close_effect(gen_random_uuid(), NULL)', 'reopen_effect(NULL, ''x'')', 'reopen_effect(gen_random_uuid(), NULL)',
		'resolve_unknown(NULL, ''happened'')', 'resolve_unknown(gen_random_uuid(), NULL)',
		'explain_effect(NULL, ''t'')', 'explain_effect(''a'', NULL)', 'explain_effect(''a'', ''t'', NULL)', 'apply_effect(NULL, ''t'')', 'apply_effect(''a'', NULL)', 'apply_effect(''a'', ''t'', NULL)',
		'once(NULL, ''t'')', 'once(''a'', NULL::text)', 'once(''a'', ''t'', NULL)', 'once(NULL, ''{t}''::text[])', 'once(''a'', NULL::text[])', 'once(''a'', ''{NULL}''::text[])',
		'effect_key(NULL, ''t'', ''d'')', 'effect_key(''a'', NULL, ''d'')', 'effect_key(''a'', ''t'', NULL)', 'canonical_json(NULL)', 'input_digest(NULL)', 'input_digest(''{"a":1}'', NULL::text)',
		'set_action(NULL)', 'set_action(''lint/bad'', ''{NULL}'')', 'set_action(''lint/bad'', usable_by => ''{NULL}'')', 'approve(NULL, ''ann'')', 'approve(gen_random_uuid(), NULL)',
		'revoke_approval(NULL, ''ann'')', 'revoke_approval(gen_random_uuid(), NULL)', 'refuse_approval(NULL, ''ann'', ''x'')', 'refuse_approval(gen_random_uuid(), NULL, ''x'')', 'refuse_approval(gen_random_uuid(), ''ann'', NULL)',
		'next_unknown(NULL)', 'next_unknown(''p'', NULL, NULL)', 'quarantine(NULL)',
		'grant_worker(NULL)', 'grant_operator(NULL)', 'grant_monitor(NULL)', 'grant_approver(NULL)');
	PERFORM pg_temp.bad('22004', true,
		'claim_lease(''lint/new'', ''w'')', 'claim_lease(''lint/new'', ''w'', NULL)', 'claim_any(''{lint/new}'', ''w'')',
		'begin_effect(''a'', ''t'', ''{}'', ''lint/live'')', 'begin_effect(''a'', ''t'', ''{}'', NULL, 1)', 'begin_effects(''a'', ''{t}'', NULL, ''lint/live'')',
		'resolve_unknown(gen_random_uuid(), ''did_not_happen'')');
	-- blank
	PERFORM pg_temp.bad('22023', false,
		'claim_lease('''', ''w'', ''1 hour'')', 'claim_lease(E'' \t\n'', ''w'', ''1 hour'')', 'claim_lease(''j'', '' '', ''1 hour'')', 'claim_lease(''j'', ''w'', ''1 hour'', '''')',
		'claim_any(''{" "}'', ''w'', ''1 hour'')', 'claim_any(''{}'', ''w'', ''1 hour'')', 'claim_any(''{{a},{b}}'', ''w'', ''1 hour'')',
		'renew_lease('''', 1)', 'release_lease('' '', 1)', 'revoke_lease('''', ''x'')', 'revoke_lease(''lint/live'', '' '')', 'fence('''', 1)', 'is_current('''', 1)', 'fenced_insert('''', 1, ''lint_sink'', ''{}'')',
		'require_fence(''lint_sink'', '''')', 'claim_effect('''', ''t'')', 'claim_effect(''a'', E''\t'')', 'claim_effect(''a'', ''t'', ''{}'', '''', 1)', 'claim_effect(''a'', ''t'', terms_shown => '''')', 'claim_effect(''a'', ''t'', run_id => '' '')',
		'begin_effects(''a'', ''{""}'')', 'begin_effects(''a'', ''{}'')', 'begin_effects(''a'', ''{t}'', ''{}'')', 'complete_effects(''{}'', 1)',
		'mark_unknown(gen_random_uuid(), 1, '' '')', 'close_effect(gen_random_uuid(), '''')', 'reopen_effect(gen_random_uuid(), E''\n'')',
		'explain_effect('''', ''t'')', 'apply_effect(''a'', '''')', 'once('' '', ''t'')', 'once(''a'', ''{" "}''::text[])', 'once(''a'', ''{}''::text[])', 'effect_key(''a'', '''', ''d'')', 'effect_key(''a'', ''t'', '' '')');
	PERFORM pg_temp.bad('22023', false,
		'set_action('' '')', 'set_action(''lint/bad'', ''{" "}'')', 'set_action(''lint/bad'', approvals_required => -1)', 'set_action(''lint/bad'', approvals_required => 101)', 'set_action(''lint/bad'', settle => ''-1 second'')',
		'set_action(''lint/bad'', timeout => ''110 years'')', 'approve(gen_random_uuid(), '' '')', 'approve(gen_random_uuid(), ''ann'', '''')', 'approve(gen_random_uuid(), ''ann'', NULL, ''0'')', 'approve(gen_random_uuid(), ''ann'', NULL, ''367 days'')',
		'revoke_approval(gen_random_uuid(), '' '')', 'refuse_approval(gen_random_uuid(), '' '', ''x'')', 'refuse_approval(gen_random_uuid(), ''ann'', E''\t'')', 'next_unknown('''')', 'next_unknown(''p'', '' '')', 'next_unknown(''p'', NULL, ''0'')', 'quarantine('' '')',
		'set_action(repeat(''x'', 256))', 'approve(gen_random_uuid(), repeat(''x'', 256))', 'approve(gen_random_uuid(), ''ann'', repeat(''x'', 20001))', 'refuse_approval(gen_random_uuid(), ''ann'', repeat(''x'', 2001))', 'next_unknown(repeat(''x'', 256))', 'quarantine(repeat(''x'', 2001))');
	PERFORM pg_temp.bad('42883', true, 'set_action(''lint/bad'', resolver => ''pg_catalog.now'')', 'set_action(''lint/bad'', resolver => ''lint_nowhere'')');
	-- too long: job_key, action, owner, firing and run_id 255 bytes, target 1,024
	PERFORM pg_temp.bad('22023', false,
		'claim_lease(repeat(''x'', 256), ''w'', ''1 hour'')', 'claim_lease(repeat(U&''\00e9'', 128), ''w'', ''1 hour'')', 'claim_lease(''j'', repeat(''x'', 256), ''1 hour'')', 'claim_lease(''j'', ''w'', ''1 hour'', repeat(''x'', 256))',
		'claim_any(ARRAY[repeat(''x'', 256)], ''w'', ''1 hour'')', 'fence(repeat(''x'', 256), 1)', 'claim_effect(repeat(''x'', 256), ''t'')', 'claim_effect(''a'', repeat(''x'', 1025))',
		'claim_effect(''a'', ''t'', run_id => repeat(''x'', 256))', 'claim_effect(''a'', ''t'', terms_shown => repeat(''x'', 20001))', 'begin_effects(''a'', ARRAY[repeat(''x'', 1025)])',
		'close_effect(gen_random_uuid(), repeat(''x'', 2001))', 'effect_key(repeat(''x'', 256), ''t'', ''d'')', 'effect_key(''a'', repeat(''x'', 1025), ''d'')', 'once(''a'', repeat(''x'', 1025))');
	PERFORM pg_temp.bad('54000', true, 'claim_effect(''a'', ''t'', jsonb_build_object(''x'', repeat(''x'', 9000000)))', 'complete_effect(gen_random_uuid(), 1, jsonb_build_object(''x'', repeat(''x'', 9000000)))');
	PERFORM pg_temp.bad('54000', false, 'once(''a'', array_fill(''t''::text, ARRAY[100001]))');
	-- intervals that are negative, nothing or absurd
	PERFORM pg_temp.bad('22023', false,
		'claim_lease(''j'', ''w'', ''-1 second'')', 'claim_lease(''j'', ''w'', ''0'')', 'claim_lease(''j'', ''w'', ''1 month -31 days'')', 'claim_lease(''j'', ''w'', ''367 days'')', 'claim_lease(''j'', ''w'', ''1000 years'')', 'claim_lease(''j'', ''w'', ''300000 years'')',
		'claim_lease(''j'', ''w'', ''-300000 years'')', 'claim_any(''{j}'', ''w'', ''-1 second'')', 'renew_lease(''lint/live'', 1, ''-1 second'')', 'renew_lease(''lint/live'', 1, ''0'')', 'renew_lease(''lint/live'', 1, ''300000 years'')');
	-- tokens that cannot be
	PERFORM pg_temp.bad('22023', true,
		'renew_lease(''lint/live'', 0)', 'renew_lease(''lint/live'', -1)', 'release_lease(''lint/live'', 0)', 'fence(''lint/live'', 0)', 'fence(''lint/live'', -7)', 'is_current(''lint/live'', 0)', 'fenced_insert(''lint/live'', 0, ''lint_sink'', ''{}'')',
		'claim_effect(''a'', ''t'', ''{}'', ''lint/live'', 0)', 'begin_effect(''a'', ''t'', ''{}'', ''lint/live'', -1)', 'begin_effects(''a'', ''{t}'', NULL, ''lint/live'', 0)',
		'submit_effect(gen_random_uuid(), 0)', 'complete_effect(gen_random_uuid(), 0)', 'complete_effects(ARRAY[gen_random_uuid()], 0)', 'retract_effect(gen_random_uuid(), -1)', 'mark_unknown(gen_random_uuid(), 0, ''x'')');
	-- and the rest
	PERFORM pg_temp.bad('22023', true,
		'release_lease(''lint/live'', 1, ''running'')', 'release_lease(''lint/live'', 1, ''abandoned'')', 'fenced_insert(''lint/live'', 1, ''lint_sink'', ''[]'')', 'fenced_insert(''lint/live'', 1, ''lint_sink'', ''1'')',
		'claim_effect(''a'', ''t'', ''[]'')', 'claim_effect(''a'', ''t'', ''null'')', 'begin_effect(''a'', ''t'', ''"x"'')', 'apply_effect(''a'', ''t'', ''1'')', 'explain_effect(''a'', ''t'', ''[]'')', 'once(''a'', ''t'', ''[1]'')',
		'effect_key(''a'', ''t'', ''{"amount": 1}'')', 'effect_key(''a'', ''t'', '' [1]'')', 'effect_key(''a'', ''t'', upper(effect.input_digest(''{}'')))');
	PERFORM pg_temp.bad('22023', false, 'resolve_unknown(gen_random_uuid(), ''happened'', 0)', 'resolve_unknown(gen_random_uuid(), ''did_not_happen'', -1)', 'begin_effects(''a'', ''{t,u}'', ''{"{}"}'')', 'complete_effects(ARRAY[gen_random_uuid()], 1, ''{}'')');
	PERFORM pg_temp.bad('22P02', false, 'resolve_unknown(gen_random_uuid(), ''perhaps'')', 'release_lease(''lint/live'', 1, ''done'')');
	PERFORM pg_temp.bad('42703', true, 'fenced_insert(''lint/live'', 1, ''lint_sink'', ''{"nope": 1}'')', 'fenced_insert(''lint/live'', 1, ''lint_sink'', ''{"ID": 1}'')', 'keep_token_monotonic(''lint_sink'', ''nope'')');
	PERFORM pg_temp.bad('42P01', false, 'fenced_insert(''lint/live'', 1, 0, ''{}'')', 'fenced_insert(''lint/live'', 1, ''lint_nowhere'', ''{}'')', 'require_fence(''lint_nowhere'')');
	PERFORM pg_temp.bad('42804', true, 'keep_token_monotonic(''lint_sink'', ''v'')');
	PERFORM pg_temp.bad('42809', true, 'require_fence(''pg_stat_activity'')');
	PERFORM pg_temp.bad('42704', false, 'drop_fence(''lint_sink'')', 'grant_worker(''effect_lint_nobody'')', 'grant_approver(''effect_lint_nobody'')', 'set_action(''lint/bad'', usable_by => ''{effect_lint_nobody}'')');
END $do$;
SELECT is(f.state || CASE WHEN b.hinted THEN CASE WHEN length(f.hint) > 10 THEN ', hinted' ELSE ', no hint' END ELSE '' END, b.state || CASE WHEN b.hinted THEN ', hinted' ELSE '' END,
	regexp_replace(b.sql, '\n', ' ', 'g'))
  FROM bad b, pg_temp.failure('SELECT * FROM effect.' || b.sql) f
 ORDER BY n;
SELECT is_empty($$SELECT b.sql, f.message FROM bad b, pg_temp.failure('SELECT * FROM effect.' || b.sql) f WHERE f.message ~ '^[A-Z]' OR f.message ~ '\.$'$$, 'messages are lower-case, without a full stop');
SELECT is((pg_temp.failure('SELECT * FROM effect.keep_token_monotonic(''lint_sink'', ''nope'')')).hint ~ 'new_row', false, 'the hint about new_row is for fenced_insert alone');
SELECT is_empty($$SELECT b.sql, f.message FROM bad b, pg_temp.failure('SELECT * FROM effect.' || b.sql) f WHERE f.state = '22004' AND f.message !~ 'NULL|together|must name'$$, 'what is NULL is named');

-- A table the caller may not write
SET ROLE effect_lint_app;
SELECT throws_ok($$SELECT effect.fenced_insert('lint/live', 1, 'lint_sink', '{"id": 1}')$$, '42501', NULL, 'a table the caller may not write');
SELECT throws_ok($$SELECT effect.require_fence('lint_sink')$$, '42501', NULL, 'or does not own');
SELECT throws_ok($$SET effect.default_timeout = '1s'$$, '42501', NULL, 'policy is for superusers to set');
RESET ROLE;

-- Limits themselves are allowed
SELECT is(verdict::text, 'granted', 'a job key of 255 bytes') FROM effect.claim_lease(repeat('k', 255), repeat('o', 255), '366 days', repeat('f', 255));
SELECT is(verdict::text, 'reserved', 'a target of 1,024 bytes') FROM effect.claim_effect(repeat('a', 255), repeat('t', 1024), terms_shown => repeat('s', 20000), run_id => repeat('r', 255));
SELECT is((SELECT string_agg(name || ' ' || context || ' ' || setting || coalesce(unit, ''), ', ' ORDER BY name COLLATE "C") FROM pg_settings WHERE name LIKE 'effect.%'),
	'effect.after_failover superuser trust, effect.default_settle superuser 60000ms, effect.default_timeout superuser 300000ms, effect.fenced_log_level superuser log, effect.require_registered_actions superuser off, effect.require_registered_jobs superuser off, effect.resolve_backoff_max superuser 3600s, effect.site superuser , effect.stats_flush_interval superuser 60s', 'the settings');
SELECT throws_ok('SET effect.default_timeout = 0', '22023', NULL, 'a timeout of nothing');
SELECT throws_ok('SET effect.default_tiemout = 5', '42602', NULL, 'a setting that is misspelt');

SELECT * FROM finish();
DROP TABLE lint_sink, lint_fenced;
DROP OWNED BY effect_lint_app;
DROP ROLE effect_lint_app;
