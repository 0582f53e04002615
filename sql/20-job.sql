-- job: registered jobs, whose overlap is a decision and never an accident.

CREATE TYPE effect.overlap_policy AS ENUM ('coalesce', 'queue', 'fail');
COMMENT ON TYPE effect.overlap_policy IS
	'what becomes of a firing while a run is live: it is dropped, it waits its turn, or the claim raises LE002';

CREATE TYPE effect.checkpoint_scope AS ENUM ('firing', 'job');
COMMENT ON TYPE effect.checkpoint_scope IS
	'firing: a run that finishes clears the checkpoint; job: it carries over, a cursor';

CREATE TABLE effect.job (
	job_key				text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(job_key) <= 255),
	every				interval,
	overlap				effect.overlap_policy NOT NULL,
	queue_limit			integer CHECK (queue_limit >= 1),
	lease_for			interval,
	at_least_for		interval,
	anchor				timestamptz,
	time_zone			text,
	checkpoint_scope	effect.checkpoint_scope NOT NULL,
	paused				boolean NOT NULL,
	keep_runs_for		interval,
	usable_by			name[],
	registered_by		name NOT NULL,
	registered_at		timestamptz NOT NULL,
	changed_at			timestamptz NOT NULL,
	CONSTRAINT job_pkey PRIMARY KEY (job_key)
);
COMMENT ON TABLE effect.job IS
	'one row a registered job: how often it is due, what becomes of overlap, how long a lease lasts';
SELECT pg_catalog.pg_extension_config_dump('effect.job', '');

CREATE FUNCTION effect.set_job(
	job_key text, every interval DEFAULT NULL, overlap effect.overlap_policy DEFAULT NULL,
	queue_limit integer DEFAULT NULL, lease_for interval DEFAULT NULL,
	at_least_for interval DEFAULT NULL, anchor timestamptz DEFAULT NULL,
	time_zone text DEFAULT NULL, checkpoint_scope effect.checkpoint_scope DEFAULT NULL,
	paused boolean DEFAULT NULL, keep_runs_for interval DEFAULT NULL, usable_by name[] DEFAULT NULL)
	RETURNS void
	AS 'MODULE_PATHNAME', 'effect_set_job'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.set_job(text, interval, effect.overlap_policy, integer, interval, interval,
	timestamptz, text, effect.checkpoint_scope, boolean, interval, name[]) IS
	'register a job, or change what is named; NULL keeps, ''0'' and ''{}'' clear; overlap must be chosen at first';

CREATE FUNCTION effect.drop_job(job_key text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'effect_drop_job'
	LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.drop_job(text) IS
	'the registration goes, with its queued firings; the lease row and its tokens stay';

CREATE FUNCTION effect.firing_of(job_key text, at timestamptz DEFAULT pg_catalog.clock_timestamp())
	RETURNS text
	AS 'MODULE_PATHNAME', 'effect_firing_of'
	LANGUAGE C STABLE PARALLEL UNSAFE;
COMMENT ON FUNCTION effect.firing_of(text, timestamptz) IS
	'the name of the moment this instant belongs to, from every and anchor; a day is a day of time_zone and fires once';

