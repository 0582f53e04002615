-- approval: a person's consent to one effect key, spent once.

CREATE TABLE effect.approval (
	effect_key			uuid NOT NULL,
	approver			text NOT NULL CHECK (pg_catalog.octet_length(approver) <= 255),
	approved_at			timestamptz NOT NULL,
	expires_at			timestamptz,
	terms				text,
	role_name			name NOT NULL,
	revoked_at			timestamptz,
	revoked_by			name,
	consumed_at			timestamptz,
	consumed_attempt	integer,
	CONSTRAINT approval_pkey PRIMARY KEY (effect_key, approver),
	CONSTRAINT approval_end CHECK (revoked_at IS NULL OR consumed_at IS NULL),
	CONSTRAINT approval_spent CHECK ((consumed_at IS NULL) = (consumed_attempt IS NULL))
);
COMMENT ON TABLE effect.approval IS
	'who consented to which effect, to what terms, until when, and when it was spent';
SELECT pg_catalog.pg_extension_config_dump('effect.approval', '');

CREATE FUNCTION effect.approve(
	effect_key uuid, approver text, terms text DEFAULT NULL, valid_for interval DEFAULT NULL)
	RETURNS void
	AS 'MODULE_PATHNAME', 'effect_approve'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.approve(uuid, text, text, interval) IS
	'consent to one effect, to its terms as shown, for a while; spent by its submit and by no other effect''s';

CREATE FUNCTION effect.revoke_approval(effect_key uuid, approver text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_revoke_approval'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.revoke_approval(uuid, text) IS
	'take a consent back before it is spent; false: there was none to take back';

CREATE FUNCTION effect.refuse_approval(effect_key uuid, approver text, reason text) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_refuse_approval'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.refuse_approval(uuid, text, text) IS
	'refuse a claimed effect: it is closed, and whoever asks is told why';

CREATE VIEW effect.unused_approvals AS
	SELECT p.effect_key, p.approver, p.role_name, p.approved_at, p.expires_at,
		   CASE WHEN effect.may_read_bodies() THEN p.terms END AS terms,
		   l.action, l.target, l.state
	  FROM effect.approval p
	  LEFT JOIN effect.ledger l ON l.effect_key = p.effect_key
	 WHERE p.consumed_at IS NULL AND p.revoked_at IS NULL;
COMMENT ON VIEW effect.unused_approvals IS
	'approvals given, not revoked, and not spent; action NULL: nobody has claimed that key';

