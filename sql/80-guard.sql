-- guard: the promises that hold against plain SQL.
--
-- Ordinary triggers, so that logical replication applies what the publisher
-- allowed.  No guard fires on INSERT: a restore must be able to load the rows.

CREATE FUNCTION effect.guard_keep() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_keep'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_keep() IS 'refuses DELETE and TRUNCATE of rows that are kept, and UPDATE of rows that never change (LE012)';

CREATE FUNCTION effect.guard_lease() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_lease'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_lease() IS 'refuses a lower token, and another holder under the same one (LE012)';

CREATE FUNCTION effect.guard_run() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_run'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_run() IS 'refuses a second end of a run (LE012)';

CREATE FUNCTION effect.guard_ledger() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_ledger'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_ledger() IS 'refuses a changed effect, a lower attempt and a backward state (LE012)';

CREATE FUNCTION effect.guard_unknown() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_unknown'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_unknown() IS 'refuses to forget an effect that is still unknown (LE012)';

CREATE FUNCTION effect.guard_cluster() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_cluster'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_cluster() IS 'refuses a lower epoch (LE012)';

CREATE FUNCTION effect.guard_approval() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_approval'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_approval() IS 'refuses to take back an approval that was spent (LE012)';

CREATE FUNCTION effect.guard_firing() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_firing'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_firing() IS 'refuses to change or forget a finished firing (LE012)';

CREATE FUNCTION effect.guard_checkpoint() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_guard_checkpoint'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.guard_checkpoint() IS 'refuses a checkpoint under a lower token (LE012)';

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.lease
	FOR EACH ROW EXECUTE FUNCTION effect.guard_lease();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.lease
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.lease
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.run
	FOR EACH ROW EXECUTE FUNCTION effect.guard_run();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.run
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.run
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.firing
	FOR EACH ROW EXECUTE FUNCTION effect.guard_firing();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.firing
	FOR EACH ROW EXECUTE FUNCTION effect.guard_firing();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.firing
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.ledger
	FOR EACH ROW EXECUTE FUNCTION effect.guard_ledger();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.ledger
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.ledger
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.unknown
	FOR EACH ROW EXECUTE FUNCTION effect.guard_unknown();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.unknown
	FOR EACH ROW EXECUTE FUNCTION effect.guard_unknown();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.unknown
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.cluster
	FOR EACH ROW EXECUTE FUNCTION effect.guard_cluster();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.cluster
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.cluster
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.journal_entry
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.journal_entry
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.journal_entry
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.approval
	FOR EACH ROW EXECUTE FUNCTION effect.guard_approval();
CREATE TRIGGER guard_delete BEFORE DELETE ON effect.approval
	FOR EACH ROW EXECUTE FUNCTION effect.guard_keep();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.approval
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

CREATE TRIGGER guard_update BEFORE UPDATE ON effect.checkpoint
	FOR EACH ROW EXECUTE FUNCTION effect.guard_checkpoint();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON effect.checkpoint
	FOR EACH STATEMENT EXECUTE FUNCTION effect.guard_keep();

-- The registries are not guarded, but remembered by every backend: each change
-- tells them to forget.  A row at a time, and ALWAYS, since the apply worker of
-- logical replication fires nothing else.

CREATE FUNCTION effect.registry_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'effect_registry_changed'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.registry_changed() IS 'tells every backend to forget what it remembers of a registry';

CREATE TRIGGER registry_changed AFTER INSERT OR UPDATE OR DELETE ON effect.job
	FOR EACH ROW EXECUTE FUNCTION effect.registry_changed();
CREATE TRIGGER registry_truncated AFTER TRUNCATE ON effect.job
	FOR EACH STATEMENT EXECUTE FUNCTION effect.registry_changed();
ALTER TABLE effect.job ENABLE ALWAYS TRIGGER registry_changed;
ALTER TABLE effect.job ENABLE ALWAYS TRIGGER registry_truncated;

CREATE TRIGGER registry_changed AFTER INSERT OR UPDATE OR DELETE ON effect.action
	FOR EACH ROW EXECUTE FUNCTION effect.registry_changed();
CREATE TRIGGER registry_truncated AFTER TRUNCATE ON effect.action
	FOR EACH STATEMENT EXECUTE FUNCTION effect.registry_changed();
ALTER TABLE effect.action ENABLE ALWAYS TRIGGER registry_changed;
ALTER TABLE effect.action ENABLE ALWAYS TRIGGER registry_truncated;
