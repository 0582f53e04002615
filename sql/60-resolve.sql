-- resolve: the way out of unknown.

CREATE FUNCTION effect.resolve_unknown(
	effect_key uuid, finding effect.finding, attempt integer DEFAULT NULL,
	evidence jsonb DEFAULT NULL, response jsonb DEFAULT NULL)
	RETURNS effect.effect_state
	AS 'MODULE_PATHNAME', 'effect_resolve_unknown'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.resolve_unknown(uuid, effect.finding, integer, jsonb, jsonb) IS
	'what someone who looked at the far side found about one attempt; did_not_happen must name the attempt';

