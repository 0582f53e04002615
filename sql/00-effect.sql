-- effect: the schema and the words every room shares.
--
-- The script makes the schema itself, so that a stranger's pre-made schema
-- makes CREATE EXTENSION fail and DROP EXTENSION takes it away.

\echo Use "CREATE EXTENSION effect" to load this file. \quit

CREATE SCHEMA effect;
COMMENT ON SCHEMA effect IS 'leases, fencing tokens and the ledger of outside effects';

CREATE TYPE effect.lease_verdict AS ENUM
	('granted', 'held', 'coalesced', 'queued', 'saturated', 'already_ran',
	 'cooling_down', 'paused', 'quarantined');
COMMENT ON TYPE effect.lease_verdict IS 'what a claim of a job''s lease is told';

CREATE TYPE effect.run_outcome AS ENUM
	('running', 'finished', 'failed', 'revoked', 'abandoned', 'fenced');
COMMENT ON TYPE effect.run_outcome IS
	'how a run ended; abandoned: its lease was taken and nobody heard of it again, fenced: it came back and was refused';

CREATE TYPE effect.effect_state AS ENUM ('claimed', 'submitted', 'unknown', 'done');
COMMENT ON TYPE effect.effect_state IS 'where an effect stands in the ledger';

CREATE TYPE effect.effect_verdict AS ENUM
	('reserved', 'go', 'go_after_commit', 'apply', 'done', 'closed', 'busy',
	 'unknown', 'fenced', 'unapproved', 'mismatch', 'quarantined');
COMMENT ON TYPE effect.effect_verdict IS
	'what a caller of the ledger is told; only go, go_after_commit (once committed) and apply allow to act';

CREATE TYPE effect.finding AS ENUM ('happened', 'did_not_happen', 'cannot_tell');
COMMENT ON TYPE effect.finding IS 'what someone who looked at the far side says of one attempt';

-- Bodies are for those who may resolve or approve: monitors see the shape of an effect,
-- not what it was about.
CREATE FUNCTION effect.may_read_bodies() RETURNS boolean
	LANGUAGE sql STABLE
	RETURN pg_catalog.has_function_privilege(
		'effect.resolve_unknown(uuid, effect.finding, integer, jsonb, jsonb)', 'EXECUTE')
		OR pg_catalog.has_function_privilege('effect.approve(uuid, text, text, interval)', 'EXECUTE');
COMMENT ON FUNCTION effect.may_read_bodies() IS
	'whether the current role is shown inputs, terms, responses and evidence in the views';

