-- cluster: where this database last was, and the epoch that tokens start from.
--
-- The row is written at first use, never here: a row made by the install
-- script would collide with the one a dump brings back.

CREATE TABLE effect.cluster (
	only_row			boolean NOT NULL DEFAULT true CHECK (only_row),
	system_identifier	bigint NOT NULL,
	timeline			integer NOT NULL,
	database_oid		oid NOT NULL,
	table_oid			oid NOT NULL,
	site				text NOT NULL,
	epoch				bigint NOT NULL CHECK (epoch >= 0),
	moved_at			timestamptz NOT NULL,
	quarantined_since	timestamptz,
	quarantine_reason	text,
	CONSTRAINT cluster_pkey PRIMARY KEY (only_row)
);
COMMENT ON TABLE effect.cluster IS
	'one row: the place the tokens were last counted at, and the epoch they count from';
SELECT pg_catalog.pg_extension_config_dump('effect.cluster', '');

CREATE FUNCTION effect.bump_epochs() RETURNS bigint
	AS 'MODULE_PATHNAME', 'effect_bump_epochs'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.bump_epochs() IS
	'operator: start a new epoch and free every lease, after a storage snapshot was restored; returns the epoch';

CREATE FUNCTION effect.quarantine(reason text) RETURNS void
	AS 'MODULE_PATHNAME', 'effect_quarantine'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.quarantine(text) IS
	'operator: from its commit on nothing is claimed or sent from here, until effect.adopt_cluster()';

CREATE FUNCTION effect.adopt_cluster() RETURNS bigint
	AS 'MODULE_PATHNAME', 'effect_adopt_cluster'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.adopt_cluster() IS
	'operator: this place is the one that acts from now on; ends a quarantine, frees every lease, returns the epoch';

