-- checkpoint: where a long job goes on.

CREATE TABLE effect.checkpoint (
	job_key			text COLLATE "C" NOT NULL,
	firing			text COLLATE "C" NOT NULL,
	fencing_token	bigint NOT NULL,
	state			jsonb NOT NULL,
	saved_at		timestamptz NOT NULL,
	CONSTRAINT checkpoint_pkey PRIMARY KEY (job_key, firing)
) WITH (fillfactor = 50);
COMMENT ON TABLE effect.checkpoint IS
	'one row a firing that is not finished, or a job (firing empty): where its next run goes on, saved together with the work up to there';
SELECT pg_catalog.pg_extension_config_dump('effect.checkpoint', '');

CREATE FUNCTION effect.save_checkpoint(job_key text, fencing_token bigint, state jsonb)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_save_checkpoint'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.save_checkpoint(text, bigint, jsonb) IS
	'in the transaction of the batch: both are there or neither; false: fenced; NULL clears';

CREATE FUNCTION effect.get_checkpoint(job_key text) RETURNS jsonb
	AS 'MODULE_PATHNAME', 'effect_get_checkpoint'
	LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000;
COMMENT ON FUNCTION effect.get_checkpoint(text) IS 'the checkpoint that was saved last; claim_lease gives it to the run it is for; NULL: none';

