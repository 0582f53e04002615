-- ledger: one row an effect, keyed by the facts of it.
--
-- No index on what submit and complete change, so their updates stay HOT.
-- (job_key, fencing_token) is how a thief finds what the old run left open; only a
-- takeover changes it.  Fillfactor 45 keeps room on the page for the second version
-- also where a whole batch is begun before it is completed: 100 % HOT then, where
-- 70 has half of that (doc/performance.md).

CREATE TABLE effect.ledger (
	effect_key		uuid NOT NULL,
	action			text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(action) <= 255),
	target			text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(target) <= 1024),
	inputs			jsonb,
	inputs_digest	text COLLATE "C",
	job_key			text COLLATE "C",
	run_id			text,
	fencing_token	bigint NOT NULL CHECK (fencing_token > 0),
	highest_token	bigint,
	attempt			integer NOT NULL CHECK (attempt > 0),
	state			effect.effect_state NOT NULL,
	held			boolean NOT NULL,
	ending			text COLLATE "C"
		CHECK (ending IN ('completed', 'resolved', 'closed', 'applied')),
	reason			text,
	terms_shown		text,
	response		jsonb,
	nonce			uuid,
	busy_until		timestamptz,
	created_at		timestamptz NOT NULL,
	submitted_at	timestamptz,
	updated_at		timestamptz NOT NULL,
	CONSTRAINT ledger_pkey PRIMARY KEY (effect_key),
	CONSTRAINT ledger_ending CHECK ((state = 'done') = (ending IS NOT NULL))
) WITH (fillfactor = 45);
CREATE INDEX ledger_run_idx ON effect.ledger (job_key, fencing_token) WHERE job_key IS NOT NULL;
COMMENT ON TABLE effect.ledger IS
	'one row an effect: what it is, whose attempt it is, how far it got, and the recorded answer';
SELECT pg_catalog.pg_extension_config_dump('effect.ledger', '');

CREATE TABLE effect.unknown (
	effect_key		uuid NOT NULL,
	since			timestamptz NOT NULL,
	reason			text NOT NULL,
	checks			integer NOT NULL DEFAULT 0,
	next_check		timestamptz NOT NULL,
	checked_by		text,
	late_answer		jsonb,
	CONSTRAINT unknown_pkey PRIMARY KEY (effect_key)
);
COMMENT ON TABLE effect.unknown IS
	'one row while an effect is unknown: since when, why, how often it was looked for, and what a superseded run said of it';
SELECT pg_catalog.pg_extension_config_dump('effect.unknown', '');

-- A submitted effect whose holder is superseded, or whose time is up, reads as
-- unknown before anyone has written that down.
CREATE VIEW effect.effects AS
	SELECT l.effect_key, l.action, l.target,
		   CASE WHEN l.state = 'submitted'::effect.effect_state AND NOT a.alive
				THEN 'unknown'::effect.effect_state ELSE l.state END AS state,
		   l.ending, l.attempt, l.job_key, l.run_id, l.fencing_token, l.held AND a.alive AS held,
		   l.created_at, l.submitted_at, l.updated_at, l.busy_until, l.reason,
		   u.since AS unknown_since, u.reason AS unknown_reason, u.checks, u.next_check,
		   CASE WHEN effect.may_read_bodies() THEN l.inputs END AS inputs,
		   CASE WHEN effect.may_read_bodies() THEN l.terms_shown END AS terms_shown,
		   CASE WHEN effect.may_read_bodies() THEN l.response END AS response,
		   CASE WHEN effect.may_read_bodies() THEN u.late_answer END AS late_answer
	  FROM effect.ledger l
	  LEFT JOIN effect.unknown u ON u.effect_key = l.effect_key
	  CROSS JOIN LATERAL (SELECT CASE WHEN l.job_key IS NULL
			THEN l.busy_until > pg_catalog.clock_timestamp()
				 AND NOT EXISTS (SELECT FROM effect.cluster c WHERE c.moved_at > l.updated_at)
			ELSE EXISTS (SELECT FROM effect.lease s
						  WHERE s.job_key = l.job_key
							AND s.fencing_token = l.fencing_token
							AND s.owner IS NOT NULL) END) AS a(alive);
COMMENT ON VIEW effect.effects IS
	'every effect as it reads now; inputs, terms, responses and evidence are NULL for roles that may not resolve';

CREATE FUNCTION effect.claim_effect(
	action text, target text, inputs jsonb DEFAULT '{}',
	job_key text DEFAULT NULL, fencing_token bigint DEFAULT NULL,
	terms_shown text DEFAULT NULL, run_id text DEFAULT NULL, nonce uuid DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_claim_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.claim_effect(text, text, jsonb, text, bigint, text, text, uuid) IS
	'reserve an effect: reserved, or what became of it; nothing may be sent before submit_effect';

CREATE FUNCTION effect.begin_effect(
	action text, target text, inputs jsonb DEFAULT '{}',
	job_key text DEFAULT NULL, fencing_token bigint DEFAULT NULL,
	terms_shown text DEFAULT NULL, run_id text DEFAULT NULL, nonce uuid DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_begin_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.begin_effect(text, text, jsonb, text, bigint, text, text, uuid) IS
	'claim and submit in one call: go means act now, go_after_commit means COMMIT first';

CREATE FUNCTION effect.begin_effects(
	action text, targets text[], inputs jsonb[] DEFAULT NULL,
	job_key text DEFAULT NULL, fencing_token bigint DEFAULT NULL, run_id text DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text,
	OUT target text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'effect_begin_effects'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.begin_effects(text, text[], jsonb[], text, bigint, text) IS
	'begin_effect for each element, one row an element, in order; for rows of a query, aggregate them into the array first';

CREATE FUNCTION effect.submit_effect(
	effect_key uuid, fencing_token bigint, nonce uuid DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_submit_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.submit_effect(uuid, bigint, uuid) IS
	'write down that you are about to act: go means act now, go_after_commit means COMMIT first';

CREATE FUNCTION effect.complete_effect(
	effect_key uuid, fencing_token bigint, response jsonb DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_complete_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.complete_effect(uuid, bigint, jsonb) IS
	'record the far side''s answer; fenced: your answer is kept as evidence and changes nothing';

CREATE FUNCTION effect.complete_effects(
	effect_keys uuid[], fencing_token bigint, responses jsonb[] DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'effect_complete_effects'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.complete_effects(uuid[], bigint, jsonb[]) IS
	'complete_effect for each element, one row an element, in order';

CREATE FUNCTION effect.retract_effect(
	effect_key uuid, fencing_token bigint, evidence jsonb DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_retract_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.retract_effect(uuid, bigint, jsonb) IS
	'the holder''s word that nothing happened at the far side: back to claimed, held by nobody; when in doubt, mark_unknown';

CREATE FUNCTION effect.mark_unknown(
	effect_key uuid, fencing_token bigint, reason text,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_mark_unknown'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.mark_unknown(uuid, bigint, text) IS
	'the holder (or, with a NULL token, an operator) cannot say what happened: nobody acts until someone has looked';

CREATE FUNCTION effect.close_effect(
	effect_key uuid, reason text, response jsonb DEFAULT NULL,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_close_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.close_effect(uuid, text, jsonb) IS
	'end a claimed effect that is no longer wanted; whoever asks later is told closed, with the reason';

CREATE FUNCTION effect.reopen_effect(
	effect_key uuid, reason text,
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_reopen_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.reopen_effect(uuid, text) IS
	'operator: undo a wrong ending; the effect is unknown until someone has looked again';

CREATE FUNCTION effect.explain_effect(
	action text, target text, inputs jsonb DEFAULT '{}',
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_explain_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.explain_effect(text, text, jsonb) IS
	'what claim_effect would answer now and why; writes nothing and never says go';

CREATE FUNCTION effect.apply_effect(
	action text, target text, inputs jsonb DEFAULT '{}',
	OUT verdict effect.effect_verdict, OUT effect_key uuid, OUT fencing_token bigint,
	OUT state effect.effect_state, OUT attempt integer, OUT response jsonb, OUT detail text)
	RETURNS record
	AS 'MODULE_PATHNAME', 'effect_apply_effect'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.apply_effect(text, text, jsonb) IS
	'an effect inside this database: apply means do it in this transaction, done means it was, with its response';

CREATE FUNCTION effect.once(action text, target text, inputs jsonb DEFAULT '{}') RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_once'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.once(text, text, jsonb) IS
	'true the first time, false ever after; the record commits or rolls back with the caller''s work';

CREATE FUNCTION effect.once(action text, targets text[]) RETURNS SETOF text
	AS 'MODULE_PATHNAME', 'effect_once_array'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.once(text, text[]) IS
	'those of the targets that are new, in input order; a repeat in the array counts once';

