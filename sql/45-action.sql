-- action: a registered kind of effect, and how it is treated.

CREATE TYPE effect.identity AS ENUM ('facts', 'target');
COMMENT ON TYPE effect.identity IS
	'facts: a changed fact is a new effect; target: the target is the caller''s own id, other inputs under it are a mismatch';

CREATE TYPE effect.unknown_policy AS ENUM ('check', 'resend', 'drop');
COMMENT ON TYPE effect.unknown_policy IS
	'what becomes of an unknown effect: somebody looks, it is sent again (at least once), or it stays so (at most once)';

CREATE TABLE effect.action (
	action					text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(action) <= 255),
	key_fields				text[],
	identity				effect.identity NOT NULL,
	on_unknown				effect.unknown_policy NOT NULL,
	resolver				text,
	settle					interval,
	timeout					interval,
	far_side_dedupes_for	interval,
	approvals_required		integer NOT NULL CHECK (approvals_required BETWEEN 0 AND 100),
	approve_within			interval,
	keep_body_for			interval,
	keep_key_for			interval,
	usable_by				name[],
	registered_by			name NOT NULL,
	registered_at			timestamptz NOT NULL,
	changed_at				timestamptz NOT NULL,
	CONSTRAINT action_pkey PRIMARY KEY (action)
);
COMMENT ON TABLE effect.action IS
	'one row a registered kind of effect: how it is keyed, how an unknown one is treated, who may use it';
SELECT pg_catalog.pg_extension_config_dump('effect.action', '');

CREATE FUNCTION effect.set_action(
	action text, key_fields text[] DEFAULT NULL, identity effect.identity DEFAULT NULL,
	on_unknown effect.unknown_policy DEFAULT NULL, resolver text DEFAULT NULL,
	settle interval DEFAULT NULL, timeout interval DEFAULT NULL,
	far_side_dedupes_for interval DEFAULT NULL, approvals_required integer DEFAULT NULL,
	approve_within interval DEFAULT NULL, keep_body_for interval DEFAULT NULL,
	keep_key_for interval DEFAULT NULL, usable_by name[] DEFAULT NULL)
	RETURNS void
	AS 'MODULE_PATHNAME', 'effect_set_action'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.set_action(text, text[], effect.identity, effect.unknown_policy, text, interval,
	interval, interval, integer, interval, interval, interval, name[]) IS
	'register a kind of effect, or change what is named; NULL keeps, ''0'' and ''{}'' and '''' clear';

