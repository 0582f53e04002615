-- fence: a transaction that says whose it is commits only while that is true.

CREATE FUNCTION effect.fence(job_key text, fencing_token bigint) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_fence'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.fence(text, bigint) IS
	'the current transaction commits only if this token is still the job''s at commit; LE001 if it is not, now or then';

CREATE FUNCTION effect.is_current(job_key text, fencing_token bigint) RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_is_current'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.is_current(text, bigint) IS
	'for a WHERE clause: false means fenced; true fences the transaction as effect.fence does';

CREATE FUNCTION effect.fenced_insert(
	job_key text, fencing_token bigint, target regclass, new_row jsonb)
	RETURNS jsonb
	AS 'MODULE_PATHNAME', 'effect_fenced_insert'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.fenced_insert(text, bigint, regclass, jsonb) IS
	'insert one row as the caller, fenced; the row as stored, NULL: fenced and nothing written';

CREATE FUNCTION effect.require_fence(target regclass, job_key text DEFAULT NULL) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_require_fence'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.require_fence(regclass, text) IS
	'from now on a write to this table needs a fence in its transaction (of that job, where named), else LE007';

CREATE FUNCTION effect.drop_fence(target regclass) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_drop_fence'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.drop_fence(regclass) IS 'take back effect.require_fence';

CREATE FUNCTION effect.keep_token_monotonic(target regclass, token_column name) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_keep_token_monotonic'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.keep_token_monotonic(regclass, name) IS
	'from now on this column of a row never goes down: the store-side check of a fencing token';

CREATE FUNCTION effect.check_fence() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_check_fence'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.check_fence() IS 'the trigger that effect.require_fence puts on a table';

CREATE FUNCTION effect.check_token_monotonic() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_check_token_monotonic'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.check_token_monotonic() IS
	'the trigger that effect.keep_token_monotonic puts on a table';

-- A statement trigger does not follow new partitions, does not see writes that
-- enter through an inheritance parent, and sleeps under the replica role.
CREATE FUNCTION effect.fence_gaps(
	OUT target regclass, OUT gap text, OUT next_step text)
	RETURNS SETOF record
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH RECURSIVE marked AS (
		SELECT t.tgrelid, t.tgname, t.tgenabled
		  FROM pg_catalog.pg_trigger t
		 WHERE t.tgfoid = 'effect.check_fence()'::regprocedure
	), below AS (
		SELECT m.tgrelid AS root, i.inhrelid AS relid, c.relispartition
		  FROM marked m
		  JOIN pg_catalog.pg_inherits i ON i.inhparent = m.tgrelid
		  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
		UNION
		SELECT b.root, i.inhrelid, c.relispartition
		  FROM below b
		  JOIN pg_catalog.pg_inherits i ON i.inhparent = b.relid
		  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
	)
	SELECT b.relid::regclass,
		   CASE WHEN b.relispartition THEN 'partition' ELSE 'child table' END
			 || ' without a fence: a write that names it passes',
		   pg_catalog.format('SELECT effect.require_fence(%L);',
				CASE WHEN b.relispartition THEN b.root ELSE b.relid END::regclass)
	  FROM below b
	  JOIN pg_catalog.pg_class r ON r.oid = b.root
	 WHERE NOT EXISTS (SELECT FROM marked m WHERE m.tgrelid = b.relid)
	   AND NOT (b.relispartition AND r.relispartition)
	 GROUP BY b.relid, b.relispartition, b.root
	UNION ALL
	SELECT i.inhparent::regclass,
		   'inheritance parent without a fence: a write that names it reaches ' || m.tgrelid::regclass::text,
		   pg_catalog.format('SELECT effect.require_fence(%L);', i.inhparent::regclass)
	  FROM marked m
	  JOIN pg_catalog.pg_inherits i ON i.inhrelid = m.tgrelid
	 WHERE NOT EXISTS (SELECT FROM marked p WHERE p.tgrelid = i.inhparent)
	UNION ALL
	SELECT m.tgrelid::regclass, 'trigger is disabled: every write passes',
		   pg_catalog.format('ALTER TABLE %s ENABLE TRIGGER %I;', m.tgrelid::regclass, m.tgname)
	  FROM marked m
	 WHERE m.tgenabled IN ('D', 'R')
	UNION ALL
	SELECT m.tgrelid::regclass, 'this session has the replica role: its writes pass',
		   'SET session_replication_role = origin;'
	  FROM marked m
	 WHERE m.tgenabled IN ('O', 'D')
	   AND pg_catalog.current_setting('session_replication_role') = 'replica'
	UNION ALL
	SELECT m.tgrelid::regclass, 'logical replication writes to it under the replica role: those writes pass',
		   'fence at the publisher, or SELECT effect.keep_token_monotonic(...) here'
	  FROM marked m
	  JOIN pg_catalog.pg_subscription_rel s ON s.srrelid = m.tgrelid
	 WHERE m.tgenabled IN ('O', 'D')
	ORDER BY 1, 2;
	END;
COMMENT ON FUNCTION effect.fence_gaps() IS
	'tables whose required fence can be walked around, how, and the SQL that closes the gap';

