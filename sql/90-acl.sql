-- acl: nothing is granted to PUBLIC; three grants give the right sets.

CREATE FUNCTION effect.grant_worker(role name) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_grant_worker'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.grant_worker(name) IS
	'let a role claim jobs, attempt effects and fence its writes';

CREATE FUNCTION effect.grant_operator(role name) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_grant_operator'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.grant_operator(name) IS
	'let a role revoke leases, resolve unknown effects and read everything about them';

CREATE FUNCTION effect.grant_monitor(role name) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_grant_monitor'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.grant_monitor(name) IS
	'let a role read the views, without inputs, terms, responses and evidence';

CREATE FUNCTION effect.grant_approver(role name) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_grant_approver'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.grant_approver(name) IS
	'let a role approve, revoke and refuse; in no other set';

-- New functions are executable by PUBLIC until this line, so it stands last.
REVOKE ALL ON ALL ROUTINES IN SCHEMA effect FROM PUBLIC;
