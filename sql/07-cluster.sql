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
	epoch				bigint NOT NULL CHECK (epoch >= 0),
	moved_at			timestamptz NOT NULL,
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

