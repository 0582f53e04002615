-- sweep: what pg_cron calls each minute, and the queue for resolvers outside.
--
-- Nothing depends on it for safety: the reading rules hold without.  It writes
-- down what they say, looks at the far side, and forgets what may be forgotten.

CREATE TABLE effect.sweep_state (
	only_row		boolean NOT NULL DEFAULT true CHECK (only_row),
	swept_to		timestamptz NOT NULL,
	swept_at		timestamptz NOT NULL,
	CONSTRAINT sweep_state_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE effect.sweep_state IS
	'one row: no effect created before swept_to is submitted unseen, and when sweep last ran';
SELECT pg_catalog.pg_extension_config_dump('effect.sweep_state', '');

CREATE TABLE effect.straggler (
	effect_key		uuid NOT NULL,
	CONSTRAINT straggler_pkey PRIMARY KEY (effect_key)
);
COMMENT ON TABLE effect.straggler IS
	'effects that were submitted long after they were created, which sweep would not look at again';
SELECT pg_catalog.pg_extension_config_dump('effect.straggler', '');

CREATE TABLE effect.retention (
	action			text COLLATE "C" NOT NULL,
	what			text COLLATE "C" NOT NULL CHECK (what IN ('bodies', 'keys')),
	pruned_to		timestamptz NOT NULL,
	pass_began		timestamptz NOT NULL,
	pruned			bigint NOT NULL,
	CONSTRAINT retention_pkey PRIMARY KEY (action, what)
);
COMMENT ON TABLE effect.retention IS
	'how far sweep has come with forgetting, and how much it has forgotten';
SELECT pg_catalog.pg_extension_config_dump('effect.retention', '');

CREATE INDEX ledger_created_idx ON effect.ledger (created_at);

CREATE FUNCTION effect.sweep(
	OUT runs_abandoned integer, OUT effects_unknown integer, OUT found_happened integer,
	OUT found_absent integer, OUT still_unclear integer, OUT bodies_pruned integer,
	OUT keys_pruned integer)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_sweep'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.sweep() IS
	'call it each minute: ends expired runs, finds unknown effects, calls their resolvers, forgets what may be forgotten';

CREATE FUNCTION effect.next_unknown(
	owner text, action text DEFAULT NULL, lease_for interval DEFAULT '1 minute',
	OUT effect_key uuid, OUT action text, OUT target text, OUT inputs jsonb, OUT attempt integer,
	OUT submitted_at timestamptz, OUT unknown_since timestamptz, OUT reason text, OUT checks integer,
	OUT late_answer jsonb)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'effect_next_unknown'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.next_unknown(text, text, interval) IS
	'for a resolver outside: the oldest unknown effect that is due a look, hidden from others for a while; no row: none is';

CREATE VIEW effect.unknown_effects AS
	SELECT e.effect_key, e.action, e.target, e.attempt, e.job_key, e.fencing_token, e.submitted_at,
		   COALESCE(e.unknown_since, e.submitted_at) AS unknown_since,
		   pg_catalog.clock_timestamp() - COALESCE(e.unknown_since, e.submitted_at) AS age,
		   e.unknown_reason AS reason, e.checks, e.next_check, u.checked_by,
		   COALESCE(a.on_unknown, 'check') AS on_unknown, a.resolver, e.inputs, e.late_answer
	  FROM effect.effects e
	  LEFT JOIN effect.unknown u ON u.effect_key = e.effect_key
	  LEFT JOIN effect.action a ON a.action = e.action
	 WHERE e.state = 'unknown'
	 ORDER BY unknown_since;
COMMENT ON VIEW effect.unknown_effects IS
	'effects that may have happened, oldest first, with what a superseded run said of them';

CREATE VIEW effect.action_stats AS
	SELECT a.action, a.identity, a.on_unknown, a.resolver, a.approvals_required, a.registered_by,
		   CASE WHEN a.on_unknown = 'drop' THEN 0 ELSE u.n END AS unknown,
		   CASE WHEN a.on_unknown = 'drop' THEN u.n ELSE 0 END AS dropped,
		   u.oldest AS unknown_since,
		   COALESCE(rb.pruned, 0) AS bodies_pruned, COALESCE(rk.pruned, 0) AS keys_pruned,
		   rk.pruned_to AS keys_pruned_to,
		   CASE WHEN a.on_unknown = 'check' AND a.resolver IS NULL
				THEN 'unobserved: register a resolver, or poll effect.next_unknown() from outside' END AS advice
	  FROM effect.action a
	  CROSS JOIN LATERAL (
		SELECT pg_catalog.count(*) AS n, pg_catalog.min(k.since) AS oldest
		  FROM effect.unknown k JOIN effect.ledger l ON l.effect_key = k.effect_key
		 WHERE l.action = a.action) AS u
	  LEFT JOIN effect.retention rb ON rb.action = a.action AND rb.what = 'bodies'
	  LEFT JOIN effect.retention rk ON rk.action = a.action AND rk.what = 'keys';
COMMENT ON VIEW effect.action_stats IS
	'registered actions: how they are treated, how many effects of each are unknown or given up (dropped), and advice';

