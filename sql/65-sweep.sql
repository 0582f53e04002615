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
	'one row: effects created before swept_to have ended, are unknown, or are listed in effect.straggler; and when sweep last ran';
SELECT pg_catalog.pg_extension_config_dump('effect.sweep_state', '');

CREATE TABLE effect.straggler (
	effect_key		uuid NOT NULL,
	CONSTRAINT straggler_pkey PRIMARY KEY (effect_key)
);
COMMENT ON TABLE effect.straggler IS
	'claimed and submitted effects that sweep''s mark has passed';
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
