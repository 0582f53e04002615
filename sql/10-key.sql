-- key: which effect is meant, in 128 bits (src/key.c, src/canonical.c, doc/key.md).
--
-- Immutable in earnest, so that a key may stand in an index or a generated
-- column; not STRICT, since a NULL key would be a dedupe switched off.

CREATE FUNCTION effect.canonical_json(inputs jsonb) RETURNS text
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'effect_canonical_json';
COMMENT ON FUNCTION effect.canonical_json(jsonb) IS
	'the document as RFC 8785 writes it, numbers with their own digits';

CREATE FUNCTION effect.input_digest(inputs jsonb) RETURNS text
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'effect_input_digest';
COMMENT ON FUNCTION effect.input_digest(jsonb) IS
	'sha256 of the canonical document in UTF-8, as 64 lower-case hex digits';

CREATE FUNCTION effect.input_digest(inputs jsonb, VARIADIC fields text[]) RETURNS text
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'effect_input_digest_fields';
COMMENT ON FUNCTION effect.input_digest(jsonb, text[]) IS
	'the same over the named top-level members only; one that is missing is an error';

CREATE FUNCTION effect.effect_key(action text, target text, input_digest text) RETURNS uuid
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'effect_effect_key';
COMMENT ON FUNCTION effect.effect_key(text, text, text) IS
	'the key of an effect: first 128 bits of sha256(action|target|input_digest)';

CREATE FUNCTION effect.facts(VARIADIC "any") RETURNS jsonb
	LANGUAGE C IMMUTABLE PARALLEL SAFE
	AS 'MODULE_PATHNAME', 'effect_facts';
COMMENT ON FUNCTION effect.facts("any") IS
	'inputs from names and typed values in turn, the same under every session setting';
